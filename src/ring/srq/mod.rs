//! Shared receive queues on the direct path.
//!
//! [`SharedReceives`] posts into the linked list of WQEs of a shared receive queue, which `list`
//! has the arithmetic of, and is what polls retire its receives in: a completion names the WQE,
//! since receives of several queue pairs complete in any order. Which queue a CQE belongs to is
//! looked up by the number of the queue pair, or by the user index that queues of XRC domains have
//! (`index`); `numbers` makes both a matter of two loads. [`QueueTable`] does the same for any
//! number of queues that complete on one CQ.

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
