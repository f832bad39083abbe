use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;

/// Returns an eventfd to which writes block at the end of its count.
fn eventfd() -> (OwnedFd, File) {
    // SAFETY: the call passes integers. The descriptor it returns is new.
    let event = unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    (event.try_clone().unwrap().into(), event)
}

/// Returns the count of an eventfd, which is not zero.
fn count(event: &mut File) -> u64 {
    let mut count = [0; 8];
    event.read_exact(&mut count).unwrap();
    u64::from_ne_bytes(count)
}

#[test]
fn every_signal_counts() {
    let signaller = Signaller::new().unwrap();
    let (event, mut heard) = eventfd();
    // More than the kernel keeps ends of requests.
    for _ in 0..5000 {
        signaller.signal(&event).unwrap();
    }
    assert_eq!(count(&mut heard), 5000);
}

#[test]
fn signals_at_the_end_of_the_count_do_not_block() {
    let (event, mut heard) = eventfd();
    heard.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
    let (done, wait) = channel();
    std::thread::spawn(move || {
        let signaller = Signaller::new().unwrap();
        (0..3).for_each(|_| signaller.signal(&event).unwrap());
        done.send(()).unwrap();
    });
    wait.recv_timeout(Duration::from_secs(30)).expect("the signals return");
    assert_eq!(count(&mut heard), u64::MAX);
}

#[test]
fn only_eventfds_are_signalled() {
    let signaller = Signaller::new().unwrap();
    let null = OwnedFd::from(File::open("/dev/null").unwrap());
    assert_eq!(signaller.signal(&null).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    let (event, mut heard) = eventfd();
    signaller.signal(&event).unwrap();
    assert_eq!(count(&mut heard), 1, "the failure leaves nothing behind");
}
