//! Pairs of queue pairs that are connected to each other, and single ones that are connected to
//! themselves or to another process.

use mlx5::connect::{Connection, ConnectionData};
use mlx5::cqe::{Completion, Failure, ReceiveDone, SendOperation};
use mlx5::endpoint::{Endpoint, Receiver};
use mlx5::ib::{Access, Rc, Receives, Transport, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{
    InitAttributes, RtrAttributes, RtsAttributes, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, CompletionQueueBuilder, Connected, Init, MemoryRegion,
    QueuePair, QueuePairBuilder, Rts,
};
use mlx5::wqe::{Remote, Sge, UdAddress};

use crate::{Rig, all_rights, wait};

/// Changes the attributes of side 0 or 1.
type Change<'a> = Box<dyn Fn(usize, &mut RtrAttributes, &mut RtsAttributes) + 'a>;

/// Builder for connected queue pairs by verbs, each with a CQ and memory of its own.
///
/// By default, WQEs have 4 SGEs or 200 bytes inline, CQs 256 entries and regions 64 KiB with
/// [`all_rights`].
pub struct Pair<'a, T: Transport> {
    rig: &'a Rig,
    entries: u32,
    memory: usize,
    rights: [Access; 2],
    cq: Box<dyn Fn(CompletionQueueBuilder) -> CompletionQueueBuilder + 'a>,
    qp: Box<dyn Fn(QueuePairBuilder<T>) -> QueuePairBuilder<T> + 'a>,
    receives: ReceiveConfig,
    init: Box<dyn Fn(usize, InitAttributes) -> InitAttributes + 'a>,
    change: Change<'a>,
}

/// A queue pair in RTS with its CQ and memory, whose queues the test takes over.
#[derive(Debug)]
pub struct Line<T: Transport = Rc> {
    /// The queue pair.
    pub qp: QueuePair<T, Rts>,
    /// The CQ of both queues.
    pub cq: CompletionQueue,
    /// Memory for both sides.
    pub memory: MemoryRegion,
}

/// One side of a connection, or a datagram queue pair: a queue pair with queues, CQ and memory.
///
/// `Q` and `C` are the types of queue pair and CQ.
#[derive(Debug)]
pub struct Side<T: Transport = Rc, Q = QueuePair<T, Rts>, C = CompletionQueue> {
    /// Its memory.
    pub memory: MemoryRegion,
    /// Its send queue.
    pub send: SendQueue<T>,
    /// Its receive queue.
    pub receive: ReceiveQueue,
    /// The polling side of its CQ.
    pub completions: CqReader,
    /// The queue pair.
    pub qp: Q,
    /// The CQ of both queues.
    pub cq: C,
}

impl Rig {
    /// Creates a builder for a pair of connected queue pairs.
    pub fn pair<T: Receives>(&self) -> Pair<'_, T> {
        Pair {
            rig: self,
            entries: 256,
            memory: 1 << 16,
            rights: [all_rights(); 2],
            cq: Box::new(|builder| builder),
            qp: Box::new(|builder| builder),
            receives: ReceiveConfig::default(),
            init: Box::new(|_, attributes| attributes),
            change: Box::new(|_, _, _| {}),
        }
    }
}

/// The Q_Key of datagram queue pairs.
pub const QKEY: u32 = 0x1ee7_5eed;

impl Rig {
    /// Creates a datagram queue pair with [`QKEY`].
    pub fn datagrams(&self) -> Side<Ud> {
        self.datagrams_with(&UdInitAttributes::new(1, QKEY))
    }

    /// Creates a datagram queue pair.
    pub fn datagrams_with(&self, attributes: &UdInitAttributes) -> Side<Ud> {
        let Pair { entries, memory, .. } = self.pair::<Ud>();
        let (cq, memory) = (self.cq(entries), self.memory(memory));
        let qp = shape(QueuePairBuilder::<Ud>::new(&self.pd, &cq)).build().expect("a queue pair");
        let qp = qp.init(attributes).expect("INIT");
        let taken = Taken::new(&qp, &cq, ReceiveConfig::default());
        let qp = qp.rtr().expect("RTR").rts(&UnreliableRtsAttributes::default()).expect("RTS");
        Taken::into_side((Line { qp, cq, memory }, taken))
    }

    /// The address of a datagram queue pair, as others send to it.
    pub fn address(&self, to: &QueuePair<Ud, Rts>, qkey: u32) -> UdAddress {
        let way = self.local.address(&self.local.connection_data(to));
        UdAddress::new(&AddressHandle::new(&self.pd, &way).expect("a way"), to.number(), qkey)
    }
}

/// The queues that all have.
fn shape<T: Receives>(builder: QueuePairBuilder<T>) -> QueuePairBuilder<T> {
    builder.max_send_sge(4).max_recv_sge(4).max_inline_data(200)
}

impl<'a, T> Pair<'a, T>
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    /// Changes the queue pairs.
    pub fn qp(mut self, to: impl Fn(QueuePairBuilder<T>) -> QueuePairBuilder<T> + 'a) -> Self {
        self.qp = Box::new(to);
        self
    }

    /// Changes the CQs.
    pub fn cq(
        mut self,
        to: impl Fn(CompletionQueueBuilder) -> CompletionQueueBuilder + 'a,
    ) -> Self {
        self.cq = Box::new(to);
        self
    }

    /// Sets the entries of each CQ.
    pub fn entries(self, entries: u32) -> Self {
        Self { entries, ..self }
    }

    /// Sets the bytes of each region.
    pub fn memory(self, memory: usize) -> Self {
        Self { memory, ..self }
    }

    /// Sets the rights of both queue pairs and regions, by side.
    pub fn rights(self, rights: [Access; 2]) -> Self {
        Self { rights, ..self }
    }

    /// Sets the receives that may be outstanding on each side.
    pub fn receives(self, receives: u32) -> Self {
        Self { receives: ReceiveConfig { receives }, ..self }
    }

    /// Changes the attributes of RESET to INIT, by side.
    pub fn init(mut self, to: impl Fn(usize, InitAttributes) -> InitAttributes + 'a) -> Self {
        self.init = Box::new(to);
        self
    }

    /// Changes the attributes of INIT to RTR and RTR to RTS, by side.
    pub fn attributes(
        mut self,
        change: impl Fn(usize, &mut RtrAttributes, &mut RtsAttributes) + 'a,
    ) -> Self {
        self.change = Box::new(change);
        self
    }

    /// Connects them, each with both queues on one CQ.
    pub fn sides(self) -> [Side<T>; 2] {
        self.both(Taken::new).map(Taken::into_side)
    }

    /// Connects them, each as an endpoint that owns its memory in flight.
    pub fn endpoints(self) -> [Endpoint<T>; 2] {
        self.both(Owned::new).map(Owned::into_endpoint)
    }

    /// Connects one queue pair to itself, as an endpoint.
    pub fn looped_endpoint(self) -> Endpoint<T> {
        Owned::into_endpoint(self.one(Owned::new, |mine| mine.clone()).0)
    }

    /// Connects one queue pair to that of another process, and leaves its queues to the test. Returns
    /// the other process's memory, too.
    pub fn line_to(self, connection: &mut Connection) -> (Line<T>, Remote) {
        let ((line, ()), remote) = self.to(connection, |_, _, _| ());
        (line, remote)
    }

    /// Connects one queue pair to that of another process. Returns the other process's memory, too.
    pub fn side_to(self, connection: &mut Connection) -> (Side<T>, Remote) {
        let (made, remote) = self.to(connection, Taken::new);
        (Taken::into_side(made), remote)
    }

    fn to<R>(
        self,
        connection: &mut Connection,
        take: impl Fn(&QueuePair<T, Init>, &CompletionQueue, ReceiveConfig) -> R,
    ) -> ((Line<T>, R), Remote) {
        let (made, theirs) =
            self.one(take, |mine| connection.exchange(mine).expect("the peer's data"));
        let region = theirs.region.expect("the peer offers memory");
        (made, Remote::new(region.address, region.rkey))
    }

    /// Makes both. `take` takes over what receives, in INIT.
    fn both<R>(
        self,
        take: impl Fn(&QueuePair<T, Init>, &CompletionQueue, ReceiveConfig) -> R,
    ) -> [(Line<T>, R); 2] {
        let [first, second] = [0, 1].map(|side| self.begin(side, &take));
        let ends = (first.mine.clone(), second.mine.clone());
        [self.end(0, first, &ends.1), self.end(1, second, &ends.0)]
    }

    /// Makes one, whose peer's data is what `theirs` returns for its own.
    fn one<R>(
        self,
        take: impl Fn(&QueuePair<T, Init>, &CompletionQueue, ReceiveConfig) -> R,
        theirs: impl FnOnce(&ConnectionData) -> ConnectionData,
    ) -> ((Line<T>, R), ConnectionData) {
        let begun = self.begin(0, take);
        let theirs = theirs(&begun.mine);
        (self.end(0, begun, &theirs), theirs)
    }

    fn begin<R>(
        &self,
        side: usize,
        take: impl FnOnce(&QueuePair<T, Init>, &CompletionQueue, ReceiveConfig) -> R,
    ) -> Begun<T, R> {
        let Rig { context, local, pd } = self.rig;
        let cq = (self.cq)(CompletionQueue::builder(context, self.entries)).build().expect("a CQ");
        let builder = shape(QueuePairBuilder::<T>::new(pd, &cq));
        let qp = (self.qp)(builder).build().expect("a queue pair");
        let mut init = local.init();
        init.access &= self.rights[side];
        let qp = qp.init(&(self.init)(side, init)).expect("INIT");
        let taken = take(&qp, &cq, self.receives);
        let memory = pd.allocate(self.memory, self.rights[side]).expect("memory");
        let mine = ConnectionData { region: Some((&memory).into()), ..local.connection_data(&qp) };
        Begun { qp, cq, memory, mine, taken }
    }

    fn end<R>(&self, side: usize, begun: Begun<T, R>, theirs: &ConnectionData) -> (Line<T>, R) {
        let Begun { qp, cq, memory, mine, taken } = begun;
        let local = &self.rig.local;
        let (mut rtr, mut rts) = (local.rtr(&mine, theirs), local.rts(&mine, theirs));
        (self.change)(side, &mut rtr, &mut rts);
        let qp = qp.rtr(&rtr.into()).expect("RTR").rts(&rts.into()).expect("RTS");
        (Line { qp, cq, memory }, taken)
    }
}

/// A queue pair in INIT, and what was taken over then.
struct Begun<T: Transport, R> {
    qp: QueuePair<T, Init>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    mine: ConnectionData,
    taken: R,
}

/// The polling side of a CQ and a receive queue on it.
struct Taken(CqReader, ReceiveQueue);

impl Taken {
    fn new<T: Receives>(
        qp: &QueuePair<T, Init>,
        cq: &CompletionQueue,
        config: ReceiveConfig,
    ) -> Self {
        let mut completions = CqReader::new(cq).expect("a reader");
        let receive = ReceiveQueue::new(qp, &mut completions, config);
        Self(completions, receive.expect("a receive queue"))
    }

    fn into_side<T: Receives>((line, taken): (Line<T>, Self)) -> Side<T> {
        let (Line { qp, cq, memory }, Self(mut completions, receive)) = (line, taken);
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default());
        Side { memory, send: send.expect("a send queue"), receive, completions, qp, cq }
    }
}

/// The polling side of a CQ and a receiver on it.
struct Owned(CqReader, Receiver);

impl Owned {
    fn new<T: Receives>(
        qp: &QueuePair<T, Init>,
        cq: &CompletionQueue,
        config: ReceiveConfig,
    ) -> Self {
        let mut completions = CqReader::new(cq).expect("a reader");
        let receiver = Receiver::new(qp, &mut completions, config);
        Self(completions, receiver.expect("a receiver"))
    }

    fn into_endpoint<T: Receives>((line, owned): (Line<T>, Self)) -> Endpoint<T> {
        let Self(completions, receiver) = owned;
        Endpoint::new(line.qp, receiver, completions, SendConfig::default()).expect("an endpoint")
    }
}

impl<T: Transport, Q, C> Side<T, Q, C> {
    /// A piece of its memory.
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    /// Its memory from an offset on, as the peer names it.
    pub fn remote(&self, offset: usize) -> Remote {
        self.memory.remote(offset).unwrap()
    }

    /// Polls until there is a completion.
    pub fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut (&mut self.send, &mut self.receive))
    }

    /// Waits for a completion, which is a receive.
    pub fn received(&mut self) -> ReceiveDone {
        match self.wait() {
            Completion::Receive(done) => done,
            other => panic!("instead of a receive: {other:?}"),
        }
    }

    /// Waits for a completion, which is of a request that succeeded.
    pub fn sent(&mut self) -> (u64, SendOperation) {
        match self.wait() {
            Completion::Send(done) => (done.id, done.operation),
            other => panic!("instead of a success: {other:?}"),
        }
    }

    /// Waits for a completion, which is a failure.
    pub fn failed(&mut self) -> Failure {
        match self.wait() {
            Completion::Failed(failure) => failure,
            other => panic!("instead of a failure: {other:?}"),
        }
    }

    /// Asserts that there is no completion.
    pub fn is_quiet(&mut self) {
        let queues = &mut (&mut self.send, &mut self.receive);
        assert_eq!(self.completions.poll(queues), Ok(None));
    }
}
