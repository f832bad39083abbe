//! Many connections on one CQ and one shared receive queue, in the safe layer: what is in flight is
//! returned once, with its connection, whatever happens to the others.

use std::collections::HashMap;
use std::mem::forget;

use mlx5::Error;
use mlx5::cqe::{QueueKind, Status};
use mlx5::endpoint::{
    ConnectionKey, Endpoints, MrSlice, Outcome, Receiver, Returned, SharedReceiver,
};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, PostError, QueueError, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionQueue, ProtectionDomain, QueuePair, Reset, Rts, SharedReceiveQueue};
use mlx5::wqe::{Inline, Nop, RdmaWrite, Remote, SendMessage};
use mlx5_model::Mode;
use rig::Rig;

/// Bytes of a message at most.
const ROOM: usize = 64;
/// Receives of the server, for all clients together.
const RECEIVES: u64 = 48;

/// A server with its clients, in a world that moves when it is told to.
struct World {
    server: Endpoints,
    clients: Endpoints,
    /// The keys of each connection: at the server and at the client.
    keys: Vec<(ConnectionKey, ConnectionKey)>,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    client_cq: CompletionQueue,
    rig: Rig,
}

impl World {
    fn new(connections: usize) -> Self {
        let rig = Rig::new(Mode::Manual);
        let (cq, client_cq) = (rig.cq(2047), rig.cq(2047));
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(RECEIVES as u32).build().unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut receiver = SharedReceiver::new(&srq, &mut completions, config).unwrap();
        for id in 0..RECEIVES {
            receiver.post(id, slice(&rig.pd)).unwrap();
        }
        // With another reader, the receives come back.
        let other = CqReader::new(&client_cq).unwrap();
        let refused = Endpoints::<Rc>::with_receiver(other, receiver).unwrap_err();
        assert!(matches!(refused.error, Error::Queue(QueueError::CqMismatch)), "{refused}");
        let (other, receiver) = refused.arguments;
        let server = Endpoints::with_receiver(completions, receiver).unwrap();
        let clients = Endpoints::new(other);
        let mut world = Self { server, clients, keys: vec![], srq, cq, client_cq, rig };
        for _ in 0..connections {
            let keys = world.connect();
            world.keys.push(keys);
        }
        world
    }

    fn queue_pairs(&self) -> (QueuePair<Rc, Reset>, QueuePair<Rc, Reset>) {
        let server = QueuePair::builder(&self.rig.pd, &self.cq).max_send_wr(8);
        let client = QueuePair::builder(&self.rig.pd, &self.client_cq).max_send_wr(8);
        let server = server.max_inline_data(32).shared_receive_queue(&self.srq);
        let client = client.max_inline_data(32).max_recv_wr(8);
        (server.build().unwrap(), client.build().unwrap())
    }

    /// Connects another client, with four receives posted.
    fn connect(&mut self) -> (ConnectionKey, ConnectionKey) {
        let (server, client) = self.queue_pairs();
        self.join(server, client)
    }

    fn join(
        &mut self,
        server: QueuePair<Rc, Reset>,
        client: QueuePair<Rc, Reset>,
    ) -> (ConnectionKey, ConnectionKey) {
        let (server, client) = (self.rig.to_init(server), self.rig.to_init(client));
        let at_server = self.server.attach(&server).unwrap();
        let at_client = self.clients.attach_own(&client, ReceiveConfig::default()).unwrap();
        for id in 0..4 {
            self.clients.post_receive_on(at_client, 100 + id, slice(&self.rig.pd)).unwrap();
        }
        let (server, client) = self.rig.connect(server, client);
        assert_eq!(self.server.insert(server, SendConfig::default()).unwrap(), at_server);
        assert_eq!(self.clients.insert(client, SendConfig::default()).unwrap(), at_client);
        (at_server, at_client)
    }

    /// Everything that is retired at the server by now.
    fn polled(&mut self) -> Vec<(ConnectionKey, Returned)> {
        mlx5_model::run();
        self.server.poll().map(Result::unwrap).collect()
    }

    fn client_polled(&mut self) -> Vec<(ConnectionKey, Returned)> {
        mlx5_model::run();
        self.clients.poll().map(Result::unwrap).collect()
    }

    /// A message from each of these clients is answered out of the memory in which it arrived.
    fn talk(&mut self, connections: &[usize]) {
        let keys: Vec<_> = connections.iter().map(|&at| self.keys[at]).collect();
        for (number, key) in keys.iter().enumerate() {
            let text = format!("from {number:02}");
            let message = SendMessage::new(Inline(text.as_bytes())).signaled();
            self.clients.post(key.1, number as u64, message).unwrap();
        }
        let mut asked = HashMap::new();
        for (key, returned) in self.polled() {
            let Outcome::Received(done) = returned.outcome else { panic!("{returned:?}") };
            assert_eq!(self.server.queue_pair(key).unwrap().number(), done.qpn);
            assert_eq!(done.id, returned.id);
            let memory = returned.buffers.one().unwrap();
            let text = String::from_utf8(memory.to_vec()).unwrap();
            assert!(asked.insert(key, text[..done.byte_len as usize].to_owned()).is_none());
            self.server.post(key, returned.id, SendMessage::new(memory).signaled()).unwrap();
        }
        let expected = (0..).zip(&keys).map(|(number, key)| (key.0, format!("from {number:02}")));
        assert_eq!(asked, expected.collect());
        // The server's memory comes back, and is posted again.
        let mut answered = 0;
        for (key, returned) in self.polled() {
            assert!(matches!(returned.outcome, Outcome::Sent(_)), "{returned:?}");
            assert!(asked.contains_key(&key));
            self.server.post_receive(returned.id, returned.buffers.one().unwrap()).unwrap();
            answered += 1;
        }
        assert_eq!(answered, keys.len());
        let mut answers = HashMap::new();
        for (key, returned) in self.client_polled() {
            match returned.outcome {
                Outcome::Sent(done) => assert_eq!((done.id, returned.id), (done.id, done.id)),
                Outcome::Received(_) => {
                    let memory = returned.buffers.one().unwrap();
                    let text = String::from_utf8(memory.to_vec()).unwrap();
                    answers.insert(key, text[..7].to_owned());
                    self.clients.post_receive_on(key, returned.id, memory).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        let expected = (0..).zip(&keys).map(|(number, key)| (key.1, format!("from {number:02}")));
        assert_eq!(answers, expected.collect());
    }
}

fn slice(pd: &ProtectionDomain) -> MrSlice {
    MrSlice::new(pd.allocate(ROOM, rig::all_rights()).unwrap())
}

/// Turns a slice into its region again, which succeeds only if no other slice of it exists.
fn alone(slice: MrSlice) {
    slice.into_region().expect("nobody else has a part of the region");
}

/// More connections than doorbell registers, with the default configuration.
#[test]
fn forty_connections_are_served() {
    let mut world = World::new(40);
    assert_eq!((world.server.len(), world.server.keys().count()), (40, 40));
    let all: Vec<_> = (0..40).collect();
    for _ in 0..3 {
        world.talk(&all);
    }
    assert!(world.server.poll().next().is_none());
    assert_eq!(world.server.shared_receives().unwrap().outstanding(), RECEIVES as u32);
}

/// A message that arrives before the connection is inserted names it by the key that it keeps.
#[test]
fn messages_before_the_insertion_are_reported() {
    let mut world = World::new(1);
    let (server, client) = world.queue_pairs();
    let (server, client) = (world.rig.to_init(server), world.rig.to_init(client));
    let key = world.server.attach(&server).unwrap();
    let (server, client) = world.rig.connect(server, client);
    let at_client = world.clients.insert(client, SendConfig::default()).unwrap();
    let hello = SendMessage::new(Inline(b"hello"));
    world.clients.post(at_client, 1, hello.signaled()).unwrap();
    let (from, first) = world.polled().pop().unwrap();
    assert_eq!(from, key);
    assert!(matches!(first.outcome, Outcome::Received(done) if done.byte_len == 5));
    // Not yet there to be posted on.
    let refused = world.server.post(key, 1, Nop::new()).unwrap_err();
    assert_eq!(refused.error, PostError::NoQueue);
    assert!(matches!(world.server.batch(key), Err(PostError::NoQueue)));
    assert_eq!(world.server.insert(server, SendConfig::default()).unwrap(), key);
    world.server.post(key, 7, Nop::new().signaled()).unwrap();
    assert_eq!(world.polled().pop().map(|(key, returned)| (key, returned.id)), Some((key, 7)));
}

#[test]
fn a_failed_connection_hurts_no_other() {
    let mut world = World::new(4);
    let (bad, _) = world.keys[1];
    let nowhere = Remote::new(0x1000, 0x00de_ad00);
    let whole = slice(&world.rig.pd);
    world.server.post(bad, 1, RdmaWrite::new(whole, nowhere)).unwrap();
    world.server.post(bad, 2, SendMessage::new(slice(&world.rig.pd)).signaled()).unwrap();
    let failed = world.polled();
    let outcomes: Vec<_> = failed
        .into_iter()
        .map(|(key, returned)| {
            let Outcome::Failed(failure) = returned.outcome else { panic!("{returned:?}") };
            assert_eq!((key, failure.queue, failure.id), (bad, QueueKind::Send, returned.id));
            alone(returned.buffers.one().unwrap());
            (returned.id, failure.status)
        })
        .collect();
    assert_eq!(outcomes, [(1, Status::RemoteAccess), (2, Status::Flushed)]);
    let refused = world.server.post(bad, 3, Nop::new()).unwrap_err();
    assert_eq!(refused.error, PostError::WrongState);
    // Its peer's receives are flushed, if the peer has seen the failure, and nothing else.
    assert!(world.client_polled().iter().all(|(key, _)| *key == world.keys[1].1));
    world.talk(&[0, 2, 3]);
    let removed = world.server.remove(bad).unwrap();
    assert!(removed.qp.is_some() && removed.sends.is_empty() && removed.receives.is_empty());
    world.talk(&[3, 2, 0]);
    // Its key is of nothing any more.
    assert_eq!(world.server.post(bad, 3, Nop::new()).unwrap_err().error, PostError::NoQueue);
    let gone = world.server.remove(bad).unwrap_err();
    assert!(matches!(gone, Error::Queue(QueueError::UnknownConnection)), "{gone}");
    assert_eq!(world.server.len(), 3);
}

/// Its requests are unsignaled, and as many as the queue takes. They complete, too, when it fails.
#[test]
fn a_failed_connection_leaves_the_cq_to_the_others() {
    let rig = Rig::new(Mode::Manual);
    let (cq, peer_cq) = (rig.cq(15), rig.cq(1));
    let mut server = Endpoints::<Rc>::new(CqReader::new(&cq).unwrap());
    let config = SendConfig { requests: 8, ..SendConfig::default() };
    let mut peers = vec![];
    let [bad, good] = [(); 2].map(|()| {
        let make = |cq| rig.init(QueuePair::builder(&rig.pd, cq).max_inline_data(16));
        let (qp, peer) = rig.connect(make(&cq), make(&peer_cq));
        peers.push(peer);
        server.insert(qp, config).unwrap()
    });
    let mut batch = server.batch(bad).unwrap();
    batch.append(0, RdmaWrite::new(Inline(b"x"), Remote::new(0x1000, 0x00de_ad00))).unwrap();
    let refused = loop {
        if let Err(refused) = batch.append(batch.len().into(), Nop::new()) {
            break refused.error;
        }
    };
    assert_eq!(refused, PostError::NothingSignaled { outstanding: 7 });
    batch.append(7, Nop::new().signaled()).unwrap();
    batch.ring();
    server.post(good, 100, Nop::new().signaled()).unwrap();
    mlx5_model::run();
    let polled = server.poll().map(Result::unwrap);
    let (failed, done): (Vec<_>, Vec<_>) = polled.partition(|(key, _)| *key == bad);
    let ids: Vec<_> = failed.iter().map(|(_, returned)| returned.id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(failed.iter().all(|(_, returned)| matches!(returned.outcome, Outcome::Failed(_))));
    let [(key, Returned { id: 100, outcome: Outcome::Sent(_), .. })] = &done[..] else {
        panic!("{done:?}")
    };
    assert_eq!(*key, good);
    // The CQ is whole, and the other connection goes on.
    for id in 0..40 {
        server.post(good, id, Nop::new().signaled()).unwrap();
        mlx5_model::run();
        let polled: Vec<_> = server.poll().map(|polled| polled.unwrap().1.id).collect();
        assert_eq!(polled, [id]);
    }
}

/// What is in flight, retired, or completed and not polled when a connection is removed.
#[test]
fn a_removed_connection_returns_what_was_in_flight() {
    let mut world = World::new(3);
    let (key, at_client) = world.keys[0];
    let (other, other_client) = world.keys[2];
    // Retired together, and one of them returned.
    for id in 1..=3 {
        let send = SendMessage::new(slice(&world.rig.pd));
        let send = if id == 3 { send.signaled() } else { send };
        world.server.post(key, id, send).unwrap();
    }
    // Messages of two clients that wait to be polled.
    for (client, id) in [(at_client, 1), (other_client, 2), (at_client, 3)] {
        let send = SendMessage::new(Inline(b"unseen")).signaled();
        world.clients.post(client, id, send).unwrap();
    }
    mlx5_model::run();
    let first = loop {
        let (from, returned) = world.server.poll().next().unwrap().unwrap();
        if matches!(returned.outcome, Outcome::SentUnsignaled { byte_len: ROOM }) {
            assert_eq!((from, returned.id), (key, 1));
            break returned;
        }
        // Received before.
        world.server.post_receive(returned.id, returned.buffers.one().unwrap()).unwrap();
    };
    alone(first.buffers.one().unwrap());
    let in_flight = slice(&world.rig.pd);
    world.server.post(key, 4, SendMessage::new(in_flight).signaled()).unwrap();
    let before = world.server.shared_receives().unwrap().outstanding();
    let removed = world.server.remove(key).unwrap();
    let ids: Vec<_> = removed.sends.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [2, 3, 4]);
    removed.sends.into_iter().for_each(|(_, buffers)| alone(buffers.one().unwrap()));
    let after = world.server.shared_receives().unwrap().outstanding();
    assert_eq!(removed.receives.len() as u32, before - after);
    for (id, buffers) in removed.receives {
        world.server.post_receive(id, buffers.one().unwrap()).unwrap();
    }
    // Nothing of it comes any more, and nothing of the other connection is lost.
    let rest = world.polled();
    assert!(rest.iter().all(|(from, _)| *from == other), "{rest:?}");
    for (_, returned) in rest {
        world.server.post_receive(returned.id, returned.buffers.one().unwrap()).unwrap();
    }
    assert_eq!(world.server.shared_receives().unwrap().outstanding(), RECEIVES as u32);
    world.client_polled();
    world.talk(&[1]);
}

/// The queue pair, and so its number, comes back under another key.
#[test]
fn a_queue_pair_is_inserted_again() {
    let mut world = World::new(2);
    for _ in 0..20 {
        world.talk(&[0, 1]);
        let (server, client) = world.keys[0];
        // In flight at both ends.
        let message = SendMessage::new(Inline(b"last")).signaled();
        world.clients.post(client, 9, message).unwrap();
        world.server.post(server, 9, SendMessage::new(Inline(b"last")).signaled()).unwrap();
        mlx5_model::run();
        let at_server = world.server.remove(server).unwrap();
        let at_client = world.clients.remove(client).unwrap();
        for (id, buffers) in at_server.receives {
            world.server.post_receive(id, buffers.one().unwrap()).unwrap();
        }
        let (qp, peer) = (at_server.qp.unwrap(), at_client.qp.unwrap());
        let number = qp.number();
        let keys = world.join(qp, peer);
        assert!(keys.0 != server && keys.1 != client);
        assert_eq!(world.server.key_of(number), Some(keys.0));
        assert_eq!(world.server.post(server, 1, Nop::new()).unwrap_err().error, PostError::NoQueue);
        world.keys[0] = keys;
        assert_eq!(world.server.shared_receives().unwrap().outstanding(), RECEIVES as u32);
    }
    world.talk(&[1, 0]);
}

/// A connection that is only attached can be removed, too; its queue pair is the program's.
#[test]
fn an_attached_queue_pair_is_detached() {
    let mut world = World::new(1);
    let (server, client) = world.queue_pairs();
    let (server, client) = (world.rig.to_init(server), world.rig.to_init(client));
    let key = world.server.attach(&server).unwrap();
    let own = world.clients.attach_own(&client, ReceiveConfig::default()).unwrap();
    world.clients.post_receive_on(own, 5, slice(&world.rig.pd)).unwrap();
    let server = server.reset().unwrap_err();
    assert!(matches!(server.error, Error::QueueInUse { .. }));
    let server = server.queue_pair;
    let removed = world.server.remove(key).unwrap();
    assert!(removed.qp.is_none() && removed.sends.is_empty() && removed.receives.is_empty());
    server.reset().unwrap();
    let removed = world.clients.remove(own).unwrap();
    assert!(removed.qp.is_none() && removed.sends.is_empty() && removed.receives.is_empty());
    client.reset().unwrap();
    world.talk(&[0]);
}

/// While it lives, its CQEs may come.
#[test]
fn a_queue_pair_that_cannot_be_reset_keeps_its_cq_slots() {
    let rig = Rig::new(Mode::Manual);
    let (cq, receive_cq) = (rig.cq(7), rig.cq(7));
    let mut clients = Endpoints::<Rc>::new(CqReader::new(&cq).unwrap());
    let mut reader = CqReader::new(&receive_cq).unwrap();
    let pair = || rig.init(QueuePair::builder(&rig.pd, &cq).receive_cq(&receive_cq));
    let qp = pair();
    let receiver = Receiver::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let (qp, _peer) = rig.connect(qp, pair());
    let key = clients.insert(qp, SendConfig::default()).unwrap();
    clients.post(key, 1, Nop::new().signaled()).unwrap();
    let kept = clients.remove(key).unwrap_err();
    assert!(matches!(kept, Error::QueueInUse { .. }), "{kept}");
    let (other, _peer) = rig.connect(pair(), pair());
    let refused = clients.insert(other, SendConfig::default()).unwrap_err();
    assert!(matches!(refused.error, Error::Queue(QueueError::CqFull { .. })), "{refused}");
    // Destroys the first.
    drop(receiver);
    clients.insert(refused.arguments, SendConfig::default()).unwrap();
}

#[test]
fn memory_of_another_domain_or_without_the_right_is_refused_and_given_back() {
    let mut world = World::new(1);
    let (key, at_client) = world.keys[0];
    let other = ProtectionDomain::new(&world.rig.context).unwrap();
    let refused = world.server.post_receive(1, slice(&other)).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    alone(refused.operation);
    let region = world.rig.pd.allocate(8, Access::REMOTE_READ).unwrap();
    let lkey = region.lkey();
    let refused = world.server.post_receive(1, MrSlice::new(region)).unwrap_err();
    assert_eq!(refused.error, PostError::NoLocalWrite { lkey });
    alone(refused.operation);
    let mixed = vec![slice(&world.rig.pd), slice(&other)];
    let refused = world.server.post(key, 1, SendMessage::new(mixed)).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    refused.operation.into_payload().into_iter().for_each(alone);
    let refused = world.clients.post_receive_on(at_client, 1, slice(&other)).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    // Nor is there a queue to post to.
    let refused = world.clients.post_receive(1, slice(&world.rig.pd)).unwrap_err();
    assert_eq!(refused.error, PostError::NoQueue);
    alone(refused.operation);
    let refused = world.server.post_receive_on(key, 1, slice(&world.rig.pd)).unwrap_err();
    assert_eq!(refused.error, PostError::NoQueue);
}

#[test]
fn a_full_shared_queue_gives_the_memory_back() {
    let mut world = World::new(1);
    let free = world.server.shared_receives().unwrap().free();
    for id in 0..free {
        world.server.post_receive(id.into(), slice(&world.rig.pd)).unwrap();
    }
    let refused = world.server.post_receive(1, slice(&world.rig.pd)).unwrap_err();
    assert!(
        matches!(refused.error, PostError::QueueFull { .. } | PostError::CqFull { .. }),
        "{refused}"
    );
    alone(refused.operation);
    world.talk(&[0]);
}

#[test]
fn attached_connection_that_is_removed_keeps_its_cq_slots() {
    let rig = Rig::new(Mode::Manual);
    let cq = rig.cq(63);
    let mut server = Endpoints::<Rc>::new(CqReader::new(&cq).unwrap());
    let config = ReceiveConfig { receives: 48 };
    let make = || rig.to_init(QueuePair::builder(&rig.pd, &cq).build().unwrap());
    let (first, second) = (make(), make());
    let key = server.attach_own(&first, config).unwrap();
    for id in 0..48 {
        server.post_receive_on(key, id, slice(&rig.pd)).unwrap();
    }
    server.remove(key).unwrap();
    // The HCA may still complete the 48 receives: 16 of 64 entries are free.
    let error = server.attach_own(&second, config).unwrap_err().to_string();
    assert!(error.contains("48") && error.contains("16 free"), "{error}");
    drop(first);
    server.attach_own(&second, config).unwrap();
}

/// Queue pairs of another opened device may have the same numbers.
#[test]
fn queue_pairs_of_another_device_are_refused() {
    let mut world = World::new(1);
    let elsewhere = World::new(0);
    let (server, client) = elsewhere.queue_pairs();
    let (server, client) = (elsewhere.rig.to_init(server), elsewhere.rig.to_init(client));
    assert!(world.server.attach(&server).is_err());
    let refused = world.clients.attach_own(&client, ReceiveConfig::default()).unwrap_err();
    assert!(matches!(refused, Error::Queue(QueueError::CqMismatch)), "{refused}");
    let (_, client): (_, QueuePair<Rc, Rts>) = elsewhere.rig.connect(server, client);
    let refused = world.server.insert(client, SendConfig::default()).unwrap_err();
    assert!(matches!(refused.error, Error::Queue(QueueError::CqMismatch)), "{refused}");
    assert_eq!((world.server.len(), world.clients.len()), (1, 1));
    // It comes back, and is of use where it belongs.
    let mut clients = elsewhere.clients;
    clients.insert(refused.arguments, SendConfig::default()).unwrap();
    world.talk(&[0]);
}

#[test]
fn memory_in_flight_is_dropped_with_the_endpoints() {
    let mut world = World::new(2);
    let (key, _) = world.keys[0];
    let mut sent = slice(&world.rig.pd);
    let mut posted = slice(&world.rig.pd);
    let (sent_rest, posted_rest) = (sent.split_off(8), posted.split_off(8));
    world.server.post(key, 1, SendMessage::new(sent).signaled()).unwrap();
    world.server.post_receive(90, posted).unwrap();
    // Their other parts are the only ones left when the endpoints are gone.
    let sent_rest = sent_rest.into_region().unwrap_err();
    drop(world.server);
    mlx5_model::run();
    for rest in [sent_rest, posted_rest] {
        let region = rest.into_region().unwrap_err();
        assert_eq!(region.len(), ROOM - 8);
    }
}

/// Leaked, they keep their memory for ever, and the HCA may use it.
#[test]
fn leaked_endpoints_keep_their_memory() {
    let mut world = World::new(2);
    let (key, at_client) = world.keys[0];
    world.server.post(key, 1, SendMessage::new(slice(&world.rig.pd)).signaled()).unwrap();
    world.clients.post(at_client, 1, SendMessage::new(Inline(b"x")).signaled()).unwrap();
    forget(world.server);
    mlx5_model::run();
    // The clients go on.
    let polled: Vec<_> = world.clients.poll().map(Result::unwrap).collect();
    assert_eq!(polled.len(), 2, "its request, and a message");
}

/// Unsignaled requests of several connections, whose completions alternate.
#[test]
fn requests_of_each_connection_come_back_in_order() {
    let mut world = World::new(3);
    for round in 0..50 {
        for at in 0..3 {
            let (key, _) = world.keys[at];
            let mut batch = world.server.batch(key).unwrap();
            for id in 0..3 {
                batch.append(id, Nop::new()).unwrap();
            }
            batch.append(3, Nop::new().signaled()).unwrap();
            batch.ring();
        }
        let mut seen: HashMap<ConnectionKey, Vec<u64>> = HashMap::new();
        for (key, returned) in world.polled() {
            seen.entry(key).or_default().push(returned.id);
        }
        let expected = world.keys.iter().map(|key| (key.0, vec![0, 1, 2, 3]));
        assert_eq!(seen, expected.collect(), "round {round}");
    }
    let (key, _) = world.keys[1];
    world.server.post(key, 8, SendMessage::new(slice(&world.rig.pd))).unwrap();
    assert!(world.polled().is_empty());
    assert_eq!(world.server.reclaim(key, 9), Ok(true));
    let ids: Vec<_> = world.polled().iter().map(|(key, returned)| (*key, returned.id)).collect();
    assert_eq!(ids, [(key, 8), (key, 9)]);
}

/// The queue pair of a connection that is only attached is its owner's, and still receives. So the
/// memory of its receives is not given back.
#[test]
fn a_connection_that_is_only_attached_gives_no_memory_back() {
    let mut world = World::new(0);
    let (server, client) = world.queue_pairs();
    let (server, client) = (world.rig.to_init(server), world.rig.to_init(client));
    let at_server = world.server.attach(&server).unwrap();
    let at_client = world.clients.attach_own(&client, ReceiveConfig::default()).unwrap();
    world.clients.post_receive_on(at_client, 1, slice(&world.rig.pd)).unwrap();
    let removed = world.clients.remove(at_client).unwrap();
    assert!(removed.qp.is_none() && removed.sends.is_empty());
    assert!(removed.receives.is_empty(), "{removed:?}");

    // The device takes the receive all the same: into memory that the queue pair keeps.
    let (server, _client) = world.rig.connect(server, client);
    world.server.insert(server, SendConfig::default()).unwrap();
    world.server.post(at_server, 2, SendMessage::new(Inline(b"late")).signaled()).unwrap();
    let polled = world.polled();
    let [(key, Returned { id: 2, outcome: Outcome::Sent(_), .. })] = &polled[..] else {
        panic!("{polled:?}")
    };
    assert_eq!(*key, at_server);
}
