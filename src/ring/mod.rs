//! The rings that software and HCA share: send queue, receive queue, completion queue.
//!
//! [`SendQueue`] and [`ReceiveQueue`] write WQEs and ring. [`CqReader`] reads CQEs and tells
//! each queue what is retired. [`Srq`] is a receive queue of many queue pairs, and
//! [`TmSrq`] one that matches tags. Each is taken over from an object of verbs, made by
//! this crate or by others, or from one made by firmware command. From then on it belongs to one
//! owner: methods take `&mut self`, and there are no locks, allocations or system calls. Data that
//! the HCA could overwrite is never trusted: ids and indices are in private memory.
//!
//! This is the raw layer: the HCA reads and writes memory after a post returned. So committing a
//! WQE is `unsafe`, at one place per queue, whose contract says which memory must stay alive until
//! which completion. [`endpoint`](crate::endpoint) is the layer on top that owns the memory and
//! needs no `unsafe`.

// First: rustdoc lists the methods of a type in the order of these modules.
pub(crate) mod completion;
pub(crate) mod receive;
mod send;
mod srq;

mod batch;
mod block;
mod collapsed;
mod consumer;
mod cq_slots;
mod cursor;
mod dedicated;
mod dynamic;
mod enhanced;
mod health;
mod keep;
mod keys;
mod known;
mod long;
mod observed;
pub(crate) mod own;
mod peek;
mod prepared;
mod probe;
mod queues;
#[cfg(test)]
pub(crate) mod random;
mod ready;
mod release;
mod retire;
mod scatter;
mod send_ring;
mod shadow;
mod shared;
mod slots;
pub(crate) mod source;
pub(crate) mod state;
mod sweep;
mod tags;
#[cfg(test)]
mod tests;
mod upkeep;
mod written;

pub use crate::doorbell::{BlueFlameCopy, CopyUnavailable, UarMapping};
pub use crate::error::{DrainError, PollError, PostError, ProbeError, QueueError, TagError};
pub use batch::Batch;
pub use collapsed::CollapsedCqReader;
pub use completion::CqReader;
pub use consumer::Publish;
pub use dedicated::{DedicatedRegister, Turn};
pub(crate) use enhanced::Titles;
pub use peek::Peeked;
pub use prepared::Prepared;
pub use probe::{CopyProbe, CopyTime};
pub use queues::Queues;
pub(crate) use receive::ReceiveSide;
pub use receive::{
    Packet, PacketEvent, PacketRq, ReceiveBatch, ReceiveConfig, ReceiveQueue, StridingRq,
};
pub(crate) use retire::SendSide;
pub use send::{RegisterUse, SendConfig, SendQueue};
pub use shared::{Producer, Retirer};
pub use source::{CompletionSource, ReceiveSource, SendSource, SharedReceiveSource};
pub(crate) use srq::Numbers;
pub use srq::{QueueTable, SharedKey, Srq};
pub(crate) use srq::{number as shared_receive_number, view_of as shared_receive_view};
pub use tags::{
    IncompleteReason, TagArrival, TagCompletion, TagConfig, TagHandle, TagIncomplete, TagMatch,
    TagReceive, TmSrq,
};
pub(crate) use tags::{ListOwner, ListState};
pub(crate) use upkeep::deadline;
