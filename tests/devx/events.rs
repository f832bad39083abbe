//! Events of queues made by command: completions and errors wake a sleeping program.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

use mlx5::Error;
use mlx5::cqe::{Completion, Status};
use mlx5::devx::{EventChannel, EventKind, Firmware};
use mlx5::ring::{CqReader, SendQueue};
use mlx5::verbs::{CompletionQueue, Errno};
use mlx5::wqe::{Inline, Nop, RdmaWrite, SendMessage};

use super::ends::{Device, receives, sends};
use rig::{PATIENCE, wait, waited};

/// A time in which nothing is expected.
const SHORT: Duration = Duration::from_millis(5);

fn post(queue: &mut SendQueue, id: u64) {
    // SAFETY: a NOP names no memory.
    unsafe { queue.post(id, Nop::new().signaled()) }.unwrap();
}

#[test]
fn a_completion_wakes_who_asked_for_it() {
    let device = Device::new();
    let cq = device.cq(64);
    let qp = device.alone(device.builder(&cq).build().unwrap());
    let channel = EventChannel::new(&device.context).unwrap();
    channel.subscribe(&cq, EventKind::Completion, 0xabc).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    // Nobody asked for that one.
    post(&mut queue, 0);
    let _ = wait(&mut completions, &mut queue);
    assert!(channel.wait(SHORT).unwrap().is_none());
    // Sequence numbers of arms have two bits; more often than that.
    for id in 1..20 {
        completions.arm();
        if id % 3 == 0 {
            // Two requests, one event.
            completions.arm();
        }
        assert!(completions.poll(&mut queue).unwrap().is_none());
        assert!(channel.try_event().unwrap().is_none());
        post(&mut queue, id);
        let event = channel.wait(PATIENCE).unwrap().expect("an event");
        assert_eq!((event.kind(), event.cookie()), (EventKind::Completion, 0xabc));
        assert_eq!(event.queue(), Some(cq.number()));
        let Completion::Send(done) = wait(&mut completions, &mut queue) else { panic!() };
        assert_eq!(done.id, id);
    }
    // A CQE from before the request that was not polled raises the event at once.
    post(&mut queue, 77);
    completions.arm();
    // Events that the program took past the channel would not be counted.
    waited::is_for_waiting_alone(&channel);
    assert!(channel.wait(PATIENCE).unwrap().is_some());
    let _ = wait(&mut completions, &mut queue);
    // Solicited events do not come of sends.
    completions.arm_solicited();
    post(&mut queue, 78);
    let _ = wait(&mut completions, &mut queue);
    assert!(channel.wait(SHORT).unwrap().is_none());
}

#[test]
fn a_message_wakes_the_receiver_in_its_sleep() {
    let device = Device::new();
    let (cq, peer_cq) = (device.cq(64), device.cq(64));
    let [qp, peer] = device
        .connect(device.builder(&cq).build().unwrap(), device.builder(&peer_cq).build().unwrap());
    let channel = EventChannel::without_data(&device.context).unwrap();
    channel.subscribe(&cq, EventKind::Completion, 1).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = receives(&qp, &mut completions);
    let memory = device.memory(4096);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut completions = CqReader::new(&peer_cq).unwrap();
            let mut queue = sends(&peer, &mut completions);
            for id in 0..50u64 {
                let message = id.to_be_bytes();
                // SAFETY: an inline payload names no memory.
                unsafe { queue.post(id, SendMessage::new(Inline(&message)).signaled()) }.unwrap();
                let _ = wait(&mut completions, &mut queue);
            }
        });
        let mut posted = 0;
        let mut received = 0;
        while received < 50 {
            while posted < 50 && posted < received + 16 {
                let sge = memory.sge(posted as usize % 64 * 8, 8).unwrap();
                // SAFETY: memory of the region, which is not read before the completion.
                unsafe { queue.post(posted, sge) }.unwrap();
                posted += 1;
            }
            completions.arm();
            let before = received;
            while let Some(completion) = completions.poll(&mut queue).unwrap() {
                let Completion::Receive(done) = completion else { panic!("{completion:?}") };
                assert_eq!(done.id, received);
                received += 1;
            }
            if received == before {
                let event = channel.wait(PATIENCE).unwrap().expect("a wake-up");
                assert_eq!((event.kind(), event.bytes()), (EventKind::Completion, None));
            }
        }
    });
}

/// A CQ, what its completions need, and its subscriptions, each on a channel of its own.
struct Subscribed {
    channels: Vec<EventChannel>,
    reader: CqReader,
    queue: SendQueue,
    cq: CompletionQueue<Firmware>,
    device: Device,
}

impl Subscribed {
    fn new(subscriptions: usize) -> Self {
        let device = Device::new();
        let cq = device.cq(16);
        let qp = device.alone(device.builder(&cq).build().unwrap());
        let mut reader = CqReader::new(&cq).unwrap();
        let queue = sends(&qp, &mut reader);
        let mut it = Self { channels: Vec::new(), reader, queue, cq, device };
        (0..subscriptions).for_each(|_| it.subscribe());
        it
    }

    fn subscribe(&mut self) {
        let channel = EventChannel::new(&self.device.context).unwrap();
        channel.subscribe(&self.cq, EventKind::Completion, 0).unwrap();
        self.channels.push(channel);
    }

    /// Arms, and completes a request. Its event is unread then.
    fn complete(&mut self) {
        self.reader.arm();
        post(&mut self.queue, 1);
        let _ = wait(&mut self.reader, &mut self.queue);
    }

    /// Reads an event by the subscription of this number, which has one.
    fn read(&self, number: usize) {
        assert!(self.channels[number].wait(PATIENCE).unwrap().is_some(), "no event");
    }
}

#[test]
fn any_number_of_subscriptions_get_each_event() {
    for subscriptions in 1..10 {
        let mut cq = Subscribed::new(subscriptions);
        for _ in 0..9 {
            cq.complete();
            (0..subscriptions).for_each(|number| cq.read(number));
        }
    }
}

#[test]
fn events_that_a_subscription_reads_late_are_not_counted_again() {
    let mut cq = Subscribed::new(4);
    for _ in 0..9 {
        cq.complete();
        cq.read(0);
        // Each arm after one more has read the event of before.
        for late in 1..4 {
            cq.reader.arm();
            cq.read(late);
        }
    }
}

#[test]
fn a_subscription_that_others_were_ahead_of_may_be_the_only_one_read() {
    let mut cq = Subscribed::new(1);
    // Made while an event is unread, which it does not get.
    cq.complete();
    cq.subscribe();
    assert!(cq.channels[1].try_event().unwrap().is_none());
    cq.read(0);
    for _ in 0..9 {
        assert!(cq.channels[1].try_event().unwrap().is_none());
        cq.complete();
        cq.read(1);
    }
    // The first one has those, late, and goes on.
    for _ in 0..9 {
        cq.read(0);
    }
    assert!(cq.channels[0].try_event().unwrap().is_none());
    for _ in 0..9 {
        cq.complete();
        cq.read(0);
    }
}

#[test]
fn an_eventfd_wakes_as_well() {
    let device = Device::new();
    let cq = device.cq(16);
    let qp = device.alone(device.builder(&cq).build().unwrap());
    let channel = EventChannel::new(&device.context).unwrap();
    // SAFETY: a descriptor of this test.
    let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) };
    channel.signal(Some(&cq), EventKind::Completion, counter.as_fd()).unwrap();
    let mut counter = File::from(counter);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    for id in 0..10 {
        completions.arm();
        post(&mut queue, id);
        let mut count = [0; 8];
        counter.read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
        cq.event_taken();
        let _ = wait(&mut completions, &mut queue);
    }
    assert!(channel.try_event().unwrap().is_none());
}

#[test]
fn errors_of_a_queue_pair_are_told_to_who_subscribed() {
    let device = Device::new();
    let (cq, peer_cq) = (device.cq(64), device.cq(64));
    let [qp, peer] = device
        .connect(device.builder(&cq).build().unwrap(), device.builder(&peer_cq).build().unwrap());
    let channel = EventChannel::new(&device.context).unwrap();
    for (source, cookie) in [(&qp, 1), (&peer, 2)] {
        for kind in [EventKind::AccessError, EventKind::InvalidRequest, EventKind::QueueFailed] {
            channel.subscribe(source, kind, cookie).unwrap();
        }
    }
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queue = sends(&qp, &mut completions);
    let target = device.read_only(64);
    let remote = target.remote(0).unwrap();
    // SAFETY: the peer refuses it.
    unsafe { queue.post(1, RdmaWrite::new(Inline(&[1; 8]), remote).signaled()) }.unwrap();
    let Completion::Failed(failure) = wait(&mut completions, &mut queue) else { panic!() };
    assert_eq!(failure.status, Status::RemoteAccess);
    // The side that refused it.
    let event = channel.wait(PATIENCE).unwrap().expect("an event");
    assert_eq!((event.kind(), event.cookie()), (EventKind::AccessError, 2));
    assert_eq!(event.queue(), Some(peer.number()));
    assert!(event.to_string().contains("WQ_ACCESS_ERROR"), "{event}");
    assert!(channel.wait(SHORT).unwrap().is_none());
}

#[test]
fn queues_and_channels_go_in_any_order() {
    let device = Device::new();
    for order in 0..4 {
        let cq = device.cq(16);
        let qp = device.alone(device.builder(&cq).build().unwrap());
        let channel = EventChannel::new(&device.context).unwrap();
        channel.subscribe(&cq, EventKind::Completion, 9).unwrap();
        channel.subscribe(&qp, EventKind::QueueFailed, 9).unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let mut queue = sends(&qp, &mut completions);
        completions.arm();
        post(&mut queue, 1);
        match order {
            0 => drop(channel),
            1 => {
                // The event stays.
                drop((queue, completions, qp, cq));
                assert_eq!(channel.wait(PATIENCE).unwrap().unwrap().cookie(), 9);
                assert!(channel.try_event().unwrap().is_none());
            }
            2 => {
                std::mem::forget(channel);
                let _ = wait(&mut completions, &mut queue);
            }
            _ => {
                drop(channel);
                completions.arm();
                post(&mut queue, 2);
                let _ = wait(&mut completions, &mut queue);
            }
        }
    }
}

#[test]
fn what_is_not_offered_of_an_object_is_refused() {
    let device = Device::new();
    let cq = device.cq(16);
    let channel = EventChannel::new(&device.context).unwrap();
    for kind in [EventKind::PortChange, EventKind::XrqError, EventKind::Other(0xff)] {
        let error = channel.subscribe(&cq, kind, 0).unwrap_err();
        assert!(matches!(error, Error::Call { .. }), "{error}");
        assert_eq!(error.errno(), Some(Errno(libc::EINVAL)));
    }
    // An object of another context, whose handle may be another object's here.
    let other = Device::new();
    let foreign = EventChannel::new(&other.context).unwrap();
    let nobody = device.cq(16);
    let error = foreign.subscribe(&nobody, EventKind::Completion, 0).unwrap_err();
    assert!(matches!(error, Error::Attribute { .. }), "{error}");
}
