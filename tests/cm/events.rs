//! Events by descriptor.

use std::os::fd::{AsRawFd, RawFd};

use mlx5::connect::cm::{CmEvent, ConnectionParameters, Identifier, Progress};
use tokio::io::unix::AsyncFd;

use super::*;

/// Whether a descriptor becomes readable within a time.
fn readable(fd: RawFd, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one pollfd, which lives through the call.
    unsafe { libc::poll(&mut poll, 1, within.as_millis() as i32) == 1 }
}

#[test]
fn descriptors_are_readable_exactly_while_an_event_waits() {
    let mut listener = listener();
    assert!(!readable(listener.as_raw_fd(), Duration::ZERO));
    assert!(listener.try_request().unwrap().is_none());
    let id = resolved(address(&listener));
    let pd = domain(id.open().unwrap());
    let client = End::new(&pd, &id.init().unwrap());
    let asked = id.connect(&client.qp, &ConnectionParameters::default()).unwrap();
    assert!(readable(listener.as_raw_fd(), PATIENCE));
    rig::waited::is_for_waiting_alone(&listener);
    let request = listener.try_request().unwrap().expect("a request");
    assert!(!readable(listener.as_raw_fd(), Duration::ZERO));

    // The client's events come on a descriptor of its own, and so do those of the request.
    let Progress::Pending(asked) = asked.try_finish().unwrap() else { panic!("nobody answered") };
    assert!(!readable(asked.as_raw_fd(), Duration::ZERO));
    let server = End::new(&pd, &request.init().unwrap());
    let qp = server.qp.rtr(&request.rtr().unwrap()).unwrap().rts(&request.rts().unwrap()).unwrap();
    let accepted = request.accept(&qp, &ConnectionParameters::default()).unwrap();
    assert!(readable(asked.as_raw_fd(), PATIENCE));
    let Progress::Done(id) = asked.try_finish().unwrap() else { panic!("an event waits") };
    let mine = client.qp.rtr(&id.rtr().unwrap()).unwrap().rts(&id.rts().unwrap()).unwrap();
    let Progress::Pending(accepted) = accepted.try_finish().unwrap() else {
        panic!("the client is not ready")
    };
    let mut client = id.establish(&mine).unwrap();
    assert!(readable(accepted.as_raw_fd(), PATIENCE));
    let Progress::Done(mut server) = accepted.try_finish().unwrap() else {
        panic!("an event waits")
    };
    assert_eq!((client.try_event().unwrap(), server.try_event().unwrap()), (None, None));
    client.disconnect().unwrap();
    assert!(readable(server.as_raw_fd(), PATIENCE));
    assert_eq!(server.try_event().unwrap(), Some(CmEvent::Disconnected));
}

/// One task of tokio listens, another one connects.
#[test]
fn identifiers_wake_tasks_of_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let listener = listener();
        let to = address(&listener);
        let serving = tokio::spawn(async move {
            // SAFETY: an identifier has one descriptor, and keeps it open as long as it exists.
            let mut listener = unsafe { AsyncFd::register(listener).unwrap() };
            let request = loop {
                if let Some(request) = listener.get_mut().try_request().unwrap() {
                    break request;
                }
                listener.readable().await.unwrap().clear_ready();
            };
            request.reject(b"by a task").unwrap();
        });
        let id = resolved(to);
        let pd = domain(id.open().unwrap());
        let end = End::new(&pd, &id.init().unwrap());
        let mut asked = id.connect(&end.qp, &ConnectionParameters::default()).unwrap();
        let error = loop {
            // SAFETY: an identifier has one descriptor, and keeps it open as long as it exists.
            let waiting = unsafe { AsyncFd::register(asked).unwrap() };
            waiting.readable().await.unwrap().clear_ready();
            asked = match waiting.into_inner().try_finish() {
                Ok(Progress::Pending(id)) => id,
                Ok(Progress::Done(_)) => panic!("it was refused"),
                Err(error) => break error,
            };
        };
        assert!(error.to_string().contains("refused"), "{error}");
        serving.await.unwrap();
    });
}

/// A moved identifier serves any thread.
#[test]
fn identifiers_move_between_threads() {
    fn assert_send_sync<T: Send + Sync>(_: &T) {}
    let mut listener = listener();
    let (client, server) = connected(&mut listener);
    assert_send_sync(&listener);
    assert_send_sync(&client.connection);
    let waiting = std::thread::spawn(move || {
        let mut server = server;
        server.connection.get_event(PATIENCE).unwrap()
    });
    client.connection.disconnect().unwrap();
    assert_eq!(waiting.join().unwrap(), Some(CmEvent::Disconnected));
    drop(Identifier::new().unwrap());
}
