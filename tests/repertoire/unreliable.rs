//! Unreliable connections and datagrams: which messages arrive, and which do not.

use mlx5::cqe::{Completion, QueueKind, ReceiveDone, ReceiveKind, SendOperation, Status};
use mlx5::ib::{Receives, Transport, Uc, Ud};
use mlx5::ring::{CqReader, PostError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Connected, MemoryRegion, QpState, QueuePair, QueuePairBuilder,
    RtrAttributes, Rts, RtsAttributes, UcRtrAttributes, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::wqe::{
    Inline, Nop, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage, Sge, UdAddress,
};

use crate::rig::process::on_roce;
use crate::rig::{Rig, wait};

/// One side: a queue pair with its queues and memory.
pub struct Side<T: Transport> {
    pub memory: MemoryRegion,
    pub send: SendQueue<T>,
    pub receive: ReceiveQueue,
    pub completions: CqReader,
    pub qp: QueuePair<T, Rts>,
}

/// Bytes of each side's memory.
const MEMORY: usize = 1 << 16;
/// The Q_Key of the datagram queue pairs here.
pub const QKEY: u32 = 0x1ee7_5eed;

impl<T: Transport> Side<T> {
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    pub fn remote(&self, offset: usize) -> Remote {
        self.memory.remote(offset).unwrap()
    }

    pub fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut (&mut self.send, &mut self.receive))
    }

    pub fn received(&mut self) -> ReceiveDone {
        match self.wait() {
            Completion::Receive(done) => done,
            other => panic!("{other:?}"),
        }
    }

    pub fn sent(&mut self) -> (u64, SendOperation) {
        match self.wait() {
            Completion::Send(done) => (done.id, done.operation),
            other => panic!("{other:?}"),
        }
    }

    pub fn is_quiet(&mut self) {
        let queues = &mut (&mut self.send, &mut self.receive);
        assert_eq!(self.completions.poll(queues), Ok(None));
    }
}

fn shape<T: Receives>(rig: &Rig, cq: &CompletionQueue) -> QueuePairBuilder<T> {
    QueuePairBuilder::new(&rig.pd, cq).max_send_sge(4).max_recv_sge(4).max_inline_data(200)
}

/// Two unreliable connections to each other.
fn connections(rig: &Rig) -> [Side<Uc>; 2] {
    connected(rig)
}

/// Two connections to each other.
pub fn connected<T>(rig: &Rig) -> [Side<T>; 2]
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    let cqs = [(); 2].map(|()| rig.cq(256));
    let qps = cqs.each_ref().map(|cq| rig.init(shape::<T>(rig, cq)));
    let mut readers = cqs.map(|cq| CqReader::new(&cq).unwrap());
    let mut receives = Vec::new();
    for (qp, reader) in qps.iter().zip(&mut readers) {
        receives.push(ReceiveQueue::new(qp, reader, ReceiveConfig::default()).unwrap());
    }
    let [first, second] = qps;
    let (first, second) = rig.connect(first, second);
    let mut receives = receives.into_iter();
    let mut readers = readers.into_iter();
    [first, second].map(|qp| {
        let (mut completions, receive) = (readers.next().unwrap(), receives.next().unwrap());
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        Side { memory: rig.memory(MEMORY), send, receive, completions, qp }
    })
}

/// A datagram queue pair.
pub fn datagrams(rig: &Rig) -> Side<Ud> {
    let cq = rig.cq(256);
    let qp = shape::<Ud>(rig, &cq).build().unwrap();
    let qp = qp.init(&UdInitAttributes::new(1, QKEY)).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let qp = qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap();
    let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    Side { memory: rig.memory(MEMORY), send, receive, completions, qp }
}

/// The address of that side, as others send to it.
pub fn address(rig: &Rig, to: &Side<Ud>, qkey: u32) -> UdAddress {
    let way = rig.local.address(&rig.local.connection_data(&to.qp));
    UdAddress::new(&AddressHandle::new(&rig.pd, &way).unwrap(), to.qp.number(), qkey)
}

#[test]
fn a_connection_sends_and_writes() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = connections(&rig);
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        a.memory.write(0, b"sent by entries");
        b.receive.post(1, [b.sge(100, 4), b.sge(200, 60)]).unwrap();
        a.send.post(2, SendMessage::new([a.sge(0, 5), a.sge(5, 10)]).signaled()).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind, done.byte_len), (1, ReceiveKind::Send, 15));
        assert_eq!(a.sent(), (2, SendOperation::Send));
        assert_eq!(
            (b.memory.to_vec(100, 4), b.memory.to_vec(200, 11)),
            (b"sent".into(), b" by entries".into())
        );

        b.receive.post(3, b.sge(300, 100)).unwrap();
        a.send.post(4, SendImm::new(Inline(b"inline"), 0x1234_5678).signaled()).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind), (3, ReceiveKind::SendImm(0x1234_5678)));
        assert_eq!(
            (a.sent(), b.memory.to_vec(300, 6)),
            ((4, SendOperation::SendImm), b"inline".into())
        );

        // Several packets, and the receive that follows: the connection keeps the order.
        a.memory.write(1000, &[0x5a; 5000]);
        b.receive.post(5, b.sge(0, 0)).unwrap();
        a.send.post(6, RdmaWrite::new(a.sge(1000, 5000), b.remote(2000)).signaled()).unwrap();
        a.send
            .post(7, RdmaWriteImm::new(Inline(&[7; 150]), b.remote(9000), 99).signaled())
            .unwrap();
        a.send.post(8, Nop::new().signaled()).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind, done.byte_len), (5, ReceiveKind::WriteImm(99), 150));
        assert_eq!(b.memory.to_vec(1999, 5002), [&[0][..], &[0x5a; 5000], &[0]].concat());
        assert_eq!(b.memory.to_vec(9000, 150), [7; 150]);
        assert_eq!(a.sent(), (6, SendOperation::Write));
        assert_eq!(a.sent(), (7, SendOperation::WriteImm));
        assert_eq!(a.sent(), (8, SendOperation::Nop));
    }
    a.is_quiet();
    b.is_quiet();
}

#[test]
fn datagrams_reach_whom_each_is_addressed_to() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut a = datagrams(&rig);
    let mut others = [datagrams(&rig), datagrams(&rig)];
    let addresses = others.each_ref().map(|other| address(&rig, other, QKEY));
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        for other in &mut others {
            for id in 1..3 {
                other.receive.post(id, other.sge(id as usize * 1000, 500)).unwrap();
            }
        }
        a.memory.write(0, b"hello 0hello 1");
        let mut batch = a.send.batch();
        let at = a.memory.sge(0, 7).unwrap();
        for (id, to) in (0..).zip(&addresses) {
            let part = Sge { addr: at.addr + 7 * id, ..at };
            batch.append(id, SendMessage::new(part).signaled().to(to)).unwrap();
        }
        batch.append(2, Nop::new().signaled()).unwrap();
        batch.ring();
        for (id, other) in others.iter_mut().enumerate() {
            let done = other.received();
            // The first 40 bytes are kept for a global route header.
            assert_eq!((done.id, done.kind, done.byte_len), (1, ReceiveKind::Send, 47));
            assert_eq!(done.src_qp, a.qp.number());
            assert_eq!(other.memory.to_vec(1040, 7), format!("hello {id}").into_bytes());
        }
        for id in 0..2 {
            assert_eq!(a.sent(), (id, SendOperation::Send));
        }
        assert_eq!(a.sent(), (2, SendOperation::Nop));

        let request = SendImm::new(Inline(b"inline"), 77).signaled().to(addresses[1]);
        a.send.post(3, request).unwrap();
        let done = others[1].received();
        assert_eq!((done.id, done.kind, done.byte_len), (2, ReceiveKind::SendImm(77), 46));
        assert_eq!(others[1].memory.to_vec(2040, 6), b"inline");
        assert_eq!(a.sent(), (3, SendOperation::SendImm));
    }
    a.is_quiet();
    others.iter_mut().for_each(Side::is_quiet);
}

/// This file's tests, and those of multicast.
#[test]
fn all_this_is_so_on_roce() {
    if let Some(text) = on_roce(&["unreliable::", "multicast::"]) {
        assert!(text.contains("datagrams_reach_whom_each_is_addressed_to ... ok"), "{text}");
        assert!(text.contains("every_member_gets_its_copy_and_nobody_else ... ok"), "{text}");
    }
}

/// The state that the card has a queue pair in.
fn state<T: Transport>(side: &Side<T>) -> QpState {
    side.qp.query().unwrap().state
}

fn failed<T: Transport>(side: &mut Side<T>) -> (u64, QueueKind, Status) {
    match side.wait() {
        Completion::Failed(failure) => (failure.id, failure.queue, failure.status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn datagrams_that_nobody_wants_are_lost_in_silence() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, mut b) = (datagrams(&rig), datagrams(&rig));
    let right = address(&rig, &b, QKEY);
    let way = rig.local.address(&rig.local.connection_data(&b.qp));
    let handle = AddressHandle::new(&rig.pd, &way).unwrap();
    let number = b.qp.number();
    // No receive is posted, a wrong key, an unassigned queue pair number, and a queue pair of
    // another transport.
    let [connection, _] = connections(&rig);
    let others = [
        right,
        address(&rig, &b, QKEY + 1),
        UdAddress::new(&handle, 5, QKEY),
        UdAddress::new(&handle, connection.qp.number(), QKEY),
    ];
    for (id, to) in (0..).zip(&others) {
        if id == 1 {
            // SAFETY: memory lives to the end, and is accessed only after the requests on it
            // complete.
            unsafe { b.receive.post(7, b.sge(0, 100)).unwrap() };
        }
        // SAFETY: the payload is copied into the WQE.
        unsafe { a.send.post(id, SendMessage::new(Inline(b"lost")).signaled().to(to)).unwrap() };
        assert_eq!(a.sent().0, id);
        b.is_quiet();
    }
    // A Q_Key whose top bit is set stands for the sender's own.
    let own = UdAddress::new(&handle, number, 1 << 31 | 5);
    // SAFETY: the payload is copied into the WQE.
    unsafe { a.send.post(9, SendMessage::new(Inline(b"found")).signaled().to(&own)).unwrap() };
    assert_eq!((a.sent().0, b.received().id, b.memory.to_vec(40, 5)), (9, 7, b"found".into()));
    assert_eq!((state(&a), state(&b)), (QpState::Rts, QpState::Rts));
}

#[test]
fn a_datagram_is_one_packet_at_most() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, mut b) = (datagrams(&rig), datagrams(&rig));
    let to = address(&rig, &b, QKEY);
    let longest = rig.local.attributes().active_mtu.bytes();
    // SAFETY: memory lives to the end.
    unsafe {
        b.receive.post(1, b.sge(0, longest + 40)).unwrap();
        a.memory.write(0, &vec![0x77; longest]);
        a.send.post(1, SendMessage::new(a.sge(0, longest)).signaled().to(&to)).unwrap();
        assert_eq!((a.sent().0, b.received().datagram()), (1, 40..40 + longest));
        assert_eq!(b.memory.to_vec(40, longest), vec![0x77; longest]);

        // One byte more, and the send queue stops; receives go on.
        a.send.post(2, SendMessage::new(a.sge(0, longest + 1)).to(&to)).unwrap();
        assert_eq!(failed(&mut a), (2, QueueKind::Send, Status::LocalLength));
        assert_eq!(state(&a), QpState::SqError);
        let refused = a.send.post(3, SendMessage::new(a.sge(0, 1)).signaled().to(&to));
        assert_eq!(refused, Err(PostError::WrongState));
        a.receive.post(5, a.sge(1000, 100)).unwrap();
        let back = address(&rig, &a, QKEY);
        b.send.post(4, SendMessage::new(Inline(b"still there")).signaled().to(&back)).unwrap();
        assert_eq!(
            (b.sent().0, a.received().id, a.memory.to_vec(1040, 11)),
            (4, 5, b"still there".into())
        );
    }
}

#[test]
fn a_datagram_needs_room_for_its_header_too() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, mut b) = (datagrams(&rig), datagrams(&rig));
    let to = address(&rig, &b, QKEY);
    // SAFETY: memory lives to the end.
    unsafe {
        b.receive.post(1, b.sge(0, 42)).unwrap();
        b.receive.post(2, b.sge(0, 100)).unwrap();
        a.send.post(1, SendMessage::new(Inline(b"abc")).signaled().to(&to)).unwrap();
    }
    assert_eq!(a.sent().0, 1);
    assert_eq!(failed(&mut b), (1, QueueKind::Receive, Status::LocalLength));
    assert_eq!(failed(&mut b), (2, QueueKind::Receive, Status::Flushed));
    assert_eq!(state(&b), QpState::Error);
}

#[test]
fn a_connection_loses_what_finds_no_receive_and_goes_on() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = connections(&rig);
    // SAFETY: memory lives to the end.
    unsafe {
        for id in 0..3 {
            a.send.post(id, SendMessage::new(a.sge(0, 3000)).signaled()).unwrap();
            assert_eq!(a.sent().0, id);
        }
        b.is_quiet();
        b.receive.post(1, b.sge(0, 100)).unwrap();
        a.send.post(4, SendMessage::new(Inline(b"now")).signaled()).unwrap();
        assert_eq!((a.sent().0, b.received().id, b.memory.to_vec(0, 3)), (4, 1, b"now".into()));

        // A WRITE that the peer's memory does not allow: neither side is notified.
        let nowhere = Remote::new(b.memory.remote_address(), b.memory.rkey() ^ 0xff00);
        let write = RdmaWrite::new(Inline(b"nowhere"), nowhere);
        a.send.post(5, write.signaled()).unwrap();
        assert_eq!((a.sent().0, state(&a), state(&b)), (5, QpState::Rts, QpState::Rts));

        // A receive that is too small fails its own side alone.
        b.receive.post(2, b.sge(0, 10)).unwrap();
        a.send.post(6, SendMessage::new(a.sge(0, 11)).signaled()).unwrap();
        assert_eq!(a.sent().0, 6);
        assert_eq!(failed(&mut b), (2, QueueKind::Receive, Status::LocalLength));
        assert_eq!((state(&a), state(&b)), (QpState::Rts, QpState::Error));
    }
}

#[test]
fn memory_that_the_sender_may_not_read_stops_its_send_queue() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = connections(&rig);
    let (mut c, d) = (datagrams(&rig), datagrams(&rig));
    let to = address(&rig, &d, QKEY);
    let wrong = |side: &MemoryRegion| Sge::new(side.address(), 8, side.lkey() ^ 0xff00);
    // SAFETY: memory lives to the end.
    unsafe {
        a.send.post(1, SendMessage::new(wrong(&a.memory))).unwrap();
        a.send.post(2, SendMessage::new(Inline(b"flushed"))).unwrap_or(());
        c.send.post(1, SendMessage::new(wrong(&c.memory)).to(&to)).unwrap();
        assert_eq!(failed(&mut a), (1, QueueKind::Send, Status::LocalProtection));
        assert_eq!(failed(&mut a), (2, QueueKind::Send, Status::Flushed));
        assert_eq!(failed(&mut c), (1, QueueKind::Send, Status::LocalProtection));
        assert_eq!((state(&a), state(&c)), (QpState::SqError, QpState::SqError));
        // The other direction works.
        a.receive.post(3, a.sge(0, 10)).unwrap();
        b.send.post(4, SendMessage::new(Inline(b"hi")).signaled()).unwrap();
        assert_eq!((b.sent().0, a.received().id), (4, 3));
    }
}

#[test]
fn addresses_that_do_not_fit_are_told_apart() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let good = rig.local.address(&rig.local.connection_data(&datagrams(&rig).qp));
    let refused = |way: &mlx5::verbs::AddressVector| {
        AddressHandle::new(&rig.pd, way).unwrap_err().to_string()
    };
    let mut way = good;
    way.port = 9;
    assert!(matches!(AddressHandle::new(&rig.pd, &way), Err(mlx5::Error::NoSuchPort { .. })));
    if rig.local.attributes().is_ethernet() {
        way = good;
        way.global = None;
        assert!(refused(&way).contains("GID"), "{}", refused(&way));
    } else {
        way = good;
        way.dlid = 0;
        assert!(refused(&way).contains("destination LID"), "{}", refused(&way));
        way.dlid = 0xc001;
        assert!(refused(&way).contains("by its GID as well"), "{}", refused(&way));
    }
    // What the handle is made of comes back, and outlives its domain's last name.
    let handle = AddressHandle::new(&rig.pd.clone(), &good).unwrap();
    assert_eq!(handle.address(), &good);
    // A connection has one peer: not a group.
    let (gid, lid) = crate::multicast::group(&rig, 9);
    let qp = rig.init(QueuePairBuilder::<Uc>::new(&rig.pd, &rig.cq(8)));
    let to = UcRtrAttributes::new(5, rig.local.multicast(gid, lid));
    let text = qp.rtr(&to).unwrap_err().to_string();
    assert!(text.contains("one peer"), "{text}");
}
