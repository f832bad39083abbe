//! Event channels, and events of the port. In a program of its own: the port belongs to the whole
//! process, and pulling its cable would disturb concurrent traffic.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mlx5::devx::{EventChannel, EventKind, PortChange};
use mlx5::verbs::{Context, Errno};
use mlx5_model as _;

const PATIENCE: Duration = Duration::from_secs(20);

/// Tests take turns at the port.
fn cable() -> MutexGuard<'static, ()> {
    static CABLE: Mutex<()> = Mutex::new(());
    CABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pull_and_plug() {
    assert!(mlx5_model::set_port(0, false));
    assert!(mlx5_model::set_port(0, true));
}

#[test]
fn changes_of_the_port_are_told_with_what_became_of_it() {
    let _turn = cable();
    let context = Context::open_first().unwrap();
    let channel = EventChannel::new(&context).unwrap();
    channel.subscribe_device(EventKind::PortChange, 0x77).unwrap();
    assert!(channel.try_event().unwrap().is_none());
    let before = Instant::now();
    assert!(channel.wait(Duration::from_millis(20)).unwrap().is_none());
    assert!(before.elapsed() >= Duration::from_millis(20));
    pull_and_plug();
    for change in [PortChange::Down, PortChange::Active] {
        let event = channel.wait(PATIENCE).unwrap().expect("a change");
        assert_eq!((event.kind(), event.cookie()), (EventKind::PortChange, 0x77));
        assert_eq!((event.port(), event.queue()), (Some((1, change)), None));
        assert_eq!(event.bytes().unwrap()[1], 9);
        assert_eq!(event.to_string(), format!("port 1: {change:?}"));
    }
    assert!(channel.try_event().unwrap().is_none());
    // Clones are one channel, which lives as long as any of them.
    let other = channel.clone();
    drop(channel);
    pull_and_plug();
    assert!(other.wait(PATIENCE).unwrap().is_some());
}

#[test]
fn a_channel_without_data_tells_of_each_subscription_once() {
    let _turn = cable();
    let context = Context::open_first().unwrap();
    let channel = EventChannel::without_data(&context).unwrap();
    for cookie in [5, 5, 6] {
        channel.subscribe_device(EventKind::PortChange, cookie).unwrap();
    }
    pull_and_plug();
    let mut events = Vec::new();
    while let Some(event) = channel.try_event().unwrap() {
        assert_eq!(
            (event.kind(), event.bytes(), event.port()),
            (EventKind::PortChange, None, None)
        );
        events.push(event.cookie());
    }
    assert_eq!(events, [5, 5, 6]);
}

#[test]
fn its_descriptor_wakes_and_another_thread_may_wait() {
    let _turn = cable();
    let context = Context::open_first().unwrap();
    let channel = EventChannel::new(&context).unwrap();
    channel.subscribe_device(EventKind::PortChange, 1).unwrap();
    let readable = || {
        let fd = channel.as_fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    };
    assert!(!readable());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| channel.wait(PATIENCE).unwrap());
        pull_and_plug();
        assert!(waiting.join().unwrap().is_some());
    });
    assert!(readable(), "the second");
    assert!(channel.try_event().unwrap().is_some());
    assert!(!readable());
}

#[test]
fn lost_events_are_an_error_that_says_so() {
    let _turn = cable();
    let context = Context::open_first().unwrap();
    let channel = EventChannel::new(&context).unwrap();
    channel.subscribe_device(EventKind::PortChange, 1).unwrap();
    // The model keeps 16,384.
    for _ in 0..(1 << 13) + 1 {
        pull_and_plug();
    }
    let error = channel.try_event().unwrap_err();
    assert_eq!(error.errno(), Some(Errno(libc::EOVERFLOW)));
    let text = error.to_string();
    assert!(text.contains("EOVERFLOW") && text.contains("no room for events"), "{text}");
    assert!(channel.try_event().unwrap().is_some());
}

#[test]
fn an_eventfd_is_signaled_instead() {
    let _turn = cable();
    let context = Context::open_first().unwrap();
    let channel = EventChannel::new(&context).unwrap();
    // SAFETY: a descriptor of this test.
    let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) };
    channel.signal(None, EventKind::PortChange, counter.as_fd()).unwrap();
    pull_and_plug();
    let mut count = [0; 8];
    File::from(counter).read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 2);
    assert!(channel.try_event().unwrap().is_none());
    let error = channel.signal(None, EventKind::PortChange, channel.as_fd()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno(libc::EINVAL)));
    assert!(error.to_string().contains("no eventfd"), "{error}");
}

#[test]
fn what_cannot_be_subscribed_to_is_explained() {
    let context = Context::open_first().unwrap();
    let channel = EventChannel::new(&context).unwrap();
    for kind in [EventKind::Completion, EventKind::CqError, EventKind::Other(0x100)] {
        let error = channel.subscribe_device(kind, 0).unwrap_err();
        assert_eq!(error.errno(), Some(Errno(libc::EINVAL)));
        assert!(error.to_string().contains("the HCA offers no such event"), "{error}");
    }
    assert!(format!("{channel:?}").contains("with_data: true"));
}

#[test]
fn a_channel_outlives_what_is_leaked() {
    let _turn = cable();
    let context = Context::open_first().unwrap();
    let channel = EventChannel::new(&context).unwrap();
    channel.subscribe_device(EventKind::PortChange, 1).unwrap();
    std::mem::forget(channel);
    drop(context);
    pull_and_plug();
}

#[test]
fn completion_vectors_have_event_queues() {
    let context = Context::open_first().unwrap();
    let first = mlx5::devx::event_queue_number(&context, 0).unwrap();
    assert_ne!(first, 0, "0 is the one of asynchronous events");
    let error = mlx5::devx::event_queue_number(&context, 1000).unwrap_err();
    assert_eq!(error.errno(), Some(Errno(libc::EINVAL)));
}
