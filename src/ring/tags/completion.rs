//! Completions of a tag-matching queue.

use super::TagHandle;
use crate::cqe::{Completion, Failure, ReceiveDone, ReceiveKind, UnexpectedCqe};
use crate::wqe::TagHeader;

/// The result of one CQE.
///
/// ```
/// # use mlx5::{expert::*, ring::*};
/// /// Polls once. Returns the id and the bytes of a message that an entry took.
/// fn arrived(tags: &mut TmSrq, reader: &mut CqReader) -> Result<Option<(u64, u32)>, PollError> {
///     match tags.poll(reader, &mut ())? {
///         Some(TagCompletion::Arrived(arrival)) => Ok(Some((arrival.id, arrival.byte_len))),
///         // No entry matched: the message is in the receive with this id.
///         Some(TagCompletion::Unexpected(done)) => Ok(Some((done.id, done.byte_len))),
///         _ => Ok(None), // the list has changed, or the HCA fetches a message
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a completion says which memory is the program's again"]
pub enum TagCompletion {
    /// A message has taken an entry, and is being written to its memory: an
    /// [`Arrived`](Self::Arrived) or [`Incomplete`](Self::Incomplete) of the same entry follows.
    Matched(TagMatch),
    /// The message is in the memory of the entry. The entry no longer exists.
    Arrived(TagArrival),
    /// A message has taken an entry, and will not come. The content of the entry's memory is
    /// unknown. The program may use the memory again.
    Incomplete(TagIncomplete),
    /// A message with a tag that no entry matches has taken a receive. Its
    /// [header](TagHeader::parse) is in front of it. Before another entry is appended,
    /// [remove](super::TmSrq::remove) entries that it would have matched.
    Unexpected(ReceiveDone),
    /// A message without a tag has taken a receive.
    Untagged(ReceiveDone),
    /// An entry that was to be [reported](super::TagReceive::signaled) was appended.
    Appended {
        /// The entry's id.
        id: u64,
        /// The entry, if a message has not taken it since.
        handle: TagHandle,
    },
    /// The answer to [`remove`](super::TmSrq::remove).
    Removed {
        /// The entry's id.
        id: u64,
        /// The entry to be removed.
        handle: TagHandle,
        /// Whether it was in the list. If so, the program may use its memory again, and no more is
        /// reported of it. If not, a message had taken it, which has been reported or will be.
        removed: bool,
    },
    /// The answer to [`sync`](super::TmSrq::sync), with its id.
    Synced(u64),
    /// The HCA could not change the list, or a receive failed. After the failure of a change
    /// ([`QueueKind::Send`](crate::cqe::QueueKind::Send)) no more changes are possible. Messages
    /// still take entries that are in the list. The id is the entry's, or that of the sync.
    Failed(Failure),
    /// A tag-matching CQE that does not match any request of this queue.
    UnexpectedCqe(UnexpectedCqe),
    /// A completion of another queue.
    Other(Completion),
}

/// A message has taken an entry.
///
/// See the example on [`TagCompletion`].
#[doc(alias("IBV_WC_TM_MATCH", "ibv_wc_tm_info"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagMatch {
    /// The entry's id.
    pub id: u64,
    /// The entry. It cannot be removed any more.
    pub handle: TagHandle,
    /// Number of the queue pair that received the message.
    pub qpn: u32,
    /// The message's header; `None` if it does not begin with a known header.
    pub header: Option<TagHeader>,
    /// Whether the HCA leaves fetching the message to software. Then the entry's memory receives
    /// the [`Rendezvous`](crate::expert::Rendezvous).
    pub fetch: bool,
}

/// A message is in the memory of its entry, without its header.
///
/// See the example on [`TagCompletion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagArrival {
    /// The entry's id.
    pub id: u64,
    /// The entry, which no longer exists.
    pub handle: TagHandle,
    /// Number of the queue pair that received the message.
    pub qpn: u32,
    /// The operation of the message.
    pub kind: ReceiveKind,
    /// Length of the message in bytes.
    pub byte_len: u32,
    /// The message's header, unless a [`TagMatch`] has reported it.
    pub header: Option<TagHeader>,
}

/// A message that has taken an entry will not come.
///
/// ```
/// use mlx5::expert::{IncompleteReason, TagCompletion};
///
/// fn is_too_long(completion: &TagCompletion) -> bool {
///     matches!(completion, TagCompletion::Incomplete(message)
///         if message.reason == IncompleteReason::TooLong)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagIncomplete {
    /// The entry's id.
    pub id: u64,
    /// The entry, which no longer exists.
    pub handle: TagHandle,
    /// Number of the queue pair that received the message.
    pub qpn: u32,
    /// Why the message will not come.
    pub reason: IncompleteReason,
    /// The message's header, unless a [`TagMatch`] has reported it, or it is not known.
    pub header: Option<TagHeader>,
}

/// Why a message will not come.
///
/// See the example on [`TagIncomplete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IncompleteReason {
    /// The connection has failed, or the HCA could not read the memory to fetch the message from.
    Canceled,
    /// The HCA leaves fetching the message to software: the entry's memory holds the
    /// [`Rendezvous`](crate::expert::Rendezvous).
    Fetch,
    /// The message came in the CQE, and is longer than the entry.
    TooLong,
}
