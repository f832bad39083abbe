//! Work queues and completion queues as the card sees them: WQEs in, CQEs and EQEs out.
//!
//! The transport asks for the next send WQE ([`Card::fetch_send`]) or receive WQE
//! ([`Card::take_receive`]), moves bytes through mkeys ([`Card::gather`], [`Card::scatter`] and the
//! remote accesses), and reports how each ended ([`Card::complete`]).

mod completion;
mod decode;
mod doorbell;
mod event;
mod receive;
mod send;
mod translate;
mod wqe;

pub use completion::{Completion, Opcode, Origin};
pub(crate) use doorbell::Registers;
pub use event::QpEvent;
pub use translate::{Access, Denied};
pub use wqe::{Atomic, Data, Fence, ReceiveWqe, Remote, SendWqe, Signal};

/// What fetching from a send queue gave.
#[derive(Clone, Debug)]
pub enum Fetch {
    /// Nothing more is posted, or the queue's state does not allow it.
    Empty,
    /// The next request.
    Wqe(SendWqe),
    /// The next WQE cannot be executed; the queue pair has to fail with this syndrome.
    Malformed {
        /// Counter of its first block.
        index: u16,
        /// Its opcode byte.
        opcode: u8,
        /// Why.
        syndrome: Syndrome,
    },
}

/// Syndrome of an error CQE (`mlx5dv.h`, `MLX5_CQE_SYNDROME_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Syndrome {
    LocalLength = 0x01,
    LocalQpOperation = 0x02,
    LocalProtection = 0x04,
    Flushed = 0x05,
    MemoryWindowBind = 0x06,
    BadResponse = 0x10,
    LocalAccess = 0x11,
    RemoteInvalidRequest = 0x12,
    RemoteAccess = 0x13,
    RemoteOperation = 0x14,
    TransportRetriesExceeded = 0x15,
    RnrRetriesExceeded = 0x16,
    RemoteAborted = 0x22,
}

impl Syndrome {
    /// The vendor code that cards are publicly known to report with it; 0 where none is known.
    pub const fn vendor_code(self) -> u8 {
        match self {
            Self::LocalProtection => 0x51,
            Self::LocalQpOperation => 0x68,
            Self::Flushed => 0xf9,
            Self::RemoteInvalidRequest => 0x8a,
            Self::RemoteAccess => 0x88,
            Self::TransportRetriesExceeded => 0x81,
            _ => 0,
        }
    }
}
