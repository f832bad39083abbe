//! The ends of connections: disconnects with requests in flight, and drops at every stage.

use mlx5::Error;
use mlx5::connect::cm::{CmError, CmEvent, ConnectionParameters, Identifier};
use mlx5::cqe::{Completion, Status};
use mlx5::endpoint::Closed;
use mlx5::ring::{ReceiveQueue, SendQueue};

use super::*;

fn disconnected(side: &mut Side) {
    assert_eq!(side.connection.get_event(PATIENCE).unwrap(), Some(CmEvent::Disconnected));
}

/// Messages to a peer without receives stay in flight. Their memory comes back.
#[test]
fn either_side_disconnects_with_requests_in_flight() {
    for by_client in [true, false] {
        let mut listener = listener();
        let (client, server) = connected(&mut listener);
        let (mut first, mut second) = if by_client { (client, server) } else { (server, client) };
        // The peer has one receive, and so takes one of the three.
        for id in 10..13 {
            let message = SendMessage::new(slice(&first.pd)).signaled();
            first.endpoint.post(id, message).map_err(|refused| refused.error).unwrap();
        }
        first.connection.disconnect().unwrap();
        disconnected(&mut second);
        second.connection.disconnect().unwrap();
        disconnected(&mut first);
        let Closed { sends, receives, .. } = first.endpoint.close().unwrap();
        assert!(sends.iter().any(|(id, _)| *id == 12), "{} sends", sends.len());
        assert_eq!(receives.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [7]);
        second.endpoint.close().unwrap();
    }
}

/// On the raw layer, the queue pair is moved to ERROR, and every request comes back as flushed.
#[test]
fn requests_are_flushed_after_a_disconnect() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let memory = pd.allocate(ROOM, Access::LOCAL_WRITE).unwrap();
    let sge = memory.sge(0, ROOM).unwrap();
    let cq = CompletionQueue::new(pd.context(), 64).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap().init(&id.init().unwrap()).unwrap();
    let mut reader = CqReader::new(&cq).unwrap();
    let mut receives = ReceiveQueue::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    for id in 0..3 {
        // SAFETY: the memory stays registered, and nothing uses it before the completion.
        unsafe { receives.post(id, sge).unwrap() };
    }
    let asked = id.connect(&qp, &ConnectionParameters::default()).unwrap();
    let request = request(&mut listener);
    let server = End::new(&pd, &request.init().unwrap());
    let theirs =
        server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let accepted = request.accept(&theirs, &ConnectionParameters::default()).unwrap();
    let id = asked.wait(PATIENCE).unwrap();
    let qp = qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default()).unwrap();
    let mut connection = id.establish(&qp).unwrap();
    let peer = accepted.wait(PATIENCE).unwrap();
    peer.disconnect().unwrap();
    assert_eq!(connection.get_event(PATIENCE).unwrap(), Some(CmEvent::Disconnected));
    connection.disconnect().unwrap();
    let _qp = qp.to_error().unwrap();
    // SAFETY: the memory stays registered, and nothing uses it before the completion.
    unsafe { sends.post(9, SendMessage::new(sge).signaled()).unwrap() };
    let (mut flushed, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while flushed.len() < 4 {
        assert!(Instant::now() < deadline, "{flushed:?} are flushed");
        if let Some(completion) = reader.poll(&mut (&mut sends, &mut receives)).unwrap() {
            let Completion::Failed(failure) = completion else { panic!("{completion:?}") };
            assert_eq!(failure.status, Status::Flushed);
            flushed.push(failure.id);
        }
    }
    flushed.sort_unstable();
    assert_eq!(flushed, [0, 1, 2, 9]);
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let mut listener = listener();
    let (client, server) = connected(&mut listener);
    client.connection.disconnect().unwrap();
    server.connection.disconnect().unwrap();
    client.connection.close(PATIENCE).unwrap();
    server.connection.close(PATIENCE).unwrap();
}

#[test]
fn a_dropped_connection_disconnects_its_peer() {
    for by_client in [true, false] {
        let mut listener = listener();
        let (client, server) = connected(&mut listener);
        let mut left = match by_client {
            true => {
                drop(client);
                server
            }
            false => {
                drop(server);
                client
            }
        };
        disconnected(&mut left);
        left.connection.close(PATIENCE).unwrap();
    }
}

#[test]
fn a_dropped_request_is_refused() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let end = End::new(&pd, &id.init().unwrap());
    let asked = id.connect(&end.qp, &ConnectionParameters::default()).unwrap();
    drop(request(&mut listener));
    let error = asked.wait(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Cm(CmError::Rejected { .. })), "{error}");
}

#[test]
fn an_answer_that_the_client_drops_is_refused() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let end = End::new(&pd, &id.init().unwrap());
    let asked = id.connect(&end.qp, &ConnectionParameters::default()).unwrap();
    let request = request(&mut listener);
    let server = End::new(&pd, &request.init().unwrap());
    let qp = server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();
    drop(asked.wait(PATIENCE).unwrap());
    let error = accepted.wait(PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Cm(CmError::Rejected { .. })), "{error}");
}

/// Each drop returns, whatever is under way, and the listener serves the next client.
#[test]
fn an_identifier_may_be_dropped_at_every_stage() {
    let mut listener = listener();
    let to = address(&listener);
    drop(Identifier::new().unwrap());
    drop(Identifier::new().unwrap().bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let resolving = || Identifier::new().unwrap().resolve_address(None, to, PATIENCE).unwrap();
    drop(resolving());
    drop(resolving().wait(PATIENCE).unwrap());
    drop(resolving().wait(PATIENCE).unwrap().resolve_route(PATIENCE).unwrap());
    let id = resolved(to);
    let pd = domain(id.open().unwrap());
    let end = End::new(&pd, &id.init().unwrap());
    drop(id.connect(&end.qp, &ConnectionParameters::default()).unwrap());

    // The request of the client that is gone may have arrived.
    if let Some(request) = listener.get_request(Duration::from_millis(50)).unwrap() {
        let end = End::new(&pd, &request.init().unwrap());
        let qp = end.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
        // Its identifier is gone, so the answer leads nowhere. The stage may be dropped as well.
        drop(request.accept(&qp, &ConnectionParameters::default()));
    }
    let (mut client, mut server) = connected(&mut listener);
    talk(&mut client, &mut server);
    drop(listener);
    talk(&mut client, &mut server);
}
