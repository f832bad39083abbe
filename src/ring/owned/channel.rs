//! Both ends of a queue pair, and the completions of both.

use super::flight::{Event, Flight, Outcome, Refused};
use super::operation::OwnedPayload;
use super::receiver::{self, Receiver};
use super::{Buffers, OwnedOperation};
use crate::cqe::{Completion, QueueKind};
use crate::ring::{
    Completions, PollError, PostError, QueueError, ReceiveQueue, SendConfig, SendQueue,
};
use crate::verbs::{QueuePair, Rc, Reset, Rts, Transport};
use crate::wqe::SgeList;

/// A queue pair with everything that is in flight on it.
///
/// Dropping it destroys the queue pair, if nothing else keeps that alive, before the memory in
/// flight is deregistered and freed. [`close`](Self::close) gives everything back instead.
#[derive(Debug)]
pub struct Channel<T: Transport = Rc> {
    // In the order of their end: the first three hold the queue pair, the last two the memory.
    qp: QueuePair<T, Rts>,
    send: SendQueue<T>,
    receive: ReceiveQueue,
    completions: Completions,
    receive_completions: Option<Completions>,
    sends: Flight,
    receives: Flight,
}

/// What is left of a closed channel.
#[derive(Debug)]
pub struct Closed<T: Transport = Rc> {
    /// The queue pair, in RESET.
    pub qp: QueuePair<T, Reset>,
    /// The completions of sends, or of both.
    pub completions: Completions,
    /// Those of receives, if they were separate.
    pub receive_completions: Option<Completions>,
    /// Ids and memory of requests that were in flight, oldest first; they have no outcome.
    pub sends: Vec<(u64, Buffers)>,
    /// Ids and memory of receives that were in flight, oldest first.
    pub receives: Vec<(u64, Buffers)>,
}

impl<T: Transport> Channel<T> {
    /// A channel over a connected queue pair whose sends and receives complete on `completions`.
    /// The receiver was made before, so that receives could be posted before the peer sends.
    ///
    /// # Errors
    /// As [`SendQueue::new`]; [`QueueError::ForeignQp`] and [`QueueError::ForeignCq`] for a receiver
    /// of another queue pair, or one that completes elsewhere. Everything given is dropped then.
    pub fn new(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        completions: Completions,
        config: SendConfig,
    ) -> crate::Result<Self> {
        Self::build(qp, receiver, completions, None, config)
    }

    /// As [`new`](Self::new), with receives that complete on another CQ.
    ///
    /// # Errors
    /// As there.
    pub fn with_receive_completions(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        completions: Completions,
        receive_completions: Completions,
        config: SendConfig,
    ) -> crate::Result<Self> {
        Self::build(qp, receiver, completions, Some(receive_completions), config)
    }

    fn build(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        mut completions: Completions,
        receive_completions: Option<Completions>,
        config: SendConfig,
    ) -> crate::Result<Self> {
        let Receiver { queue: receive, flight: receives } = receiver;
        // By the object: two devices may give their queue pairs the same number.
        if !receive.is_of(qp.as_raw()) {
            return Err(QueueError::ForeignQp.into());
        }
        if !receive.completes_on(receive_completions.as_ref().unwrap_or(&completions)) {
            return Err(QueueError::ForeignCq.into());
        }
        let send = SendQueue::new(&qp, &mut completions, config)?;
        let sends = Flight::new(send.blocks());
        Ok(Self { qp, send, receive, completions, receive_completions, sends, receives })
    }

    /// Posts a request; its memory comes back with its completion, or that of a later one.
    ///
    /// # Errors
    /// [`Refused`], which gives the operation back. [`PostError::QueueFull`] also where retired
    /// requests have not been given back yet.
    #[inline]
    pub fn post<O: OwnedOperation<T>>(&mut self, id: u64, operation: O) -> Result<(), Refused<O>> {
        let Some(number) = self.sends.next() else {
            return Err(Refused { error: PostError::QueueFull, operation });
        };
        // SAFETY: the operation's slices are owned, so nobody else reaches their memory; nothing but
        // giving them to the flight, which cannot fail, follows. The flight is as in
        // `receiver::post`.
        if let Err(error) = unsafe { self.send.post_ref(number, &operation) } {
            return Err(Refused { error, operation });
        }
        self.sends.add(id, operation.into_buffers());
        Ok(())
    }

    /// Posts a receive, as [`Receiver::post`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn post_receive<P: OwnedPayload + SgeList>(
        &mut self,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        receiver::post(&mut self.receive, &mut self.receives, id, memory)
    }

    /// Takes the next request or receive that is retired, with its memory. Unsignaled requests come
    /// before the signaled one whose completion retired them.
    ///
    /// # Errors
    /// [`PollError`].
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Event>, PollError> {
        if let Some(returned) = self.sends.pop() {
            return Ok(Some(Event::Returned(returned)));
        }
        let mut queues = (&mut self.send, &mut self.receive);
        let mut completion = self.completions.poll(&mut queues)?;
        if let (None, Some(second)) = (&completion, &mut self.receive_completions) {
            completion = second.poll(&mut queues)?;
        }
        let (queue, number, outcome) = match completion {
            None => return Ok(None),
            Some(Completion::Send(done)) => (QueueKind::Send, done.id, Outcome::Sent(done)),
            Some(Completion::Receive(done)) => {
                (QueueKind::Receive, done.id, Outcome::Received(done))
            }
            Some(Completion::Failed(failure)) => {
                (failure.queue, failure.id, Outcome::Failed(failure))
            }
            Some(Completion::Unclaimed(unclaimed)) => return Ok(Some(Event::Unclaimed(unclaimed))),
        };
        let flight = match queue {
            QueueKind::Send => &mut self.sends,
            QueueKind::Receive => &mut self.receives,
        };
        flight.retire(number, outcome);
        Ok(flight.pop().map(Event::Returned))
    }

    /// The completions of sends, or of both: to arm them, to say that an event was taken.
    pub fn completions(&mut self) -> &mut Completions {
        &mut self.completions
    }

    /// Those of receives, if they are separate.
    pub fn receive_completions(&mut self) -> Option<&mut Completions> {
        self.receive_completions.as_mut()
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &QueuePair<T, Rts> {
        &self.qp
    }

    /// The send queue, for what can be asked of it.
    pub fn send_queue(&self) -> &SendQueue<T> {
        &self.send
    }

    /// The receive queue, for what can be asked of it.
    pub fn receive_queue(&self) -> &ReceiveQueue {
        &self.receive
    }

    /// Moves the queue pair to RESET and gives everything back.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) if the reset fails: then the queue pair is destroyed,
    /// and the memory in flight freed.
    pub fn close(self) -> crate::Result<Closed<T>> {
        let Self { qp, send, receive, completions, receive_completions, sends, receives } = self;
        // Their claims forbid the reset.
        drop((send, receive));
        let qp = match qp.reset() {
            Ok(qp) => qp,
            Err(failed) => {
                // The queue pair goes first, so that nothing works on the memory.
                drop(failed.queue_pair);
                return Err(failed.error);
            }
        };
        let (sends, receives) = (sends.into_rest(), receives.into_rest());
        Ok(Closed { qp, completions, receive_completions, sends, receives })
    }
}
