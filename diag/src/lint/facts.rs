//! The known facts about a send queue.

use core::fmt;
use core::str::FromStr;

use mlx5_sys::wqe::{MAX_DS, opcode};

use crate::text::Addressing;

/// The transport of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection, the requesting end.
    Xrc,
    /// Initiator of dynamic connections.
    Dci,
    /// Frames of Ethernet: a raw packet queue pair, or an SQ made by command.
    RawPacket,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 6] = [
        Transport::Rc,
        Transport::Uc,
        Transport::Ud,
        Transport::Xrc,
        Transport::Dci,
        Transport::RawPacket,
    ];

    /// Returns its short name, which [`FromStr`] takes.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Rc => "rc",
            Transport::Uc => "uc",
            Transport::Ud => "ud",
            Transport::Xrc => "xrc",
            Transport::Dci => "dci",
            Transport::RawPacket => "raw",
        }
    }

    /// Returns the transport of a service type in a queue pair context (`qpc.st`). `None` for
    /// service types that no verbs send queue has.
    pub const fn of_service(st: u8) -> Option<Transport> {
        Some(match st {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Ud,
            3 => Transport::Xrc,
            5 => Transport::Dci,
            9 => Transport::RawPacket,
            _ => return None,
        })
    }

    /// Returns the segments that it puts before the operation's own segments.
    pub const fn addressing(self) -> Addressing {
        match self {
            Transport::Rc | Transport::Uc => Addressing::Connected,
            Transport::Ud | Transport::Dci => Addressing::Datagram,
            Transport::Xrc => Addressing::Xrc,
            Transport::RawPacket => Addressing::Ethernet,
        }
    }

    /// Returns whether queues of it execute the opcode. Of RC, UC, XRC and DC as libmlx5 offers
    /// operations (rdma-core `providers/mlx5/qp.c`, `MLX5_SUPPORTED_SEND_OPS_FLAGS_*`), and what an
    /// HCA executes that libmlx5 does not post.
    pub(super) const fn executes(self, code: u8) -> bool {
        match code {
            opcode::NOP | opcode::WAIT | opcode::SEND_EN => true,
            opcode::SEND => true,
            opcode::SEND_IMM => !matches!(self, Transport::RawPacket),
            opcode::SEND_INVAL
            | opcode::RDMA_WRITE
            | opcode::RDMA_WRITE_IMM
            | opcode::UMR
            | opcode::SET_PSV => !matches!(self, Transport::Ud | Transport::RawPacket),
            opcode::RDMA_READ
            | opcode::ATOMIC_CS
            | opcode::ATOMIC_FA
            | opcode::ATOMIC_MASKED_CS
            | opcode::ATOMIC_MASKED_FA => {
                matches!(self, Transport::Rc | Transport::Xrc | Transport::Dci)
            }
            opcode::MMO => !matches!(self, Transport::Ud | Transport::Uc | Transport::RawPacket),
            opcode::TAG_MATCHING => matches!(self, Transport::Rc),
            opcode::TSO | opcode::DUMP | opcode::ENHANCED_MPSW => {
                matches!(self, Transport::RawPacket)
            }
            // Of the others nothing is published that would forbid them anywhere.
            _ => true,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Ud => "UD",
            Transport::Xrc => "XRC",
            Transport::Dci => "DC",
            Transport::RawPacket => "raw packet",
        })
    }
}

/// No transport has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTransport;

impl fmt::Display for UnknownTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no transport has this name: rc, uc, ud, xrc, dci and raw do")
    }
}

impl std::error::Error for UnknownTransport {}

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Transport::ALL
            .into_iter()
            .find(|transport| transport.name().eq_ignore_ascii_case(name))
            .ok_or(UnknownTransport)
    }
}

bitflags::bitflags! {
    /// Capabilities that not every HCA has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Capabilities: u32 {
        /// Atomics on 8 bytes.
        const ATOMIC = 1 << 0;
        /// Atomics under masks.
        const MASKED_ATOMIC = 1 << 1;
        /// Keys are changed by WQEs (UMR), also when windows are bound.
        const UMR = 1 << 2;
        /// TCP segmentation.
        const TSO = 1 << 3;
        /// Copies by the HCA.
        const MMO = 1 << 4;
        /// Lists of tags.
        const TAG_MATCHING = 1 << 5;
        /// Queues that wait for others, and release others.
        const CROSS_CHANNEL = 1 << 6;
        /// Several packets of Ethernet in one WQE.
        const MULTI_PACKET = 1 << 7;
    }
}

impl Capabilities {
    /// Returns the capabilities that an opcode needs.
    pub(super) const fn needed(code: u8) -> Capabilities {
        match code {
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => Capabilities::ATOMIC,
            opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => Capabilities::MASKED_ATOMIC,
            opcode::UMR | opcode::SET_PSV => Capabilities::UMR,
            opcode::TSO => Capabilities::TSO,
            opcode::MMO => Capabilities::MMO,
            opcode::TAG_MATCHING => Capabilities::TAG_MATCHING,
            opcode::WAIT | opcode::SEND_EN => Capabilities::CROSS_CHANNEL,
            opcode::ENHANCED_MPSW => Capabilities::MULTI_PACKET,
            _ => Capabilities::empty(),
        }
    }
}

/// The known facts about a send queue. Facts that are `None` are not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The transport.
    pub transport: Transport,
    /// Number of the queue pair. `None`: all WQEs must have that of the first.
    pub qpn: Option<u32>,
    /// Size of the ring in 64-byte blocks, a power of two. A ring that is checked as a whole says
    /// it itself.
    pub blocks: Option<u32>,
    /// Largest size of a WQE in 16-byte units.
    pub max_ds: u32,
    /// Scatter/gather entries in a WQE.
    pub max_sge: Option<u32>,
    /// Bytes of inline payload in a WQE.
    pub max_inline: Option<u32>,
    /// CQEs that WQEs of this queue may have outstanding.
    pub cqes: Option<u32>,
    /// The queue pair was made to signal every request (`sq_sig_all`): software says so in each
    /// WQE.
    pub signal_all: bool,
    /// The queue pair was made to check signatures of WQEs.
    pub signatures: bool,
    /// Bytes of a frame that must be in the WQE, on queues of Ethernet.
    pub min_header: u32,
    /// The capabilities of the HCA.
    pub capabilities: Capabilities,
    /// Whether bytes are to be zero that no HCA looks at: words of the ring's lap before. libmlx5
    /// leaves some of them as they were, so its queues are not strict.
    pub strict: bool,
}

impl Facts {
    /// That nothing is known but the transport.
    pub const fn new(transport: Transport) -> Facts {
        Facts {
            transport,
            qpn: None,
            blocks: None,
            max_ds: MAX_DS as u32,
            max_sge: None,
            max_inline: None,
            cqes: None,
            signal_all: false,
            signatures: false,
            min_header: 0,
            capabilities: Capabilities::all(),
            strict: false,
        }
    }
}
