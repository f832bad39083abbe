//! Tag-matching shared receive queues, on the direct path.
//!
//! [`TmSrq`] is a [shared receive queue](crate::ring::Srq) with a tag list. The HCA
//! compares the list with the header at the start of each message. Requests on a send queue change
//! the list (`queue`). The HCA's reports come as CQEs of the shared receive queue's CQ, which
//! `poll` converts to [`TagCompletion`]s. Private memory holds the entries and the changes under
//! way (`list`, `changes`): an index in a CQE is always checked against it.

mod changes;
mod completion;
mod list;
mod poll;
mod queue;

pub use completion::{IncompleteReason, TagArrival, TagCompletion, TagIncomplete, TagMatch};
pub use list::TagHandle;
pub(crate) use queue::{ListOwner, ListState};
pub use queue::{TagConfig, TagReceive, TmSrq};
