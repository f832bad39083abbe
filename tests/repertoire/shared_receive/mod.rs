//! Shared receive queues: several queue pairs take receives from one.

mod life;
mod table;

use std::collections::HashMap;
use std::time::Instant;

use mlx5::cqe::{Completion, QueueKind, ReceiveDone, ReceiveKind, Status};
use mlx5::expert::Publish;
use mlx5::ib::{Rc, Uc, Ud};
use mlx5::ring::{
    CqReader, Excess, PollError, PostError, QueueError, QueueTable, ReceiveConfig, ReceiveQueue,
    RegisterUse, SendConfig, SendQueue, Srq,
};
use mlx5::verbs::attr::{
    CqeSize, RtsAttributes, ScatterToCqe, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::verbs::{AddressHandle, CompletionQueue, MemoryRegion, Rts};
use mlx5::wqe::{Inline, RdmaWriteImm, SendImm, SendMessage, Sge, UdAddress};
use mlx5_model::Mode;

use super::made::{self, QueuePair, QueuePairBuilder, Rig, SharedReceiveQueue};
use rig::random::Random;
use rig::{PATIENCE, wait};

/// Bytes of each receive's memory.
const ROOM: usize = 256;

/// A client's end of a connection to the server.
struct Client {
    send: SendQueue<Rc>,
    completions: CqReader,
    qp: QueuePair<Rc, Rts>,
}

/// The server: connections that take from one queue and complete on one CQ.
struct Server {
    shared: Srq,
    completions: CqReader,
    qps: Vec<QueuePair<Rc, Rts>>,
    clients: Vec<Client>,
    memory: MemoryRegion,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    rig: Rig,
}

struct Shape {
    clients: usize,
    max_wr: u32,
    max_sge: u32,
    cqes: u32,
    cqe_size: CqeSize,
    rts: Option<RtsAttributes>,
}

const SHAPE: Shape =
    Shape { clients: 3, max_wr: 31, max_sge: 1, cqes: 255, cqe_size: CqeSize::B64, rts: None };

impl Server {
    fn new(shape: &Shape) -> Self {
        let rig = Rig::new(Mode::Trapped);
        let cq = CompletionQueue::builder(&rig.context, shape.cqes).cqe_size(shape.cqe_size);
        let cq = cq.build().unwrap();
        let srq = made::srq(&rig.pd).max_wr(shape.max_wr);
        let srq = srq.max_sge(shape.max_sge).build().unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut shared = Srq::new(&srq, &mut completions, config).unwrap();
        let (mut qps, mut clients) = (vec![], vec![]);
        for _ in 0..shape.clients {
            let own = made::rc(&rig.pd, &cq).shared_receive_queue(&srq);
            let own = rig.init(own.scatter_to_cqe(ScatterToCqe::Receives));
            shared.attach(&own, &mut completions).unwrap();
            let client_cq = rig.cq(127);
            let client = rig.init(made::rc(&rig.pd, &client_cq).max_inline_data(64));
            let (own, client) = match shape.rts {
                Some(rts) => rig.connect_with(own, client, rts),
                None => rig.connect(own, client),
            };
            qps.push(own);
            let mut completions = CqReader::new(&client_cq).unwrap();
            let send = SendQueue::new(&client, &mut completions, SendConfig::default()).unwrap();
            clients.push(Client { send, completions, qp: client });
        }
        let memory = rig.memory(ROOM * 256);
        Self { shared, completions, qps, clients, memory, srq, cq, rig }
    }

    /// The memory of receive `id`.
    fn sge(&self, id: u64) -> Sge {
        let offset = (id % 256) * ROOM as u64;
        self.memory.sge(offset as usize, ROOM).unwrap()
    }

    fn bytes(&self, id: u64, length: usize) -> Vec<u8> {
        self.memory.to_vec((id as usize % 256) * ROOM, length)
    }

    fn post(&mut self, id: u64) -> Result<(), PostError> {
        let sge = self.sge(id);
        // SAFETY: the memory lives as long as the queue, and is read only when the receive is
        // complete.
        unsafe { self.shared.post(id, sge) }
    }

    fn send(&mut self, client: usize, id: u64, bytes: &[u8]) {
        let send = SendImm::new(Inline(bytes), id as u32).signaled();
        // SAFETY: the payload is copied.
        unsafe { self.clients[client].send.post(id, send) }.unwrap();
    }

    fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut self.shared)
    }

    fn received(&mut self) -> ReceiveDone {
        match self.wait() {
            Completion::Receive(done) => done,
            other => panic!("{other:?}"),
        }
    }

    fn sent(&mut self, client: usize) -> Completion {
        let Client { send, completions, .. } = &mut self.clients[client];
        wait(completions, send)
    }

    fn is_quiet(&mut self) {
        assert_eq!(self.completions.poll(&mut self.shared), Ok(None));
    }
}

fn failed(completion: Completion) -> (u64, QueueKind, Status) {
    match completion {
        Completion::Failed(failure) => (failure.id, failure.queue, failure.status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_of_several_peers_take_receives_in_the_order_of_arrival() {
    for (cqe_size, max_sge) in [(CqeSize::B64, 1), (CqeSize::B64, 3), (CqeSize::B128, 1)] {
        let mut server = Server::new(&Shape { cqe_size, max_sge, ..SHAPE });
        let mut random = Random::new();
        let mut next = 0;
        for _ in 0..400 {
            let count = 1 + random.below(server.shared.capacity());
            let first = next;
            // One by one, or in a batch.
            if random.one_in(2) {
                for _ in 0..count {
                    server.post(next).unwrap();
                    next += 1;
                }
            } else {
                let list: Vec<_> = (0..count).map(|at| server.sge(next + u64::from(at))).collect();
                let mut batch = server.shared.batch();
                for sge in list {
                    batch.append(next, sge).unwrap();
                    next += 1;
                }
                // SAFETY: the memory lives as long as the queue, and is read only when the receives
                // complete.
                unsafe { batch.ring() };
            }
            assert_eq!(server.shared.outstanding(), count);
            // Every length: in the CQE, or scattered by the card.
            let mut expected = vec![];
            for id in first..next {
                let client = random.below(SHAPE.clients as u32) as usize;
                let length = random.below(65) as usize;
                let bytes = random.bytes(length);
                server.send(client, id, &bytes);
                let qpn = server.qps[client].number();
                expected.push((id, qpn, bytes));
                let Completion::Send(_) = server.sent(client) else { panic!() };
            }
            for (id, qpn, bytes) in expected {
                let done = server.received();
                assert_eq!((done.id, done.qpn, done.byte_len as usize), (id, qpn, bytes.len()));
                assert_eq!(done.kind, ReceiveKind::SendImm(id as u32));
                assert_eq!(server.bytes(id, bytes.len()), bytes);
            }
            server.is_quiet();
            assert_eq!((server.shared.outstanding(), server.shared.free()), (0, 31));
        }
    }
}

#[test]
fn receives_are_posted_again_in_the_order_in_which_they_complete() {
    // Large messages of several peers complete in another order than they have begun.
    let mut server = Server::new(&SHAPE);
    let peer = server.rig.memory(1 << 16);
    let large = server.rig.memory(32 << 16);
    let mut random = Random::new();
    let mut left: HashMap<u64, ()> = HashMap::new();
    let (mut next, mut orders) = (0u64, 0);
    let place = |id: u64| large.sge((id as usize % 32) << 16, 1 << 16).unwrap();
    let mut last = 0;
    for _ in 0..300 {
        while server.shared.free() > 0 && left.len() < 31 {
            // SAFETY: the memory lives as long as the queue, and is read only when the receive is
            // complete.
            unsafe { server.shared.post(next, place(next)) }.unwrap();
            left.insert(next, ());
            next += 1;
        }
        for client in 0..SHAPE.clients {
            let length = 1 + random.below(1 << 16);
            let send = SendMessage::new(peer.sge(0, length as usize).unwrap()).signaled();
            // SAFETY: the memory lives to the end, and no code writes it.
            unsafe { server.clients[client].send.post(0, send) }.unwrap();
        }
        for client in 0..SHAPE.clients {
            let Completion::Send(_) = server.sent(client) else { panic!() };
            let done = server.received();
            assert_eq!(left.remove(&done.id), Some(()), "receive {} is done once", done.id);
            orders += u32::from(done.id < last);
            last = done.id;
        }
    }
    println!("{orders} completions out of order");
    assert_eq!(server.shared.outstanding() as usize, left.len());
}

#[test]
fn a_full_queue_and_long_lists_are_refused() {
    let mut server = Server::new(&Shape { max_sge: 3, ..SHAPE });
    let most = server.shared.capacity();
    assert!(most >= 31 && server.shared.max_sge() == 3);
    let sge = server.sge(0);
    // SAFETY: the memory lives as long as the queue, and both requests are refused.
    unsafe {
        assert_eq!(server.shared.post(0, [sge; 4]), Err(PostError::TooManySges(Excess::new(4, 3))));
        let long = Sge { length: (1 << 31) + 1, ..sge };
        let expected = PostError::SgeTooLong { bytes: (1 << 31) + 1 };
        assert_eq!(server.shared.post(0, long), Err(expected));
    }
    for id in 0..u64::from(most) {
        server.post(id).unwrap();
    }
    assert_eq!(server.post(0), Err(PostError::QueueFull { free: 0 }));
    // A CQ with fewer entries than the queue: it is what limits.
    let cq = server.rig.cq(15);
    let srq = made::srq(&server.rig.pd).build().unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let config = ReceiveConfig::default();
    let mut shared = Srq::new(&srq, &mut completions, config).unwrap();
    assert_eq!(shared.free(), 16);
    for id in 0..16 {
        // SAFETY: the memory lives as long as the queue, and no code reads it.
        unsafe { shared.post(id, sge) }.unwrap();
    }
    // SAFETY: the memory lives as long as the queue, and the request is refused.
    assert_eq!(unsafe { shared.post(0, sge) }, Err(PostError::CqFull { slots: 16 }));
}

#[test]
fn a_batch_that_is_dropped_posts_nothing() {
    let mut server = Server::new(&SHAPE);
    let sges: Vec<_> = (0..5).map(|id| server.sge(id)).collect();
    let mut batch = server.shared.batch();
    for sge in &sges {
        batch.append(77, *sge).unwrap();
    }
    assert_eq!(batch.len(), 5);
    drop(batch);
    assert_eq!(server.shared.outstanding(), 0);
    server.post(1).unwrap();
    server.send(0, 9, b"one");
    assert_eq!((server.received().id, server.bytes(1, 3)), (1, b"one".to_vec()));
    server.is_quiet();
}

#[test]
fn an_empty_queue_makes_peers_wait() {
    let mut server = Server::new(&SHAPE);
    server.send(1, 5, b"patient");
    let Client { send, completions, .. } = &mut server.clients[1];
    assert_eq!(completions.poll(send), Ok(None));
    server.post(3).unwrap();
    let done = server.received();
    assert_eq!((done.id, done.kind), (3, ReceiveKind::SendImm(5)));
    assert_eq!(server.bytes(3, 7), b"patient");
    let Completion::Send(done) = server.sent(1) else { panic!() };
    assert_eq!(done.id, 5);
    // One that does not wait fails; the others' connections go on.
    let rts = RtsAttributes { rnr_retry: 0, ..RtsAttributes::default() };
    let mut server = Server::new(&Shape { rts: Some(rts), ..SHAPE });
    server.send(0, 6, b"hasty");
    assert_eq!(failed(server.sent(0)), (6, QueueKind::Send, Status::RnrRetriesExceeded));
    server.post(4).unwrap();
    server.send(1, 7, b"others");
    assert_eq!(server.received().id, 4);
}

#[test]
fn a_message_longer_than_its_receive_ends_its_connection_only() {
    let mut server = Server::new(&SHAPE);
    let short = Sge { length: 10, ..server.sge(1) };
    // SAFETY: the memory lives as long as the queue, and is read only when the receive is complete.
    unsafe { server.shared.post(1, short) }.unwrap();
    server.post(2).unwrap();
    server.send(0, 5, &[7; 40]);
    assert_eq!(failed(server.sent(0)), (5, QueueKind::Send, Status::RemoteInvalidRequest));
    assert_eq!(failed(server.wait()), (1, QueueKind::Receive, Status::LocalLength));
    // The posted receives still belong to all.
    server.is_quiet();
    assert_eq!(server.shared.outstanding(), 1);
    server.send(2, 6, &[8; 40]);
    assert_eq!((server.received().id, server.bytes(2, 40)), (2, vec![8; 40]));
    // The queue pair in error takes no more, and an event says so.
    made::last_wqe_is_told(&server.rig, &server.qps[0]);
}

#[test]
fn a_limit_is_told_of_once_and_can_be_read() {
    let mut server = Server::new(&SHAPE);
    for id in 0..10 {
        server.post(id).unwrap();
    }
    server.srq.set_limit(8).unwrap();
    assert_eq!(server.srq.query().unwrap().limit, 8);
    for id in 0..2 {
        server.send(0, id, b"x");
        server.received();
    }
    made::nothing_is_told(&server.rig);
    server.send(1, 2, b"x");
    server.received();
    made::limit_is_told(&server.rig, &server.srq);
    assert_eq!(server.srq.query().unwrap().limit, 0);
    server.send(1, 3, b"x");
    server.received();
    made::nothing_is_told(&server.rig);
    let refused = server.srq.set_limit(server.srq.capacity() + 1).unwrap_err();
    assert!(refused.to_string().contains("holds"), "{refused}");
}

#[test]
fn a_write_with_immediate_takes_a_receive() {
    let mut server = Server::new(&SHAPE);
    server.post(1).unwrap();
    server.post(2).unwrap();
    server.send(1, 1, b"a message");
    let remote = server.memory.remote(200 * ROOM).unwrap();
    let write = RdmaWriteImm::new(Inline(b"written"), remote, 0xabcd).signaled();
    // SAFETY: the payload is copied, and the memory is not read before it is there.
    unsafe { server.clients[0].send.post(1, write) }.unwrap();
    assert_eq!(server.received().id, 1);
    let done = server.received();
    assert_eq!((done.id, done.kind), (2, ReceiveKind::WriteImm(0xabcd)));
    assert_eq!((done.qpn, server.bytes(200, 7)), (server.qps[0].number(), b"written".to_vec()));
}

#[test]
fn what_belongs_elsewhere_is_refused() {
    let mut server = Server::new(&SHAPE);
    let refused = |error: mlx5::Error, cause: QueueError| match error {
        mlx5::Error::Queue(error) => assert_eq!(error, cause),
        other => panic!("{other}"),
    };
    // A queue pair with receives of its own, one of another SRQ, one of another CQ.
    let plain = server.rig.init(made::rc(&server.rig.pd, &server.cq));
    let error = server.shared.attach(&plain, &mut server.completions).unwrap_err();
    refused(error, QueueError::SrqMismatch);
    let srq = made::srq(&server.rig.pd).build().unwrap();
    let other = made::rc(&server.rig.pd, &server.cq).shared_receive_queue(&srq);
    let error = server.shared.attach(&server.rig.init(other), &mut server.completions).unwrap_err();
    refused(error, QueueError::SrqMismatch);
    let cq = server.rig.cq(31);
    let other = made::rc(&server.rig.pd, &cq).shared_receive_queue(&server.srq);
    let error = server.shared.attach(&server.rig.init(other), &mut server.completions).unwrap_err();
    refused(error, QueueError::CqMismatch);
    // One that is attached is not attached again, has no receives of its own, and is not reset.
    let qp = server.qps.remove(0);
    let error = server.shared.attach(&qp, &mut server.completions).unwrap_err();
    assert!(matches!(error, mlx5::Error::QueueInUse { .. }), "{error}");
    let failed = qp.to_error().unwrap().reset().unwrap_err();
    assert!(matches!(failed.error, mlx5::Error::QueueInUse { .. }), "{failed}");
    let qp =
        server.rig.init(made::rc(&server.rig.pd, &server.cq).shared_receive_queue(&server.srq));
    let config = ReceiveConfig::default();
    let error = ReceiveQueue::new(&qp, &mut server.completions, config).unwrap_err();
    refused(error, QueueError::NoQueue);
    // Two owners.
    let error = Srq::new(&server.srq, &mut server.completions, config).unwrap_err();
    assert!(matches!(error, mlx5::Error::QueueInUse { .. }), "{error}");
}
