//! Finding one of many queues of a CQ by the fields of completions, which are not trusted.

use super::*;

/// Hundreds of queues on one CQ: half of them take from shared queues, half have their own.
#[test]
fn a_table_finds_hundreds_of_queues_of_one_cq() {
    const PAIRS: usize = 300;
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(8191);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut table = QueueTable::<Rc>::new();
    let memory = rig.memory(64 * PAIRS);
    let config = ReceiveConfig { receives: 2 };
    let srqs: Vec<_> = (0..4).map(|_| made::srq(&rig.pd).max_wr(255).build().unwrap()).collect();
    let keys: Vec<_> = srqs
        .iter()
        .map(|srq| {
            let queue = Srq::new(srq, &mut completions, ReceiveConfig::default());
            table.insert_shared(queue.unwrap()).unwrap()
        })
        .collect();
    let mut ends = vec![];
    for at in 0..PAIRS {
        let builder = |own: bool| {
            let builder = made::rc(&rig.pd, &cq).max_inline_data(32).max_send_wr(2);
            match own {
                true => builder.max_recv_wr(2),
                false => builder.shared_receive_queue(&srqs[at % 4]),
            }
        };
        let (near, far) = (rig.init(builder(true)), rig.init(builder(at % 2 == 0)));
        if at % 2 == 0 {
            let queue = ReceiveQueue::new(&far, &mut completions, config).unwrap();
            assert!(table.insert_receive(queue).is_none());
        } else {
            table.attach(keys[at % 4], &far, &mut completions).unwrap();
        }
        let (near, far) = rig.connect(near, far);
        let sending = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
        let send = SendQueue::new(&near, &mut completions, sending).unwrap();
        assert!(table.insert_send(send).is_none());
        ends.push((near, far));
    }
    assert!(table.send(0).is_none() && table.receive(ends[1].1.number()).is_none());
    let sge = |at: usize| memory.sge(64 * at, 64).unwrap();
    for round in 0..3u64 {
        for (at, (near, far)) in ends.iter().enumerate() {
            let id = round << 32 | at as u64;
            // SAFETY: the memory lives to the end, and is read after it is filled.
            unsafe {
                match table.receive(far.number()) {
                    Some(queue) => queue.post(id, sge(at)).unwrap(),
                    None => table.shared(keys[at % 4]).unwrap().post(id, sge(at)).unwrap(),
                }
                let bytes = id.to_ne_bytes();
                let send = SendMessage::new(Inline(&bytes)).signaled();
                table.send(near.number()).unwrap().post(id, send).unwrap();
            }
        }
        let mut left: HashMap<(u32, u64), QueueKind> = HashMap::new();
        for (at, (near, far)) in ends.iter().enumerate() {
            let id = round << 32 | at as u64;
            left.insert((near.number(), id), QueueKind::Send);
            left.insert((far.number(), id), QueueKind::Receive);
        }
        while !left.is_empty() {
            let (key, kind) = match wait(&mut completions, &mut table) {
                Completion::Send(done) => ((done.qpn, done.id), QueueKind::Send),
                Completion::Receive(done) => ((done.qpn, done.id), QueueKind::Receive),
                other => panic!("{other:?}"),
            };
            assert_eq!(left.remove(&key), Some(kind));
        }
        assert_eq!(completions.poll(&mut table), Ok(None));
    }
    // What is taken out is not found any more.
    let (near, far) = &ends[1];
    assert!(table.detach(keys[1], far.number(), &mut completions));
    let mut alone = table.remove_send(near.number()).unwrap();
    assert!(table.send(near.number()).is_none());
    // SAFETY: the memory lives to the end, and is read after it is filled.
    unsafe {
        table.shared(keys[1]).unwrap().post(1, sge(1)).unwrap();
        alone.post(1, SendMessage::new(Inline(b"lost")).signaled()).unwrap();
    }
    // One is of a queue pair that is detached; the other of a queue that is there, and not in the table.
    let (mut lost, mut done) = (0, 0);
    let deadline = Instant::now() + PATIENCE;
    while (lost, done) != (1, 1) {
        match completions.poll(&mut table) {
            Ok(Some(Completion::UnexpectedCqe(unexpected))) => {
                assert_eq!(unexpected.qpn, far.number());
                lost += 1;
            }
            Ok(None) => assert!(Instant::now() < deadline),
            Err(error) => {
                let (qpn, queue) = (near.number(), QueueKind::Send);
                assert_eq!(error, PollError::QueueNotGiven { qpn, queue });
                assert!(!alone.is_idle());
                let completion = completions.poll(&mut alone).unwrap();
                assert!(matches!(completion, Some(Completion::Send(done)) if done.id == 1));
                assert!(alone.is_idle());
                done += 1;
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_completion_that_lies_retires_nothing() {
    use rig::verbs::CqMemory;
    let mut server = Server::new(&SHAPE);
    // SAFETY: the CQ lives to the end.
    let ring = unsafe { CqMemory::new(server.cq.as_raw()) };
    let mut random = Random::new();
    for id in 0..5 {
        server.post(id).unwrap();
    }
    server.send(0, 0, b"true");
    let real = ring.entry(0);
    assert_eq!(server.received().id, 0);
    // The same again, with any index, of any queue pair: those of receives that are not outstanding.
    let deadline = Instant::now() + PATIENCE;
    let mut met = 0;
    for slot in 1..200usize {
        assert!(Instant::now() < deadline);
        let mut lie = real.clone();
        let index = match random.below(3) {
            0 => 0,
            1 => random.next() as u16 | 0x20,
            _ => 5 + random.below(27) as u16,
        };
        lie[60..62].copy_from_slice(&index.to_be_bytes());
        if random.one_in(4) {
            lie[57..60].copy_from_slice(&(random.next() as u32).to_be_bytes()[..3]);
        }
        ring.write(slot, &lie);
        match server.completions.poll(&mut server.shared) {
            Ok(Some(Completion::UnexpectedCqe(_))) => met += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((met, server.shared.outstanding()), (199, 4));
}

/// A reliable connection, an unreliable one, and datagrams: all take from one queue.
#[test]
fn every_transport_takes_from_one_queue() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(127);
    let srq = made::srq(&rig.pd).build().unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    let memory = rig.memory(ROOM * 64);
    let part = |id: u64| memory.sge(id as usize * ROOM, ROOM).unwrap();
    let sending = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
    let peer_cq = rig.cq(255);
    let mut peer_completions = CqReader::new(&peer_cq).unwrap();

    macro_rules! line {
        ($transport:ty) => {{
            let builder = made::builder::<$transport>(&rig.pd, &cq);
            let own = rig.init(builder.shared_receive_queue(&srq));
            shared.attach(&own, &mut completions).unwrap();
            let peer = made::builder::<$transport>(&rig.pd, &peer_cq).max_inline_data(64);
            let (own, peer) = rig.connect(own, rig.init(peer));
            let send = SendQueue::<$transport>::new(&peer, &mut peer_completions, sending);
            (own, send.unwrap())
        }};
    }
    let (reliable, mut to_reliable) = line!(Rc);
    let (unreliable, mut to_unreliable) = line!(Uc);
    let datagram = |builder: QueuePairBuilder<Ud>| {
        let qp = builder.build().unwrap().init(&UdInitAttributes::new(1, 0x1234)).unwrap();
        qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap()
    };
    let own = datagram(made::builder::<Ud>(&rig.pd, &cq).shared_receive_queue(&srq));
    shared.attach(&own, &mut completions).unwrap();
    let peer = datagram(made::builder::<Ud>(&rig.pd, &peer_cq).max_inline_data(64));
    let mut to_datagram = SendQueue::<Ud>::new(&peer, &mut peer_completions, sending).unwrap();
    let way = rig.local.address(&rig.local.connection_data_of(own.number()));
    let handle = AddressHandle::new(&rig.pd, &way).unwrap();
    let address = UdAddress::new(&handle, own.number(), 0x1234);

    for id in 0..60u64 {
        let bytes = id.to_ne_bytes();
        // SAFETY: the memory lives to the end; payloads are copied.
        unsafe {
            shared.post(id, part(id)).unwrap();
            let send = SendMessage::new(Inline(&bytes)).signaled();
            match id % 3 {
                0 => to_reliable.post(id, send).unwrap(),
                1 => to_unreliable.post(id, send).unwrap(),
                _ => to_datagram.post(id, send.to(&address)).unwrap(),
            }
        }
        // A datagram lies behind the room for a global route header.
        let (qpn, header) = match id % 3 {
            0 => (reliable.number(), 0),
            1 => (unreliable.number(), 0),
            _ => (own.number(), 40),
        };
        let Completion::Receive(done) = wait(&mut completions, &mut shared) else { panic!() };
        assert_eq!((done.id, done.qpn, done.byte_len), (id, qpn, header + 8));
        let mut arrived = [0; 8];
        memory.read((id as usize * ROOM) + header as usize, &mut arrived);
        assert_eq!(arrived, bytes);
        let mut queues = (&mut to_reliable, (&mut to_unreliable, &mut to_datagram));
        let Completion::Send(_) = wait(&mut peer_completions, &mut queues) else { panic!() };
    }
    // Nobody waits for a receive but the reliable one: the others' messages are lost.
    let lost = SendMessage::new(Inline(b"lost")).signaled();
    // SAFETY: the memory lives to the end; payloads are copied.
    unsafe {
        to_unreliable.post(1, lost).unwrap();
        to_datagram.post(2, lost.to(&address)).unwrap();
    }
    for _ in 0..2 {
        let mut queues = (&mut to_unreliable, &mut to_datagram);
        let Completion::Send(_) = wait(&mut peer_completions, &mut queues) else { panic!() };
    }
    // SAFETY: the memory lives to the end; payloads are copied.
    unsafe { shared.post(1, part(1)) }.unwrap();
    assert_eq!(completions.poll(&mut shared), Ok(None));
}
