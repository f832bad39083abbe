//! Polling: which queue a CQE completes, and what comes of it. A poll is given the queues that its
//! CQEs may be of ([`Queues`]): one, a pair, or a [`QueueTable`].
//!
//! Which path a poll takes:
//!
//! | the next CQE | completes | path |
//! |---|---|---|
//! | none | – | `look_for` |
//! | a requester's success | the oldest request of the likely queue, a plain one | `look_for`, `retire_plain` |
//! | a requester's success | another plain request of the likely queue | the same, not for an owner of memory |
//! | a responder's success | the oldest receive of the likely queue | `look_for_receive`, `retire_next` |
//! | a responder's success | a receive of any queue | `look_for_receive`, `retire_receive` |
//! | a responder's success with a short message in it | a receive of one entry | the same, after `deliver` |
//! | a success | a request or receive of any queue | `take_other` |
//! | a block of compressed CQEs | – | `take_any`, which expands it and begins again |
//! | any other, or of no queue that was given | any | `take_any` |
//!
//! A poll whose consumer is at a pause takes the second half, from `take_other` on.
//! [`CollapsedCqReader`] reads a CQ of one entry, which the HCA overwrites.

// First: rustdoc lists the methods of a type in the order of these modules.
mod find;

mod collapsed;
mod drain;
mod probe;
mod queues;
mod table;

pub use collapsed::CollapsedCqReader;
pub(crate) use drain::deadline;
pub(crate) use find::Found;
pub use probe::{CopyProbe, CopyTime};
pub use queues::Queues;
pub use table::{QueueTable, SharedKey};
