//! Both ends of a queue pair, and the completions of both.

use core::iter::from_fn;
use core::mem::MaybeUninit;

use super::flight::Flight;
use super::{
    Buffers, EndpointBatch, EndpointError, MrSlice, Outcome, Owned, Receiver, Refused, Returned,
};
use crate::cqe::{Completion, QueueKind, ReceiveDone};
use crate::error::QueueError;
use crate::ib::{Counter, Rc, Transport};
use crate::ring::completion::Found;
use crate::ring::give_back::Mark;
use crate::ring::source::ObjectId;
use crate::ring::{CqReader, PollError, PostError, ReceiveQueue, SendConfig, SendQueue};
use crate::verbs::{QueuePair, Reset, Rts};
use crate::wqe::{Nop, PostOn, SgeList};

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
    flight: Flight,
    /// While retired requests have not been returned: where the ring's tail will be, and the
    /// outcome of the last request before it.
    retired: Option<(Counter, Outcome)>,
}

/// The parts of a closed endpoint.
#[derive(Debug)]
#[non_exhaustive]
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
        let flight = Flight::new(send.ring.cursor.shape(), domain);
        // A poll that finds no CQE in the first CQ must look at the other.
        completions.watch(receive_completions.is_some());
        let receive = receiver;
        Ok(Self { qp, send, receive, completions, receive_completions, flight, retired: None })
    }

    /// Posts a request. Its memory is returned with its completion, or with that of a later
    /// request.
    ///
    /// # Errors
    /// [`Refused`], which returns the operation. [`PostError::QueueFull`] also if retired requests
    /// have not been returned yet. [`PostError::PdMismatch`] for memory of another protection
    /// domain or device.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<O: PostOn<T> + Owned>(&mut self, id: u64, operation: O) -> Result<(), Refused<O>> {
        if !self.flight.accepts(operation.slices()) {
            return Err(Refused::foreign(operation));
        }
        self.send.ring.doorbell.timing.begin();
        let head = self.send.ring.cursor.head();
        // SAFETY: all memory that the request names is in slices, which the flight owns as soon as
        // the call returns: nothing reads, writes or borrows it. The poll that retires the request
        // returns them, or `close` does after RESET. If the endpoint is dropped before, so are the
        // slices: their memory stays registered while other slices of the region exist, which do
        // not cover it, and is deregistered before it is freed. If the endpoint is leaked, so are
        // the slices.
        match unsafe { self.send.post_short(id, &operation) } {
            Ok(true) => {
                self.flight.put(head, operation);
                Ok(())
            }
            Ok(false) => self.post_any(id, operation),
            Err(refusal) => Err(Refused { error: refusal.into(), operation }),
        }
    }

    #[inline(never)]
    fn post_any<O: PostOn<T> + Owned>(&mut self, id: u64, operation: O) -> Result<(), Refused<O>> {
        let head = self.send.ring.cursor.head();
        // SAFETY: all memory that the request names is in slices. The flight owns them below, until
        // a poll has retired the request or the QP was reset. If the endpoint is dropped before,
        // their memory is deregistered before it is freed.
        if let Err(error) = unsafe { self.send.post_ref(id, &operation) } {
            return Err(Refused { error, operation });
        }
        self.flight.put(head, operation);
        Ok(())
    }

    /// Starts a batch: several requests with one doorbell.
    #[doc(alias("ibv_wr_start", "ibv_post_send"))]
    #[inline]
    pub fn batch(&mut self) -> EndpointBatch<'_, T> {
        EndpointBatch::new(&mut self.send, &mut self.flight)
    }

    /// Posts a receive by [`Receiver::post`].
    ///
    /// # Errors
    /// The errors of [`Receiver::post`]. Nothing is posted then.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_receive<P: SgeList + Owned>(
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
        Nop: PostOn<T>,
    {
        if !self.send.is_silent() {
            return Ok(false);
        }
        self.post(id, Nop::new().signaled()).map(|()| true).map_err(|refused| refused.error)
    }

    /// Returns an iterator over the requests and receives that are retired, with their memory.
    /// Unsignaled requests come before the signaled one whose completion retired them.
    ///
    /// The iterator polls at each step, and ends when nothing is left or after an error. It holds
    /// nothing: what it was not asked for is returned by the next poll.
    ///
    /// ```no_run
    /// # use mlx5::endpoint::{Endpoint, EndpointError, MrSlice};
    /// # fn example(endpoint: &mut Endpoint, free: &mut Vec<MrSlice>) -> Result<(), EndpointError> {
    /// for returned in endpoint.poll() {
    ///     let returned = returned?;
    ///     println!("request {}: {:?}", returned.id, returned.outcome);
    ///     free.extend(returned.buffers);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Its items may be [`EndpointError`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    #[must_use = "it polls when it is asked for an item"]
    pub fn poll(&mut self) -> impl Iterator<Item = Result<Returned, EndpointError>> {
        let mut failed = false;
        from_fn(move || {
            if failed {
                return None;
            }
            let next = self.next_retired();
            failed = matches!(next, Some(Err(_)));
            next
        })
    }

    /// Takes the next request that is retired.
    #[inline]
    fn next_retired(&mut self) -> Option<Result<Returned, EndpointError>> {
        let mut queues = (&mut self.send, self.receive.queue_mut());
        match self.completions.find(&mut queues) {
            Found::Nothing => None,
            Found::Send(done) => {
                // SAFETY: `find` was the last call on the reader, and found a send.
                unsafe { self.completions.take_found() };
                // It was the oldest request, of one block.
                let buffers = self.flight.take(self.send.ring.cursor.tail().before());
                let outcome = Outcome::Sent(done);
                Some(Ok(Returned { id: done.id, buffers, outcome }))
            }
            Found::Receive(done) => {
                // SAFETY: `find` was the last call on the reader, and found a receive.
                unsafe { self.completions.take_found() };
                Some(Ok(self.received(done)))
            }
            Found::Other => {
                // A variable of its own, so that only this path needs a request in memory.
                let mut other = None;
                self.next_other(&mut other);
                other
            }
        }
    }

    /// Takes the next request that is retired, of any kind.
    ///
    /// This path is not only for rare cases. It handles successes of requests that follow
    /// unsignaled ones, and everything of a CQ that has only receives.
    #[cold]
    #[inline(never)]
    fn next_other(&mut self, into: &mut Option<Result<Returned, EndpointError>>) {
        *into = self.next_of_any_kind();
    }

    fn next_of_any_kind(&mut self) -> Option<Result<Returned, EndpointError>> {
        if let Some(returned) = self.give_back() {
            return Some(Ok(returned));
        }
        let mark = self.send.ring.mark();
        let returned = match self.next_completion().transpose()? {
            Ok(Completion::Send(done)) => self.sent(mark, Outcome::Sent(done))?,
            Ok(Completion::Failed(failure)) if failure.queue == QueueKind::Send => {
                self.sent(mark, Outcome::Failed(failure))?
            }
            Ok(Completion::Receive(done)) => self.received(done),
            Ok(Completion::Failed(failure)) => {
                let buffers = self.receive.take_retired();
                Returned { id: failure.id, buffers, outcome: Outcome::Failed(failure) }
            }
            // It retired nothing.
            Ok(Completion::UnexpectedCqe(unexpected)) => {
                return Some(Err(EndpointError::UnexpectedCqe(unexpected)));
            }
            Err(error) => return Some(Err(error.into())),
        };
        Some(Ok(returned))
    }

    /// Takes the next completion of either CQ, after the first one's `find` found nothing usual.
    fn next_completion(&mut self) -> Result<Option<Completion>, PollError> {
        let mut queues = (&mut self.send, self.receive.queue_mut());
        let mut other = MaybeUninit::uninit();
        if self.completions.take_other(&mut queues, &mut other)? {
            // SAFETY: `take_other` returned true, so it wrote a completion.
            return Ok(Some(unsafe { other.assume_init() }));
        }
        match &mut self.receive_completions {
            Some(second) => second.poll(&mut queues),
            None => Ok(None),
        }
    }

    /// Handles a CQE, the first since `mark`, that retired requests, the last one with `outcome`.
    /// Returns the first of them. Every poll takes the slow path until all are returned.
    fn sent(&mut self, mark: Mark, outcome: Outcome) -> Option<Returned> {
        self.retired = Some((self.send.ring.hold_back(mark), outcome));
        self.completions.hold(true);
        self.give_back()
    }

    /// Returns the oldest request that a CQE has retired and no poll has returned.
    fn give_back(&mut self) -> Option<Returned> {
        let (end, outcome) = self.retired?;
        let oldest = self.send.ring.give_back(end);
        let is_last = self.send.ring.cursor.tail() == end;
        if is_last {
            self.retired = None;
            self.completions.hold(false);
        }
        let (at, entry) = oldest?;
        let buffers = self.flight.take(at);
        let outcome = if is_last {
            outcome
        } else {
            let byte_len = buffers.slices().iter().map(MrSlice::len).sum();
            Outcome::SentUnsignaled { byte_len }
        };
        Some(Returned { id: entry.id, buffers, outcome })
    }

    /// Returns the receive that was just retired.
    #[inline(always)]
    fn received(&mut self, done: ReceiveDone) -> Returned {
        let buffers = self.receive.take_retired();
        Returned { id: done.id, buffers, outcome: Outcome::Received(done) }
    }

    /// Requests an event on the completion channel of each of its CQs at the next completion. Poll
    /// once more afterwards: a completion that came before may have raised no event. Costs, for
    /// each CQ, one store to the record, one to a register, and two store fences.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) {
        self.readers().for_each(CqReader::arm);
    }

    /// Requests an event like [`arm`](Self::arm), but only at the next solicited completion or
    /// error.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm_solicited(&mut self) {
        self.readers().for_each(CqReader::arm_solicited);
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
        let Self { qp, send, mut receive, mut completions, receive_completions, .. } = self;
        let mut flight = self.flight;
        completions.hold(false);
        completions.watch(false);
        // Only this function can reach them until the reset.
        let sends = send.ring.outstanding();
        let sends = sends.map(|(at, entry)| (entry.id, flight.take(at))).collect();
        let receives = receive.take_outstanding();
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
