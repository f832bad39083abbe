//! Who posts to a shared receive queue and who takes from it, coming and going.

use super::*;

#[test]
fn an_owner_that_left_nothing_outstanding_may_be_followed() {
    let mut server = Server::new(&SHAPE);
    let config = ReceiveConfig::default();
    for round in 0..5 {
        // Out of step with the ring's beginning.
        for id in 0..7 + round {
            server.post(id).unwrap();
            server.send(id as usize % 3, id, &[id as u8; 40]);
            let Completion::Send(_) = server.sent(id as usize % 3) else { panic!() };
            assert_eq!((server.received().id, server.bytes(id, 40)), (id, vec![id as u8; 40]));
        }
        let Server { shared, completions, srq, qps, rig, .. } = &mut server;
        let numbers: Vec<_> = shared.attached().collect();
        for number in numbers {
            assert!(shared.detach(number, completions));
            assert!(!shared.detach(number, completions));
        }
        // The new owner is made when the old one is gone.
        let other = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
        let other =
            SharedReceives::new(&other, completions, ReceiveConfig { receives: 1 }).unwrap();
        drop(std::mem::replace(shared, other));
        *shared = SharedReceives::new(srq, completions, config).unwrap();
        for qp in qps {
            shared.attach(qp, completions).unwrap();
        }
    }
    // One that did not may not.
    server.post(0).unwrap();
    let Server { shared, completions, srq, .. } = server;
    let mut completions = completions;
    drop(shared);
    match SharedReceives::new(&srq, &mut completions, config) {
        Err(mlx5::Error::Queue(QueueError::Outstanding)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn receives_of_a_queue_pair_that_goes_come_back() {
    let mut server = Server::new(&SHAPE);
    for id in 0..10 {
        server.post(id).unwrap();
    }
    for id in 0..4 {
        server.send(id as usize % 2, id, &[1; 8]);
    }
    // Two of each peer are in the CQ; those of the first go with it.
    let gone = server.qps.remove(0);
    let number = gone.number();
    assert!(server.shared.detach(number, &mut server.completions));
    let mut reclaimed: Vec<_> = server.shared.reclaimed().collect();
    reclaimed.sort_unstable();
    assert_eq!(reclaimed, [0, 2]);
    assert_eq!(server.shared.reclaimed().count(), 0);
    assert_eq!([server.received().id, server.received().id], [1, 3]);
    server.is_quiet();
    assert_eq!(server.shared.outstanding(), 6);
    // It is reset, and takes from the queue again.
    let qp = gone.to_error().unwrap().reset().unwrap();
    let qp = server.rig.to_init(qp);
    server.shared.attach(&qp, &mut server.completions).unwrap();
    let client = server.clients.remove(0);
    let Client { send, completions, qp: client } = client;
    drop(send);
    let client = server.rig.to_init(client.to_error().unwrap().reset().unwrap());
    let (qp, client) = server.rig.connect(qp, client);
    let mut completions = completions;
    let send = SendQueue::new(&client, &mut completions, SendConfig::default()).unwrap();
    server.clients.insert(0, Client { send, completions, qp: client });
    server.send(0, 50, b"again");
    let done = server.received();
    assert_eq!((done.qpn, done.id, server.bytes(4, 5)), (qp.number(), 4, b"again".to_vec()));
}

#[test]
fn queue_pairs_that_complete_on_different_cqs_take_from_one_queue() {
    let mut server = Server::new(&SHAPE);
    let cq = server.rig.cq(63);
    let mut completions = Completions::new(&cq).unwrap();
    let own = QueuePair::builder(&server.rig.pd, &cq).shared_receive_queue(&server.srq);
    let own = server.rig.init(own);
    server.shared.attach(&own, &mut completions).unwrap();
    let client_cq = server.rig.cq(63);
    let client = QueuePair::builder(&server.rig.pd, &client_cq).max_inline_data(64);
    let client = server.rig.init(client);
    let (own, client) = server.rig.connect(own, client);
    let mut client_completions = Completions::new(&client_cq).unwrap();
    let mut send = SendQueue::new(&client, &mut client_completions, SendConfig::default()).unwrap();
    for id in 0..20 {
        server.post(id).unwrap();
    }
    for id in 0..20u64 {
        if id % 2 == 0 {
            server.send(0, id, b"first");
        } else {
            // SAFETY: the payload is copied.
            unsafe { send.post(id, Send::new(Inline(b"second")).signaled()) }.unwrap();
        }
    }
    for id in 0..20u64 {
        if id % 2 == 0 {
            assert_eq!(server.received().id, id);
        } else {
            let Completion::Receive(done) = wait(&mut completions, &mut server.shared) else {
                panic!()
            };
            assert_eq!((done.id, done.qpn), (id, own.number()));
        }
    }
    // A CQ without room for as many as are outstanding.
    for id in 0..20 {
        server.post(id).unwrap();
    }
    let small = server.rig.cq(7);
    let mut few = Completions::new(&small).unwrap();
    let own = QueuePair::builder(&server.rig.pd, &small).shared_receive_queue(&server.srq);
    let error = server.shared.attach(&server.rig.init(own), &mut few).unwrap_err();
    assert!(matches!(error, mlx5::Error::Queue(QueueError::CqFull { cqes: 8 })), "{error}");
}

#[test]
fn entries_of_a_queue_that_was_destroyed_are_promised_again() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(31);
    let mut completions = Completions::new(&cq).unwrap();
    let memory = rig.memory(4096);
    for _ in 0..20 {
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(15).build().unwrap();
        let config = ReceiveConfig::default();
        let mut shared = SharedReceives::new(&srq, &mut completions, config).unwrap();
        assert_eq!(shared.free(), 15);
        let qp = QueuePair::builder(&rig.pd, &cq).shared_receive_queue(&srq);
        shared.attach(&rig.init(qp), &mut completions).unwrap();
        let sge = Sge::new(memory.address(), 64, memory.lkey());
        // SAFETY: the memory lives to the end.
        unsafe { shared.post(1, sge) }.unwrap();
        let srq = (shared, srq).1;
        // Held, its entries are owed.
        let other = SharedReceiveQueue::builder(&rig.pd).max_wr(31).build().unwrap();
        let other = SharedReceives::new(&other, &mut completions, config).unwrap();
        assert_eq!(other.free(), 32 - 15);
        drop((other, srq));
    }
}
