//! Requests in flight in one queue, and what becomes of them.

use std::collections::VecDeque;
use std::fmt;

use super::Buffers;
use crate::cqe::{Failure, ReceiveDone, SendDone, Unclaimed};
use crate::ring::PostError;

/// A request that was not posted, with the error and everything it was to own.
pub struct Refused<O> {
    /// Why. The queue is as it was.
    pub error: PostError,
    /// The operation, or the receive's memory.
    pub operation: O,
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

/// A request that is retired, and its memory.
#[derive(Debug)]
#[must_use = "it holds the memory of the request"]
pub struct Returned {
    /// The id it was posted with.
    pub id: u64,
    /// Its memory.
    pub buffers: Buffers,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A signaled request is done.
    Sent(SendDone),
    /// An unsignaled request is done, as the completion of a later one says.
    SentUnsignaled {
        /// Bytes of its slices.
        byte_len: usize,
    },
    /// A receive is done.
    Received(ReceiveDone),
    /// It failed.
    Failed(Failure),
}

impl Outcome {
    /// The same, of the request that the program calls `id`.
    fn named(self, id: u64) -> Self {
        match self {
            Self::Sent(done) => Self::Sent(SendDone { id, ..done }),
            Self::Received(done) => Self::Received(ReceiveDone { id, ..done }),
            Self::Failed(failure) => Self::Failed(Failure { id, ..failure }),
            Self::SentUnsignaled { .. } => self,
        }
    }
}

/// What a poll met.
#[derive(Debug)]
#[must_use = "it may hold the memory of a request"]
pub enum Event {
    /// A request is retired.
    Returned(Returned),
    /// A CQE that belongs to none of the queues, or makes no sense there.
    Unclaimed(Unclaimed),
}

/// What is in flight in one queue, oldest first. Its places are allocated once.
#[derive(Debug)]
pub(super) struct Flight {
    requests: VecDeque<(u64, Buffers)>,
    /// Requests that the queue takes at once.
    places: usize,
    /// Number of the oldest request.
    first: u64,
    /// Requests before this number are retired, and wait to be given back.
    retired: u64,
    /// How the last of those ended.
    outcome: Option<Outcome>,
}

impl Flight {
    pub(super) fn new(places: u32) -> Self {
        let places = places as usize;
        let requests = VecDeque::with_capacity(places);
        Self { requests, places, first: 0, retired: 0, outcome: None }
    }

    /// The number of the request that is added next, which the ring gets as its id. `None` if every
    /// place is taken: requests that are retired hold theirs until they are given back.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        let length = self.requests.len();
        (length < self.places).then(|| self.first + length as u64)
    }

    /// Adds the request that the program calls `id`.
    #[inline]
    pub(super) fn add(&mut self, id: u64, buffers: Buffers) {
        self.requests.push_back((id, buffers));
    }

    /// The request `number` and all before it are retired; it ended so.
    #[inline]
    pub(super) fn retire(&mut self, number: u64, outcome: Outcome) {
        self.retired = number + 1;
        self.outcome = Some(outcome);
    }

    /// The oldest request, if it is retired.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Returned> {
        if self.first >= self.retired {
            return None;
        }
        let (id, buffers) = self.requests.pop_front()?;
        self.first += 1;
        let outcome = self.outcome.filter(|_| self.first == self.retired);
        let outcome =
            outcome.unwrap_or(Outcome::SentUnsignaled { byte_len: buffers.length() }).named(id);
        Some(Returned { id, buffers, outcome })
    }

    /// Everything that is left, with the ids.
    pub(super) fn into_rest(self) -> Vec<(u64, Buffers)> {
        self.requests.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cqe::SendOperation;

    fn done(id: u64) -> Outcome {
        Outcome::Sent(SendDone { id, qpn: 1, operation: SendOperation::Send, byte_len: 0 })
    }

    #[test]
    fn unsignaled_requests_come_back_before_the_one_that_retired_them() {
        let mut flight = Flight::new(4);
        for id in 100..104 {
            assert_eq!(flight.next(), Some(id - 100));
            flight.add(id, Buffers::None);
        }
        assert_eq!(flight.next(), None);
        assert!(flight.pop().is_none());
        flight.retire(2, done(2));
        let unsignaled = Outcome::SentUnsignaled { byte_len: 0 };
        for (id, outcome) in [(100, unsignaled), (101, unsignaled), (102, done(102))] {
            let returned = flight.pop().unwrap();
            assert_eq!((returned.id, returned.outcome), (id, outcome));
        }
        assert!(flight.pop().is_none());
        assert_eq!(flight.next(), Some(4));
        flight.retire(3, done(3));
        assert_eq!(flight.pop().unwrap().outcome, done(103));
        assert!(flight.into_rest().is_empty());
    }
}
