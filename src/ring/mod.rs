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

// The modules, lowest first: `source` (what objects hand over), `completion` (the CQ's ring),
// `send` and `receive` (the work queues' rings), `poll` (which queue a CQE completes) and `tags`.
// Each explains itself in its first lines, with a table of its paths.
//
// The words of these modules:
//
// | word | is |
// |---|---|
// | unit | 16 bytes of a WQE; `ds` is its number of units |
// | block | 64 bytes of a send ring, at which a WQE may begin |
// | slot | a counter modulo the ring's size; a CQ slot is an entry of a CQ that a queue reserves |
// | head, tail | the counter behind what is posted, and behind what is retired |
// | point | a place between two WQEs: a counter, and the silent blocks before it |
// | silent block | a block in which no WQE begins |
// | clear | how far posts need no check |
// | to grant | to move `clear` |
// | open | something is written at the head and not posted |
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

pub(crate) mod poll;
mod release;
pub(crate) mod tags;
#[cfg(test)]
mod tests;

pub(crate) use crate::doorbell::{BlueFlameCopy, UarMapping};
pub use crate::error::{DrainError, PollError, PostError, QueueError};
pub(crate) use crate::error::{ProbeError, TagError};
pub use completion::CqReader;
pub(crate) use poll::deadline;
pub use poll::{QueueTable, Queues, SharedKey};
pub(crate) use receive::{
    Numbers, ReceiveSide, number as shared_receive_number, view_of as shared_receive_view,
};
pub use receive::{
    Packet, PacketEvent, PacketRq, ReceiveBatch, ReceiveConfig, ReceiveQueue, Srq, StridingRq,
};
pub(crate) use send::DedicatedRegister;
pub(crate) use send::SendSide;
pub use send::{Batch, Prepared, Producer, RegisterUse, Retirer, SendConfig, SendQueue};
pub(crate) use source::Titles;
pub(crate) use source::{CompletionSource, ReceiveSource, SendSource, SharedReceiveSource};
pub(crate) use tags::{ListOwner, ListState};
pub(crate) use tags::{TagConfig, TmSrq};
