//! Peers that are written with librdmacm itself: its example `ucmatose`, on the model. A server sends
//! first, then a client does, and the server disconnects.

use std::process::{Command, Stdio};

use mlx5::Error;
use mlx5::connect::cm::{CmError, CmEvent, ConnectionParameters, RejectReason};

use super::*;
use rig::process::Peer;

/// Bytes of a message.
const LENGTH: usize = 32;

/// Starts `ucmatose`, which exchanges one message.
fn ucmatose(arguments: &[&str]) -> Peer {
    let test = std::env::current_exe().unwrap();
    let model = test.parent().unwrap().join("libmlx5_model.so");
    assert!(model.is_file(), "{} is not built", model.display());
    let mut command = Command::new("ucmatose");
    command.args(arguments).args(["-C", "1", "-S", &LENGTH.to_string()]);
    command.env("LD_PRELOAD", model).env("MLX5_MODEL", "always");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let found =
        Command::new("ucmatose").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(
        found.is_ok(),
        "ucmatose is not installed: run `cargo xtask setup`, or install rdmacm-utils"
    );
    Peer::start(&mut command)
}

#[test]
fn a_client_of_librdmacm_is_served() {
    let mut listener = listener();
    let port = address(&listener).port().to_string();
    let client = ucmatose(&["-s", "127.0.0.1", "-p", &port]);
    let request = request(&mut listener);
    let pd = domain(request.open().unwrap());
    let end = End::new(&pd, &request.init().unwrap());
    let qp = end.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let connection = request.accept(&qp, &ConnectionParameters::default()).unwrap();
    let connection = connection.wait(PATIENCE).unwrap();
    let mut side = Side::new(&pd, (end.receiver, end.completions), qp, connection);
    side.send(&"x".repeat(LENGTH));
    assert_eq!(side.receive().len(), LENGTH);
    side.connection.close(PATIENCE).unwrap();
    client.end();
}

#[test]
fn a_server_of_librdmacm_is_asked() {
    // A port that was free a moment ago.
    let free = address(&listener());
    let server = ucmatose(&["-b", "127.0.0.1", "-p", &free.port().to_string()]);
    let deadline = Instant::now() + PATIENCE;
    let (id, pd, end) = loop {
        let id = resolved(free);
        let pd = domain(id.open().unwrap());
        let end = End::new(&pd, &id.init().unwrap());
        let asked = id.connect(&end.qp, &ConnectionParameters::default()).unwrap();
        match asked.wait(PATIENCE) {
            Ok(id) => break (id, pd, end),
            // It does not listen yet.
            Err(Error::Cm(CmError::Rejected { reason: RejectReason::NO_SERVICE, .. })) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "the server does not listen");
    };
    let qp = end.qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let connection = id.establish(&qp).unwrap();
    let mut side = Side::new(&pd, (end.receiver, end.completions), qp, connection);
    assert_eq!(side.receive().len(), LENGTH);
    side.send(&"y".repeat(LENGTH));
    assert_eq!(side.connection.get_event(PATIENCE).unwrap(), Some(CmEvent::Disconnected));
    side.connection.close(PATIENCE).unwrap();
    server.end();
}
