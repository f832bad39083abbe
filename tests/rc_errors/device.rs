//! A device that failed: polls, posts and waits report it. Each test stops its device, so it runs in a
//! process of its own.

use std::ops::Deref;

use mlx5::Error;
use mlx5::devx::{EventChannel, EventKind};
use mlx5::endpoint::{Endpoint, Endpoints, MrSlice, Receiver, SharedReceiver};
use mlx5::expert::CollapsedCqReader;
use mlx5::ib::Rc;
use mlx5::ring::{
    CqReader, DrainError, PollError, PostError, Prepared, Queues, ReceiveConfig, SendConfig, Srq,
};
use mlx5::verbs::attr::{Capacities, CqeSize};
use mlx5::verbs::{
    AsyncEventKind, CompletionChannel, CompletionQueue, Context, MemoryRegion, QueuePair, Reset,
    Rts, SharedReceiveQueue,
};
use mlx5::wqe::{InlineBytes, Nop, RdmaWrite, Sge};

use crate::pair::PATIENCE;
use rig::made::{By, Cq, Qp, queue_pair};
use rig::process::{Peer, child, role};
use rig::{Rig, Side};

/// Returns whether this process is the test's own. If not, runs the test in one.
fn is_alone(test: impl Fn()) -> bool {
    if role().is_some() {
        return true;
    }
    Peer::start(&mut child(test, "alone")).end();
    false
}

/// Stops the firmware.
fn fail_device() {
    assert!(mlx5_model::set_faults(0, "fatal").unwrap());
}

/// The rig, and memory.
struct Device {
    rig: Rig,
    region: MemoryRegion,
}

impl Deref for Device {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

/// A queue pair that is connected to itself, with its queues and memory.
type Looped = Side<Rc, Qp<Rc, Rts>, Cq>;

impl Device {
    fn new() -> Device {
        let rig = Rig::over(Context::open_first().unwrap());
        let region = rig.memory(4096);
        Device { rig, region }
    }

    fn sge(&self) -> Sge {
        self.region.sge(0, 64).unwrap()
    }

    fn slice(&self) -> MrSlice {
        MrSlice::new(self.memory(64))
    }

    /// Connects a queue pair to itself.
    fn connect(&self, qp: QueuePair<Rc, Reset>) -> QueuePair<Rc, Rts> {
        self.looped(self.to_init(qp))
    }

    fn queue_pair(&self, cq: &CompletionQueue) -> QueuePair<Rc, Rts> {
        self.connect(QueuePair::builder(&self.pd, cq).build().unwrap())
    }

    /// A queue pair that is connected to itself, with its queues.
    fn queues(&self, by: By) -> Looped {
        let cq = Cq::new(&self.context, by, 64, CqeSize::B64);
        let shape = Capacities {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let qp = queue_pair::<Rc>(by, &self.pd, &cq, shape, false);
        let end = self.local.connection_data_of(qp.number());
        let qp = qp.init(&self.local.init()).unwrap();
        let qp = qp.rtr(&self.local.rtr(&end, &end)).unwrap();
        let qp = qp.rts(&self.local.rts(&end, &end)).unwrap();
        let mut completions = cq.completions();
        let receive = qp.receive_queue(&mut completions, ReceiveConfig::default()).unwrap();
        let send = qp.send_queue(&mut completions, SendConfig::default()).unwrap();
        Side { memory: self.memory(64), send, receive, completions, qp, cq }
    }
}

/// Polls until a poll fails. Each arm counts as many polls that find nothing.
fn failure(reader: &mut CqReader, queues: &mut impl Queues) -> PollError {
    let polled = (0..100).find_map(|_| {
        reader.arm();
        match reader.poll(queues) {
            Ok(None) => None,
            Ok(Some(completion)) => panic!("{completion:?}"),
            Err(error) => Some(error),
        }
    });
    polled.expect("a failed poll")
}

#[test]
fn polls_report_a_failed_device_and_posts_fail() {
    if !is_alone(polls_report_a_failed_device_and_posts_fail) {
        return;
    }
    let device = Device::new();
    let mut all = [By::Verbs, By::Command, By::CommandOnVerbsCq].map(|by| device.queues(by));
    // One request is under way, and one receive.
    fail_device();
    for Looped { send: sends, receive: receives, completions: reader, .. } in &mut all {
        // SAFETY: the region outlives the queues, and nothing reads it.
        let mut post = || unsafe {
            let sent = sends.post(1, Nop::new().signaled());
            (sent, receives.post(2, device.sge()))
        };
        assert_eq!(post(), (Ok(()), Ok(())));
        assert_eq!(failure(reader, &mut (&mut *sends, &mut *receives)), PollError::DeviceFailed);
        // SAFETY: as above.
        let mut post = || unsafe {
            let sent = sends.post(1, Nop::new().signaled());
            (sent, receives.post(2, device.sge()))
        };
        let refused = Err(PostError::DeviceFailed);
        assert_eq!(post(), (refused, refused));
        let polled = reader.poll(&mut (&mut *sends, &mut *receives));
        assert_eq!(polled, Err(PollError::DeviceFailed));
        assert_eq!((sends.is_idle(), receives.outstanding()), (false, 1));
    }
    // The event is the program's, and still there.
    let event = device.context.try_async_event().unwrap().expect("an event");
    assert_eq!(event.kind(), AsyncEventKind::DeviceFatal);
}

#[test]
fn polls_report_a_failed_device_whose_event_the_program_has_read() {
    if !is_alone(polls_report_a_failed_device_whose_event_the_program_has_read) {
        return;
    }
    let device = Device::new();
    let mut one = device.queues(By::Verbs);
    fail_device();
    let event = device.context.async_event(PATIENCE).unwrap().expect("an event");
    assert_eq!(event.kind(), AsyncEventKind::DeviceFatal);
    let error = failure(&mut one.completions, &mut (&mut one.send, &mut one.receive));
    assert_eq!(error, PollError::DeviceFailed);
}

#[test]
fn every_kind_of_queue_refuses_posts_of_a_failed_device() {
    if !is_alone(every_kind_of_queue_refuses_posts_of_a_failed_device) {
        return;
    }
    let device = Device::new();
    let cq = || CompletionQueue::new(&device.context, 256).unwrap();
    let remote = device.region.remote(0).unwrap();
    let eight = || RdmaWrite::new(InlineBytes([0; 8]), remote).signaled();

    // Shared by threads, and prepared.
    let Looped { send, completions: mut reader, receive: _unused, qp: _qp, cq: _cq, .. } =
        device.queues(By::Verbs);
    let (producer, mut retirer) = send.share();
    let other = device.queues(By::Verbs);
    let mut prepared = Prepared::new(other.send);
    prepared.prepare(1, eight()).unwrap();
    let mut other_reader = other.completions;

    // A shared receive queue, whose receives complete on the CQ of its queue pair.
    let shared_cq = cq();
    let mut shared_reader = CqReader::new(&shared_cq).unwrap();
    let srq = SharedReceiveQueue::builder(&device.pd).build().unwrap();
    let mut srq = Srq::new(&srq, &mut shared_reader, ReceiveConfig::default()).unwrap();

    // Of the safe layer.
    let endpoint_cq = cq();
    let qp = device.queue_pair(&endpoint_cq);
    let mut completions = CqReader::new(&endpoint_cq).unwrap();
    let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let mut endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap();
    let slices = [device.slice(), device.slice(), device.slice(), device.slice()];

    // A CQ of one slot.
    let collapsed = CompletionQueue::by_command(&device.context, 1).collapsed().build().unwrap();
    let qp = QueuePair::by_command(&device.pd, &collapsed).max_recv_wr(0).build().unwrap();
    let qp = device.looped(device.to_init(qp));
    let mut one_slot = CollapsedCqReader::new(&collapsed).unwrap();
    let mut one_queue = one_slot.send_queue(&qp, SendConfig::default()).unwrap();

    fail_device();
    let refused = PostError::DeviceFailed;
    assert_eq!(failure(&mut reader, &mut retirer), PollError::DeviceFailed);
    // SAFETY: the request names no memory.
    assert_eq!(unsafe { producer.post(1, Nop::new()) }, Err(refused));
    assert_eq!(failure(&mut other_reader, &mut prepared), PollError::DeviceFailed);
    assert_eq!(prepared.fire([1; 8]), Err(refused));
    assert_eq!(prepared.prepare(2, eight()), Err(refused));
    assert_eq!(failure(&mut shared_reader, &mut srq), PollError::DeviceFailed);
    // SAFETY: the region outlives the queue, and nothing reads it.
    assert_eq!(unsafe { srq.post(1, device.sge()) }, Err(refused));
    assert_eq!(srq.free(), 0);

    let [first, second, third, fourth] = slices;
    endpoint.post(1, RdmaWrite::new(first, remote).signaled()).unwrap();
    endpoint.post_receive(2, second).unwrap();
    let error = (0..100).find_map(|_| {
        endpoint.arm();
        endpoint.poll_one().err()
    });
    assert_eq!(error, Some(PollError::DeviceFailed.into()));
    assert_eq!(endpoint.post(3, RdmaWrite::new(third, remote)).unwrap_err().error, refused);
    assert_eq!(endpoint.post_receive(4, fourth).unwrap_err().error, refused);

    let polled = (0..5_000_000).find_map(|_| one_slot.poll(&mut one_queue).err());
    assert_eq!(polled, Some(PollError::DeviceFailed));
    assert_eq!(one_slot.poll(&mut one_queue), Err(PollError::DeviceFailed));
    // SAFETY: the request names no memory.
    assert_eq!(unsafe { one_queue.post(1, Nop::new().signaled()) }, Err(refused));
}

#[test]
fn every_connection_of_a_failed_device_refuses_posts() {
    if !is_alone(every_connection_of_a_failed_device_refuses_posts) {
        return;
    }
    let device = Device::new();
    let cq = CompletionQueue::new(&device.context, 256).unwrap();
    let mut reader = CqReader::new(&cq).unwrap();
    let srq = SharedReceiveQueue::builder(&device.pd).build().unwrap();
    let shared = SharedReceiver::new(&srq, &mut reader, ReceiveConfig::default()).unwrap();
    let mut endpoints = Endpoints::with_receiver(reader, shared).unwrap();
    let keys = [1, 2].map(|_| {
        let builder = QueuePair::builder(&device.pd, &cq).shared_receive_queue(&srq);
        let qp = device.connect(builder.build().unwrap());
        endpoints.insert(qp, SendConfig::default()).unwrap()
    });
    fail_device();
    let error = (0..100).find_map(|_| {
        endpoints.arm();
        endpoints.poll().next()?.err()
    });
    assert_eq!(error, Some(PollError::DeviceFailed.into()));
    for key in keys {
        let refused = endpoints.post(key, 1, Nop::new().signaled()).unwrap_err();
        assert_eq!(refused.error, PostError::DeviceFailed);
    }
}

/// Each wait would last long, and ends with an error at once.
#[test]
fn waits_end_at_once_if_the_device_has_failed() {
    if !is_alone(waits_end_at_once_if_the_device_has_failed) {
        return;
    }
    let failed = |error: Error| matches!(error, Error::Poll(PollError::DeviceFailed));
    let device = Device::new();
    let channel = CompletionChannel::new(&device.context).unwrap();
    let events = EventChannel::new(&device.context).unwrap();
    let mut looped = [By::Verbs, By::Command].map(|by| device.queues(by));
    for Looped { send: sends, receive: receives, .. } in &mut looped {
        // SAFETY: the region outlives the queues, and nothing reads it.
        unsafe {
            receives.post(1, device.sge()).unwrap();
        }
        assert!(sends.is_idle());
    }
    if let Cq::Command(cq) = &looped[1].cq {
        events.subscribe(cq, EventKind::Completion, 0).unwrap();
    }
    // A wait that has begun ends, too.
    let sleeper = {
        let channel = channel.clone();
        std::thread::spawn(move || channel.get_event(PATIENCE).map(|event| event.is_some()))
    };
    fail_device();
    assert!(failed(sleeper.join().unwrap().unwrap_err()));
    assert!(failed(channel.get_event(PATIENCE).unwrap_err()));
    assert!(failed(events.wait(PATIENCE).unwrap_err()));
    for Looped { send: sends, receive: receives, completions: reader, .. } in &mut looped {
        // SAFETY: the request names no memory.
        unsafe { sends.post(1, Nop::new().signaled()).unwrap() };
        let failed = Err(DrainError::Poll(PollError::DeviceFailed));
        let unexpected = |completion| panic!("{completion:?}");
        assert_eq!(reader.drain_sends(sends, receives, 9, PATIENCE, unexpected), failed);
        assert_eq!(reader.drain_receives(receives, sends, PATIENCE, unexpected), failed);
    }
    // The event is the program's, and still there.
    let event = device.context.try_async_event().unwrap().expect("an event");
    assert_eq!(event.kind(), AsyncEventKind::DeviceFatal);
}
