//! What a poll of a queue that matches tags finds.

use super::TagHandle;
use crate::cqe::{Completion, Failure, ReceiveDone, ReceiveKind, Unclaimed};
use crate::wqe::TagHeader;

/// What one CQE said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a completion says which memory is the program's again"]
pub enum TagCompletion {
    /// A message has taken an entry, and is on its way into its memory: an
    /// [`Arrived`](Self::Arrived) or [`Incomplete`](Self::Incomplete) of the same entry follows.
    Matched(TagMatch),
    /// The message is in the memory of the entry, which is one no longer.
    Arrived(TagArrival),
    /// A message has taken an entry, and will not come. What the entry's memory holds is unknown; it
    /// is the program's again.
    Incomplete(TagIncomplete),
    /// A message with a tag for which there was no entry has taken a receive. Its
    /// [header](TagHeader::parse) is in front of it. Before anything else is appended, entries that it
    /// would have been for are to be [removed](super::TaggedReceives::remove).
    Unexpected(ReceiveDone),
    /// A message without a tag has taken a receive.
    Untagged(ReceiveDone),
    /// An entry was appended that was to be [reported](super::TagReceive::signaled).
    Appended {
        /// The entry's id.
        id: u64,
        /// The entry, if a message has not taken it since.
        handle: TagHandle,
    },
    /// The answer to [`remove`](super::TaggedReceives::remove).
    Removed {
        /// The entry's id.
        id: u64,
        /// The entry that was to be removed.
        handle: TagHandle,
        /// Whether it was there: its memory is the program's again, and no more is said of it. If
        /// not, a message had taken it, which has been reported, or will be.
        removed: bool,
    },
    /// The answer to [`sync`](super::TaggedReceives::sync), with its id.
    Synced(u64),
    /// The HCA could not change the list, or a receive failed. After the failure of a change
    /// ([`QueueKind::Send`](crate::cqe::QueueKind::Send)) no more are possible; entries that are in
    /// the list are still taken by messages. The id is the entry's, or that of the sync.
    Failed(Failure),
    /// A CQE about tags that makes no sense for what this queue has asked for.
    Unclaimed(Unclaimed),
    /// A completion of another queue.
    Other(Completion),
}

/// A message has taken an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagMatch {
    /// The entry's id.
    pub id: u64,
    /// The entry; it cannot be removed any more.
    pub handle: TagHandle,
    /// Number of the queue pair that the message came to.
    pub qpn: u32,
    /// The message's header; `None` if it begins with none that is known.
    pub header: Option<TagHeader>,
    /// Whether the HCA leaves it to software to fetch the message: then what arrives in the entry's
    /// memory is the [`Rendezvous`](crate::wqe::Rendezvous).
    pub fetch: bool,
}

/// A message is in the memory of its entry, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagArrival {
    /// The entry's id.
    pub id: u64,
    /// The entry, which is none any more.
    pub handle: TagHandle,
    /// Number of the queue pair that it came to.
    pub qpn: u32,
    /// By which operation.
    pub kind: ReceiveKind,
    /// Its length in bytes.
    pub byte_len: u32,
    /// Its header, unless a [`TagMatch`] has told it.
    pub header: Option<TagHeader>,
}

/// A message that has taken an entry will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagIncomplete {
    /// The entry's id.
    pub id: u64,
    /// The entry, which is none any more.
    pub handle: TagHandle,
    /// Number of the queue pair that the message came to.
    pub qpn: u32,
    /// Why.
    pub reason: IncompleteReason,
    /// The message's header, unless a [`TagMatch`] has told it, or none is known.
    pub header: Option<TagHeader>,
}

/// Why a message will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IncompleteReason {
    /// Its connection has failed, or the memory that the HCA was to fetch it from could not be read.
    Canceled,
    /// The HCA leaves it to software to fetch the message: the entry's memory has the
    /// [`Rendezvous`](crate::wqe::Rendezvous).
    Fetch,
    /// It came in the CQE, and is longer than the entry.
    TooLong,
}
