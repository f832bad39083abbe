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
mod reason;
mod receive;
mod syndrome;
pub(crate) mod tags;
pub(crate) mod umr;
mod wqe;

pub use access::{Access, Denied};
pub use completion::{Completion, Opcode, Origin, Outcome};
pub use ethernet::{EthernetSegment, Part, Seen, TAGGED};
pub(crate) use event::CqFailure;
pub use event::{QpEvent, SrqEvent, TargetEvent};
pub use extended::{LARGEST, LOG_MAX_ATOMIC, Local, Masked, Until, answered};
pub use klm::Klm;
pub use reason::{FOREIGN, Reason, Refusal, Region};
#[cfg(test)]
pub(crate) use receive::END;
pub(crate) use receive::{TWO_GIB, list};
pub use syndrome::{CQ_FAILED, Flush, Protection, Syndrome};
pub use tags::{HEADER, Met, Rendezvous, TagEvent, TagRequest, Tagged};
pub use umr::{Entries, Umr};
pub use wqe::{
    Address, Atomic, Data, Domain, Extended, FailedWqe, Fence, ReceiveWqe, Remote, SendWqe, Signal,
    Taken,
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
