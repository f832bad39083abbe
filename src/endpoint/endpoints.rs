//! Many queue pairs on one CQ.

use core::iter::from_fn;
use core::mem::{MaybeUninit, take};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::flight::Outstanding;
use super::members::{ConnectionKey, Member, Members, Stage};
use super::pair::{Core, Reclaimed};
use super::poll::{Polled, next_of_any_kind};
use super::receiver::ReceiveHalf;
use super::{
    Buffers, CallFailed, EndpointBatch, EndpointError, Outcome, Owned, Receiver, Refused, Returned,
    SharedReceiver,
};
use crate::cqe::{Completion, Failure, QueueKind, ReceiveDone, Timestamp};
use crate::error::QueueError;
use crate::ib::{Dci, INTERNAL, Rc, Recoverable, Transport};
use crate::ring::poll::Found;
use crate::ring::{
    CqReader, PollError, PostError, ReceiveConfig, ReceiveSource, RegisterUse, SendConfig,
    SendQueue, Srq,
};
use crate::verbs::{QueuePair, Reset, Rts};
use crate::wqe::{Nop, PostOn, SgeList};

/// Any number of queue pairs on one CQ, with all their requests in flight and their memory; and a
/// shared receive queue, if they have one. For servers.
///
/// A queue pair is [attached](Self::attach) in INIT, so that no message is missed, and
/// [inserted](Self::insert) in RTS. From then on it is named by a [`ConnectionKey`]. The work of a
/// post and of a poll does not depend on the number of connections.
///
/// ```no_run
/// # use mlx5::connect::{ConnectionData, LocalPort};
/// # use mlx5::endpoint::{Endpoints, Outcome, SharedReceiver};
/// # use mlx5::ring::{CqReader, SendConfig};
/// # use mlx5::verbs::{CompletionQueue, ProtectionDomain, QueuePair, SharedReceiveQueue};
/// # use mlx5::wqe::SendMessage;
/// # fn example(
/// #     pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue, port: &LocalPort,
/// #     receiver: SharedReceiver, reader: CqReader, theirs: &ConnectionData,
/// # ) -> mlx5::Result<()> {
/// let mut server: Endpoints = Endpoints::with_receiver(reader, receiver)?;
/// // For each client:
/// let qp = QueuePair::builder(pd, cq).shared_receive_queue(srq).build()?;
/// let mine = port.connection_data(&qp);
/// let qp = qp.init(&port.init())?;
/// server.attach(&qp)?;
/// let qp = qp.rtr(&port.rtr(&mine, theirs))?.rts(&port.rts(&mine, theirs))?;
/// server.insert(qp, SendConfig { requests: 16, ..SendConfig::default() })?;
/// // For all of them:
/// while let Some((client, returned)) = server.poll_one()? {
///     match returned.outcome {
///         // Back to the sender.
///         Outcome::Received(_) => {
///             let memory = returned.buffers.one().expect("posted as one slice");
///             server.post(client, returned.id, SendMessage::new(memory).signaled())?;
///         }
///         // This client is gone, the others are not.
///         Outcome::Failed(_) => drop(server.remove(client)?),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// The queue pairs may be created without a thread domain: they ring their doorbell registers by
/// eight bytes ([`RegisterUse::Shared`]), whatever [`SendConfig::register`] says, since the queue
/// pairs of a context share a few registers.
///
/// Dropping it destroys the queue pairs, if nothing else keeps them alive. The memory in flight
/// stays registered until its queue pair or shared receive queue is destroyed. Leaking it leaks them
/// all.
#[derive(Debug)]
pub struct Endpoints<T: Transport = Rc> {
    members: Members<T>,
    completions: CqReader,
    /// The connection some of whose retired requests have not been returned.
    holding: Option<ConnectionKey>,
    /// The connections that leave, each with the time when it has left, earliest first.
    leaving: VecDeque<(Instant, ConnectionKey)>,
}

/// The parts of a connection that was [removed](Endpoints::remove).
///
/// ```no_run
/// # use mlx5::endpoint::{ConnectionKey, Endpoints, MrSlice};
/// # fn example(server: &mut Endpoints, client: ConnectionKey) -> mlx5::Result<()> {
/// let removed = server.remove(client)?;
/// for (id, buffers) in removed.receives {
///     // For messages of the other clients.
///     server.post_receive(id, buffers.one().expect("posted as one slice"))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Removed<T: Transport = Rc> {
    /// The queue pair, in RESET. `None` if it was attached only.
    pub qp: Option<QueuePair<T, Reset>>,
    /// Ids and memory of requests that were in flight, oldest first. Their outcome is unknown.
    pub sends: Vec<(u64, Buffers)>,
    /// Ids and memory of receives: of its own receiver, those that were in flight, oldest first; of
    /// the shared receive queue, those whose completions were not polled. Their content is unknown.
    ///
    /// The receives of a connection that was attached only are not returned: its queue pair is not
    /// reset, and still takes messages. Their memory is freed when the queue pair is destroyed or
    /// reset.
    pub receives: Vec<(u64, Buffers)>,
}

/// What a poll returns.
type Next = Result<(ConnectionKey, Returned), EndpointError>;

impl<T: Transport> Endpoints<T> {
    /// Creates endpoints without connections, whose requests complete on the CQ of `completions`.
    /// Queues that complete there belong to them alone.
    pub fn new(completions: CqReader) -> Self {
        Self::of(Members::new(None), completions)
    }

    fn of(members: Members<T>, completions: CqReader) -> Self {
        Self { members, completions, holding: None, leaving: VecDeque::new() }
    }

    /// Creates endpoints whose connections take receives from a shared receive queue.
    ///
    /// # Errors
    /// [`CallFailed`], which returns the arguments, with [`QueueError::CqMismatch`] if the receiver
    /// was made with another reader.
    pub fn with_receiver(
        completions: CqReader,
        receiver: SharedReceiver,
    ) -> Result<Self, CallFailed<(CqReader, SharedReceiver)>> {
        if !receiver.queue.has_slots_on(completions.id()) {
            let error = QueueError::CqMismatch.into();
            return Err(CallFailed { error, arguments: (completions, receiver) });
        }
        let SharedReceiver { queue, loans } = receiver;
        Ok(Self::of(Members::new(Some((queue, loans))), completions))
    }

    /// Attaches a queue pair, in INIT or later, that takes receives from the shared receive queue.
    /// Polls report what it receives from now on. Call it before the peer sends. If the queue pair is
    /// not connected after all, [remove](Self::remove) it.
    ///
    /// # Errors
    /// The errors of [`Srq::attach`]. [`QueueError::SrqMismatch`] also if there is no shared
    /// receive queue here. Nothing is changed then.
    pub fn attach<Q: ReceiveSource<Transport = T>>(
        &mut self,
        qp: &Q,
    ) -> crate::error::Result<ConnectionKey> {
        self.let_go();
        let shared = self.members.shared.as_mut().ok_or(QueueError::SrqMismatch)?;
        shared.attach(qp, &mut self.completions)?;
        Ok(self.join(qp.member().number, None))
    }

    /// Attaches a queue pair, in INIT or later, that has a receive queue of its own.
    /// [`post_receive_on`](Self::post_receive_on) posts to it.
    ///
    /// # Errors
    /// The errors of [`Receiver::new`]. Nothing is changed then.
    pub fn attach_own<Q: ReceiveSource<Transport = T>>(
        &mut self,
        qp: &Q,
        config: ReceiveConfig,
    ) -> crate::error::Result<ConnectionKey> {
        let receiver = Receiver::new(qp, &mut self.completions, config)?;
        Ok(self.join(qp.member().number, Some(receiver)))
    }

    /// Adds a queue pair that was just attached.
    fn join(&mut self, qpn: u32, receiver: Option<Receiver>) -> ConnectionKey {
        let shares = receiver.is_none();
        // A claim holds each queue pair here, so no two have the same number, except for one that
        // was inserted before.
        match self.members.key_of(qpn) {
            Some(key) => {
                if let Some(member) = self.members.get(key) {
                    member.shares = shares;
                    match &mut member.stage {
                        Stage::Attached(place) => *place = receiver,
                        Stage::Connected(core) => core.receive = receiver,
                        Stage::Leaving => {}
                    }
                }
                key
            }
            None => self.members.insert(Member { qpn, shares, stage: Stage::Attached(receiver) }),
        }
    }

    /// Takes over a connected queue pair. If it was attached, it keeps its key. One that is not
    /// attached only sends.
    ///
    /// # Errors
    /// [`CallFailed`], which returns the queue pair, with the errors of [`SendQueue::new`]. If it
    /// was attached, it stays so.
    pub fn insert(
        &mut self,
        qp: QueuePair<T, Rts>,
        config: SendConfig,
    ) -> Result<ConnectionKey, CallFailed<QueuePair<T, Rts>>> {
        let config = SendConfig { register: RegisterUse::Shared, ..config };
        let qpn = qp.number();
        // The send queue completes on the CQ here, so the queue pair is of the same device as the
        // attached ones: one that has its number is the same.
        let core = Core::new(qp, None, &mut self.completions, config);
        let mut core = core.map_err(|(error, qp, _)| CallFailed { error, arguments: qp })?;
        let Some(key) = self.members.key_of(qpn) else {
            let member = Member { qpn, shares: false, stage: Stage::Connected(core) };
            return Ok(self.members.insert(member));
        };
        if let Some(member) = self.members.get(key) {
            core.receive = match &mut member.stage {
                Stage::Attached(receiver) => receiver.take(),
                Stage::Connected(before) => before.receive.take(),
                Stage::Leaving => None,
            };
            member.stage = Stage::Connected(core);
        }
        Ok(key)
    }

    /// Posts a request on a connection. Its memory is returned with its completion, or with that of
    /// a later request of the connection.
    ///
    /// # Errors
    /// [`Refused`], which returns the operation. [`PostError::NoQueue`] if the connection
    /// was removed, or is not inserted yet. Otherwise the errors of
    /// [`Endpoint::post`](super::Endpoint::post).
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<O: PostOn<T> + Owned>(
        &mut self,
        connection: ConnectionKey,
        id: u64,
        operation: O,
    ) -> Result<(), Refused<O>> {
        match self.members.get(connection).and_then(Member::core) {
            Some(core) => core.post(id, operation),
            None => Err(Refused { error: PostError::NoQueue, operation }),
        }
    }

    /// Starts a batch on a connection: several requests with one doorbell.
    ///
    /// # Errors
    /// [`PostError::NoQueue`].
    #[doc(alias("ibv_wr_start", "ibv_post_send"))]
    #[inline]
    pub fn batch(&mut self, connection: ConnectionKey) -> Result<EndpointBatch<'_, T>, PostError> {
        let core = self.members.get(connection).and_then(Member::core);
        core.map(Core::batch).ok_or(PostError::NoQueue)
    }

    /// Posts a receive to the shared receive queue, see [`SharedReceiver::post`].
    ///
    /// # Errors
    /// The errors of [`SharedReceiver::post`]. [`PostError::NoQueue`] if there is no
    /// shared receive queue.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn post_receive<P: SgeList + Owned>(
        &mut self,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        match (&mut self.members.shared, &mut self.members.loans) {
            (Some(queue), Some(loans)) => loans.post(queue, id, memory),
            _ => Err(Refused { error: PostError::NoQueue, operation: memory }),
        }
    }

    /// Posts a receive to the own receive queue of a connection, see [`Receiver::post`].
    ///
    /// # Errors
    /// The errors of [`Receiver::post`]. [`PostError::NoQueue`] if the connection was
    /// removed, or has no receive queue of its own.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_receive_on<P: SgeList + Owned>(
        &mut self,
        connection: ConnectionKey,
        id: u64,
        memory: P,
    ) -> Result<(), Refused<P>> {
        match self.members.get(connection).and_then(Member::receiver) {
            Some(receiver) => receiver.post(id, memory),
            None => Err(Refused { error: PostError::NoQueue, operation: memory }),
        }
    }

    /// Retires outstanding requests of an idle connection, see
    /// [`Endpoint::reclaim`](super::Endpoint::reclaim).
    ///
    /// # Errors
    /// The errors of [`SendQueue::reclaim`]. [`PostError::NoQueue`].
    pub fn reclaim(&mut self, connection: ConnectionKey, id: u64) -> Result<bool, PostError>
    where
        Nop: PostOn<T>,
    {
        let core = self.members.get(connection).and_then(Member::core);
        core.ok_or(PostError::NoQueue)?.reclaim(id)
    }

    /// Returns an iterator over the requests and receives that are retired, with their memory, and
    /// with the connection they are of. Each step polls; see
    /// [`Endpoint::poll`](super::Endpoint::poll).
    ///
    /// # Errors
    /// Its items may be [`EndpointError`].
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    #[must_use = "it polls when it is asked for an item"]
    pub fn poll(
        &mut self,
    ) -> impl Iterator<Item = Result<(ConnectionKey, Returned), EndpointError>> {
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
    pub fn poll_one(&mut self) -> Result<Option<(ConnectionKey, Returned)>, EndpointError> {
        self.next_retired().transpose()
    }

    /// Takes the next request that is retired.
    #[inline]
    fn next_retired(&mut self) -> Option<Next> {
        // SAFETY: `insert` made each send queue with this reader, so they complete there.
        match unsafe { self.completions.find(&mut self.members) } {
            Found::Nothing => None,
            Found::Send(done) => {
                // SAFETY: `find` was the last call on the reader, and found a send.
                unsafe { self.completions.take_found() };
                let (key, core) = self.members.sender()?;
                // SAFETY: as above, of the send queue that was found last.
                Some(Ok((key, unsafe { core.found(done) })))
            }
            Found::Receive(done) => {
                // SAFETY: `find` was the last call on the reader, and found a receive.
                unsafe { self.completions.take_found() };
                if let Some(received) = self.members.received(done) {
                    return Some(Ok(received));
                }
                let mut other = None;
                self.next_other(&mut other);
                other
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
    #[inline(never)]
    fn next_other(&mut self, into: &mut Option<Next>) {
        *into = next_of_any_kind(self);
    }

    /// Returns ids and memory of receives of the shared receive queue whose completions were dropped
    /// when their queue pair was attached again, or which came after their connection was
    /// [removed](Self::remove). Their content is unknown.
    pub fn reclaimed(&mut self) -> Vec<(u64, Buffers)> {
        self.let_go();
        let mut receives = take(&mut self.members.late);
        if let (Some(shared), Some(loans)) = (&mut self.members.shared, &mut self.members.loans) {
            receives.extend(shared.reclaimed().map(|place| loans.take(place)));
        }
        receives
    }

    /// Starts the leave of a connection that was only attached, if the HCA may still complete a
    /// shared receive of it. Returns whether it leaves.
    fn leaves(&mut self, connection: ConnectionKey) -> bool {
        let Members { shared: Some(shared), .. } = &self.members else { return false };
        let Some(member) = self.members.look(connection) else { return false };
        let attached = member.shares && matches!(member.stage, Stage::Attached(_));
        if !attached || !shared.fail(member.qpn, &self.completions) {
            return false;
        }
        if let Some(member) = self.members.get(connection) {
            member.stage = Stage::Leaving;
        }
        self.leaving.push_back((Instant::now() + FLUSH, connection));
        true
    }

    /// Detaches the queue pairs of the connections that have left by now.
    fn let_go(&mut self) {
        while let Some(&(until, key)) = self.leaving.front() {
            if Instant::now() < until {
                return;
            }
            self.leaving.pop_front();
            let left = self.members.remove(key);
            if let (Some(member), Some(shared)) = (left, &mut self.members.shared) {
                shared.detach(member.qpn, &mut self.completions);
            }
        }
    }

    /// Moves the queue pair of a connection to RESET, and returns it with what was in flight. The
    /// other connections go on.
    ///
    /// If the connection takes receives from the shared receive queue, its queue pair goes through
    /// ERROR first, so that the HCA completes a receive that a message has begun to fill. The call
    /// waits until the queue pair's requests are flushed, which takes a ConnectX-6 about 60 µs, and
    /// 10 µs for each request in flight. It waits for 10 ms, and 50 µs for each request, at most. If
    /// the HCA takes longer, the receive stays outstanding as long as the shared receive queue.
    ///
    /// A connection that was only attached may have begun to receive, too, if its queue pair is in
    /// RTR. The call moves the queue pair to ERROR then, and does not wait. The receive comes back by
    /// [`reclaimed`](Self::reclaimed). For 10 ms and until the next call of
    /// [`attach`](Self::attach), `remove` or `reclaimed`, the queue pair is kept: it is not destroyed,
    /// even if the program drops it, and cannot be reset.
    ///
    /// Costs system calls, and looks at each CQE that waits to be polled.
    ///
    /// # Errors
    /// [`QueueError::UnknownConnection`]; nothing is changed then.
    /// [`Error::Call`](crate::Error::Call) if the reset fails, and
    /// [`Error::QueueInUse`](crate::Error::QueueInUse) if another queue of the program still uses the
    /// queue pair: then `self` drops the queue pair, which keeps the memory in flight and its CQ slots
    /// until it is destroyed.
    pub fn remove(&mut self, connection: ConnectionKey) -> crate::error::Result<Removed<T>>
    where
        Nop: PostOn<T>,
    {
        if self.leaves(connection) {
            let receives = self.reclaimed();
            return Ok(Removed { qp: None, sends: Vec::new(), receives });
        }
        let leaving = self.members.look(connection).is_none_or(Member::is_leaving);
        let member = if leaving { None } else { self.members.remove(connection) };
        let member = member.ok_or(QueueError::UnknownConnection)?;
        if self.holding == Some(connection) {
            self.holding = None;
            self.completions.hold(false);
        }
        let Member { qpn, shares, stage } = member;
        let (members, completions) = (&mut self.members, &mut self.completions);
        let mut shared = members.shared.as_mut().filter(|_| shares);
        let reset = match stage {
            // The program still owns the queue pair, and its HCA may still write to what was
            // posted. So the queue pair keeps that memory, and the CQ slots stay reserved for its
            // CQEs.
            stage @ (Stage::Attached(_) | Stage::Leaving) => {
                drop(stage);
                if let Some(shared) = shared {
                    shared.detach(qpn, completions);
                    shared.sweep_detached(qpn, completions);
                }
                Ok(None)
            }
            Stage::Connected(core) => {
                let flush = |qp: &_, send: &mut _| {
                    if let Some(shared) = &mut shared {
                        flush(qp, send, shared, completions);
                        // Its claim prevents the reset.
                        shared.detach(qpn, completions);
                    }
                };
                let give_up = |receiver: Option<Receiver>| {
                    let none = Outstanding::default;
                    receiver.map_or_else(none, |receiver| receiver.give_up(INTERNAL))
                };
                let reset = core.reset(flush, give_up).map(Some);
                // After RESET, no more CQEs of it come. Those that are there are of no queue. A queue
                // pair that was not reset keeps its CQ slots until it is destroyed.
                if reset.is_ok() {
                    completions.discard(qpn, QueueKind::Send);
                }
                match shared {
                    Some(shared) => shared.sweep_detached(qpn, completions),
                    None if reset.is_ok() => {
                        completions.discard(qpn, QueueKind::Receive);
                    }
                    None => {}
                }
                reset
            }
        };
        let (qp, sends, mut receives) = match reset? {
            Some(Reclaimed { qp, sends, receives }) => (Some(qp), sends, receives),
            None => (None, Vec::new(), Vec::new()),
        };
        receives.extend(self.reclaimed());
        Ok(Removed { qp, sends, receives })
    }

    /// Returns the number of connections, with those that are only attached.
    pub fn len(&self) -> usize {
        self.members.keys().count()
    }

    /// Returns whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.members.keys().next().is_none()
    }

    /// Returns the keys of all connections, with those that are only attached.
    pub fn keys(&self) -> impl Iterator<Item = ConnectionKey> {
        self.members.keys()
    }

    /// Returns the key of the connection whose queue pair has this number.
    pub fn key_of(&self, qpn: u32) -> Option<ConnectionKey> {
        self.members.key_of(qpn)
    }

    /// Returns the queue pair of a connection, once it is inserted.
    pub fn queue_pair(&self, connection: ConnectionKey) -> Option<&QueuePair<T, Rts>> {
        self.connected(connection).map(|core| &core.qp)
    }

    /// Returns the send queue of a connection, for its queries, once it is inserted.
    pub fn send_queue(&self, connection: ConnectionKey) -> Option<&SendQueue<T>> {
        self.connected(connection).map(|core| &core.send)
    }

    fn connected(&self, key: ConnectionKey) -> Option<&super::members::Connected<T>> {
        match &self.members.look(key)?.stage {
            Stage::Attached(_) | Stage::Leaving => None,
            Stage::Connected(core) => Some(core),
        }
    }

    /// Returns the shared receive queue, for its queries.
    pub fn shared_receives(&self) -> Option<&Srq> {
        self.members.shared.as_ref()
    }

    /// Returns the reader of the CQ, for its queries.
    pub fn completions(&self) -> &CqReader {
        &self.completions
    }

    /// Requests an event on the completion channel of the CQ at the next completion, see
    /// [`CqReader::arm`]. Poll once more afterwards.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) {
        self.completions.arm();
    }

    /// Requests an event like [`arm`](Self::arm), but only at the next solicited completion or
    /// error.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm_solicited(&mut self) {
        self.completions.arm_solicited();
    }

    /// Reports that the HCA failed the CQ, see [`CqReader::overrun`].
    pub fn overrun(&mut self) {
        self.completions.overrun();
    }
}

/// How long a flush may take, beyond what it takes for each request.
const FLUSH: Duration = Duration::from_millis(10);
/// How long the flush of a request may take: five times what a ConnectX-6 takes.
const FLUSH_OF_REQUEST: Duration = Duration::from_micros(50);

/// Moves a queue pair to ERROR, and waits until the HCA has flushed its requests. It completes the
/// receive of `shared` that a message has begun to fill, if any, before that. The receive is retired.
fn flush<T: Transport>(
    qp: &QueuePair<T, Rts>,
    send: &mut SendQueue<T>,
    shared: &mut Srq,
    completions: &mut CqReader,
) where
    Nop: PostOn<T>,
{
    // No more requests than blocks are in flight.
    let time = FLUSH + FLUSH_OF_REQUEST * (send.blocks() - send.free_blocks());
    // If this fails, so does the reset, which reports it.
    let failed = qp.fail_before_reset();
    let Some(last) = failed.ok().and_then(|()| send.post_last()) else { return };
    let deadline = Instant::now() + time;
    while !shared.take_flushed(qp.number(), last, completions) && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

impl<T: Transport> Polled for Endpoints<T> {
    type Returned = (ConnectionKey, Returned);

    fn give_back(&mut self) -> Option<Self::Returned> {
        let key = self.holding?;
        let core = self.members.get(key).and_then(Member::core)?;
        let returned = core.give_back(&mut self.completions);
        if core.retired.is_none() {
            self.holding = None;
        }
        returned.map(|returned| (key, returned))
    }

    fn take(&mut self) -> Result<Option<Completion>, PollError> {
        let mut other = MaybeUninit::uninit();
        let taken = self.completions.take_other(&mut self.members, &mut other)?;
        // SAFETY: if `take_other` returned true, it wrote a completion.
        Ok(taken.then(|| unsafe { other.assume_init() }))
    }

    fn take_timed(
        &mut self,
        time: &mut Option<Timestamp>,
    ) -> Result<Option<Completion>, PollError> {
        let mut other = MaybeUninit::uninit();
        let taken = self.completions.take_other_timed(&mut self.members, &mut other, time)?;
        // SAFETY: if `take_other_timed` returned true, it wrote a completion.
        Ok(taken.then(|| unsafe { other.assume_init() }))
    }

    fn held_time(&mut self) -> Option<&mut Option<Timestamp>> {
        let core = self.members.get(self.holding?).and_then(Member::core)?;
        core.retired.as_mut().map(|retired| &mut retired.time)
    }

    fn sent(&mut self, outcome: Outcome) -> Option<Self::Returned> {
        let (key, core) = self.members.sender()?;
        let returned = core.retire(outcome, &mut self.completions);
        self.holding = core.retired.is_some().then_some(key);
        returned.map(|returned| (key, returned))
    }

    fn received(&mut self, done: ReceiveDone) -> Option<Self::Returned> {
        self.members.received(done)
    }

    fn failed(&mut self, failure: Failure) -> Option<Self::Returned> {
        self.members.failed(failure)
    }
}

impl<T: Recoverable> Endpoints<T> {
    /// Recovers a connection after a request failed: moves its queue pair from SQE back to RTS, see
    /// [`Endpoint::recover`](super::Endpoint::recover). Poll first, until every outstanding request
    /// of the connection is returned.
    ///
    /// # Errors
    /// [`QueueError::UnknownConnection`] if it was removed, or is not inserted yet;
    /// [`QueueError::WrongState`] if the queue pair is not in SQE; [`QueueError::NotIdle`] if
    /// requests are outstanding; [`Error::Call`](crate::Error::Call). Nothing is changed then.
    pub fn recover(&mut self, connection: ConnectionKey) -> crate::error::Result<()> {
        let core = self.members.get(connection).and_then(Member::core);
        core.ok_or(QueueError::UnknownConnection)?.send.recover()
    }
}

impl Endpoints<Dci> {
    /// Continues posting on an initiator after requests failed on a stream, see
    /// [`Endpoint::go_on`](super::Endpoint::go_on).
    ///
    /// # Errors
    /// [`QueueError::UnknownConnection`] if it was removed, or is not inserted yet;
    /// [`QueueError::WrongState`]: the queue pair has failed; [`QueueError::QueryQp`]. The
    /// connection stays stopped then.
    pub fn go_on(&mut self, connection: ConnectionKey) -> Result<(), QueueError> {
        let core = self.members.get(connection).and_then(Member::core);
        core.ok_or(QueueError::UnknownConnection)?.send.go_on()
    }
}
