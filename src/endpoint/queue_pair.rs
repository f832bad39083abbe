//! Both ends of a queue pair, and the completions of both.

use core::iter::from_fn;
use core::mem::MaybeUninit;

use super::pair::{Core, Reclaimed, SendHalf};
use super::poll::{Polled, next_of_any_kind};
use super::receiver::ReceiveHalf;
use super::{
    Buffers, CallFailed, EndpointBatch, EndpointError, NoReceiver, Outcome, Owned, Receiver,
    Refused, Returned,
};
use crate::cqe::{Completion, Failure, ReceiveDone, Timestamp};
use crate::error::QueueError;
use crate::ib::{Dci, INTERNAL, Rc, Recoverable, Transport};
use crate::ring::poll::Found;
use crate::ring::{CqReader, PollError, PostError, Prepared, ReceiveQueue, SendConfig, SendQueue};
use crate::verbs::{QueuePair, Reset, Rts};
use crate::wqe::{Fill, Nop, Patch, PostOn, SgeList};

/// A queue pair with all its requests in flight and their memory.
///
/// `R` says what it receives with: a [`Receiver`], or [`NoReceiver`] ([`SendEndpoint`]). `S` is its
/// send queue, or one with [prepared](PreparedEndpoint) requests.
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, MrSlice, Receiver};
/// # use mlx5::ring::{CqReader, SendConfig};
/// # use mlx5::verbs::{QueuePair, Rts};
/// # use mlx5::wqe::SendMessage;
/// # fn example(
/// #     qp: QueuePair<mlx5::ib::Rc, Rts>, receiver: Receiver, reader: CqReader, slice: MrSlice,
/// # ) -> mlx5::Result<()> {
/// let mut endpoint = Endpoint::new(qp, receiver, reader, SendConfig::default())?;
/// // The slice moves into the endpoint, and comes back once the HCA is done with it.
/// endpoint.post(7, SendMessage::new(slice).signaled())?;
/// loop {
///     if let Some(returned) = endpoint.poll_one()? {
///         println!("request {}: {:?}", returned.id, returned.buffers.one());
///         return Ok(());
///     }
/// }
/// # }
/// ```
///
/// Dropping it destroys the queue pair, if nothing else keeps that alive. The memory in flight
/// stays registered until then; it is freed after that, or leaked if destroying fails.
/// [`close`](Self::close) returns everything instead.
// In this order, so that the address of an endpoint is that of its queue pair with the requests,
// which posts pass on.
#[derive(Debug)]
#[repr(C)]
pub struct Endpoint<T: Transport = Rc, R = Receiver, S: SendHalf = SendQueue<T>> {
    core: Core<T, R, S>,
    completions: CqReader,
    receive_completions: Option<CqReader>,
}

/// An endpoint that posts requests and receives nothing: over a queue pair without a receive queue
/// of its own. Made by [`Endpoint::sender`].
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, MrSlice, SendEndpoint};
/// # use mlx5::ib::Dci;
/// # use mlx5::ring::{CqReader, SendConfig};
/// # use mlx5::verbs::{QueuePair, Rts};
/// # use mlx5::wqe::{DcAddress, RdmaRead, Remote};
/// # fn example(
/// #     qp: QueuePair<Dci, Rts>, reader: CqReader, to: DcAddress, slice: MrSlice, remote: Remote,
/// # ) -> mlx5::Result<()> {
/// let mut initiator: SendEndpoint<Dci> = Endpoint::sender(qp, reader, SendConfig::default())?;
/// initiator.post(1, RdmaRead::new(slice, remote).signaled().to(to))?;
/// # Ok(())
/// # }
/// ```
pub type SendEndpoint<T = Rc> = Endpoint<T, NoReceiver>;

/// An endpoint with requests that are written ahead, see [`Prepared`]. Receives and polls go on as
/// before. Made by [`Endpoint::into_prepared`].
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, PreparedEndpoint};
/// # use mlx5::wqe::{InlineBytes, RdmaWrite, Remote};
/// # fn example(endpoint: Endpoint, remote: Remote, price: u64) -> mlx5::Result<()> {
/// let mut endpoint: PreparedEndpoint<RdmaWrite<InlineBytes<8>>> = endpoint.into_prepared();
/// endpoint.prepare(1, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled())?;
/// // … and when it matters:
/// endpoint.fire(price.to_le_bytes())?;
/// for returned in endpoint.poll() {
///     println!("{:?}", returned?);
/// }
/// # Ok(())
/// # }
/// ```
pub type PreparedEndpoint<O, T = Rc, R = Receiver> = Endpoint<T, R, Prepared<O, T>>;

/// The readers of an endpoint: of the CQ of sends, or of both, and of the CQ of receives.
pub(super) type Readers = (CqReader, Option<CqReader>);

/// The parts of a closed endpoint.
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, MrSlice};
/// # fn example(endpoint: Endpoint, free: &mut Vec<MrSlice>) -> mlx5::Result<()> {
/// let closed = endpoint.close()?;
/// for (id, buffers) in closed.sends.into_iter().chain(closed.receives) {
///     println!("request {id} was in flight");
///     free.extend(buffers);
/// }
/// # Ok(())
/// # }
/// ```
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
    /// [`CallFailed`], which returns the arguments, with the errors of [`SendQueue::new`].
    /// `QpMismatch` or `CqMismatch` ([`QueueError`](crate::ring::QueueError)) if the receiver is of
    /// another queue pair, or completes on another CQ.
    pub fn new(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        mut completions: CqReader,
        config: SendConfig,
    ) -> Result<Self, CallFailed<(QueuePair<T, Rts>, Receiver, CqReader)>> {
        let built = match receiver.check(&qp, &completions) {
            Ok(()) => Core::new(qp, receiver, &mut completions, config),
            Err(error) => Err((error.into(), qp, receiver)),
        };
        match built {
            Ok(core) => Ok(Self::of(core, completions, None)),
            Err((error, qp, receiver)) => {
                Err(CallFailed { error, arguments: (qp, receiver, completions) })
            }
        }
    }

    /// Creates an endpoint whose receives complete on another CQ, `receive_completions`.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_receive_completions(
        qp: QueuePair<T, Rts>,
        receiver: Receiver,
        mut completions: CqReader,
        receive_completions: CqReader,
        config: SendConfig,
    ) -> Result<Self, CallFailed<(QueuePair<T, Rts>, Receiver, CqReader, CqReader)>> {
        let built = match receiver.check(&qp, &receive_completions) {
            Ok(()) => Core::new(qp, receiver, &mut completions, config),
            Err(error) => Err((error.into(), qp, receiver)),
        };
        match built {
            Ok(core) => Ok(Self::of(core, completions, Some(receive_completions))),
            Err((error, qp, receiver)) => Err(CallFailed {
                error,
                arguments: (qp, receiver, completions, receive_completions),
            }),
        }
    }

    fn of(
        core: Core<T, Receiver, SendQueue<T>>,
        mut completions: CqReader,
        receive_completions: Option<CqReader>,
    ) -> Self {
        // A poll that finds no CQE in the first CQ must look at the other.
        completions.watch(receive_completions.is_some());
        Self { core, completions, receive_completions }
    }
}

impl<T: Transport> SendEndpoint<T> {
    /// Creates an endpoint that only posts requests, which complete on `completions`. For queue
    /// pairs without a receive queue of their own: made with
    /// [`max_recv_wr(0)`](crate::verbs::QueuePairBuilder::max_recv_wr), and initiators of dynamic
    /// ([`Dci`](crate::ib::Dci)) and extended reliable connections
    /// ([`XrcSend`](crate::ib::XrcSend)).
    ///
    /// Receives of a queue pair that has a receive queue are not reported.
    ///
    /// # Errors
    /// [`CallFailed`], which returns the arguments, with the errors of [`SendQueue::new`].
    pub fn sender(
        qp: QueuePair<T, Rts>,
        mut completions: CqReader,
        config: SendConfig,
    ) -> Result<Self, CallFailed<(QueuePair<T, Rts>, CqReader)>> {
        match Core::new(qp, NoReceiver::default(), &mut completions, config) {
            Ok(core) => Ok(Self { core, completions, receive_completions: None }),
            Err((error, qp, _)) => Err(CallFailed { error, arguments: (qp, completions) }),
        }
    }
}

impl<T: Transport, R: ReceiveHalf> Endpoint<T, R> {
    /// Posts a request. Its memory is returned with its completion, or with that of a later
    /// request. With [streams](crate::verbs::attr::DciStreams), each request has its own completion, which
    /// returns no memory of another one.
    ///
    /// # Errors
    /// [`Refused`], which returns the operation. [`PostError::QueueFull`] also if retired requests
    /// have not been returned yet. [`PostError::PdMismatch`] for memory of another protection
    /// domain or device. [`PostError::NoLocalWrite`] for a READ or an atomic into memory without that
    /// right.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<O: PostOn<T> + Owned>(&mut self, id: u64, operation: O) -> Result<(), Refused<O>> {
        self.core.post(id, operation)
    }

    /// Starts a batch: several requests with one doorbell.
    #[doc(alias("ibv_wr_start", "ibv_post_send"))]
    #[inline]
    pub fn batch(&mut self) -> EndpointBatch<'_, T> {
        self.core.batch()
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
        self.core.reclaim(id)
    }

    /// Returns the send queue, for its queries.
    pub fn send_queue(&self) -> &SendQueue<T> {
        &self.core.send
    }

    /// Converts the endpoint to one that posts requests of one type, `O`, which are written ahead.
    /// Requests that are outstanding stay so. [`into_endpoint`](PreparedEndpoint::into_endpoint)
    /// converts it back. Drops the memory of batches that were leaked. Costs a load per block of the
    /// ring.
    pub fn into_prepared<O: PostOn<T> + Patch>(mut self) -> PreparedEndpoint<O, T, R> {
        self.drop_leaked();
        self.with_send(Prepared::new)
    }

    /// Drops the memory of batches that were leaked. Costs a load per block of the ring.
    pub(super) fn drop_leaked(&mut self) {
        let Core { send, flight, .. } = &mut self.core;
        flight.drop_leaked(send.state().outstanding().map(|(at, _)| at));
    }

    /// Moves the queue pair to RESET and returns all its parts.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) if the reset fails: then the endpoint is dropped.
    pub fn close(self) -> crate::error::Result<Closed<T>> {
        let Self { core, mut completions, receive_completions } = self;
        completions.hold(false);
        completions.watch(false);
        let Reclaimed { qp, sends, receives } =
            core.reset(|_, _| (), |half| half.give_up(INTERNAL))?;
        Ok(Closed { qp, completions, receive_completions, sends, receives })
    }
}

impl<T: Recoverable, R: ReceiveHalf> Endpoint<T, R> {
    /// Recovers after a request failed: moves the queue pair from SQE back to RTS, see
    /// [`SendQueue::recover`]. Poll first, until every outstanding request is returned. Receives
    /// are not affected. Convert a [`PreparedEndpoint`] or [`SharedEndpoint`](super::SharedEndpoint)
    /// back before.
    ///
    /// # Errors
    /// [`QueueError::WrongState`] if the queue pair is not in SQE; [`QueueError::NotIdle`] if
    /// requests are outstanding; [`Error::Call`](crate::Error::Call). Nothing is changed then.
    ///
    /// ```no_run
    /// # use mlx5::endpoint::{Endpoint, Outcome};
    /// # use mlx5::ib::Ud;
    /// # use mlx5::wqe::{Inline, SendMessage, UdAddress};
    /// # fn example(mut endpoint: Endpoint<Ud>, to: UdAddress) -> mlx5::Result<()> {
    /// for returned in endpoint.poll() {
    ///     println!("{:?}", returned?.outcome); // the failure, then what was flushed behind it
    /// }
    /// endpoint.recover()?;
    /// endpoint.post(1, SendMessage::new(Inline(b"again")).to(&to))?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ibv_modify_qp", "IBV_QPS_SQE"))]
    pub fn recover(&mut self) -> crate::error::Result<()> {
        self.core.send.recover()
    }
}

impl<R: ReceiveHalf> Endpoint<Dci, R> {
    /// Continues posting after requests failed on a [stream](crate::verbs::attr::DciStreams), see
    /// [`SendQueue::go_on`]. Requests on the failed stream complete as flushed until the stream is
    /// [reset](QueuePair::reset_stream), and each of them stops the endpoint again.
    ///
    /// # Errors
    /// [`QueueError::WrongState`]: the queue pair has failed; [`QueueError::QueryQp`]. The endpoint
    /// stays stopped then.
    pub fn go_on(&mut self) -> Result<(), QueueError> {
        self.core.send.go_on()
    }
}

impl<O: PostOn<T> + Patch, T: Transport, R: ReceiveHalf> PreparedEndpoint<O, T, R> {
    /// Writes a request behind those already prepared, see [`Prepared::prepare`].
    ///
    /// # Errors
    /// The errors of [`Prepared::prepare`].
    pub fn prepare(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        self.core.send.prepare(id, operation)
    }

    /// Posts the oldest prepared request with this payload, or with other bytes in some of its
    /// fields, see [`Prepared::fire`].
    ///
    /// # Errors
    /// The errors of [`Prepared::fire`].
    #[inline(always)]
    pub fn fire<F: Fill<O::Bytes>>(&mut self, payload: F) -> Result<(), PostError> {
        self.core.send.fire(payload)
    }

    /// Brings what the next fire needs into the processor's caches, see [`Prepared::warm`].
    pub fn warm(&mut self) {
        self.core.send.warm();
    }

    /// Returns the send queue with its prepared requests, for its queries.
    pub fn prepared(&self) -> &Prepared<O, T> {
        &self.core.send
    }

    /// Converts it back to an endpoint that posts any request. Requests that are still prepared are
    /// not posted, and their ids do not come back. Costs a store per free block.
    pub fn into_endpoint(self) -> Endpoint<T, R> {
        self.with_send(Prepared::into_queue)
    }
}

impl<T: Transport, S: SendHalf> Endpoint<T, Receiver, S> {
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
        self.core.receive.post(id, memory)
    }

    /// Returns the receive queue, for its queries.
    pub fn receive_queue(&self) -> &ReceiveQueue {
        self.core.receive.queue()
    }
}

impl<T: Transport, R: ReceiveHalf, S: SendHalf> Endpoint<T, R, S> {
    /// Replaces the send half.
    fn with_send<N: SendHalf<Flight = S::Flight>>(
        self,
        convert: impl FnOnce(S) -> N,
    ) -> Endpoint<T, R, N> {
        let (core, readers) = self.into_parts();
        let Core { qp, send, receive, flight, before, retired } = core;
        let core = Core { qp, send: convert(send), receive, flight, before, retired };
        Endpoint::of_parts(core, readers)
    }

    /// Returns the queue pair with its requests, and the readers.
    pub(super) fn into_parts(self) -> (Core<T, R, S>, Readers) {
        (self.core, (self.completions, self.receive_completions))
    }

    pub(super) fn of_parts(core: Core<T, R, S>, readers: Readers) -> Self {
        let (completions, receive_completions) = readers;
        Self { core, completions, receive_completions }
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

    /// Returns the next request or receive that is retired, like [`poll`](Self::poll): for loops
    /// that post while they poll.
    ///
    /// # Errors
    /// [`EndpointError`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll_one(&mut self) -> Result<Option<Returned>, EndpointError> {
        self.next_retired().transpose()
    }

    /// Takes the next request that is retired.
    #[inline]
    fn next_retired(&mut self) -> Option<Result<Returned, EndpointError>> {
        let core = &mut self.core;
        let mut queues = (&mut core.send, core.receive.queue_mut(INTERNAL));
        // SAFETY: `Core::new` made the send queue with this reader, so it completes there.
        match unsafe { self.completions.find(&mut queues) } {
            Found::Nothing => None,
            Found::Send(done) => {
                // SAFETY: `find` was the last call on the reader, and found a send.
                unsafe { self.completions.take_found() };
                // SAFETY: as above, of the only send queue.
                Some(Ok(unsafe { core.found(done) }))
            }
            Found::Receive(done) => {
                // SAFETY: `find` was the last call on the reader, and found a receive.
                unsafe { self.completions.take_found() };
                self.received(done).map(Ok)
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
        *into = next_of_any_kind(self);
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
        &self.core.qp
    }
}

impl<T: Transport, R: ReceiveHalf, S: SendHalf> Polled for Endpoint<T, R, S> {
    type Returned = Returned;

    fn give_back(&mut self) -> Option<Returned> {
        self.core.give_back(&mut self.completions)
    }

    /// Takes the next completion of either CQ, after the first one's `find` found nothing usual.
    fn take(&mut self) -> Result<Option<Completion>, PollError> {
        let core = &mut self.core;
        core.mark();
        let mut queues = (&mut core.send, core.receive.queue_mut(INTERNAL));
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

    fn take_timed(
        &mut self,
        time: &mut Option<Timestamp>,
    ) -> Result<Option<Completion>, PollError> {
        let core = &mut self.core;
        core.mark();
        let mut queues = (&mut core.send, core.receive.queue_mut(INTERNAL));
        let readers = core::iter::once(&mut self.completions).chain(&mut self.receive_completions);
        for reader in readers {
            if let Some((completion, at)) = reader.poll_timed(&mut queues)? {
                *time = at;
                return Ok(Some(completion));
            }
        }
        Ok(None)
    }

    fn held_time(&mut self) -> Option<&mut Option<Timestamp>> {
        self.core.retired.as_mut().map(|retired| &mut retired.time)
    }

    fn sent(&mut self, outcome: Outcome) -> Option<Returned> {
        self.core.retire(outcome, &mut self.completions)
    }

    #[inline(always)]
    fn received(&mut self, done: ReceiveDone) -> Option<Returned> {
        let buffers = self.core.receive.take_retired(INTERNAL);
        Some(Returned { id: done.id, buffers, outcome: Outcome::Received(done) })
    }

    fn failed(&mut self, failure: Failure) -> Option<Returned> {
        let buffers = self.core.receive.take_retired(INTERNAL);
        Some(Returned { id: failure.id, buffers, outcome: Outcome::Failed(failure) })
    }
}
