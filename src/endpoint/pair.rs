//! A queue pair with its requests in flight: what an endpoint and each connection of several have
//! in common.

use super::flight::{Flight, InFlight, Outstanding};
use super::{Buffers, EndpointBatch, MrSlice, Outcome, Owned, Refused, Returned};
use crate::cqe::{SendDone, Timestamp};
use crate::doorbell::Lent;
use crate::error::{Error, QueueError};
use crate::ib::{Counter, INTERNAL, Internal, Transport};
use crate::ring::send::Place;
use crate::ring::send::{Point, SendState};
use crate::ring::source::handover::Sends;
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

    /// Returns the state of the queue.
    #[doc(hidden)]
    fn state_mut(&mut self, _: Internal) -> &mut SendState;

    /// Releases the blocks of requests that are retired and whose memory was taken, to other
    /// threads that post.
    #[doc(hidden)]
    #[inline(always)]
    fn release(&mut self, _: Internal) {}
}

impl<T: Transport> SendHalf for SendQueue<T> {
    type Flight = Flight;

    #[inline(always)]
    fn state_mut(&mut self, _: Internal) -> &mut SendState {
        self.state_mut()
    }
}

impl<O, T: Transport> SendHalf for Prepared<O, T> {
    type Flight = Flight;

    #[inline(always)]
    fn state_mut(&mut self, _: Internal) -> &mut SendState {
        self.state_mut()
    }
}

/// A queue pair with its requests in flight and their memory, and `R`, what it receives with.
#[derive(Debug)]
pub(super) struct Core<T: Transport, R, S: SendHalf> {
    pub(super) qp: QueuePair<T, Rts>,
    pub(super) send: S,
    pub(super) receive: R,
    pub(super) flight: S::Flight,
    /// What was retired before the CQE that a poll took last.
    pub(super) before: Point,
    /// While retired requests have not been returned: what the CQE said that retired them.
    pub(super) retired: Option<Retired>,
}

/// Requests that a CQE has retired, and of which some have not been returned.
#[derive(Debug)]
pub(super) struct Retired {
    /// Where the ring's tail will be.
    end: Counter,
    /// The outcome of the last request before the end.
    outcome: Outcome,
    /// The time of the CQE, if a timed poll took it.
    pub(super) time: Option<Timestamp>,
}

/// A queue pair that was reset, and ids and memory of what was in flight.
pub(super) struct Reclaimed<T: Transport> {
    pub(super) qp: QueuePair<T, Reset>,
    pub(super) sends: Vec<(u64, Buffers)>,
    pub(super) receives: Vec<(u64, Buffers)>,
}

impl<T: Transport, R> Core<T, R, SendQueue<T>> {
    /// Takes over the send queue of a connected queue pair. On an error, returns the queue pair and
    /// `receive`, too.
    pub(super) fn new(
        qp: QueuePair<T, Rts>,
        receive: R,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> Result<Self, (Error, QueuePair<T, Rts>, R)> {
        let taken = qp.domain().ok_or(QueueError::NoQueue.into()).and_then(|domain| {
            let send = SendQueue::new(&qp, completions, config)?;
            let flight = Flight::new(send.state().shape(), domain, qp.owner(INTERNAL));
            Ok((send, flight))
        });
        match taken {
            Ok((send, flight)) => {
                let before = send.state().mark();
                Ok(Self { qp, send, receive, flight, before, retired: None })
            }
            Err(error) => Err((error, qp, receive)),
        }
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

    /// Moves the queue pair to RESET, after `flush`. `give_up` releases the receive half's claim on
    /// it.
    ///
    /// # Errors
    /// The reset failed: then the queue pair is dropped, and owns the memory in flight.
    pub(super) fn reset(
        self,
        flush: impl FnOnce(&QueuePair<T, Rts>, &mut SendQueue<T>),
        give_up: impl FnOnce(R) -> Outstanding,
    ) -> crate::error::Result<Reclaimed<T>> {
        let Self { qp, mut send, receive, flight, .. } = self;
        let sends = send.state().outstanding().map(|(at, entry)| (at, entry.id)).collect();
        let sends = Outstanding::new(sends, flight);
        flush(&qp, &mut send);
        // Their claims prevent the reset.
        let receives = give_up(receive);
        drop(send);
        let qp = qp.reset()?;
        Ok(Reclaimed { qp, sends: sends.after_reset(), receives: receives.after_reset() })
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
    if !flight.accepts(&operation) {
        return Err(Refused::memory(operation));
    }
    let mut place = Place::default();
    // SAFETY: all memory that the request names is in slices, which the flight owns as soon as the
    // call returns: nothing reads, writes or borrows it. The poll that retires the request returns
    // them, or `after_reset` does. A dropped flight gives them to the queue pair.
    let lent = unsafe { Lent::promised() };
    match send.post_owned(lent, id, &operation, &mut place) {
        Ok(true) => {
            // SAFETY: the place is of the queue's ring, whose flight this is.
            unsafe { flight.put_at(place, operation) };
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
    let head = send.state().head();
    // SAFETY: all memory that the request names is in slices. The flight owns them below, until a
    // poll has retired the request or the QP was reset. A dropped flight gives them to the QP.
    let lent = unsafe { Lent::promised() };
    if let Err(error) = send.post_ref(lent, id, &operation) {
        return Err(Refused { error, operation });
    }
    flight.put(head, operation);
    Ok(())
}

impl<T: Transport, R, S: SendHalf> Core<T, R, S> {
    /// Returns the request that a poll has found.
    ///
    /// # Safety
    /// The last call on the reader was [`find`](CqReader::find), and it found a send of this queue.
    #[inline(always)]
    pub(super) unsafe fn found(&mut self, done: SendDone) -> Returned {
        let place = self.send.state_mut(INTERNAL).retired();
        // SAFETY: `find` has retired the ring's oldest request, which is there. The flight is of the
        // ring.
        let buffers = unsafe { self.flight.take_at(place) };
        self.send.release(INTERNAL);
        Returned { id: done.id, buffers, outcome: Outcome::Sent(done) }
    }

    /// Returns the oldest request, of one block, which a poll has just retired.
    fn oldest(&mut self, done: SendDone) -> Returned {
        let buffers = self.flight.take(self.send.state_mut(INTERNAL).tail().before());
        self.send.release(INTERNAL);
        Returned { id: done.id, buffers, outcome: Outcome::Sent(done) }
    }

    /// Marks what is retired. Called before a CQE is taken that may retire requests.
    #[inline(always)]
    pub(super) fn mark(&mut self) {
        self.before = self.send.state_mut(INTERNAL).mark();
    }

    /// Handles a CQE, the first since [`mark`](Self::mark), that retired requests, the last one with
    /// `outcome`. Returns the first of them: the only one, if requests complete in any order. Every
    /// poll of `completions` takes the slow path until [`give_back`](Self::give_back) has returned
    /// all.
    pub(super) fn retire(
        &mut self,
        outcome: Outcome,
        completions: &mut CqReader,
    ) -> Option<Returned> {
        let mark = self.before;
        // As most completions of connections that post singly do.
        if let (true, Outcome::Sent(done)) =
            (self.send.state_mut(INTERNAL).retired_one_since(mark), outcome)
        {
            return Some(self.oldest(done));
        }
        if let Some((at, entry)) = self.send.state_mut(INTERNAL).retired_alone() {
            let buffers = self.flight.take(at);
            self.send.release(INTERNAL);
            return Some(Returned { id: entry.id, buffers, outcome });
        }
        let end = self.send.state_mut(INTERNAL).hold_back(mark);
        self.retired = Some(Retired { end, outcome, time: None });
        completions.hold(true);
        self.give_back(completions)
    }

    /// Returns the oldest request that a CQE has retired and no poll has returned.
    pub(super) fn give_back(&mut self, completions: &mut CqReader) -> Option<Returned> {
        let &Retired { end, outcome, .. } = self.retired.as_ref()?;
        let state = self.send.state_mut(INTERNAL);
        let oldest = state.give_back(end);
        let is_last = state.tail() == end;
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
