//! Results of requests and polls.

use core::fmt;

use super::{Buffers, Owned};
use crate::cqe::{Failure, ReceiveDone, SendDone, UnexpectedCqe};
use crate::error::Error;
use crate::ib::debug_as_display;
use crate::ring::source::DomainId;
use crate::ring::{PollError, PostError};

/// A request that was not posted, with the error and all its memory.
///
/// It is not an error itself, but `?` converts it to one: to [`PostError`], to
/// [`mlx5::Error`](crate::Error), and to `Box<dyn Error>`, which then holds the [`PostError`]. This
/// works for every operation, also for one that borrows its payload. The conversion drops the
/// operation and the memory that it owns. To keep the memory, take `operation` first:
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, MrSlice};
/// # use mlx5::ring::PostError;
/// # use mlx5::wqe::{Inline, SendMessage};
/// # use std::error::Error;
/// fn greet(endpoint: &mut Endpoint, name: &str) -> Result<(), Box<dyn Error>> {
///     endpoint.post(1, SendMessage::new(Inline(name.as_bytes())))?;
///     Ok(())
/// }
///
/// /// Sends the slice, or returns it if the queue is full.
/// fn send(endpoint: &mut Endpoint, slice: MrSlice) -> mlx5::Result<Option<MrSlice>> {
///     match endpoint.post(2, SendMessage::new(slice)) {
///         Ok(()) => Ok(None),
///         Err(refused) if matches!(refused.error, PostError::QueueFull { .. }) => {
///             Ok(Some(refused.operation.into_payload()))
///         }
///         Err(refused) => Err(refused.into()),
///     }
/// }
/// ```
///
/// For error types of other crates, such as `anyhow::Error`, convert it first:
/// `.map_err(PostError::from)?`.
pub struct Refused<O> {
    /// Why. The queue is as it was.
    pub error: PostError,
    /// The operation, or the receive's memory.
    pub operation: O,
}

impl<O: Owned> Refused<O> {
    /// The operation names memory of another protection domain than the queue's, or without the
    /// right that it needs.
    #[cold]
    pub(super) fn memory(operation: O) -> Self {
        let mut slices = operation.slices().iter();
        let error = match slices.find(|slice| slice.domain_for(O::NEEDS) == DomainId::NONE) {
            Some(slice) => PostError::NoLocalWrite { lkey: slice.lkey() },
            None => PostError::PdMismatch,
        };
        Self { error, operation }
    }
}

impl<O> fmt::Debug for Refused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<O> fmt::Display for Refused<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<O> From<Refused<O>> for PostError {
    /// Drops the operation, and the memory that it owns.
    fn from(refused: Refused<O>) -> PostError {
        refused.error
    }
}

impl<O> From<Refused<O>> for Error {
    /// Drops the operation, and the memory that it owns.
    fn from(refused: Refused<O>) -> Error {
        refused.error.into()
    }
}

impl<O> From<Refused<O>> for Box<dyn std::error::Error> {
    /// Boxes the [`PostError`]. Drops the operation, and the memory that it owns.
    fn from(refused: Refused<O>) -> Self {
        refused.error.into()
    }
}

impl<O> From<Refused<O>> for Box<dyn std::error::Error + Send + Sync> {
    /// Boxes the [`PostError`]. Drops the operation, and the memory that it owns.
    fn from(refused: Refused<O>) -> Self {
        refused.error.into()
    }
}

/// A retired request, and its memory.
///
/// ```no_run
/// # use mlx5::endpoint::{MrSlice, Outcome, Returned};
/// # fn example(returned: Returned, free: &mut Vec<MrSlice>) {
/// match returned.outcome {
///     Outcome::Received(done) => println!("{} bytes arrived", done.byte_len),
///     Outcome::Failed(failure) => eprintln!("request {}: {failure}", returned.id),
///     Outcome::Sent(_) | Outcome::SentUnsignaled { .. } => {}
/// }
/// free.extend(returned.buffers);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it holds the memory of the request"]
pub struct Returned {
    /// The id it was posted with.
    pub id: u64,
    /// Its memory.
    pub buffers: Buffers,
    /// Outcome of the request.
    pub outcome: Outcome,
}

/// The outcome of a request. See the example on [`Returned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A signaled request is done.
    Sent(SendDone),
    /// An unsignaled request is done: a later request has completed.
    SentUnsignaled {
        /// Number of bytes of its slices.
        byte_len: usize,
    },
    /// A receive is done.
    Received(ReceiveDone),
    /// It failed.
    Failed(Failure),
}

/// Why a poll of an [`Endpoint`](super::Endpoint) returned no request.
///
/// ```
/// use mlx5::endpoint::EndpointError;
/// use mlx5::ring::PollError;
///
/// /// What a server does after it.
/// fn goes_on(error: &EndpointError) -> bool {
///     matches!(error, EndpointError::UnexpectedCqe(_))
/// }
/// assert!(!goes_on(&PollError::Overrun.into()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointError {
    /// A CQ cannot be polled further. Nothing was taken from it.
    Poll(PollError),
    /// A CQE of none of the endpoint's queues, or one that contradicts its queue's state. It was
    /// taken from the CQ, and later polls return what follows it.
    UnexpectedCqe(UnexpectedCqe),
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => fmt::Display::fmt(error, f),
            Self::UnexpectedCqe(value) => {
                write!(f, "a completion is of no request of the endpoint: {value:?}")
            }
        }
    }
}

impl std::error::Error for EndpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poll(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<PollError> for EndpointError {
    #[inline]
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

impl From<EndpointError> for Error {
    /// Returns [`Error::Poll`] or [`Error::UnexpectedCqe`].
    fn from(error: EndpointError) -> Error {
        match error {
            EndpointError::Poll(error) => error.into(),
            EndpointError::UnexpectedCqe(unexpected) => Error::UnexpectedCqe(unexpected.into()),
        }
    }
}

debug_as_display!(EndpointError);
