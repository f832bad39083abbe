//! The times of completions, in free-running format: of each transport, in both layers.

use mlx5::cqe::{Completion, Timestamp, TimestampFormat};
use mlx5::endpoint::{Endpoint, Endpoints, MrSlice, Outcome, Returned, SendEndpoint};
use mlx5::ib::{CqeCompression, Dci, Rc, Transport, Uc, Ud};
use mlx5::ring::{CqReader, Queues, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::attr::RtsAttributes;
use mlx5::verbs::{DeviceClock, PtpClock, QueuePair};
use mlx5::wqe::{Inline, Nop, RdmaWrite, Remote, SendMessage};
use mlx5_model::Mode;

use super::{dynamic, made, owned_unreliable};
use rig::{QKEY, Rig, Side, until};

/// A device, and its clock.
fn rig() -> (Rig, DeviceClock) {
    let rig = Rig::new(Mode::Trapped);
    let clock = DeviceClock::new(&rig.context).unwrap();
    (rig, clock)
}

/// Waits for a completion in the raw layer.
fn next(
    reader: &mut CqReader,
    queues: &mut (impl Queues + ?Sized),
) -> (Completion, Option<Timestamp>) {
    until(|| reader.poll_timed(queues).unwrap())
}

/// Waits for a completion of a side.
fn next_of<T: Transport>(side: &mut Side<T>) -> (Completion, Option<Timestamp>) {
    next(&mut side.completions, &mut (&mut side.send, &mut side.receive))
}

/// Asserts that a time is later than `before`, and not later than now.
#[track_caller]
fn since(clock: &DeviceClock, before: Timestamp, time: Option<Timestamp>) {
    let (time, now) = (time.expect("a time"), clock.count().unwrap());
    assert!(before <= time && time <= now, "{before:?} {time:?} {now:?}");
}

/// Sends some messages, which complete on both sides.
fn messages<T: Transport>(
    clock: &DeviceClock,
    [a, b]: [&mut Side<T>; 2],
    mut post: impl FnMut(&mut SendQueue<T>, u64),
) {
    for id in 0..5 {
        let before = clock.count().unwrap();
        // SAFETY: the memory lives to the end, and is not read.
        unsafe { b.receive.post(id, b.sge(0, 128)).unwrap() };
        post(&mut a.send, id);
        let (completion, time) = next_of(a);
        assert!(matches!(completion, Completion::Send(done) if done.id == id), "{completion:?}");
        since(clock, before, time);
        let (completion, time) = next_of(b);
        assert!(matches!(completion, Completion::Receive(done) if done.id == id), "{completion:?}");
        since(clock, before, time);
    }
}

#[test]
fn completions_of_connections_and_datagrams_have_their_time() {
    let (rig, clock) = rig();
    let [mut a, mut b] = rig.pair::<Rc>().sides();
    // SAFETY: for each post here, the payload is in the WQE.
    messages(&clock, [&mut a, &mut b], |send, id| unsafe {
        send.post(id, SendMessage::new(Inline(b"reliable")).signaled()).unwrap();
    });
    let [mut a, mut b] = rig.pair::<Uc>().sides();
    // SAFETY: the payload is in the WQE.
    messages(&clock, [&mut a, &mut b], |send, id| unsafe {
        send.post(id, SendMessage::new(Inline(b"unreliable")).signaled()).unwrap();
    });
    let (mut a, mut b) = (rig.datagrams(), rig.datagrams());
    let to = rig.address(&b.qp, QKEY);
    // SAFETY: the payload is in the WQE.
    messages::<Ud>(&clock, [&mut a, &mut b], |send, id| unsafe {
        send.post(id, SendMessage::new(Inline(b"datagram")).signaled().to(&to)).unwrap();
    });
}

#[test]
fn completions_of_dynamic_connections_have_their_time() {
    let (rig, clock) = rig();
    let (mut a, mut b) = (dynamic::Initiator::new(&rig), dynamic::Target::new(&rig));
    let to = b.address(&rig);
    for id in 0..5 {
        let before = clock.count().unwrap();
        b.receive(0, 64);
        let message = SendMessage::new(Inline(b"dynamic")).signaled();
        // SAFETY: the payload is in the WQE.
        unsafe { a.send.post(id, message.to(&to)).unwrap() };
        let (completion, time) = next(&mut a.completions, &mut a.send);
        assert!(matches!(completion, Completion::Send(done) if done.id == id));
        since(&clock, before, time);
        let (completion, time) = next(&mut b.completions, &mut b.shared);
        assert!(matches!(completion, Completion::Receive(_)));
        since(&clock, before, time);
    }
}

#[test]
fn a_failure_has_no_time() {
    let (rig, clock) = rig();
    let [mut a, _b] = rig.pair::<Rc>().sides();
    let before = clock.count().unwrap();
    // SAFETY: the payloads are in the WQEs.
    unsafe {
        a.send.post(1, Nop::new().signaled()).unwrap();
        let nowhere = Remote { rkey: 0x00de_ad00, ..a.remote(0) };
        a.send.post(2, RdmaWrite::new(Inline(b"x"), nowhere).signaled()).unwrap();
    }
    let (completion, time) = next_of(&mut a);
    assert!(matches!(completion, Completion::Send(_)));
    since(&clock, before, time);
    until(|| a.completions.peek().unwrap().map(|cqe| assert_eq!(cqe.timestamp(), None)));
    let (completion, time) = next_of(&mut a);
    assert!(matches!(completion, Completion::Failed(failure) if failure.id == 2));
    assert_eq!(time, None);
}

#[test]
fn compressed_completions_have_the_time_of_their_title() {
    let (rig, clock) = rig();
    let pair = rig.pair::<Rc>().cq(|cq| cq.compression(CqeCompression::Hash));
    let [mut a, _b] = pair.sides();
    let before = clock.count().unwrap();
    let mut batch = a.send.batch();
    for id in 0..6 {
        batch.append(id, Nop::new().signaled()).unwrap();
    }
    // SAFETY: the requests name no memory.
    unsafe { batch.ring() };
    let times: Vec<_> = (0..6).map(|_| next_of(&mut a).1).collect();
    since(&clock, before, times[0]);
    assert_eq!(times, [times[0]; 6]);
}

#[test]
fn real_time_is_refused_where_the_device_does_not_offer_it() {
    let (rig, _clock) = rig();
    let cq = rig.cq(16);
    let asked = QueuePair::by_command(&rig.pd, &cq).timestamps(TimestampFormat::RealTime);
    let error = asked.build().unwrap_err();
    assert!(matches!(&error, mlx5::Error::NoCapability(_)), "{error}");
    assert!(error.to_string().contains("times in real-time format"), "{error}");
}

#[test]
fn a_device_without_a_ptp_clock_is_refused_with_the_cause() {
    let (rig, _clock) = rig();
    let error = PtpClock::new(&rig.context).unwrap_err();
    assert!(matches!(&error, mlx5::Error::Attribute { attribute: "device", .. }), "{error}");
    assert!(error.to_string().contains("CONFIG_PTP_1588_CLOCK"), "{error}");
}

/// Waits for a request that an endpoint returns.
fn returned<T: Transport, R>(endpoint: &mut Endpoint<T, R>) -> (Returned, Option<Timestamp>)
where
    R: mlx5::endpoint::ReceiveHalf,
{
    until(|| endpoint.poll_one_timed().unwrap())
}

/// Sends some messages in the safe layer.
fn owned_messages<T: Transport>(
    clock: &DeviceClock,
    [a, b]: [&mut Endpoint<T>; 2],
    memory: impl Fn() -> MrSlice,
    mut post: impl FnMut(&mut Endpoint<T>, u64),
) {
    for id in 0..5 {
        let before = clock.count().unwrap();
        b.post_receive(id, memory()).unwrap();
        post(a, id);
        let (sent, time) = returned(a);
        assert!(matches!(sent.outcome, Outcome::Sent(done) if done.id == id), "{sent:?}");
        since(clock, before, time);
        let (received, time) = returned(b);
        assert!(matches!(received.outcome, Outcome::Received(_)) && received.id == id);
        assert!(received.buffers.one().is_ok());
        since(clock, before, time);
    }
}

#[test]
fn endpoints_return_requests_with_their_time() {
    let (rig, clock) = rig();
    let memory = || MrSlice::from(rig.memory(64));
    let [mut a, mut b] = rig.pair::<Rc>().endpoints();
    owned_messages(&clock, [&mut a, &mut b], memory, |endpoint, id| {
        endpoint.post(id, SendMessage::new(rig.text("reliable")).signaled()).unwrap();
    });
    let [mut a, mut b] = rig.pair::<Uc>().endpoints();
    owned_messages(&clock, [&mut a, &mut b], memory, |endpoint, id| {
        endpoint.post(id, SendMessage::new(rig.text("unreliable")).signaled()).unwrap();
    });
    let [mut a, mut b] = [(); 2].map(|()| owned_unreliable::datagrams(&rig));
    let to = rig.address(b.queue_pair(), QKEY);
    owned_messages(&clock, [&mut a, &mut b], memory, |endpoint, id| {
        endpoint.post(id, SendMessage::new(rig.text("datagram")).signaled().to(&to)).unwrap();
    });
}

#[test]
fn an_initiator_of_dynamic_connections_returns_requests_with_their_time() {
    let (rig, clock) = rig();
    let cq = rig.cq(255);
    let shape = made::builder(&rig.pd, &cq);
    let qp = dynamic::rts(&rig, shape, &RtsAttributes::default());
    let reader = CqReader::new(&cq).unwrap();
    let mut initiator: SendEndpoint<Dci> =
        Endpoint::sender(qp, reader, SendConfig::default()).unwrap();
    let target = dynamic::Target::new(&rig);
    let (to, remote) = (target.address(&rig), target.remote(0));
    for id in 0..5 {
        let before = clock.count().unwrap();
        let write = RdmaWrite::new(rig.text("dynamic"), remote).signaled();
        initiator.post(id, write.to(&to)).unwrap();
        let (sent, time) = returned(&mut initiator);
        assert!(matches!(sent.outcome, Outcome::Sent(done) if done.id == id));
        since(&clock, before, time);
    }
}

#[test]
fn unsignaled_requests_have_the_time_of_the_completion_that_retired_them() {
    let (rig, clock) = rig();
    let [mut a, _b] = rig.pair::<Rc>().endpoints();
    let post = |endpoint: &mut Endpoint, id: u64| {
        endpoint.post(id, Nop::new().signaled_if(id % 3 == 2)).unwrap();
    };
    let before = clock.count().unwrap();
    (0..6).for_each(|id| post(&mut a, id));
    let all: Vec<_> = (0..6).map(|_| returned(&mut a)).collect();
    assert_eq!(all.iter().map(|(one, _)| one.id).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let times: Vec<_> = all.iter().map(|(_, time)| *time).collect();
    since(&clock, before, times[0]);
    since(&clock, times[0].unwrap(), times[3]);
    assert_eq!(times, [[times[0]; 3], [times[3]; 3]].concat());

    // A poll without times takes the CQE: it is gone, and its time with it.
    (0..6).for_each(|id| post(&mut a, id));
    let first = until(|| a.poll_one().unwrap());
    assert_eq!(first.id, 0);
    assert_eq!([returned(&mut a).1, returned(&mut a).1], [None; 2]);
    let later = returned(&mut a);
    assert_eq!(later.0.id, 3);
    since(&clock, before, later.1);
    // And the other way round.
    assert_eq!([(); 2].map(|()| until(|| a.poll_one().unwrap()).id), [4, 5]);
}

#[test]
fn failed_requests_of_endpoints_have_no_time() {
    let (rig, _clock) = rig();
    let [mut a, _b] = rig.pair::<Rc>().endpoints();
    a.post(1, Nop::new()).unwrap();
    a.post(2, RdmaWrite::new(Inline(b"x"), Remote::new(0, 0)).signaled()).unwrap();
    a.post(3, Nop::new().signaled()).unwrap();
    let all: Vec<_> = (0..3).map(|_| returned(&mut a)).collect();
    assert!(matches!(all[0].0.outcome, Outcome::SentUnsignaled { .. }));
    for (one, time) in &all {
        assert!(one.id == 1 || matches!(one.outcome, Outcome::Failed(_)), "{one:?}");
        assert_eq!(*time, None);
    }
}

#[test]
fn receives_on_a_cq_of_their_own_have_their_time() {
    let (rig, clock) = rig();
    let (cq, receive_cq) = (rig.cq(64), rig.cq(64));
    let shape = QueuePair::builder(&rig.pd, &cq).receive_cq(&receive_cq).max_inline_data(16);
    let qp = rig.init(shape);
    let [completions, mut receives] = [&cq, &receive_cq].map(|cq| CqReader::new(cq).unwrap());
    let config = ReceiveConfig::default();
    let receiver = mlx5::endpoint::Receiver::new(&qp, &mut receives, config).unwrap();
    let qp = rig.looped(qp);
    let config = SendConfig::default();
    let mut endpoint =
        Endpoint::with_receive_completions(qp, receiver, completions, receives, config).unwrap();
    for id in 0..3 {
        let before = clock.count().unwrap();
        endpoint.post_receive(id, MrSlice::from(rig.memory(16))).unwrap();
        endpoint.post(id, SendMessage::new(Inline(b"both")).signaled()).unwrap();
        for _ in 0..2 {
            let (one, time) = returned(&mut endpoint);
            assert_eq!(one.id, id);
            since(&clock, before, time);
        }
    }
}

#[test]
fn connections_on_one_cq_return_requests_with_their_time() {
    let (rig, clock) = rig();
    let cq = rig.cq(255);
    let mut all = Endpoints::<Rc>::new(CqReader::new(&cq).unwrap());
    let [first, second] = [(); 2]
        .map(|()| rig.init(QueuePair::builder(&rig.pd, &cq).max_send_wr(16).max_recv_wr(16)));
    for qp in [&first, &second] {
        all.attach_own(qp, ReceiveConfig::default()).unwrap();
    }
    let (first, second) = rig.connect(first, second);
    let [from, to] = [first, second].map(|qp| all.insert(qp, SendConfig::default()).unwrap());
    for id in (0..20).step_by(2) {
        let before = clock.count().unwrap();
        all.post_receive_on(to, id, MrSlice::from(rig.memory(64))).unwrap();
        all.post(from, id, Nop::new()).unwrap();
        all.post(from, id + 1, SendMessage::new(rig.text("one of many")).signaled()).unwrap();
        let mut seen: Vec<_> = (0..3)
            .map(|_| {
                let (key, one, time) = until(|| all.poll_one_timed().unwrap());
                since(&clock, before, time);
                (key == to, one.id)
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [(false, id), (false, id + 1), (true, id)]);
    }
}
