//! A queue pair with its requests in flight: what an endpoint and each connection of several have
//! in common.

use super::flight::{Flight, InFlight};
use super::{Buffers, EndpointBatch, MrSlice, Outcome, Owned, Refused, Returned};
use crate::cqe::SendDone;
use crate::error::QueueError;
use crate::ib::{Counter, INTERNAL, Internal, Transport};
use crate::ring::give_back::Mark;
use crate::ring::send_ring::SendRing;
use crate::ring::{CqReader, PostError, Prepared, Queues, SendConfig, SendQueue};
use crate::verbs::{QueuePair, Reset, Rts};
use crate::wqe::{Nop, PostOn};

/// The send half of an [`Endpoint`](super::Endpoint): a [`SendQueue`], one with [`Prepared`]
/// requests, or one that [threads share](super::SharedSends).
// Sealed by the argument of its methods.
pub trait SendHalf: Queues {
    /// The memory of its requests in flight.
    #[doc(hidden)]
    type Flight: InFlight;

    /// Returns the ring.
    #[doc(hidden)]
    fn ring(&mut self, _: Internal) -> &mut SendRing;

    /// Releases the blocks of requests that are retired and whose memory was taken, to other
    /// threads that post.
    #[doc(hidden)]
    #[inline(always)]
    fn release(&mut self, _: Internal) {}
}

impl<T: Transport> SendHalf for SendQueue<T> {
    type Flight = Flight;

    #[inline(always)]
    fn ring(&mut self, _: Internal) -> &mut SendRing {
        &mut self.ring
    }
}

impl<O, T: Transport> SendHalf for Prepared<O, T> {
    type Flight = Flight;

    #[inline(always)]
    fn ring(&mut self, _: Internal) -> &mut SendRing {
        Prepared::ring(self)
    }
}

/// A queue pair with its requests in flight and their memory, and `R`, what it receives with.
#[derive(Debug)]
pub(super) struct Core<T: Transport, R, S: SendHalf> {
    // In drop order: the first three hold the queue pair, the last one the memory of requests. The
    // receive half holds the memory of receives, and drops it after the queue pair.
    pub(super) qp: QueuePair<T, Rts>,
    pub(super) send: S,
    pub(super) receive: R,
    pub(super) flight: S::Flight,
    /// While retired requests have not been returned: where the ring's tail will be, and the
    /// outcome of the last request before it.
    pub(super) retired: Option<(Counter, Outcome)>,
}

/// What was in flight when a queue pair was reset: the queue pair, and the ids and memory of its
/// requests.
pub(super) type Reclaimed<T> = (QueuePair<T, Reset>, Vec<(u64, Buffers)>);

impl<T: Transport, R> Core<T, R, SendQueue<T>> {
    /// Takes over the send queue of a connected queue pair.
    pub(super) fn new(
        qp: QueuePair<T, Rts>,
        receive: R,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> crate::error::Result<Self> {
        let domain = qp.domain().ok_or(QueueError::NoQueue)?;
        let send = SendQueue::new(&qp, completions, config)?;
        let flight = Flight::new(send.ring.cursor.shape(), domain);
        Ok(Self { qp, send, receive, flight, retired: None })
    }

    /// Posts a request, see [`Endpoint::post`](super::Endpoint::post).
    #[inline(always)]
    pub(super) fn post<O: PostOn<T> + Owned>(
        &mut self,
        id: u64,
        operation: O,
    ) -> Result<(), Refused<O>> {
        post(&mut self.send, &mut self.flight, id, operation)
    }

    /// Starts a batch.
    #[inline(always)]
    pub(super) fn batch(&mut self) -> EndpointBatch<'_, T> {
        EndpointBatch::new(&mut self.send, &mut self.flight)
    }

    /// Retires outstanding requests, see [`Endpoint::reclaim`](super::Endpoint::reclaim).
    pub(super) fn reclaim(&mut self, id: u64) -> Result<bool, PostError>
    where
        Nop: PostOn<T>,
    {
        if !self.send.is_silent() {
            return Ok(false);
        }
        self.post(id, Nop::new().signaled()).map(|()| true).map_err(|refused| refused.error)
    }

    /// Moves the queue pair to RESET. `release` releases the receive half's claim on it.
    ///
    /// # Errors
    /// The reset failed: then the queue pair is destroyed, and the memory in flight is freed.
    pub(super) fn reset(self, release: impl FnOnce(R)) -> crate::error::Result<Reclaimed<T>> {
        let Self { qp, send, receive, mut flight, .. } = self;
        // Only this function can reach them until the reset.
        let sends = send.ring.outstanding();
        let sends = sends.map(|(at, entry)| (entry.id, flight.take(at))).collect();
        // Their claims prevent the reset.
        release(receive);
        drop(send);
        match qp.reset() {
            Ok(qp) => Ok((qp, sends)),
            Err(failed) => {
                // The queue pair is destroyed first, so that the HCA no longer works on the memory.
                drop(failed.queue_pair);
                Err(failed.error)
            }
        }
    }
}

/// Posts a request to `send`, and keeps its memory in `flight`.
// A function of both, so that the compiler knows that they do not overlap.
#[inline(always)]
fn post<T: Transport, O: PostOn<T> + Owned>(
    send: &mut SendQueue<T>,
    flight: &mut Flight,
    id: u64,
    operation: O,
) -> Result<(), Refused<O>> {
    if !flight.accepts(operation.slices()) {
        return Err(Refused::foreign(operation));
    }
    send.ring.doorbell.timing.begin();
    let head = send.ring.cursor.head();
    // SAFETY: all memory that the request names is in slices, which the flight owns as soon as the
    // call returns: nothing reads, writes or borrows it. The poll that retires the request returns
    // them, or `reset` does. If the queue pair is dropped before, so are the slices: their memory
    // stays registered while other slices of the region exist, which do not cover it, and is
    // deregistered before it is freed. If it is leaked, so are the slices.
    match unsafe { send.post_short(id, &operation) } {
        Ok(true) => {
            flight.put(head, operation);
            Ok(())
        }
        Ok(false) => post_any(send, flight, id, operation),
        Err(refusal) => Err(Refused { error: refusal.into(), operation }),
    }
}

#[inline(never)]
fn post_any<T: Transport, O: PostOn<T> + Owned>(
    send: &mut SendQueue<T>,
    flight: &mut Flight,
    id: u64,
    operation: O,
) -> Result<(), Refused<O>> {
    let head = send.ring.cursor.head();
    // SAFETY: all memory that the request names is in slices. The flight owns them below, until a
    // poll has retired the request or the QP was reset. If the queue pair is dropped before, their
    // memory is deregistered before it is freed.
    if let Err(error) = unsafe { send.post_ref(id, &operation) } {
        return Err(Refused { error, operation });
    }
    flight.put(head, operation);
    Ok(())
}

impl<T: Transport, R, S: SendHalf> Core<T, R, S> {
    /// Returns the oldest request, of one block, which a poll has just found retired.
    #[inline(always)]
    pub(super) fn oldest(&mut self, done: SendDone) -> Returned {
        let buffers = self.flight.take(self.send.ring(INTERNAL).cursor.tail().before());
        self.send.release(INTERNAL);
        Returned { id: done.id, buffers, outcome: Outcome::Sent(done) }
    }

    /// Handles a CQE, the first since `mark`, that retired requests, the last one with `outcome`.
    /// Returns the first of them. Every poll of `completions` takes the slow path until
    /// [`give_back`](Self::give_back) has returned all.
    pub(super) fn retire(
        &mut self,
        mark: Mark,
        outcome: Outcome,
        completions: &mut CqReader,
    ) -> Option<Returned> {
        // As most completions of connections that post singly do.
        if let (true, Outcome::Sent(done)) =
            (self.send.ring(INTERNAL).retired_one_since(mark), outcome)
        {
            return Some(self.oldest(done));
        }
        self.retired = Some((self.send.ring(INTERNAL).hold_back(mark), outcome));
        completions.hold(true);
        self.give_back(completions)
    }

    /// Returns the oldest request that a CQE has retired and no poll has returned.
    pub(super) fn give_back(&mut self, completions: &mut CqReader) -> Option<Returned> {
        let (end, outcome) = self.retired?;
        let ring = self.send.ring(INTERNAL);
        let oldest = ring.give_back(end);
        let is_last = ring.cursor.tail() == end;
        if is_last {
            self.retired = None;
            completions.hold(false);
        }
        let (at, entry) = oldest?;
        let buffers = self.flight.take(at);
        self.send.release(INTERNAL);
        let outcome = if is_last {
            outcome
        } else {
            let byte_len = buffers.slices().iter().map(MrSlice::len).sum();
            Outcome::SentUnsignaled { byte_len }
        };
        Some(Returned { id: entry.id, buffers, outcome })
    }
}
