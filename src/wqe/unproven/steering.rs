//! Operations that synchronize queues: one waits for a CQ, or lets another run.

use mlx5_sys::wqe::QueueSeg;

use crate::ib::Transport;
use crate::wqe::encode::setters;
use crate::wqe::{PostOn, Segment};

/// Waits until a CQ has had this many completions. Requests posted behind it wait, too.
///
/// Only queue pairs that were created to steer others may wait (QPC's `cd_master`), and verbs has
/// no flag for it. On others it fails with a local QP operation error.
///
/// ```
/// use mlx5::wqe::Operation;
/// use mlx5::wqe::unproven::Wait;
///
/// // Continues when CQ 0x123 has had 16 completions.
/// let wait = Wait::new(0x123, 16).signaled();
/// assert_eq!(Wait::OPCODE, 0x0f);
/// ```
#[doc(alias = "MLX5_OPCODE_WAIT")]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Wait {
    cqn: u32,
    count: u32,
    flags: u8,
}

impl Wait {
    /// Waits until CQ `cqn` (24 bits) has had `count` completions since it was made, modulo 2^24.
    pub const fn new(cqn: u32, count: u32) -> Self {
        Self { cqn, count, flags: 0 }
    }

    setters!(signaled);

    #[inline(always)]
    fn segment(&self) -> Segment {
        queue_segment(self.cqn, self.count)
    }
}

/// Lets a send queue run that waits to be enabled (QPC's `cd_slave_send`).
///
/// Only for queue pairs that were created to steer others, see [`Wait`].
///
/// ```
/// use mlx5::wqe::Operation;
/// use mlx5::wqe::unproven::SendEnable;
///
/// // Lets queue pair 0x456 run its first 4 blocks.
/// let enable = SendEnable::new(0x456, 4).signaled();
/// assert_eq!(SendEnable::OPCODE, 0x17);
/// ```
#[doc(alias = "MLX5_OPCODE_SEND_ENABLE")]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SendEnable {
    qpn: u32,
    upto: u16,
    flags: u8,
}

impl SendEnable {
    /// Lets the send queue of queue pair `qpn` (24 bits) run up to its producer counter `upto`, in
    /// blocks of 64 bytes since RESET, modulo 2^16.
    pub const fn new(qpn: u32, upto: u16) -> Self {
        Self { qpn, upto, flags: 0 }
    }

    setters!(signaled);

    #[inline(always)]
    fn segment(&self) -> Segment {
        queue_segment(self.qpn, self.upto.into())
    }
}

/// DPDK `mlx5_txpp.c` and Mellanox OFED's libmlx5 (`set_wait_en_seg`) post it this way.
#[inline(always)]
fn queue_segment(number: u32, index: u32) -> Segment {
    zerocopy::transmute!(QueueSeg {
        reserved: 0.into(),
        max_index: index.into(),
        qpn_cqn: (number & 0xff_ffff).into(),
    })
}

one_segment!(Wait, WAIT);
one_segment!(SendEnable, SEND_EN);

impl<T: Transport> PostOn<T> for Wait {}
impl<T: Transport> PostOn<T> for SendEnable {}
