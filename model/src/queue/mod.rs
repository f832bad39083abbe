//! Work queues and completion queues as the card sees them: WQEs in, CQEs and EQEs out.
//!
//! The transport asks for the next send WQE ([`Card::fetch_send`]) or receive WQE
//! ([`Card::take_receive`]), moves bytes through mkeys ([`Card::gather`], [`Card::scatter`] and the
//! remote accesses), and reports how each ended ([`Card::complete`]).
//!
//! [`Card::fetch_send`]: crate::card::Card::fetch_send
//! [`Card::take_receive`]: crate::card::Card::take_receive
//! [`Card::gather`]: crate::card::Card::gather
//! [`Card::scatter`]: crate::card::Card::scatter
//! [`Card::complete`]: crate::card::Card::complete

mod bind;
mod completion;
mod compress;
mod counters;
mod cq;
mod doorbell;
mod event;
mod indirect;
mod local;
mod moderate;
mod prefetch;
mod receive;
mod record;
mod send;
mod shared;
mod tags;
#[cfg(test)]
mod test;
mod translate;

pub use compress::MAX_BLOCK;
pub(crate) use compress::asked_for;
pub(crate) use doorbell::{RECORDLESS, blueflame_end};
pub(crate) use translate::{DUMP_FILL, INDIRECTION, NULL, RESERVED};

pub use crate::object::{Compression, Layout, MiniFormat, Untold};
pub use crate::work::{
    Access, Address, Atomic, Completion, Data, Denied, Domain, Entries, EthernetSegment, Extended,
    FailedWqe, Fence, Fetch, Flush, HEADER, LARGEST, Local, Masked, Met, Opcode, Origin, Part,
    Protection, QpEvent, ReceiveWqe, Remote, Rendezvous, Seen, SendWqe, Signal, SrqEvent, Syndrome,
    TagEvent, TagRequest, Tagged, Taken, TargetEvent, Umr, Until, answered,
};

#[cfg(test)]
mod tests;
