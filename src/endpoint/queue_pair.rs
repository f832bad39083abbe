//! Both ends of a queue pair, and the completions of both.

use core::mem::MaybeUninit;

use super::flight::{Event, Flight, Outcome, Refused, Returned};
use super::operation::OwnedPayload;
use super::receiver::Receiver;
use super::{Buffers, EndpointBatch, MrSlice, OwnedOperation};
use crate::cqe::{Completion, QueueKind, ReceiveDone};
use crate::error::QueueError;
use crate::ib::{Rc, Transport};
use crate::ring::completion::Found;
use crate::ring::give_back::Mark;
use crate::ring::source::ObjectId;
use crate::ring::{CqReader, PollError, PostError, ReceiveQueue, SendConfig, SendQueue};
use crate::verbs::{QueuePair, Reset, Rts};
use crate::wqe::{Nop, SgeList};

/// A queue pair with all its requests in flight and their memory.
///
/// Dropping it destroys the queue pair, if nothing else keeps that alive, before the memory in
/// flight is deregistered and freed. [`close`](Self::close) returns everything instead.
#[derive(Debug)]
pub struct Endpoint<T: Transport = Rc> {
    // In drop order: the first three hold the queue pair, the last one the memory of requests. The
    // receiver holds the memory of receives, and drops it after the queue pair.
    qp: QueuePair<T, Rts>,
    send: SendQueue<T>,
    receive: Receiver,
    completions: CqReader,
    receive_completions: Option<CqReader>,
    sends: Flight,
}

/// The parts of a closed endpoint.
#[derive(Debug)]
pub struct Closed<T: Transport = Rc> {
    /// The queue pair, in RESET.
    pub qp: QueuePair<T, Reset>,
    /// The reader of the CQ of sends, or of both.
    pub completions: CqReader,
    /// The reader of the CQ of receives, if it was separate.
    pub receive_completions: Option<CqReader>,
    /// Ids and memory of requests that were in flight, oldest first. Their outcome is unknown.
    pub sends: Vec<(u64, Buffers)>,
    /// Ids and memory of receives that were in flight, oldest first.
    pub receives: Vec<(u64, Buffers)>,
}

impl<T: Transport> Endpoint<T> {
    /// Creates an endpoint over a connected queue pair whose sends and receives complete on
    /// `completions`. The receiver was created before, so that receives could be posted before the
    /// peer sends.
    ///
    /// # Errors
    /// The errors of [`SendQueue::new`]. [`QueueError::QpMismatch`] or [`QueueError::CqMismatch`]
    /// if the receiver is of another queue pair, or completes on another CQ. All arguments are
    /// dropped then.
    pub fn new(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        completions: CqReader,
        config: SendConfig,
    ) -> crate::error::Result<Self> {
        Self::build(qp, receiver, completions, None, config)
    }

    /// Creates an endpoint whose receives complete on another CQ, `receive_completions`.
    ///
    /// # Errors
    /// The errors of [`SendQueue::new`]. [`QueueError::QpMismatch`] or [`QueueError::CqMismatch`]
    /// if the receiver is of another queue pair, or completes on another CQ. All arguments are
    /// dropped then.
    pub fn with_receive_completions(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        completions: CqReader,
        receive_completions: CqReader,
        config: SendConfig,
    ) -> crate::error::Result<Self> {
        Self::build(qp, receiver, completions, Some(receive_completions), config)
    }

    fn build(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        mut completions: CqReader,
        receive_completions: Option<CqReader>,
        config: SendConfig,
    ) -> crate::error::Result<Self> {
        let receive = receiver.queue();
        // Compares the objects: two devices may give their queue pairs the same number.
        if !receive.is_of(ObjectId::at(qp.as_raw().as_ptr())) {
            return Err(QueueError::QpMismatch.into());
        }
        if !receive.completes_on(receive_completions.as_ref().unwrap_or(&completions)) {
            return Err(QueueError::CqMismatch.into());
        }
        let send = SendQueue::new(&qp, &mut completions, config)?;
        let domain = qp.domain().ok_or(QueueError::NoQueue)?;
        let sends = Flight::new(&send.ring, domain);
        // A poll that finds no CQE in the first CQ must look at the other.
        completions.watch(receive_completions.is_some());
        Ok(Self { qp, send, receive: receiver, completions, receive_completions, sends })
    }

    /// Posts a request. Its memory is returned with its completion, or with that of a later
    /// request.
    ///
    /// # Errors
    /// [`Refused`], which returns the operation. [`PostError::QueueFull`] also if retired requests
    /// have not been returned yet. [`PostError::PdMismatch`] for memory of another protection
    /// domain or device.
    #[inline]
    pub fn post<O: OwnedOperation<T>>(&mut self, id: u64, operation: O) -> Result<(), Refused<O>> {
        if MrSlice::any_foreign(operation.slices(), self.sends.domain) {
            return Err(Refused::foreign(operation));
        }
        self.send.ring.doorbell.timing.begin();
        let cursor = self.send.ring.cursor;
        // SAFETY: all memory that the request names is in slices, which the flight owns as soon as
        // the call returns: nothing reads, writes or borrows it. The poll that retires the request
        // returns them, or `close` does after RESET. If the endpoint is dropped before, so are the
        // slices: their memory stays registered while other slices of the region exist, which do
        // not cover it, and is deregistered before it is freed. If the endpoint is leaked, so are
        // the slices.
        match unsafe { self.send.post_short(id, &operation) } {
            Ok(true) => {
                let slot = cursor.shape().slot(cursor.head());
                // SAFETY: the slot is the ring's, of the request posted above. It was free, so its
                // place holds nothing: `post_short` posts only where no batch was leaked.
                unsafe { self.sends.add(slot, operation.into_buffers()) }
                return Ok(());
            }
            Ok(false) => {}
            Err(refusal) => return Err(Refused { error: refusal.into(), operation }),
        }
        self.post_any(id, operation)
    }

    #[inline(never)]
    fn post_any<O: OwnedOperation<T>>(&mut self, id: u64, operation: O) -> Result<(), Refused<O>> {
        self.sends.forget_unposted(&self.send.ring);
        let cursor = self.send.ring.cursor;
        // SAFETY: all memory that the request names is in slices. The flight owns them below, until
        // a poll has retired the request or the QP was reset. If the endpoint is dropped before,
        // their memory is deregistered before it is freed.
        if let Err(error) = unsafe { self.send.post_ref(id, &operation) } {
            return Err(Refused { error, operation });
        }
        // SAFETY: the slot is the ring's, of the request posted above. It was free, so its place
        // holds nothing: `forget_unposted` has dropped the buffers of a leaked batch.
        unsafe {
            let slot = cursor.shape().slot(cursor.head());
            self.sends.add(slot, operation.into_buffers());
        }
        Ok(())
    }

    /// Starts a batch: several requests with one doorbell.
    #[inline]
    pub fn batch(&mut self) -> EndpointBatch<'_, T> {
        EndpointBatch::new(&mut self.send, &mut self.sends)
    }

    /// Posts a receive by [`Receiver::post`].
    ///
    /// # Errors
    /// The errors of [`Receiver::post`]. Nothing is posted then.
    #[inline]
    pub fn post_receive<P: OwnedPayload + SgeList>(
        &mut self,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        self.receive.post(id, memory)
    }

    /// Retires outstanding requests of an idle endpoint. If only unsignaled requests are
    /// outstanding, posts a signaled NOP with this id behind them. Polls then return their memory,
    /// and the NOP itself. Returns whether it posted one.
    ///
    /// # Errors
    /// The errors of [`SendQueue::reclaim`].
    pub fn reclaim(&mut self, id: u64) -> Result<bool, PostError>
    where
        Nop: OwnedOperation<T>,
    {
        if !self.send.is_silent() {
            return Ok(false);
        }
        self.post(id, Nop::new().signaled()).map(|()| true).map_err(|refused| refused.error)
    }

    /// Takes the next retired request or receive, with its memory. Unsignaled requests come before
    /// the signaled one whose completion retired them.
    ///
    /// # Errors
    /// [`PollError`].
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Event>, PollError> {
        let mut queues = (&mut self.send, self.receive.queue_mut());
        match self.completions.find(&mut queues) {
            Found::Nothing => Ok(None),
            Found::Send(done) => {
                // SAFETY: `find` was the last call on the reader, and found a send.
                unsafe { self.completions.take_found() };
                // SAFETY: `find` found a send, so it has retired it by `retire_oldest`, as the
                // oldest, and nothing has been retired since.
                let buffers = unsafe { self.sends.take_oldest(&self.send.ring) };
                let outcome = Outcome::Sent(done);
                Ok(Some(Event::Returned(Returned { id: done.id, buffers, outcome })))
            }
            Found::Receive(done) => {
                // SAFETY: `find` was the last call on the reader, and found a receive.
                unsafe { self.completions.take_found() };
                Ok(Some(Event::Returned(self.received(done))))
            }
            Found::Other => {
                // A variable of its own, so that only this path needs an event of any kind in
                // memory.
                let mut other = MaybeUninit::uninit();
                if !self.poll_other(&mut other)? {
                    return Ok(None);
                }
                // SAFETY: `poll_other` returned true, so it wrote an event.
                Ok(Some(unsafe { other.assume_init() }))
            }
        }
    }

    /// Takes the next event of any kind. Returns whether it wrote one to `into`.
    ///
    /// This path is not only for rare cases. It handles successes of requests that follow
    /// unsignaled ones, and everything of a CQ that has only receives.
    #[cold]
    #[inline(never)]
    fn poll_other(&mut self, into: &mut MaybeUninit<Event>) -> Result<bool, PollError> {
        if self.sends.has_retired() {
            let returned = self.sends.give_back(&mut self.send.ring);
            if !self.sends.has_retired() {
                self.completions.hold(false);
            }
            if let Some(returned) = returned {
                into.write(Event::Returned(returned));
                return Ok(true);
            }
        }
        let mark = self.send.ring.mark();
        let mut queues = (&mut self.send, self.receive.queue_mut());
        let mut other = MaybeUninit::uninit();
        if !self.completions.take_other(&mut queues, &mut other)? {
            let Some(second) = &mut self.receive_completions else { return Ok(false) };
            match second.find(&mut queues) {
                Found::Nothing => return Ok(false),
                Found::Send(done) => {
                    // SAFETY: `find` was the last call on the reader, and found a send.
                    unsafe { second.take_found() };
                    other.write(Completion::Send(done));
                }
                Found::Receive(done) => {
                    // SAFETY: `find` was the last call on the reader, and found a receive.
                    unsafe { second.take_found() };
                    into.write(Event::Returned(self.received(done)));
                    return Ok(true);
                }
                Found::Other => {
                    if !second.take_other(&mut queues, &mut other)? {
                        return Ok(false);
                    }
                }
            }
        }
        // SAFETY: `take_other` wrote it if it returned true, and the arm of a send wrote it. The
        // other arms return.
        let event = match unsafe { other.assume_init() } {
            Completion::Send(done) => return Ok(self.sent(mark, Outcome::Sent(done), into)),
            Completion::Failed(failure) if failure.queue == QueueKind::Send => {
                return Ok(self.sent(mark, Outcome::Failed(failure), into));
            }
            Completion::Receive(done) => Event::Returned(self.received(done)),
            Completion::Failed(failure) => {
                let buffers = self.receive.take_retired();
                let outcome = Outcome::Failed(failure);
                Event::Returned(Returned { id: failure.id, buffers, outcome })
            }
            // It retired nothing.
            Completion::UnexpectedCqe(unexpected) => Event::UnexpectedCqe(unexpected),
        };
        into.write(event);
        Ok(true)
    }

    /// Handles a CQE, the first since `mark`, that retired requests, the last one with `outcome`.
    /// Writes the first of them to `into`.
    fn sent(&mut self, mark: Mark, outcome: Outcome, into: &mut MaybeUninit<Event>) -> bool {
        self.sends.retire(&mut self.send.ring, mark, outcome);
        let returned = self.sends.give_back(&mut self.send.ring);
        if self.sends.has_retired() {
            self.completions.hold(true);
        }
        returned.map(|returned| into.write(Event::Returned(returned))).is_some()
    }

    /// Returns the receive that was just retired.
    #[inline(always)]
    fn received(&mut self, done: ReceiveDone) -> Returned {
        let buffers = self.receive.take_retired();
        Returned { id: done.id, buffers, outcome: Outcome::Received(done) }
    }

    /// Requests an event on the completion channel of each of its CQs at the next completion. With
    /// `solicited_only`, at the next solicited completion or error. Poll once more afterwards: a
    /// completion that came before may have raised no event. Costs, for each CQ, one store to the
    /// record, one to a register, and two store fences.
    pub fn arm(&mut self, solicited_only: bool) {
        self.readers().for_each(match solicited_only {
            true => CqReader::arm_solicited,
            false => CqReader::arm,
        });
    }

    /// Counts an event taken from the channel of a CQ that was taken over by
    /// [`CqReader::from_raw`]; see [`CqReader::event_taken`]. Does nothing if neither CQ has this
    /// number.
    pub fn event_taken(&mut self, cqn: u32) {
        self.readers().filter(|reader| reader.cqn() == cqn).for_each(CqReader::event_taken);
    }

    /// Reports that the HCA failed the CQ of this number; see [`CqReader::overrun`]. Does nothing
    /// if neither CQ has this number.
    pub fn overrun(&mut self, cqn: u32) {
        self.readers().filter(|reader| reader.cqn() == cqn).for_each(CqReader::overrun);
    }

    fn readers(&mut self) -> impl Iterator<Item = &mut CqReader> {
        core::iter::once(&mut self.completions).chain(&mut self.receive_completions)
    }

    /// Returns the reader of the CQ of sends, or of both, for its queries.
    pub fn completions(&self) -> &CqReader {
        &self.completions
    }

    /// Returns the reader of the CQ of receives, if it is separate, for its queries.
    pub fn receive_completions(&self) -> Option<&CqReader> {
        self.receive_completions.as_ref()
    }

    /// Returns the queue pair.
    pub fn queue_pair(&self) -> &QueuePair<T, Rts> {
        &self.qp
    }

    /// Returns the send queue, for its queries.
    pub fn send_queue(&self) -> &SendQueue<T> {
        &self.send
    }

    /// Returns the receive queue, for its queries.
    pub fn receive_queue(&self) -> &ReceiveQueue {
        self.receive.queue()
    }

    /// Moves the queue pair to RESET and returns all its parts.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) if the reset fails: then the queue pair is destroyed,
    /// and the memory in flight is freed.
    pub fn close(self) -> crate::error::Result<Closed<T>> {
        let Self { qp, send, mut receive, mut completions, receive_completions, mut sends } = self;
        completions.hold(false);
        completions.watch(false);
        // Only this function can reach them until the reset.
        let (sends, receives) = (sends.take_rest(&send.ring), receive.take_outstanding());
        // Their claims prevent the reset.
        drop((send, receive));
        let qp = match qp.reset() {
            Ok(qp) => qp,
            Err(failed) => {
                // The queue pair is destroyed first, so that the HCA no longer works on the memory.
                drop(failed.queue_pair);
                return Err(failed.error);
            }
        };
        Ok(Closed { qp, completions, receive_completions, sends, receives })
    }
}
