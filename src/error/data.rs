//! Errors of the data path: small values that leave the queue as it was.

use std::fmt;

use crate::cqe::QueueKind;
use crate::ib::debug_as_display;
use crate::watch::lint::Refusal;
use crate::wqe::EncodeError;

/// Why nothing was posted. The queue is as it was before the call.
///
/// The numbers are those at the moment of the call.
///
/// ```
/// # let rig::Link { mut sends, .. } = rig::link()?;
/// use mlx5::ring::PostError;
/// use mlx5::wqe::Nop;
///
/// let refused = loop {
///     // SAFETY: the request names no memory.
///     if let Err(error) = unsafe { sends.post(1, Nop::new().signaled()) } {
///         break error;
///     }
/// };
/// // Nothing has polled, so all CQ slots that are reserved for the queue are in use.
/// assert!(matches!(refused, PostError::CqFull { slots: 1.. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostError {
    /// The queue has fewer free entries than the request needs: 64-byte blocks of a send queue, or
    /// receives.
    QueueFull {
        /// Entries that are free.
        free: u32,
    },
    /// The request would leave no free block or CQ slot in the send queue, and no outstanding request
    /// is signaled. Then no completion could come any more, and no signaled request could be posted.
    NothingSignaled {
        /// 64-byte blocks that are outstanding.
        outstanding: u32,
    },
    /// The operation cannot be written as a WQE of this queue.
    Encode(EncodeError),
    /// The memory is shorter than a WQE of a striding receive queue.
    ReceiveTooShort {
        /// Bytes of a WQE.
        needed: u32,
    },
    /// All CQ slots reserved for this queue are in use: one for each outstanding request, signaled
    /// or not. A send queue has at most as many as its QP's `max_send_wr`.
    CqFull {
        /// CQ slots that are reserved for the queue.
        slots: u32,
    },
    /// The memory is of another protection domain or device than the queue.
    PdMismatch,
    /// The HCA would write to memory whose region has no
    /// [`LOCAL_WRITE`](crate::ib::Access::LOCAL_WRITE): a receive, a READ or an atomic.
    NoLocalWrite {
        /// Key of the region.
        lkey: u32,
    },
    /// The queue has stopped: an error completion of it was seen.
    WrongState,
    /// The device failed or was removed: a poll of this queue has returned
    /// [`PollError::DeviceFailed`].
    DeviceFailed,
    /// No request is [prepared](crate::ring::Prepared).
    NothingPrepared,
    /// [`Endpoints`](crate::endpoint::Endpoints) have no such queue.
    NoQueue,
    /// A WQE has a defect: with the feature `lint`, nothing is rung then.
    #[cfg(feature = "lint")]
    Refused(mlx5_diag::lint::Finding),
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { free } => write!(
                f,
                "queue full: the request needs more than the {free} entries that are free; poll \
                 the completion queue until requests are retired"
            ),
            Self::NothingSignaled { outstanding } => write!(
                f,
                "the last free block and CQ slot are kept for a signaled request, and none of \
                 those outstanding ({outstanding} blocks) is: signal this one, or call reclaim, \
                 then poll"
            ),
            Self::Encode(error) => fmt::Display::fmt(error, f),
            Self::ReceiveTooShort { needed } => write!(
                f,
                "the memory is shorter than a WQE of the striding receive queue, {needed} bytes \
                 (wqe_bytes)"
            ),
            Self::CqFull { slots } => write!(
                f,
                "all {slots} CQ slots of the queue are in use, one by each request that is \
                 outstanding or prepared: poll the completion queue (fire what is prepared), or \
                 reserve more when the queue is made"
            ),
            Self::PdMismatch => f.write_str(
                "the memory is of another protection domain or device than the queue: register \
                 it with the queue's domain",
            ),
            Self::NoLocalWrite { lkey } => write!(
                f,
                "the request writes to the memory region with lkey {lkey:#x}, which has no \
                 LOCAL_WRITE: register it with that right"
            ),
            Self::WrongState => f.write_str(
                "the send queue stopped at a failed request: call recover (UC, UD) or go_on (DC \
                 streams), otherwise close the endpoint or reset the QP, and connect anew",
            ),
            Self::DeviceFailed => f.write_str(
                "the device failed: drop all its objects, and open it again after its reset",
            ),
            Self::NothingPrepared => f.write_str("no request is prepared"),
            Self::NoQueue => f.write_str(
                "no such queue: the connection was removed or is not inserted yet, or nothing \
                 was made with a receive queue",
            ),
            #[cfg(feature = "lint")]
            Self::Refused(value) => write!(f, "nothing was rung: {value}"),
        }
    }
}

impl std::error::Error for PostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Encode(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<EncodeError> for PostError {
    #[inline]
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl From<Refusal> for PostError {
    #[inline(always)]
    fn from(refusal: Refusal) -> PostError {
        #[cfg(feature = "lint")]
        return PostError::Refused(refusal.0);
        #[cfg(not(feature = "lint"))]
        match refusal {}
    }
}

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

debug_as_display!(PostError, PollError, DrainError, TagError, ProbeError);
