//! Extended reliable connections: a requesting end, a responding end, and shared receive queues
//! that requests name.

#[path = "xrc/windows.rs"]
mod windows;

use mlx5::connect::ConnectionData;
use mlx5::cqe::{Completion, QueueKind, ReceiveDone, ReceiveKind, SendOperation, Status};
use mlx5::ib::{Rc, XrcRecv, XrcSend};
use mlx5::ring::{
    CqReader, QueueError, QueueTable, Queues, ReceiveConfig, RegisterUse, SendConfig, SendQueue,
    Srq,
};
use mlx5::verbs::{Devx, MemoryRegion, Rts};
use mlx5::wqe::{
    Bits, CompareSwap, FetchAdd, Inline, MaskedCompareSwap, MaskedFetchAdd, Nop, RdmaRead,
    RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage, Sge, Word, XrcAddress,
};
use mlx5_model::Mode;

use super::made::{
    self, CompletionQueue, QueuePair, QueuePairBuilder, Rig, SharedReceiveQueue, XrcDomain,
};
use rig::random::Random;
use rig::wait;

const MEMORY: usize = 1 << 16;

/// The requesting end.
pub struct Requester {
    pub send: SendQueue<XrcSend>,
    completions: CqReader,
    memory: MemoryRegion,
    pub qp: QueuePair<XrcSend, Rts>,
}

/// A shared receive queue of the answering side, with a CQ of its own.
pub struct Receiver {
    pub shared: Srq,
    pub completions: CqReader,
    pub number: u32,
    _srq: SharedReceiveQueue,
    cq: CompletionQueue,
}

struct Lines {
    requesters: Vec<Requester>,
    targets: Vec<QueuePair<XrcRecv, Rts>>,
    receivers: Vec<Receiver>,
    memory: MemoryRegion,
    domain: XrcDomain,
    rig: Rig,
}

pub fn receiver(rig: &Rig, domain: &XrcDomain) -> Receiver {
    let cq = rig.cq(127);
    let srq = made::srq(&rig.pd).max_wr(31).max_sge(3).xrc(domain, &cq);
    let srq = srq.build().unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    Receiver { shared, completions, number: srq.number().unwrap(), _srq: srq, cq }
}

impl Receiver {
    /// Posts a receive into this memory.
    #[allow(dead_code, reason = "not for tests of queues made by command")]
    pub fn accept(&mut self, id: u64, memory: &MemoryRegion) {
        let sge = memory.sge(0, memory.len()).unwrap();
        // SAFETY: the caller keeps the memory to the end, and reads it only when the receive is
        // complete.
        unsafe { self.shared.post(id, sge) }.unwrap();
    }

    /// The next receive that is complete.
    pub fn taken(&mut self) -> ReceiveDone {
        match wait(&mut self.completions, &mut self.shared) {
            Completion::Receive(done) => done,
            other => panic!("{other:?}"),
        }
    }
}

impl Lines {
    fn new(connections: usize, receivers: usize) -> Self {
        let rig = Rig::new(Mode::Trapped);
        let domain = XrcDomain::new(&rig.context).unwrap();
        let receivers = (0..receivers).map(|_| receiver(&rig, &domain)).collect();
        let (mut requesters, mut targets) = (vec![], vec![]);
        for _ in 0..connections {
            let (requester, target) = connection(&rig, &domain);
            requesters.push(requester);
            targets.push(target);
        }
        let memory = rig.memory(MEMORY);
        Self { requesters, targets, receivers, memory, domain, rig }
    }

    fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    fn to(&self, receiver: usize) -> XrcAddress {
        XrcAddress::new(self.receivers[receiver].number)
    }

    fn post(&mut self, receiver: usize, id: u64, sge: Sge) {
        // SAFETY: the memory lives to the end, and is read only when the receive is complete.
        unsafe { self.receivers[receiver].shared.post(id, sge) }.unwrap();
    }

    fn received(&mut self, receiver: usize) -> ReceiveDone {
        self.receivers[receiver].taken()
    }
}

/// Two ends that are connected; the requester completes on `cq`.
pub fn ends(
    rig: &Rig,
    domain: &XrcDomain,
    cq: &CompletionQueue,
) -> (QueuePair<XrcSend, Rts>, QueuePair<XrcRecv, Rts>) {
    ends_of(rig, domain, made::builder(&rig.pd, cq))
}

/// The same, the requester made by this builder.
pub fn ends_of(
    rig: &Rig,
    domain: &XrcDomain,
    shape: QueuePairBuilder<XrcSend>,
) -> (QueuePair<XrcSend, Rts>, QueuePair<XrcRecv, Rts>) {
    let qp = shape.max_inline_data(64).max_send_sge(3);
    let (qp, target) = (rig.init(qp), rig.to_init(made::xrc_target(rig, domain)));
    let ends: (ConnectionData, ConnectionData) =
        (rig.local.connection_data_of(qp.number()), rig.local.connection_data_of(target.number()));
    let target = target.rtr(&rig.local.rtr(&ends.1, &ends.0)).unwrap();
    let target = target.rts(&rig.local.rts(&ends.1, &ends.0).into()).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&ends.0, &ends.1).into()).unwrap();
    (qp.rts(&rig.local.rts(&ends.0, &ends.1)).unwrap(), target)
}

/// Two ends that are connected, and the send queue of one.
pub fn connection(rig: &Rig, domain: &XrcDomain) -> (Requester, QueuePair<XrcRecv, Rts>) {
    let cq = rig.cq(127);
    let (qp, target) = ends(rig, domain, &cq);
    let mut completions = CqReader::new(&cq).unwrap();
    let sending = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
    let send = SendQueue::new(&qp, &mut completions, sending).unwrap();
    (Requester { send, completions, memory: rig.memory(MEMORY), qp }, target)
}

impl Requester {
    fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut self.send)
    }

    pub fn done(&mut self) -> (u64, SendOperation, u32) {
        match self.wait() {
            Completion::Send(done) => (done.id, done.operation, done.byte_len),
            other => panic!("{other:?}"),
        }
    }

    fn fails(&mut self) -> (u64, Status) {
        match self.wait() {
            Completion::Failed(failure) => (failure.id, failure.status),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_operation_moves_its_bytes() {
    let mut lines = Lines::new(1, 1);
    let to = lines.to(0);
    let mut random = Random::new();
    for size in [0, 1, 8, 31, 64] {
        let bytes = random.bytes(size);
        lines.requesters[0].memory.write(0, &bytes);
        let room = lines.sge(100, 200);
        lines.post(0, 1, room);
        lines.post(0, 2, room);
        let line = &mut lines.requesters[0];
        let from = [line.sge(0, size / 2), line.sge(size / 2, size - size / 2)];
        // SAFETY: the memory lives to the end, and is written only when the requests are complete.
        unsafe {
            line.send.post(3, SendMessage::new(from).signaled().to(to)).unwrap();
            let send = SendImm::new(Inline(&bytes), 77).solicited().signaled();
            line.send.post(4, send.to(&to)).unwrap();
        }
        assert_eq!(line.done(), (3, SendOperation::Send, 0));
        assert_eq!(line.done(), (4, SendOperation::SendImm, 0));
        let (qpn, source) = (lines.targets[0].number(), lines.requesters[0].qp.number());
        for (id, kind) in [(1, ReceiveKind::Send), (2, ReceiveKind::SendImm(77))] {
            let done = lines.received(0);
            assert_eq!((done.id, done.kind, done.byte_len as usize), (id, kind, size));
            assert_eq!((done.qpn, done.src_qp, done.solicited), (qpn, source, id == 2));
            assert_eq!(lines.memory.to_vec(100, size), bytes);
        }

        lines.post(0, 5, room);
        let remote = [1000, 2000].map(|offset| lines.memory.remote(offset).unwrap());
        let line = &mut lines.requesters[0];
        // SAFETY: the memory lives to the end, and is accessed only when the requests are complete.
        unsafe {
            line.send.post(6, RdmaWrite::new(from, remote[0]).to(to)).unwrap();
            let write = RdmaWriteImm::new(Inline(&bytes), remote[1], 9).signaled();
            line.send.post(7, write.to(to)).unwrap();
            line.send
                .post(8, RdmaRead::new(line.sge(500, size), remote[0]).signaled().to(to))
                .unwrap();
        }
        assert_eq!(line.done(), (7, SendOperation::WriteImm, 0));
        assert_eq!(line.done(), (8, SendOperation::Read, size as u32));
        assert_eq!(line.memory.to_vec(500, size), bytes);
        let done = lines.received(0);
        assert_eq!((done.id, done.kind), (5, ReceiveKind::WriteImm(9)));
        for offset in [1000, 2000] {
            assert_eq!(lines.memory.to_vec(offset, size), bytes);
        }
    }
    lines.memory.write(3000, &5u64.to_ne_bytes());
    let remote = lines.memory.remote(3000).unwrap();
    let line = &mut lines.requesters[0];
    let word = line.memory.word(800).unwrap();
    // SAFETY: the memory lives to the end, and is accessed only when the requests are complete.
    unsafe {
        line.send.post(1, CompareSwap::new(word, remote, 5, 40).signaled().to(to)).unwrap();
        line.send.post(2, FetchAdd::new(word, remote, 2).fenced().signaled().to(&to)).unwrap();
        line.send.post(3, Nop::new().signaled()).unwrap();
        let wide = Word::new(word.addr + 16, word.lkey);
        let add = MaskedFetchAdd::new(wide, remote.offset(24), 1u128).signaled();
        line.send.post(4, add.to(to)).unwrap();
        let swap = Bits::new(0x1_0000_0000, 0xf_0000_0000u64);
        let put = MaskedCompareSwap::new(word, remote, Bits::none(), swap).signaled();
        line.send.post(5, put.fenced().to(&to)).unwrap();
    }
    assert_eq!(line.done(), (1, SendOperation::CompareSwap, 8));
    assert_eq!(line.done(), (2, SendOperation::FetchAdd, 8));
    assert_eq!(line.done(), (3, SendOperation::Nop, 0));
    assert_eq!(line.done(), (4, SendOperation::MaskedFetchAdd, 16));
    assert_eq!(line.done(), (5, SendOperation::MaskedCompareSwap, 8));
    // The last one's old value lies over the first one's.
    assert_eq!(line.memory.to_vec(800, 8), 42u64.to_ne_bytes());
    assert_eq!(lines.memory.to_vec(3000, 8), 0x1_0000_002au64.to_ne_bytes());
    assert_eq!(lines.memory.to_vec(3024, 16), 1u128.to_be_bytes());
}

#[test]
fn any_connection_reaches_any_queue_of_the_domain() {
    let mut lines = Lines::new(3, 4);
    let mut random = Random::new();
    for id in 0..400u64 {
        let (from, to) = (random.below(3) as usize, random.below(4) as usize);
        let room = lines.sge(to * 100, 64);
        lines.post(to, id, room);
        let address = lines.to(to);
        let bytes = id.to_ne_bytes();
        let send = SendMessage::new(Inline(&bytes)).signaled().to(&address);
        // SAFETY: the payload is copied.
        unsafe { lines.requesters[from].send.post(id, send) }.unwrap();
        lines.requesters[from].done();
        let done = lines.received(to);
        assert_eq!((done.id, done.qpn), (id, lines.targets[from].number()));
        assert_eq!(lines.memory.to_vec(to * 100, 8), id.to_ne_bytes());
    }
}

#[test]
fn a_wrong_queue_is_an_error_of_its_requester_only() {
    let mut lines = Lines::new(3, 1);
    // One that is none, an ordinary one, and one of another domain.
    let other = XrcDomain::new(&lines.rig.context).unwrap();
    let foreign = receiver(&lines.rig, &other);
    let plain = made::srq(&lines.rig.pd).build().unwrap();
    let room = lines.sge(0, 64);
    lines.post(0, 1, room);
    for (from, number) in [(0, 0xab_cdef), (1, plain.number().unwrap()), (2, foreign.number)] {
        let line = &mut lines.requesters[from];
        let send = SendMessage::new(Inline(b"astray")).signaled().to(XrcAddress::new(number));
        // SAFETY: the payload is copied.
        unsafe { line.send.post(5, send) }.unwrap();
        assert_eq!(line.fails(), (5, Status::RemoteInvalidRequest));
    }
    let (line, target) = connection(&lines.rig, &lines.domain);
    lines.requesters.push(line);
    lines.targets.push(target);
    let to = lines.to(0);
    let send = SendMessage::new(Inline(b"found")).to(to);
    // SAFETY: the payload is copied.
    unsafe { lines.requesters[3].send.post(6, send) }.unwrap();
    assert_eq!((lines.received(0).id, lines.memory.to_vec(0, 5)), (1, b"found".to_vec()));
}

#[test]
fn an_empty_queue_makes_peers_wait_and_a_short_receive_ends_the_connection() {
    let mut lines = Lines::new(1, 1);
    let to = lines.to(0);
    let line = &mut lines.requesters[0];
    // SAFETY: the payload is copied.
    unsafe { line.send.post(1, SendMessage::new(Inline(b"patient")).signaled().to(to)) }.unwrap();
    assert_eq!(line.completions.poll(&mut line.send), Ok(None));
    let room = lines.sge(0, 64);
    lines.post(0, 2, room);
    assert_eq!((lines.received(0).id, lines.memory.to_vec(0, 7)), (2, b"patient".to_vec()));
    assert_eq!(lines.requesters[0].done().0, 1);

    let short = lines.sge(0, 3);
    lines.post(0, 3, short);
    let line = &mut lines.requesters[0];
    // SAFETY: the payload is copied.
    unsafe { line.send.post(4, SendMessage::new(Inline(b"too long")).signaled().to(to)) }.unwrap();
    assert_eq!(line.fails(), (4, Status::RemoteInvalidRequest));
    let Receiver { shared, completions, .. } = &mut lines.receivers[0];
    match wait(completions, shared) {
        Completion::Failed(failure) => assert_eq!(
            (failure.id, failure.queue, failure.status, failure.qpn),
            (3, QueueKind::Receive, Status::LocalLength, lines.targets[0].number())
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(lines.receivers[0].shared.outstanding(), 0);
}

/// Queues of one CQ are told apart by their user indices, which the card is asked for.
#[test]
fn a_table_finds_queues_by_their_user_index() {
    let rig = Rig::new(Mode::Trapped);
    assert_eq!(rig.context.devx(), Devx::Open);
    let domain = XrcDomain::new(&rig.context).unwrap();
    let cq = rig.cq(4095);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut table = QueueTable::<Rc>::new();
    let srqs: Vec<_> =
        (0..100).map(|_| made::srq(&rig.pd).max_wr(3).xrc(&domain, &cq).build().unwrap()).collect();
    let keys: Vec<_> = srqs
        .iter()
        .map(|srq| {
            let queue = Srq::new(srq, &mut completions, ReceiveConfig::default());
            let queue = queue.unwrap();
            assert!(queue.user_index().is_some() && queue.is_xrc());
            table.insert_shared(queue).unwrap()
        })
        .collect();
    let (mut line, target) = connection(&rig, &domain);
    let memory = rig.memory(4096);
    let sge = memory.sge(0, 64).unwrap();
    let mut random = Random::new();
    for id in 0..600u64 {
        let at = random.below(100) as usize;
        let to = XrcAddress::new(srqs[at].number().unwrap());
        let queue = table.shared(keys[at]).unwrap();
        // SAFETY: the memory lives to the end; the payload is copied.
        unsafe {
            queue.post(id, sge).unwrap();
            line.send
                .post(id, SendMessage::new(Inline(b"to one of many")).signaled().to(to))
                .unwrap();
        }
        line.done();
        match wait(&mut completions, &mut table) {
            Completion::Receive(done) => assert_eq!((done.id, done.qpn), (id, target.number())),
            other => panic!("{other:?}"),
        }
        assert_eq!(table.shared(keys[at]).unwrap().outstanding(), 0);
    }
    let gone = table.remove_shared(keys[7]).unwrap();
    assert!(table.indexed_side(gone.user_index().unwrap()).is_none());
}

#[test]
fn a_queue_of_a_domain_completes_on_its_own_cq() {
    let mut lines = Lines::new(1, 1);
    // The wrong CQ for one that has its own.
    let cq = lines.rig.cq(31);
    let mut completions = CqReader::new(&cq).unwrap();
    let srq = made::srq(&lines.rig.pd).xrc(&lines.domain, &lines.receivers[0].cq).build().unwrap();
    match Srq::new(&srq, &mut completions, ReceiveConfig::default()) {
        Err(mlx5::Error::Queue(QueueError::CqMismatch)) => {}
        other => panic!("{other:?}"),
    }
    // It is as it was: its own is right.
    let reader = &mut lines.receivers[0].completions;
    Srq::new(&srq, reader, ReceiveConfig::default()).unwrap();
}

#[test]
fn an_answering_end_is_reset_and_connected_again() {
    let mut lines = Lines::new(1, 1);
    let target = lines.targets.remove(0);
    let line = lines.requesters.remove(0);
    let Requester { send, completions, qp, .. } = line;
    drop((send, completions));
    let (qp, target) = (qp.reset().unwrap(), target.to_error().unwrap().reset().unwrap());
    assert_eq!(target.query().unwrap().state, mlx5::verbs::attr::QpState::Reset);
    drop((qp, target));
    let (line, target) = connection(&lines.rig, &lines.domain);
    lines.requesters.push(line);
    lines.targets.push(target);
    let (room, to) = (lines.sge(0, 64), lines.to(0));
    lines.post(0, 1, room);
    let send = SendMessage::new(Inline(b"again")).signaled().to(to);
    // SAFETY: the payload is copied.
    unsafe { lines.requesters[0].send.post(2, send) }.unwrap();
    assert_eq!((lines.received(0).id, lines.memory.to_vec(0, 5)), (1, b"again".to_vec()));
}
