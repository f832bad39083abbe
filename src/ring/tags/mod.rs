//! Shared receive queues that match tags, on the direct path.
//!
//! [`TaggedReceives`] is a [shared receive queue](super::SharedReceives) with a list of tags beside
//! it, which the HCA compares with the header that each message begins with. The list is changed by
//! requests on a send queue (`queue`); what the HCA says of it comes as CQEs of the shared receive
//! queue's CQ, which `poll` turns into a [`TagCompletion`]. Which entries there are, and which changes
//! are under way, lies in private memory (`list`, `changes`): no index that a CQE names is believed.

mod changes;
mod completion;
mod list;
mod poll;
mod queue;

pub use completion::{IncompleteReason, TagArrival, TagCompletion, TagIncomplete, TagMatch};
pub use list::TagHandle;
pub use queue::{TagConfig, TagError, TagReceive, TaggedReceives};
