//! Shared receive queues on the direct path.
//!
//! [`Srq`] is a receive queue of many queue pairs, whose receives complete in any order. A poll
//! looks up the queue of a CQE by the number of the queue pair, or by the user index that queues of
//! XRC domains have (`index`). `numbers` does either with two loads. [`QueueTable`] looks up any
//! number of queues that complete on one CQ.

// First: rustdoc lists the methods of a type in the order of these modules.
mod queue;

mod attach;
mod index;
mod numbers;

pub(crate) use index::{number, view_of};
pub(crate) use numbers::Numbers;
pub use queue::Srq;
