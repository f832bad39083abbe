//! Connections that are made.

use mlx5::Error;
use mlx5::connect::cm::{CmError, ConnectionParameters, Identifier};
use mlx5::endpoint::{Endpoints, Outcome};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::attr::AckTimeout;
use mlx5::verbs::{CompletionQueue, QueuePair};
use mlx5::wqe::{Inline, SendMessage};

use super::*;

#[test]
fn a_connection_carries_messages_both_ways() {
    let mut listener = listener();
    let (mut client, mut server) = connected(&mut listener);
    talk(&mut client, &mut server);
    assert_eq!(client.connection.peer_address(), Some(address(&listener)));
    assert_eq!(server.connection.peer_address(), client.connection.local_address());
    assert_eq!(server.connection.device(), client.connection.device());
    assert_eq!((server.connection.port(), client.connection.port()), (1, 1));
}

#[test]
fn each_side_learns_private_data_depths_and_queue_pair_of_the_other() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let client = End::new(&pd, &id.init().unwrap());
    let parameters = ConnectionParameters {
        private_data: &[5; 56],
        responder_depth: Some(3),
        initiator_depth: Some(2),
        retry_count: 4,
        rnr_retry_count: 6,
    };
    let asked = id.connect(&client.qp, &parameters).unwrap();
    let request = request(&mut listener);
    let peer = request.peer();
    assert_eq!(peer.private_data, [5; 56]);
    assert_eq!(peer.qpn, client.qp.number());
    // What the client wants to have outstanding, and what it executes.
    assert_eq!((peer.responder_depth, peer.initiator_depth), (2, 3));

    let server = End::new(&pd, &request.init().unwrap());
    let (rtr, rts) = (request.rtr().unwrap(), request.rts().unwrap());
    assert_eq!((rtr.destination, rtr.max_dest_rd_atomic), (client.qp.number(), 2));
    assert_eq!((rts.max_rd_atomic, rts.retry_cnt, rts.rnr_retry), (3, 4, 6));
    let qp = server.qp.rtr(&rtr).unwrap().rts(&rts).unwrap();
    let answer = ConnectionParameters { private_data: &[6; 196], ..Default::default() };
    let accepted = request.accept(&qp, &answer).unwrap();

    let id = asked.wait(PATIENCE).unwrap();
    assert_eq!(id.peer().private_data, [6; 196]);
    assert_eq!(id.peer().qpn, qp.number());
    let (theirs, mine) = (id.rtr().unwrap(), id.rts().unwrap());
    assert_eq!((theirs.destination, theirs.max_dest_rd_atomic), (qp.number(), 3));
    assert_eq!((mine.max_rd_atomic, theirs.rq_psn), (2, rts.sq_psn));
    assert_eq!(rtr.rq_psn, mine.sq_psn);
    let mine = client.qp.rtr(&theirs).unwrap().rts(&mine).unwrap();
    id.establish(&mine).unwrap();
    accepted.wait(PATIENCE).unwrap();
}

/// The client may send as soon as it is established, before the server has read that event.
#[test]
fn a_message_may_be_earlier_than_the_event() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let client = End::new(&pd, &id.init().unwrap());
    let asked = id.connect(&client.qp, &ConnectionParameters::default()).unwrap();
    let request = request(&mut listener);
    let server = End::new(&pd, &request.init().unwrap());
    let qp = server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();
    let id = asked.wait(PATIENCE).unwrap();
    let mine = client.qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let id = id.establish(&mine).unwrap();
    let mut client = Side::new(&pd, (client.receiver, client.completions), mine, id);
    client.send("early");
    let mut endpoint =
        Endpoint::new(qp, server.receiver, server.completions, SendConfig::default()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while endpoint.poll_one().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the message does not arrive");
    }
    let connection = accepted.wait(PATIENCE).unwrap();
    let mut server = Side { endpoint, connection, pd };
    server.endpoint.post_receive(7, slice(&server.pd)).map_err(|refused| refused.error).unwrap();
    talk(&mut client, &mut server);
}

/// A server of another thread, which waits before anybody asks.
#[test]
fn a_server_may_wait_before_its_client_asks() {
    let mut listener = listener();
    let to = address(&listener);
    let server = std::thread::spawn(move || {
        let request = request(&mut listener);
        let pd = domain(request.open().unwrap());
        let end = End::new(&pd, &request.init().unwrap());
        let qp = end.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
        let connection = request.accept(&qp, &ConnectionParameters::default()).unwrap();
        let connection = connection.wait(PATIENCE).unwrap();
        let mut side = Side::new(&pd, (end.receiver, end.completions), qp, connection);
        assert_eq!(side.hear(), "from another thread");
        side.connection.close(PATIENCE).unwrap();
    });
    let id = resolved(to);
    let pd = domain(id.open().unwrap());
    let end = End::new(&pd, &id.init().unwrap());
    let id = id.connect(&end.qp, &ConnectionParameters::default()).unwrap();
    let id = id.wait(PATIENCE).unwrap();
    let qp = end.qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let id = id.establish(&qp).unwrap();
    let mut side = Side::new(&pd, (end.receiver, end.completions), qp, id);
    side.send("from another thread");
    side.connection.close(PATIENCE).unwrap();
    server.join().unwrap();
}

#[test]
fn one_listener_serves_many_connections_on_one_cq() {
    const CLIENTS: usize = 8;
    let mut listener = listener();
    let mut clients = Vec::new();
    let mut server = None;
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        let id = resolved(address(&listener));
        let pd = domain(id.open().unwrap());
        let end = End::new(&pd, &id.init().unwrap());
        let asked = id.connect(&end.qp, &ConnectionParameters::default()).unwrap();
        clients.push((pd, end, asked));
    }
    for _ in 0..CLIENTS {
        let request = request(&mut listener);
        let (endpoints, cq, pd) = server.get_or_insert_with(|| {
            let pd = domain(request.open().unwrap());
            let cq = CompletionQueue::new(pd.context(), 1024).unwrap();
            (Endpoints::new(CqReader::new(&cq).unwrap()), cq, pd)
        });
        let qp = QueuePair::builder(pd, cq).max_inline_data(ROOM as u32).build().unwrap();
        let qp = qp.init(&request.init().unwrap()).unwrap();
        let key = endpoints.attach_own(&qp, ReceiveConfig::default()).unwrap();
        endpoints.post_receive_on(key, 0, slice(pd)).unwrap();
        let qp = qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
        let accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();
        assert_eq!(endpoints.insert(qp, SendConfig::default()).unwrap(), key);
        connections.push((key, accepted));
    }
    let (mut endpoints, ..) = server.unwrap();
    let mut sides = Vec::new();
    for (pd, end, asked) in clients {
        let id = asked.wait(PATIENCE).unwrap();
        let qp = end.qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
        let id = id.establish(&qp).unwrap();
        sides.push(Side::new(&pd, (end.receiver, end.completions), qp, id));
    }
    let connections: Vec<_> =
        connections.into_iter().map(|(key, it)| (key, it.wait(PATIENCE).unwrap())).collect();
    for (number, side) in sides.iter_mut().enumerate() {
        side.send(&format!("client {number}"));
    }
    // Each is answered on the connection on which it came.
    let (mut answered, deadline) = (0, Instant::now() + PATIENCE);
    while answered < CLIENTS {
        assert!(Instant::now() < deadline, "{answered} messages arrived");
        let Some((key, returned)) = endpoints.poll_one().unwrap() else { continue };
        if let Outcome::Received(done) = returned.outcome {
            let bytes = returned.buffers.one().unwrap().to_vec();
            let answer = SendMessage::new(Inline(&bytes[..done.byte_len as usize])).signaled();
            endpoints.post(key, 1, answer).map_err(|refused| refused.error).unwrap();
            answered += 1;
        }
    }
    for (number, side) in sides.iter_mut().enumerate() {
        assert_eq!(side.hear(), format!("client {number}"));
    }
    assert_eq!(connections.len(), CLIENTS);
}

#[test]
fn only_the_queue_pair_that_asked_is_established() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let init = id.init().unwrap();
    let (client, other) = (End::new(&pd, &init), End::new(&pd, &init));
    let asked = id.connect(&client.qp, &ConnectionParameters::default()).unwrap();
    let request = request(&mut listener);
    let server = End::new(&pd, &request.init().unwrap());
    let qp = server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let _accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();
    let id = asked.wait(PATIENCE).unwrap();
    let wrong = other.qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let (given, asked) = (wrong.number(), client.qp.number());
    match id.establish(&wrong).unwrap_err() {
        Error::Cm(CmError::OtherQueuePair { given: g, asked: a }) => {
            assert_eq!((g, a), (given, asked));
        }
        error => panic!("{error}"),
    }
}

/// Queue pairs by firmware command are connected in the same way.
#[test]
fn queue_pairs_by_firmware_command_are_connected() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let cq = CompletionQueue::by_command(pd.context(), 64).build().unwrap();
    let mut reader = CqReader::new(&cq).unwrap();
    let qp = QueuePair::by_command(&pd, &cq).max_inline_data(ROOM as u32).build().unwrap();
    let qp = qp.init(&id.init().unwrap()).unwrap();
    let asked = id.connect(&qp, &ConnectionParameters::default()).unwrap();
    let request = request(&mut listener);
    let server = End::new(&pd, &request.init().unwrap());
    let theirs =
        server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let accepted = request.accept(&theirs, &ConnectionParameters::default()).unwrap();
    let id = asked.wait(PATIENCE).unwrap();
    let qp = qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default()).unwrap();
    let _connection = id.establish(&qp).unwrap();
    let connection = accepted.wait(PATIENCE).unwrap();
    let mut server = Side::new(&pd, (server.receiver, server.completions), theirs, connection);
    let message = SendMessage::new(Inline(b"by command")).signaled();
    // SAFETY: the payload travels in the WQE, so the request names no memory.
    unsafe { sends.post(1, message).unwrap() };
    assert_eq!(server.hear(), "by command");
}

#[test]
fn addresses_of_ipv6_are_connected() {
    let mut listener =
        Identifier::new().unwrap().bind("[::1]:0".parse().unwrap()).unwrap().listen(1).unwrap();
    assert!(address(&listener).is_ipv6());
    let (mut client, mut server) = connected(&mut listener);
    talk(&mut client, &mut server);
    assert!(server.connection.peer_address().is_some_and(|peer| peer.is_ipv6()));
}

#[test]
fn a_queue_pair_of_another_device_is_refused() {
    let name = "connection::a_queue_pair_of_another_device_is_refused";
    if let Some(text) = process::where_it_says("MLX5_MODEL_DEVICES", "2", &["--exact", name]) {
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let listener = listener();
    let id = resolved(address(&listener));
    let devices = mlx5::verbs::devices().unwrap();
    let other = devices.iter().find(|device| device.name() != id.device()).unwrap();
    let end = End::new(&domain(other.open().unwrap()), &InitAttributes::new(1));
    match id.connect(&end.qp, &ConnectionParameters::default()).unwrap_err() {
        Error::Cm(CmError::OtherDevice { queue_pair, identifier }) => {
            assert_eq!((&queue_pair, queue_pair == identifier), (&other.name(), false));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn options_are_set_before_the_address_is_resolved() {
    let mut listener = listener();
    let mut id = Identifier::new().unwrap();
    id.set_type_of_service(0x20).unwrap();
    id.set_reuse_address().unwrap();
    let timeout = AckTimeout::from_code(17).unwrap();
    id.set_ack_timeout(timeout).unwrap();
    let id = id.resolve(address(&listener), PATIENCE).unwrap();
    let pd = domain(id.open().unwrap());
    let client = End::new(&pd, &id.init().unwrap());
    let asked = id.connect(&client.qp, &ConnectionParameters::default()).unwrap();
    let request = request(&mut listener);
    let server = End::new(&pd, &request.init().unwrap());
    let qp = server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let _accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();
    let id = asked.wait(PATIENCE).unwrap();
    assert_eq!(id.rts().unwrap().timeout, timeout);
}
