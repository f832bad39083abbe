//! Errors of the data path: small values that leave the queue as it was.

use std::fmt;

use crate::cqe::QueueKind;
use crate::ib::debug_as_display;
use crate::wqe::error::PostError;

/// Why a CQ cannot be polled further. Nothing is taken from the CQ.
///
/// ```
/// # let rig::Link { mut reader, mut sends, .. } = rig::link()?;
/// use mlx5::ring::PollError;
/// use mlx5::wqe::Nop;
///
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new().signaled())? };
/// let error = loop {
///     // The poll is not given the queue that completes.
///     if let Err(error) = reader.poll(&mut ()) {
///         break error;
///     }
/// };
/// assert!(matches!(error, PollError::QueueNotGiven { qpn, .. } if qpn == sends.qpn()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollError {
    /// The next CQE opens an invalid compressed block: of an error, of fewer than two CQEs, or of
    /// more than the CQ holds. No HCA writes one. The block stays in the CQ, and every later poll
    /// returns this error.
    Compressed,
    /// The HCA failed the CQ: it overran, or its memory could not be written. Completions are lost.
    ///
    /// Polls of a failed CQ first return the CQEs that are there. Then they find nothing. After
    /// about four million such polls, one checks whether the CQ failed, and from then on all return
    /// this error. After [`CqReader::overrun`] they return it at once. See `docs/ordering.md`,
    /// "A failed CQ or device".
    ///
    /// [`CqReader::overrun`]: crate::ring::CqReader::overrun
    Overrun,
    /// The device failed or was removed. It executes nothing any more, and completes no request.
    ///
    /// Polls detect this like [`Overrun`](Self::Overrun), after about four million polls that find
    /// nothing, and drains and timed waits for events when they begin. From then on every poll
    /// that finds no CQE returns this error, and posts to the polled queues fail
    /// ([`PostError::DeviceFailed`]).
    DeviceFailed,
    /// The next CQE is of a live queue that completes on this CQ, but was not given to the poll.
    /// The CQE stays in the CQ: poll with that queue to retire its request. For a tag-matching SRQ,
    /// use [`TmSrq::poll`](crate::expert::TmSrq::poll). A leaked queue
    /// (`core::mem::forget`) cannot be given any more: then the CQ has to be recreated.
    QueueNotGiven {
        /// Number of the queue pair that the CQE names.
        qpn: u32,
        /// The queue of that pair. A shared receive queue counts as the receive queue.
        queue: QueueKind,
    },
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compressed => {
                f.write_str("a compressed block of CQEs is damaged: recreate the completion queue")
            }
            Self::Overrun => f.write_str(
                "completion queue failed, completions are lost; recreate it and its queue pairs",
            ),
            Self::DeviceFailed => f.write_str(
                "the device failed and completes nothing any more: drop all its objects, and \
                 open it again after its reset",
            ),
            Self::QueueNotGiven { qpn, queue } => write!(
                f,
                "the next completion is of the {queue} queue of QP {qpn:#x}: poll with that queue"
            ),
        }
    }
}

impl std::error::Error for PollError {}

/// Why a queue was not drained.
///
/// ```
/// # let rig::Link { memory: _m, mut reader, mut sends, mut receives, sge, .. } = rig::link()?;
/// use std::time::Duration;
/// use mlx5::ring::DrainError;
///
/// // SAFETY: the memory stays registered, and nothing uses it before the completion.
/// unsafe { receives.post(1, sge)? };
/// // No message comes for the receive.
/// let drained = reader.drain_receives(&mut receives, &mut sends, Duration::ZERO, |_| ());
/// assert_eq!(drained, Err(DrainError::TimedOut { outstanding: 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainError {
    /// Polling the CQ failed.
    Poll(PollError),
    /// No completion reports the outstanding requests, and no marker could be posted.
    Marker(PostError),
    /// The drain exceeded its timeout.
    TimedOut {
        /// Number of blocks or receives that were outstanding then.
        outstanding: u32,
    },
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => fmt::Display::fmt(error, f),
            Self::Marker(value) => {
                write!(f, "no marker could be posted behind requests that nothing reports: {value}")
            }
            Self::TimedOut { outstanding } => write!(
                f,
                "the queue was not drained in time: {outstanding} blocks or receives are \
                 outstanding"
            ),
        }
    }
}

impl std::error::Error for DrainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poll(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<PollError> for DrainError {
    #[inline]
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

/// Why a list was not changed. Nothing was posted.
///
/// ```
/// # use mlx5::expert::{TagHandle, TmSrq};
/// use mlx5::expert::TagError;
///
/// /// Removes an entry, if no message has taken it.
/// fn remove(tags: &mut TmSrq, entry: TagHandle) -> Result<(), TagError> {
///     match tags.remove(entry) {
///         Err(TagError::Gone) => Ok(()),
///         result => result,
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TagError {
    /// The list has as many entries as it was made for, or as its CQ has slots for.
    ListFull {
        /// Number of entries that the list can have.
        entries: u32,
    },
    /// A message has taken the entry, or its removal was requested before.
    Gone,
    /// The request could not be posted.
    Post(PostError),
}

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListFull { entries } => write!(
                f,
                "all {entries} entries of the list of tags are in use: wait for messages to \
                 take entries, or remove some"
            ),
            Self::Gone => f.write_str(
                "the handle names no entry any more: a message has taken it, or it is being \
                 removed",
            ),
            Self::Post(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for TagError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Post(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<PostError> for TagError {
    #[inline]
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

/// Why the ways of copying to a BlueFlame register were not timed.
///
/// ```
/// # let rig::Link { mut reader, mut sends, .. } = rig::link()?;
/// use mlx5::expert::ProbeError;
/// use mlx5::wqe::Nop;
///
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new())? };
/// assert_eq!(sends.probe_copies(&mut reader, 10).err(), Some(ProbeError::NotIdle));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeError {
    /// The queue copies no WQEs: its register is shared, uncached, or has no BlueFlame.
    NoBlueFlame,
    /// Requests are outstanding.
    NotIdle,
    /// CQEs of another queue could come.
    SharedCq,
    /// A NOP was refused.
    Post(PostError),
    /// The CQ cannot be polled.
    Poll(PollError),
    /// A CQE other than a NOP's success was polled.
    Failed,
    /// A NOP did not complete within a second. It is still outstanding.
    Lost,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBlueFlame => f.write_str(
                "no WQE of this queue goes by BlueFlame: the register is shared, uncached, or \
                 lacks it",
            ),
            Self::NotIdle => f.write_str(
                "requests of this queue are outstanding: poll for their completions first",
            ),
            Self::SharedCq => f.write_str(
                "other queues complete on the CQ, or it is another queue's: probe on a CQ of \
                 its own",
            ),
            Self::Post(value) => write!(f, "a NOP could not be posted: {value}"),
            Self::Poll(value) => write!(f, "the CQ cannot be polled: {value}"),
            Self::Failed => f.write_str("a NOP failed: the queue pair is out of order"),
            Self::Lost => f.write_str("a NOP did not complete within a second"),
        }
    }
}

impl std::error::Error for ProbeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Post(error) => Some(error),
            Self::Poll(error) => Some(error),
            _ => None,
        }
    }
}

impl From<PostError> for ProbeError {
    #[inline]
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

impl From<PollError> for ProbeError {
    #[inline]
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

debug_as_display!(PollError, DrainError, TagError, ProbeError);
