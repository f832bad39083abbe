//! Ethernet queues, and the objects that direct packets to and from them.

use mlx5_sys::ifc::{Field, tirc, tisc};

use crate::work::ReceiveWqe;

/// A receive queue whose WQEs are cut into strides: a packet takes as many as it needs, and a WQE
/// is used up when its last stride is.
#[derive(Clone, Debug)]
pub struct Strides {
    /// Bytes of a stride.
    pub size: u32,
    /// Strides of a WQE.
    pub count: u32,
    /// Whether a packet starts two bytes into its first stride, so that what follows its Ethernet
    /// header is aligned.
    pub shift: bool,
    /// The WQE in use, and how many of its strides are taken.
    pub current: Option<(ReceiveWqe, u32)>,
}

/// Ways of a TIR (`mlx5_ifc.h`, `MLX5_TIRC_DISP_TYPE_*`): to one queue, or through a table.
pub const DIRECT: u32 = 0;
/// See [`DIRECT`].
pub const INDIRECT: u32 = 1;

/// Transport interface receive: which receive queue packets go to.
#[derive(Clone, Debug)]
pub struct Tir {
    /// User context that made it.
    pub uid: u16,
    /// The context as commands have set it.
    pub context: Box<[u8; tirc::SIZE]>,
    /// Whether MODIFY_TIR has turned on the check of packets that the TIR's own transport domain sent.
    pub checks_loopback: bool,
}

impl Tir {
    /// Returns whether it blocks a packet that a transport domain of the device has sent.
    ///
    /// The bits of `self_lb_block` (1 for unicast, 2 for groups) let packets pass the check, against
    /// their name: Linux sets them where a program allows loopback (`qp.c`, ALLOW_SELF_LB_UC and _MC) and
    /// for its loopback test (`en_common.c`, mlx5e_modify_tirs_lb), and DPDK for `lpbk_mode`. Linux
    /// turns on the check without them, so that the interface does not hear its own groups.
    pub fn blocks(&self, domain: u32, is_group: bool) -> bool {
        let passes = if is_group { 2 } else { 1 };
        self.checks_loopback
            && self.get(tirc::TRANSPORT_DOMAIN) == domain
            && self.get(tirc::SELF_LB_BLOCK) & passes == 0
    }

    /// A field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }
}

/// Receive queues among which packets are spread.
#[derive(Clone, Debug)]
pub struct Rqt {
    /// User context that made it.
    pub uid: u16,
    /// How many it may have at most.
    pub room: u32,
    /// Their numbers, a power of two of them.
    pub queues: Vec<u32>,
}

/// Transport interface send.
#[derive(Clone, Debug)]
pub struct Tis {
    /// User context that made it.
    pub uid: u16,
    /// The context as commands have set it.
    pub context: Box<[u8; tisc::SIZE]>,
}

impl Tis {
    /// A field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }
}
