//! Requests and reports as values: WQEs with their decoder, completions and events.
//!
//! This module does not access a device. `queue/` fetches and writes these values, `transport/`
//! executes them, and objects keep some of them.

mod access;
mod completion;
pub(crate) mod decode;
mod ethernet;
mod event;
mod extended;
mod klm;
mod receive;
pub(crate) mod tags;
pub(crate) mod umr;
mod wqe;

pub use access::{Access, Denied};
pub use completion::{Completion, Opcode, Origin, Outcome};
pub use ethernet::{EthernetSegment, Part, Seen};
pub(crate) use event::CqFailure;
pub use event::{QpEvent, SrqEvent, TargetEvent};
pub use extended::{LARGEST, LOG_MAX_ATOMIC, Local, Masked, answered};
pub use klm::Klm;
#[cfg(test)]
pub(crate) use receive::END;
pub(crate) use receive::{TWO_GIB, list};
pub use tags::{HEADER, Met, Rendezvous, TagEvent, TagRequest, Tagged};
pub use umr::{Entries, Umr};
pub use wqe::{
    Address, Atomic, Data, Domain, Extended, Fence, ReceiveWqe, Remote, SendWqe, Signal, Taken,
};

/// The result of fetching from a send queue.
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
