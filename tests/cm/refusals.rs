//! Connections that are not made.

use mlx5::Error;
use mlx5::connect::cm::{CmError, ConnectionParameters, Identifier, RejectReason};

use super::*;

/// Asks for a connection, with everything that a client keeps until the answer.
macro_rules! ask {
    ($listener:expr => $id:ident, $pd:ident, $end:ident) => {
        let id = resolved(address(&$listener));
        let $pd = domain(id.open().unwrap());
        let $end = End::new(&$pd, &id.init().unwrap());
        let $id = id.connect(&$end.qp, &ConnectionParameters::default()).unwrap();
    };
}

fn cm(error: Error) -> CmError {
    match error {
        Error::Cm(error) => error,
        error => panic!("{error}"),
    }
}

#[test]
fn a_refusal_carries_reason_and_private_data() {
    let mut listener = listener();
    ask!(listener => asked, _pd, _end);
    request(&mut listener).reject(b"no room").unwrap();
    match cm(asked.wait(PATIENCE).unwrap_err()) {
        CmError::Rejected { reason, private_data, address: Some(from) } => {
            assert_eq!(reason, RejectReason::CONSUMER);
            assert!(private_data.starts_with(b"no room\0"), "{private_data:?}");
            assert_eq!(private_data.len(), 148);
            assert_eq!(from, address(&listener));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn nobody_listens_is_a_reason_of_its_own() {
    let to = address(&listener());
    let id = resolved(to);
    let pd = domain(id.open().unwrap());
    let end = End::new(&pd, &id.init().unwrap());
    let asked = id.connect(&end.qp, &ConnectionParameters::default()).unwrap();
    match cm(asked.wait(PATIENCE).unwrap_err()) {
        CmError::Rejected { reason, .. } => assert_eq!(reason, RejectReason::NO_SERVICE),
        error => panic!("{error}"),
    }
}

#[test]
fn a_client_may_refuse_the_answer() {
    let mut listener = listener();
    ask!(listener => asked, pd, _end);
    let request = request(&mut listener);
    let server = End::new(&pd, &request.init().unwrap());
    let qp = server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();
    asked.wait(PATIENCE).unwrap().reject(b"too late").unwrap();
    match cm(accepted.wait(PATIENCE).unwrap_err()) {
        CmError::Rejected { private_data, .. } => {
            assert!(private_data.starts_with(b"too late\0"), "{private_data:?}");
        }
        error => panic!("{error}"),
    }
}

#[test]
fn an_address_without_a_device_is_named() {
    // A network for documentation, which no host is in.
    let id = Identifier::new().unwrap();
    let second = Duration::from_secs(1);
    let error = id.resolve("203.0.113.77:7471".parse().unwrap(), second).unwrap_err();
    match &error {
        Error::Cm(CmError::Address { address, .. }) => {
            assert_eq!(*address, Some("203.0.113.77:7471".parse().unwrap()));
        }
        Error::Call { call: "rdma_resolve_addr", .. } => {}
        error => panic!("{error}"),
    }
    let id = Identifier::new().unwrap();
    let text = id.bind("203.0.113.77:7471".parse().unwrap()).unwrap_err().to_string();
    assert!(text.contains("rdma_bind_addr") && text.contains("no RDMA device has"), "{text}");
}

#[test]
fn two_listeners_at_one_port_are_refused() {
    let listener = listener();
    let again = Identifier::new().unwrap().bind(address(&listener));
    let error = again.and_then(|id| id.listen(1)).unwrap_err();
    assert!(error.to_string().contains("another identifier has that port"), "{error}");
}

#[test]
fn an_answer_that_does_not_come_is_a_timeout() {
    let mut listener = listener();
    ask!(listener => asked, _pd, _end);
    let request = request(&mut listener);
    let short = Duration::from_millis(20);
    match cm(asked.wait(short).unwrap_err()) {
        CmError::TimedOut { waiting_for, after } => {
            assert_eq!((waiting_for, after), ("answer of the server", short));
        }
        error => panic!("{error}"),
    }
    drop(request);
    assert!(listener.get_request(short).unwrap().is_none());
}

#[test]
fn private_data_beyond_the_limit_is_refused_before_it_is_sent() {
    let mut listener = listener();
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let end = End::new(&pd, &id.init().unwrap());
    let parameters = ConnectionParameters { private_data: &[0; 57], ..Default::default() };
    match cm(id.connect(&end.qp, &parameters).unwrap_err()) {
        CmError::PrivateData { bytes: 57, limit: 56, .. } => {}
        error => panic!("{error}"),
    }
    ask!(listener => asked, _pd, _end);
    let refused = request(&mut listener).reject(&[0; 149]).unwrap_err();
    assert!(matches!(cm(refused), CmError::PrivateData { bytes: 149, limit: 148, .. }));
    // The request was dropped, so it is refused all the same.
    assert!(matches!(cm(asked.wait(PATIENCE).unwrap_err()), CmError::Rejected { .. }));
}
