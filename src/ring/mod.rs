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
//!
//! # The memory of requests
//!
//! The HCA works on a request from the post on. Who posts it promises, until it is retired:
//!
//! - The memory that it names by an `lkey` stays allocated, and registered under that `lkey`: that
//!   of its entries, and destination and notes of a [`DmaMemcpy`](crate::wqe::DmaMemcpy).
//! - Nothing writes the memory that a SEND, WRITE or `DmaMemcpy` reads.
//! - Nothing reads, writes or holds a reference to the memory that the HCA writes: that of a READ or
//!   atomic, and destination and notes of a `DmaMemcpy`. Other `DmaMemcpy` requests may have the
//!   same notes.
//! - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::attr::ScatterToCqe): not by
//!   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic writes
//!   is mapped, writable, in this process at the address in the entry.
//! - A key that the request gives access to memory ([`ConfigureKey`](crate::wqe::ConfigureKey),
//!   [`BindWindow`](crate::wqe::BindWindow)) keeps it after the request is retired: until the key is
//!   configured or bound again, invalidated or freed. For all that time, no reference exists that
//!   the access would contradict, and the memory stays registered.
//!
//! A request is retired when a poll returns its completion or that of a later request of its queue
//! (its own, if the QP has [streams](crate::verbs::attr::DciStreams)), or when the QP has been moved
//! to RESET or destroyed. Inline payload is copied, and names no memory.
//!
//! # The memory of receives
//!
//! The HCA may put a message into a receive from the post on. Who posts it promises, until it is
//! retired:
//!
//! - The memory of its entries stays allocated, and registered for local write under the `lkey`
//!   given.
//! - Nothing reads, writes or holds a reference to that memory.
//! - If a QP that takes from the queue may put payload into CQEs
//!   ([`ScatterToCqe`](crate::verbs::attr::ScatterToCqe): not by default, but QPs that libmlx5 made
//!   for other code do), the memory is mapped, writable, in this process at the address in each
//!   entry. Queues of packets never do.
//!
//! A receive is retired when a poll returns its completion, or when the QP has been moved to RESET or
//! destroyed; a shared one only by its completion or with its queue.

// The modules, lowest first: `source` (what objects hand over), `completion` (the CQ's ring),
// `send` and `receive` (the work queues' rings), `poll` (which queue a CQE completes) and `tags`.
// Each explains itself in its first lines, with a table of its paths.
//
// The words of these modules:
//
// | word | is |
// |---|---|
// | unit | 16 bytes of a WQE; `ds` is its number of units |
// | block | 64 bytes of a send ring, at which a WQE may begin. Of compressed CQEs: a title with its mini CQEs |
// | slot | a counter modulo the ring's size; a CQ slot is an entry of a CQ that a queue reserves |
// | head, tail | the counter behind what is posted, and behind what is retired |
// | point | a place between two WQEs: a counter, and the silent blocks before it |
// | silent block | a block in which no WQE begins |
// | clear | how far posts need no check |
// | to grant | to move `clear` |
// | open | something is written at the head and not posted. Of a block of CQEs: being expanded |
// | pause | a CQE at which a poll takes the path that checks everything |
// | run | key changes that follow each other directly |
// | ready | of a prepared WQE: it may be fired without a check |
// | shadow | software's record of posted WQEs; an entry per block |
// | plain WQE | a signaled WQE of one block, whose CQE is recognized by one comparison |
// | plain doorbell | the eight bytes that ring; no WQE is copied to the register |
// | usual | of an operation: its WQE has the size that the compiler knows for its type. Of a receive: it has one entry |
// | long | of an operation: its usual WQE has two to four blocks |
// | short | of a message: of up to 32 bytes, which lie in its CQE |
// | place | where a WQE is: the offset of its shadow entry |
// | side | a queue as a poll sees it |
// | member | a live queue that completes on a CQ |
// | claim | of an object: to be the only direct user of one of its queues |
// | title | a CQE that compressed CQEs refer to |

mod observed;
mod opaque;
#[cfg(test)]
pub(crate) mod random;

pub(crate) mod source;

// rustdoc lists the methods of a type in the order of these modules.
pub(crate) mod completion;
pub(crate) mod receive;
pub(crate) mod send;

pub(crate) mod engine;
pub(crate) mod poll;
mod release;
pub(crate) mod tags;
#[cfg(test)]
mod tests;

pub(crate) use crate::doorbell::{BlueFlameCopy, UarMapping};
pub use crate::error::{DrainError, Excess, PollError, PostError, QueueError};
pub(crate) use crate::error::{ProbeError, TagError};
pub use completion::CqReader;
pub(crate) use poll::deadline;
pub use poll::{QueueTable, Queues, SharedKey};
pub(crate) use receive::{
    FoundPacket, Numbers, ReceiveSide, number as shared_receive_number,
    view_of as shared_receive_view,
};
pub use receive::{
    Packet, PacketEvent, PacketRq, ReceiveBatch, ReceiveConfig, ReceiveQueue, Srq, StridingBatch,
    StridingRq,
};
pub(crate) use send::DedicatedRegister;
pub(crate) use send::SendSide;
pub use send::{Batch, Prepared, Producer, RegisterUse, Retirer, SendConfig, SendQueue};
pub(crate) use source::Titles;
pub(crate) use source::{CompletionSource, ReceiveSource, SendSource, SharedReceiveSource};
pub(crate) use tags::{ListOwner, ListState};
pub(crate) use tags::{TagConfig, TmSrq};
