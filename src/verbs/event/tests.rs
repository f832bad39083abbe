//! Unit tests.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::*;

#[test]
fn events_are_explained() {
    let event = AsyncEvent { code: 3, source: EventSource::QueuePair(0x4a) };
    assert_eq!(
        event.to_string(),
        "queue pair 0x4a: QP_ACCESS_ERR, the responder refused a request for lack of rights"
    );
    assert_eq!(event.kind(), AsyncEventKind::QpAccessError);
    let event = AsyncEvent { code: 99, source: EventSource::Device };
    assert_eq!(event.kind(), AsyncEventKind::Other(99));
    assert_eq!(event.to_string(), "device: event 99");
}

#[test]
fn no_timeout_is_too_long() {
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(b"x").unwrap();
    assert!(wait_readable(far.as_raw_fd(), deadline(Duration::MAX)).unwrap());
}

#[test]
fn waiting_ends_with_data_or_the_deadline() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let deadline = Instant::now() + Duration::from_millis(20);
    assert!(!wait_readable(far.as_raw_fd(), deadline).unwrap());
    assert!(Instant::now() >= deadline);
    near.write_all(b"x").unwrap();
    assert!(wait_readable(far.as_raw_fd(), Instant::now()).unwrap());
}
