//! Operations that synchronize queues: one waits for a CQ, or lets another run.

use mlx5_sys::ifc::Field;
use mlx5_sys::wqe::{QueueSeg, opcode};

use crate::ib::Transport;
use crate::wqe::encode::setters;
use crate::wqe::{Code, Encode, Limits, Operation, PostError, PostOn, Segment, Segments};

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

/// Waits until the device's clock has reached a time. Requests posted behind it wait, too: so a packet is
/// sent at a time.
///
/// The device needs [`CAPABILITY`](Self::CAPABILITY) (`wait_on_time`, ConnectX-7 on), and a real-time
/// clock for [`real_time`](Self::real_time).
///
/// ```
/// use mlx5::wqe::unproven::WaitUntil;
///
/// // 1 s and 500 ns after the epoch of the device's real-time clock.
/// let wait = WaitUntil::real_time(1, 500);
/// assert_eq!(wait.time(), 1 << 32 | 500);
/// ```
#[doc(alias("MLX5_OPCODE_WAIT", "MLX5_OPC_MOD_WAIT_TIME", "wait_on_time"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct WaitUntil {
    time: u64,
    mask: u64,
    flags: u8,
}

impl WaitUntil {
    /// The capability that it needs, of the general capabilities: check it with
    /// [`Capabilities::require`](crate::devx::Capabilities::require). DPDK `mlx5_prm.h`.
    pub const CAPABILITY: Field = Field::new(0xd0, 19, 1);

    /// Waits until the clock, of which only the bits of `mask` are compared, has reached `time`, in the
    /// form of the timestamps of the queue.
    pub const fn new(time: u64, mask: u64) -> Self {
        Self { time, mask, flags: 0 }
    }

    /// Waits until a time of the real-time clock.
    pub const fn real_time(seconds: u32, nanoseconds: u32) -> Self {
        Self::new((seconds as u64) << 32 | nanoseconds as u64, u64::MAX)
    }

    setters!(signaled);

    /// Returns the time.
    pub const fn time(&self) -> u64 {
        self.time
    }
}

impl Operation for WaitUntil {
    const OPCODE: u8 = opcode::WAIT;

    #[inline(always)]
    fn code(&self) -> Code {
        /// `MLX5_OPC_MOD_WAIT_TIME`
        const TIME: u8 = 2;
        Code::modified(Self::OPCODE, TIME)
    }
}

impl Encode for WaitUntil {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        2
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    /// `mlx5_wqe_wseg` (DPDK `mlx5_prm.h`, `mlx5_tx_wseg_init`): condition and lkey, address, value, mask.
    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        /// `MLX5_WAIT_COND_CYCLIC_SMALLER`
        const CYCLIC_SMALLER: u64 = 5;
        // SAFETY: the segments that `body_ds` counts.
        unsafe {
            writer.put([(CYCLIC_SMALLER << 32).to_be(), 0]);
            writer.put([self.time.to_be(), self.mask.to_be()]);
        }
    }
}

impl<T: Transport> PostOn<T> for WaitUntil {}

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
