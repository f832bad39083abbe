//! Unreliable connections and datagrams: which messages arrive, and which do not.

use mlx5::cqe::{QueueKind, ReceiveKind, SendOperation, Status};
use mlx5::ib::{Transport, Uc};
use mlx5::ring::PostError;
use mlx5::verbs::attr::{QpState, UcRtrAttributes};
use mlx5::verbs::{AddressHandle, MemoryRegion, QueuePairBuilder};
use mlx5::wqe::{
    Inline, Nop, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage, Sge, UdAddress,
};

use rig::process::on_roce;
use rig::{QKEY, Rig, Side};

#[test]
fn a_connection_sends_and_writes() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Uc>().sides();
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
    let mut a = rig.datagrams();
    let mut others = [rig.datagrams(), rig.datagrams()];
    let addresses = others.each_ref().map(|other| rig.address(&other.qp, QKEY));
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
    let failure = side.failed();
    (failure.id, failure.queue, failure.status)
}

#[test]
fn datagrams_that_nobody_wants_are_lost_in_silence() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, mut b) = (rig.datagrams(), rig.datagrams());
    let right = rig.address(&b.qp, QKEY);
    let way = rig.local.address(&rig.local.connection_data(&b.qp));
    let handle = AddressHandle::new(&rig.pd, &way).unwrap();
    let number = b.qp.number();
    // No receive is posted, a wrong key, an unassigned queue pair number, and a queue pair of
    // another transport.
    let [connection, _] = rig.pair::<Uc>().sides();
    let others = [
        right,
        rig.address(&b.qp, QKEY + 1),
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
    let (mut a, mut b) = (rig.datagrams(), rig.datagrams());
    let to = rig.address(&b.qp, QKEY);
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
        let back = rig.address(&a.qp, QKEY);
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
    let (mut a, mut b) = (rig.datagrams(), rig.datagrams());
    let to = rig.address(&b.qp, QKEY);
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
    let [mut a, mut b] = rig.pair::<Uc>().sides();
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
    let [mut a, mut b] = rig.pair::<Uc>().sides();
    let (mut c, d) = (rig.datagrams(), rig.datagrams());
    let to = rig.address(&d.qp, QKEY);
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
    let good = rig.local.address(&rig.local.connection_data(&rig.datagrams().qp));
    let refused = |way: &mlx5::verbs::attr::AddressVector| {
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
