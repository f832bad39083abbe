//! Results of requests and polls.

use core::fmt;

use super::Buffers;
use crate::cqe::{Failure, ReceiveDone, SendDone, UnexpectedCqe};
use crate::ring::{PollError, PostError};

/// A request that was not posted, with the error and all its memory.
pub struct Refused<O> {
    /// Why. The queue is as it was.
    pub error: PostError,
    /// The operation, or the receive's memory.
    pub operation: O,
}

impl<O> Refused<O> {
    /// The operation names memory of another protection domain than the queue's.
    #[cold]
    pub(super) fn foreign(operation: O) -> Self {
        Self { error: PostError::PdMismatch, operation }
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

impl<O> std::error::Error for Refused<O> {}

/// A retired request, and its memory.
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

/// The outcome of a request.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// A CQ cannot be polled further. Nothing was taken from it.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// A CQE of none of the endpoint's queues, or one that contradicts its queue's state. It was
    /// taken from the CQ, and later polls return what follows it.
    #[error("a completion is of no request of the endpoint: {0:?}")]
    UnexpectedCqe(UnexpectedCqe),
}
