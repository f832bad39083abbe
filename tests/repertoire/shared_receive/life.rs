//! Queues that post to and take from a shared receive queue, created and dropped during traffic.

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
        let other = made::srq(&rig.pd).build().unwrap();
        let other = Srq::new(&other, completions, ReceiveConfig { receives: 1 }).unwrap();
        drop(std::mem::replace(shared, other));
        *shared = Srq::new(srq, completions, config).unwrap();
        for qp in qps {
            shared.attach(qp, completions).unwrap();
        }
    }
    // One that did not may not.
    server.post(0).unwrap();
    let Server { shared, completions, srq, .. } = server;
    let mut completions = completions;
    drop(shared);
    match Srq::new(&srq, &mut completions, config) {
        Err(mlx5::Error::Queue(QueueError::NotIdle)) => {}
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
    let mut completions = CqReader::new(&cq).unwrap();
    let own = made::rc(&server.rig.pd, &cq).shared_receive_queue(&server.srq);
    let own = server.rig.init(own);
    server.shared.attach(&own, &mut completions).unwrap();
    let client_cq = server.rig.cq(63);
    let client = made::rc(&server.rig.pd, &client_cq).max_inline_data(64);
    let client = server.rig.init(client);
    let (own, client) = server.rig.connect(own, client);
    let mut client_completions = CqReader::new(&client_cq).unwrap();
    let mut send = SendQueue::new(&client, &mut client_completions, SendConfig::default()).unwrap();
    for id in 0..20 {
        server.post(id).unwrap();
    }
    for id in 0..20u64 {
        if id % 2 == 0 {
            server.send(0, id, b"first");
        } else {
            // SAFETY: the payload is copied.
            unsafe { send.post(id, SendMessage::new(Inline(b"second")).signaled()) }.unwrap();
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
    let mut few = CqReader::new(&small).unwrap();
    let own = made::rc(&server.rig.pd, &small).shared_receive_queue(&server.srq);
    let error = server.shared.attach(&server.rig.init(own), &mut few).unwrap_err();
    assert!(
        matches!(error, mlx5::Error::Queue(QueueError::CqFull { cqes: 8, free: 8, .. })),
        "{error}"
    );
}

#[test]
fn slots_of_a_destroyed_queue_are_reserved_again() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(31);
    let mut completions = CqReader::new(&cq).unwrap();
    let memory = rig.memory(4096);
    for _ in 0..20 {
        let srq = made::srq(&rig.pd).max_wr(15).build().unwrap();
        let config = ReceiveConfig::default();
        let mut shared = Srq::new(&srq, &mut completions, config).unwrap();
        assert_eq!(shared.free(), 15);
        let qp = made::rc(&rig.pd, &cq).shared_receive_queue(&srq);
        shared.attach(&rig.init(qp), &mut completions).unwrap();
        let sge = memory.sge(0, 64).unwrap();
        // SAFETY: the memory lives to the end.
        unsafe { shared.post(1, sge) }.unwrap();
        let srq = (shared, srq).1;
        // Held, its entries are owed.
        let other = made::srq(&rig.pd).max_wr(31).build().unwrap();
        let other = Srq::new(&other, &mut completions, config).unwrap();
        assert_eq!(other.free(), 32 - 15);
        drop((other, srq));
    }
}

/// The server's queue is dropped by its owner with three completions of its first queue pair in the CQ,
/// and that queue pair is destroyed. Then one with the same number is made, which takes from another
/// queue with five receives outstanding. Returns the server with that queue, and the first one.
fn number_in_use_again() -> (Server, SharedReceiveQueue) {
    let mut server = Server::new(&SHAPE);
    for id in 0..10 {
        server.post(id).unwrap();
    }
    for id in 0..3 {
        server.send(0, id, &[1; 8]);
    }
    let srq = made::srq(&server.rig.pd).max_wr(31).build().unwrap();
    let config = ReceiveConfig::default();
    let shared = Srq::new(&srq, &mut server.completions, config).unwrap();
    let first = std::mem::replace(&mut server.srq, srq);
    drop(std::mem::replace(&mut server.shared, shared));
    for id in 20..25 {
        server.post(id).unwrap();
    }
    // The number of the first queue pair comes again when all others were given out.
    let number = server.qps[0].number();
    server.qps.clear();
    let qp = (0..10_000).find_map(|_| {
        let qp = made::rc(&server.rig.pd, &server.cq).shared_receive_queue(&server.srq);
        let qp = server.rig.init(qp);
        (qp.number() == number).then_some(qp)
    });
    let qp = qp.expect("numbers come again");
    server.shared.attach(&qp, &mut server.completions).unwrap();
    let Client { send, mut completions, qp: client } = server.clients.remove(0);
    drop(send);
    let client = server.rig.to_init(client.to_error().unwrap().reset().unwrap());
    let (qp, client) = server.rig.connect(qp, client);
    let send = SendQueue::new(&client, &mut completions, SendConfig::default()).unwrap();
    server.clients.insert(0, Client { send, completions, qp: client });
    server.qps.push(qp);
    (server, first)
}

#[test]
fn attach_frees_no_receive_by_cqes_of_an_earlier_queue_pair_with_the_number() {
    let (mut server, _first) = number_in_use_again();
    assert_eq!(server.shared.reclaimed().count(), 0);
    assert_eq!(server.shared.outstanding(), 5);
    for id in 20..25 {
        server.send(0, id, b"later");
        assert_eq!((server.received().id, server.bytes(id, 5)), (id, b"later".to_vec()));
    }
    server.is_quiet();
}

#[test]
fn destroying_a_queue_drops_no_cqe_of_a_later_queue_pair_with_the_number() {
    let (mut server, first) = number_in_use_again();
    server.send(0, 20, b"later");
    // The reader finds out that the queue is gone when slots are asked for.
    drop(first);
    let before = server.completions.capacity();
    server
        .completions
        .publish(Publish::Every(before - 31))
        .expect("the first one's slots are free");
    server.completions.publish(Publish::EveryPoll).unwrap();
    assert_eq!((server.received().id, server.bytes(20, 5)), (20, b"later".to_vec()));
    server.is_quiet();
}

/// CQEs that came after a queue pair was detached take up slots of the CQ until they are polled, or the
/// queue is destroyed: then they are dropped, and not before their slots are free.
#[test]
fn cqes_of_a_detached_queue_pair_are_dropped_with_its_queue() {
    let mut server = Server::new(&SHAPE);
    for id in 0..10 {
        server.post(id).unwrap();
    }
    let number = server.qps[0].number();
    assert!(server.shared.detach(number, &mut server.completions));
    for id in 0..10 {
        server.send(0, id, &[1; 8]);
    }
    let Server { shared, mut completions, srq, qps, clients, .. } = server;
    drop((shared, qps, srq));
    let all = completions.capacity();
    completions.publish(Publish::Every(all)).expect("all slots are free");
    assert_eq!(completions.poll(&mut ()), Ok(None), "and no CQE takes one");
    drop(clients);
}
