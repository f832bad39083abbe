//! A queue pair with its queues and memory: of either side.

use std::time::{Duration, Instant};

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::cqe::{Completion, QueueKind, ReceiveKind, SendDone, SendOperation, Status, Timestamp};
use mlx5::devx::{ByCommand, Firmware};
use mlx5::expert::ReceiveSource;
use mlx5::expert::{Makes, Verbs};
use mlx5::ib::{Receives, Transport};
use mlx5::ring::{CqReader, PollError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::{
    AckTimeout, InitAttributes, QpState, RnrTimer, RtrAttributes, RtsAttributes,
};
use mlx5::verbs::{
    CompletionQueue, Connected, Context, Failed, Init, MemoryRegion, ProtectionDomain, QueuePair,
    QueuePairBuilder, Reset, Rts, SharedReceiveQueue,
};
use mlx5::wqe::{Nop, PostOn, Sge, SgeList, Word};

use crate::message::{MEMORY, Receiving, SendRecord, Shape};
use crate::verdict::{Verdict, failed, holds, lacking, same};

/// How long a case waits for anything, and what is done to it on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The longest wait for one completion or event.
    pub patience: Duration,
    /// The deliberate mistake.
    pub spoiled: Spoiled,
}

impl Terms {
    /// The completion as the active side sees it.
    pub fn seen(self, mut completion: Completion) -> Completion {
        if self.spoiled == Spoiled::Own {
            match &mut completion {
                Completion::Send(done) => done.id ^= 0x100,
                Completion::Receive(done) => done.id ^= 0x100,
                Completion::Failed(failure) => failure.id ^= 0x100,
                Completion::UnexpectedCqe(_) => {}
            }
        }
        completion
    }
}

/// A deliberate mistake of a run, to see that cases notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spoiled {
    /// Nothing.
    #[default]
    Nothing,
    /// The active side posts a NOP in place of each request.
    Requests,
    /// The passive side compares and reads memory with a bit changed.
    Memory,
    /// The passive side reports completions with another id, and events of another kind.
    Completions,
    /// The active side sees completions with another id.
    Own,
}

/// The port, the protection domain and the terms of one side.
#[derive(Debug)]
pub struct Base {
    pub context: Context,
    pub local: LocalPort,
    pub pd: ProtectionDomain,
    /// Whether the device has atomics.
    pub atomics: bool,
    pub terms: Terms,
}

impl Base {
    pub fn new(context: Context, port: u8, gid: Option<u8>, terms: Terms) -> Verdict<Base> {
        let local = LocalPort::new(&context, port, gid)?;
        let pd = ProtectionDomain::new(&context)?;
        let atomics = context.attributes()?.atomics;
        Ok(Base { context, local, pd, atomics, terms })
    }

    /// Memory that a peer may use so.
    pub fn memory(&self, shape: &Shape) -> Verdict<MemoryRegion> {
        Ok(self.pd.allocate(MEMORY, shape.region.access(self.atomics))?)
    }

    pub fn cq(&self, shape: &Shape) -> Verdict<CompletionQueue> {
        let builder = CompletionQueue::builder(&self.context, shape.cqes);
        let builder = builder.cqe_size(shape.cqe_size());
        Ok(match shape.compression {
            Some(format) => builder
                .compression(format.into())
                .build()
                .map_err(|error| lacking(format!("no compressed CQEs: {error}")))?,
            None => builder.build()?,
        })
    }

    /// The attributes of RESET to INIT.
    pub fn init(&self, shape: &Shape) -> InitAttributes {
        let access = shape.queue_pair.access(self.atomics);
        InitAttributes { access, ..self.local.init() }
    }

    /// The attributes of INIT to RTR.
    pub fn rtr(
        &self,
        shape: &Shape,
        mine: &ConnectionData,
        theirs: &ConnectionData,
    ) -> RtrAttributes {
        let wait = Duration::from_micros(shape.rnr_micros.into());
        RtrAttributes { min_rnr_timer: RnrTimer::at_least(wait), ..self.local.rtr(mine, theirs) }
    }

    /// The attributes of RTR to RTS.
    pub fn rts(
        &self,
        shape: &Shape,
        mine: &ConnectionData,
        theirs: &ConnectionData,
    ) -> RtsAttributes {
        RtsAttributes { ..self.limits(shape, self.local.rts(mine, theirs)) }
    }

    /// Sets the limits of trying again.
    pub fn limits(&self, shape: &Shape, attributes: RtsAttributes) -> RtsAttributes {
        let timeout = Duration::from_micros(shape.timeout_micros.into());
        RtsAttributes {
            timeout: AckTimeout::at_least(timeout),
            retry_cnt: shape.retries,
            rnr_retry: shape.rnr_retries,
            ..attributes
        }
    }
}

/// The interface that makes queues of a transport: verbs or commands.
pub trait Maker<T: Receives>: Makes<T> + Sized {
    fn cq(base: &Base, shape: &Shape) -> Verdict<CompletionQueue<Self>>;

    fn queue_pair(
        base: &Base,
        cq: &CompletionQueue<Self>,
        shape: &Shape,
        srq: Option<&SharedReceiveQueue>,
    ) -> Verdict<QueuePair<T, Reset, Self>>;
}

fn sized<T: Receives, B: Makes<T>>(
    builder: QueuePairBuilder<T, B>,
    shape: &Shape,
) -> QueuePairBuilder<T, B> {
    builder
        .max_send_wr(shape.send_wr)
        .max_send_sge(shape.sge)
        .max_inline_data(shape.inline)
        .max_recv_wr(shape.recv_wr)
        .max_recv_sge(shape.sge)
        .scatter_to_cqe(shape.scatter.into())
}

impl<T: Receives> Maker<T> for Verbs {
    fn cq(base: &Base, shape: &Shape) -> Verdict<CompletionQueue> {
        base.cq(shape)
    }

    fn queue_pair(
        base: &Base,
        cq: &CompletionQueue,
        shape: &Shape,
        srq: Option<&SharedReceiveQueue>,
    ) -> Verdict<QueuePair<T, Reset>> {
        let builder = sized(QueuePairBuilder::<T>::new(&base.pd, cq), shape);
        Ok(match srq {
            Some(srq) => builder.shared_receive_queue(srq),
            None => builder,
        }
        .build()?)
    }
}

impl<T: Receives + ByCommand> Maker<T> for Firmware {
    fn cq(base: &Base, shape: &Shape) -> Verdict<CompletionQueue<Firmware>> {
        // Rings of verbs have an entry more than asked for.
        let builder = CompletionQueue::by_command(&base.context, shape.cqes + 1);
        Ok(builder.cqe_size(shape.cqe_size()).build()?)
    }

    fn queue_pair(
        base: &Base,
        cq: &CompletionQueue<Firmware>,
        shape: &Shape,
        srq: Option<&SharedReceiveQueue>,
    ) -> Verdict<QueuePair<T, Reset, Firmware>> {
        let builder = QueuePairBuilder::<T, Firmware>::by_command(&base.pd, cq);
        let builder = sized(builder, shape);
        let builder = match srq {
            Some(srq) => builder.shared_receive_queue(srq),
            None => builder,
        };
        match shape.send_record {
            SendRecord::Kept => Ok(builder.build()?),
            SendRecord::None => builder
                .without_send_record()
                .build()
                .map_err(|error| lacking(format!("no send queue without a record: {error}"))),
        }
    }
}

/// The queue that receives are posted to.
#[derive(Debug)]
pub enum Receive {
    /// Nowhere: a requester's end.
    None,
    Own(ReceiveQueue),
    Shared(Srq),
}

impl Receive {
    pub fn post(&mut self, id: u64, pieces: impl SgeList) -> Verdict {
        // SAFETY: all memory that cases name belongs to regions of a side, or is not registered, and
        // no code holds a reference to it.
        unsafe {
            match self {
                Receive::None => return Err(failed("this end has no receives")),
                Receive::Own(queue) => queue.post(id, pieces)?,
                Receive::Shared(queue) => queue.post(id, pieces)?,
            }
        }
        Ok(())
    }
}

/// One side. Queues come before the memory that their requests name.
#[derive(Debug)]
pub struct Side<T: Transport, B: Makes<T> = Verbs> {
    send: Option<SendQueue<T>>,
    /// In RTS.
    qp: Option<QueuePair<T, Rts, B>>,
    /// In INIT, to be connected.
    waiting: Option<QueuePair<T, Init, B>>,
    /// In ERROR.
    down: Option<QueuePair<T, Failed, B>>,
    pub receive: Receive,
    pub completions: CqReader,
    pub memory: MemoryRegion,
    pub shape: Shape,
    pub srq: Option<SharedReceiveQueue>,
    pub cq: CompletionQueue<B>,
    mine: ConnectionData,
    terms: Terms,
}

impl<T, B> Side<T, B>
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
    B: Maker<T>,
    QueuePair<T, Init, B>: ReceiveSource,
{
    /// Makes a side in INIT, whose receives can be posted.
    pub fn new(base: &Base, shape: &Shape) -> Verdict<Side<T, B>> {
        let cq = B::cq(base, shape)?;
        Side::on(base, shape, cq)
    }

    /// Makes a side on a CQ of the caller.
    pub fn on(base: &Base, shape: &Shape, cq: CompletionQueue<B>) -> Verdict<Side<T, B>> {
        let mut completions = CqReader::new(&cq)?;
        let srq = match shape.receiving {
            Receiving::Own => None,
            Receiving::Shared => {
                let builder = SharedReceiveQueue::builder(&base.pd).max_wr(shape.recv_wr);
                Some(builder.max_sge(shape.sge).build()?)
            }
        };
        let qp = B::queue_pair(base, &cq, shape, srq.as_ref())?;
        let qp = qp.init(&base.init(shape)).map_err(|refused| refused.error)?;
        let receive = match &srq {
            None => Receive::Own(ReceiveQueue::new(&qp, &mut completions, receives(shape))?),
            Some(srq) => {
                let mut shared = Srq::new(srq, &mut completions, receives(shape))?;
                shared.attach(&qp, &mut completions)?;
                Receive::Shared(shared)
            }
        };
        Ok(Side {
            send: None,
            qp: None,
            down: None,
            mine: base.local.connection_data_of(qp.number()),
            waiting: Some(qp),
            receive,
            completions,
            memory: base.memory(shape)?,
            shape: *shape,
            srq,
            cq,
            terms: base.terms,
        })
    }

    /// Connects it, as the default configuration of send queues says.
    pub fn connect(&mut self, base: &Base, theirs: &ConnectionData) -> Verdict {
        self.connect_with(base, theirs, SendConfig::default())
    }

    /// Connects it.
    pub fn connect_with(
        &mut self,
        base: &Base,
        theirs: &ConnectionData,
        config: SendConfig,
    ) -> Verdict {
        let qp = self.waiting.take().ok_or_else(|| failed("connected already"))?;
        let rtr = base.rtr(&self.shape, &self.mine, theirs);
        let rts = base.rts(&self.shape, &self.mine, theirs);
        let qp = qp.rtr(&rtr.into()).map_err(|refused| refused.error)?;
        let qp = qp.rts(&rts.into()).map_err(|refused| refused.error)?;
        let send = SendQueue::new(&qp, &mut self.completions, config)?;
        (self.send, self.qp) = (Some(send), Some(qp));
        Ok(())
    }

    /// Moves it through ERROR and RESET to INIT, with new queues. Every right is given now.
    pub fn renew(&mut self, base: &Base) -> Verdict {
        self.send = None;
        if self.down.is_none() {
            self.fail()?;
        }
        let qp = self.down.take().ok_or_else(|| failed("not in ERROR"))?;
        match &mut self.receive {
            Receive::Own(_) => self.receive = Receive::None,
            Receive::Shared(shared) => {
                shared.detach(qp.number(), &mut self.completions);
            }
            Receive::None => {}
        }
        let qp = qp.reset().map_err(|refused| refused.error)?;
        self.shape.queue_pair = Shape::default().queue_pair;
        let qp = qp.init(&base.init(&self.shape)).map_err(|refused| refused.error)?;
        match &mut self.receive {
            Receive::Shared(shared) => shared.attach(&qp, &mut self.completions)?,
            receive => {
                *receive = Receive::Own(ReceiveQueue::new(
                    &qp,
                    &mut self.completions,
                    receives(&self.shape),
                )?);
            }
        }
        self.mine = base.local.connection_data_of(qp.number());
        self.waiting = Some(qp);
        Ok(())
    }
}

/// Slots of the CQ for all receives of a queue.
pub fn receives(shape: &Shape) -> ReceiveConfig {
    ReceiveConfig { receives: shape.recv_wr }
}

impl<T: Transport, B: Makes<T>> Side<T, B> {
    /// Makes a side of a queue pair that is in RTS already.
    pub fn of(
        base: &Base,
        shape: &Shape,
        cq: CompletionQueue<B>,
        mut completions: CqReader,
        receive: Receive,
        qp: QueuePair<T, Rts, B>,
    ) -> Verdict<Side<T, B>>
    where
        T: mlx5::ib::HasQueues,
    {
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
        Ok(Side {
            mine: base.local.connection_data_of(qp.number()),
            send: Some(send),
            qp: Some(qp),
            waiting: None,
            down: None,
            receive,
            completions,
            memory: base.memory(shape)?,
            shape: *shape,
            srq: None,
            cq,
            terms: base.terms,
        })
    }

    /// Its properties that the other side needs.
    pub fn mine(&self) -> &ConnectionData {
        &self.mine
    }

    pub fn number(&self) -> u32 {
        self.mine.qpn
    }

    pub fn send(&mut self) -> Verdict<&mut SendQueue<T>> {
        self.send.as_mut().ok_or_else(|| failed("not connected"))
    }

    /// Takes the send queue out.
    pub fn take_send(&mut self) -> Verdict<SendQueue<T>> {
        self.send.take().ok_or_else(|| failed("not connected"))
    }

    /// Takes the queue pair out.
    pub fn take_qp(&mut self) -> Verdict<QueuePair<T, Rts, B>> {
        self.qp.take().ok_or_else(|| failed("not connected"))
    }

    pub fn qp(&self) -> Verdict<&QueuePair<T, Rts, B>> {
        self.qp.as_ref().ok_or_else(|| failed("not connected"))
    }

    /// Moves the queue pair to ERROR. The queues remain, with what is outstanding.
    pub fn fail(&mut self) -> Verdict {
        self.down = Some(self.take_qp()?.to_error().map_err(|refused| refused.error)?);
        Ok(())
    }

    /// The state that the device reports.
    pub fn state(&mut self) -> Verdict<QpState> {
        if let Some(down) = &self.down {
            return Ok(down.query()?.state);
        }
        Ok(self.qp()?.query()?.state)
    }

    pub fn sge(&self, at: usize, length: usize) -> Sge {
        self.memory.sge(at, length).expect("a part of the memory")
    }

    /// The longest wait for a completion.
    pub fn patience(&self) -> Duration {
        self.terms.patience
    }

    pub fn word(&self, at: usize) -> Word {
        self.memory.word(at).expect("a word of the memory")
    }

    /// Posts a request.
    pub fn post(&mut self, id: u64, operation: impl PostOn<T>) -> Verdict
    where
        Nop: PostOn<T>,
    {
        let spoiled = self.terms.spoiled == Spoiled::Requests;
        let send = self.send()?;
        // SAFETY: all memory that cases name belongs to regions of a side, or is not registered, and
        // no code holds a reference to it.
        unsafe {
            match spoiled {
                false => send.post(id, operation)?,
                true => send.post(id, Nop::new().signaled())?,
            }
        }
        Ok(())
    }

    /// Polls once.
    pub fn poll(&mut self) -> Result<Option<Completion>, PollError> {
        let send = &mut self.send;
        match &mut self.receive {
            Receive::None => self.completions.poll(send),
            Receive::Own(queue) => self.completions.poll(&mut (send, queue)),
            Receive::Shared(queue) => self.completions.poll(&mut (send, queue)),
        }
    }

    pub fn try_next(&mut self) -> Verdict<Option<Completion>> {
        Ok(self.poll()?)
    }

    /// Waits for a completion.
    pub fn next(&mut self) -> Verdict<Completion> {
        let terms = self.terms;
        until(terms.patience, || self.poll()).map(|completion| terms.seen(completion))
    }

    /// Waits for a completion, and returns it with its time.
    pub fn next_timed(&mut self) -> Verdict<(Completion, Option<Timestamp>)> {
        let (terms, send, completions) = (self.terms, &mut self.send, &mut self.completions);
        let poll = || match &mut self.receive {
            Receive::None => completions.poll_timed(send),
            Receive::Own(queue) => completions.poll_timed(&mut (&mut *send, queue)),
            Receive::Shared(queue) => completions.poll_timed(&mut (&mut *send, queue)),
        };
        until(terms.patience, poll).map(|(completion, time)| (terms.seen(completion), time))
    }

    /// Waits for the success of a request.
    pub fn sent(&mut self, id: u64, operation: SendOperation) -> Verdict<SendDone> {
        match self.next()? {
            Completion::Send(done) => {
                same("completed request", (done.id, done.operation), (id, operation))?;
                Ok(done)
            }
            Completion::Failed(failure) => Err(failed(failure)),
            other => Err(failed(format!("instead of request {id}'s success: {other:?}"))),
        }
    }

    /// Waits for a message in receive `id`.
    pub fn received(&mut self, id: u64, kind: ReceiveKind, length: u32) -> Verdict {
        match self.next()? {
            Completion::Receive(done) => {
                same("receive", (done.id, done.kind, done.byte_len), (id, kind, length))
            }
            Completion::Failed(failure) => Err(failed(failure)),
            other => Err(failed(format!("instead of receive {id}: {other:?}"))),
        }
    }

    /// Waits for the failure of a request.
    pub fn fails(&mut self, queue: QueueKind, id: u64, status: &[Status]) -> Verdict {
        match self.next()? {
            Completion::Failed(failure) => {
                same("failed request", (failure.queue, failure.id), (queue, id))?;
                holds(
                    status.contains(&failure.status),
                    format!("{failure}; expected {}", names(status)),
                )
            }
            other => Err(failed(format!("instead of {}: {other:?}", names(status)))),
        }
    }

    /// Waits for the failure of a send request.
    pub fn send_fails(&mut self, id: u64, status: Status) -> Verdict {
        self.fails(QueueKind::Send, id, &[status])
    }

    /// Checks that no completion waits.
    pub fn is_quiet(&mut self) -> Verdict {
        match self.try_next()? {
            None => Ok(()),
            Some(other) => Err(failed(format!("a completion that nobody asked for: {other:?}"))),
        }
    }
}

fn names(status: &[Status]) -> String {
    status.iter().map(|status| status.name()).collect::<Vec<_>>().join(" or ")
}

/// Polls until a completion comes.
pub fn wait(
    completions: &mut CqReader,
    queues: &mut impl mlx5::ring::Queues,
    patience: Duration,
) -> Verdict<Completion> {
    until(patience, || completions.poll(queues))
}

/// Polls until something comes.
pub fn until<R>(
    patience: Duration,
    mut poll: impl FnMut() -> Result<Option<R>, PollError>,
) -> Verdict<R> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(result) = poll()? {
            return Ok(result);
        }
        if Instant::now() > deadline {
            return Err(failed(format!("no completion within {patience:?}")));
        }
        std::thread::yield_now();
    }
}
