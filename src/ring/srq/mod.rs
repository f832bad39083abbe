//! Shared receive queues on the direct path.
//!
//! [`SharedReceives`] posts into the linked list of WQEs of a shared receive queue. `list` has the
//! arithmetic. Polls retire receives in [`SharedReceives`]: a completion names the WQE, since
//! receives of several queue pairs complete in any order. A poll looks up the queue of a CQE by the
//! number of the queue pair, or by the user index that queues of XRC domains have (`index`).
//! `numbers` does either with two loads. [`QueueTable`] looks up any number of queues that complete
//! on one CQ.

mod batch;
mod index;
mod list;
mod numbers;
mod queue;
mod side;
mod table;

pub use batch::SharedReceiveBatch;
pub(crate) use index::{number, view_of};
pub use queue::SharedReceives;
#[cfg(test)]
pub(super) use queue::SrqParts;
pub(crate) use queue::UserIndex;
pub(super) use side::SharedSide;
pub use table::{QueueTable, SharedKey};
