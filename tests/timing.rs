//! With the feature `timing`, every post and poll is counted once in each of its phases, and a
//! flight belongs to the WQE that rang.

#![cfg(feature = "timing")]

use std::time::{Duration, Instant};

use mlx5::cqe::Completion;
use mlx5::endpoint::{Endpoint, MrSlice, Receiver};
use mlx5::ring::{
    CqReader, Prepared, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig, SendQueue,
};
use mlx5::timing::{Phase, Report};
use mlx5::verbs::QueuePair;
use mlx5::wqe::{Inline, InlineBytes, RdmaWrite, SendMessage};
use rig::Rig;

const POST: [Phase; 2] = [Phase::Reserve, Phase::Encode];
const RING: [Phase; 5] = [Phase::Fence, Phase::Record, Phase::Order, Phase::Doorbell, Phase::Flush];

#[test]
fn each_call_is_counted_once_in_each_of_its_phases() {
    for register in [RegisterUse::Own, RegisterUse::Shared] {
        let rig = Rig::new(mlx5_model::Mode::Manual);
        let (cq, peer_cq) = (rig.cq(63), rig.cq(63));
        let shape = |cq| {
            let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(64);
            builder.max_send_sge(4).max_inline_data(64)
        };
        let (qp, _peer) = rig.connect(rig.init(shape(&cq)), rig.init(shape(&peer_cq)));
        let memory = rig.memory(4096);
        let sge = memory.sge(0, 8).unwrap();
        let remote = memory.remote(1024).unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let config = SendConfig { register, ..SendConfig::default() };
        let mut send = SendQueue::new(&qp, &mut completions, config).unwrap();
        assert!(send.timing().phases().is_empty());
        assert!(completions.timing().phases().is_empty());

        // WQEs posted, doorbells rung, CQEs taken, CQEs published, flights ended.
        let mut expected = [0; 5];
        let mut check = |send: &SendQueue, completions: &CqReader, more: [u64; 5]| {
            expected.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            let (sent, polled) = (send.timing(), completions.timing());
            let phases: [(&[Phase], &Report); 5] = [
                (&POST, &sent),
                (&RING, &sent),
                (&[Phase::Sight, Phase::Decode], &polled),
                (&[Phase::Release], &polled),
                (&[Phase::Flight], &sent),
            ];
            for ((phases, report), wanted) in phases.into_iter().zip(expected) {
                for &phase in phases {
                    let found = report.phase(phase).map_or(0, |it| it.count);
                    assert_eq!(found, wanted, "{phase:?}\n{sent}\n{polled}");
                }
            }
        };
        let found = |send: &mut SendQueue, completions: &mut CqReader| {
            matches!(completions.poll(send).unwrap(), Some(Completion::Send(_)))
        };

        // One after another, usual and not.
        for id in 0..5 {
            // SAFETY: the memory lives to the end.
            unsafe {
                send.post(id, RdmaWrite::new(InlineBytes([1; 8]), remote).signaled()).unwrap()
            };
        }
        check(&send, &completions, [5, 5, 0, 0, 0]);
        mlx5_model::run();
        for _ in 0..5 {
            assert!(found(&mut send, &mut completions));
            check(&send, &completions, [0, 0, 1, 1, 1]);
        }
        let long = [sge; 4];
        // SAFETY: the memory lives to the end.
        unsafe { send.post(5, RdmaWrite::new(&long[..], remote).signaled()).unwrap() };
        check(&send, &completions, [1, 1, 0, 0, 0]);
        assert!(!found(&mut send, &mut completions), "a poll that finds nothing counts nowhere");
        mlx5_model::run();
        assert!(found(&mut send, &mut completions));
        check(&send, &completions, [0, 0, 1, 1, 1]);

        // A batch: one doorbell, and one flight, that of its last request.
        let mut batch = send.batch();
        for id in 6..10 {
            batch.append(id, RdmaWrite::new(sge, remote).signaled()).unwrap();
        }
        // SAFETY: the memory lives to the end.
        unsafe { batch.ring() };
        mlx5_model::run();
        assert_eq!(completions.poll_all(&mut send).count(), 4);
        check(&send, &completions, [4, 1, 4, 4, 1]);
        // One that is dropped was encoded, and never rang; an empty one does nothing.
        let mut batch = send.batch();
        batch.append(10, RdmaWrite::new(sge, remote)).unwrap();
        drop(batch);
        // SAFETY: nothing is in it.
        unsafe { send.batch().ring() };
        check(&send, &completions, [1, 0, 0, 0, 0]);

        // Prepared requests count when they are fired, and then have nothing to reserve.
        send.clear_timing();
        completions.clear_timing();
        let mut prepared = Prepared::new(send);
        for id in 0..3 {
            prepared.prepare(id, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled()).unwrap();
        }
        for value in 0..3u64 {
            prepared.fire(value.to_ne_bytes()).unwrap();
        }
        mlx5_model::run();
        for _ in 0..3 {
            assert!(completions.poll(&mut prepared).unwrap().is_some());
        }
        let mut send = prepared.into_queue();
        let report = completions.timing();
        assert_eq!(report.phase(Phase::Decode).map(|it| it.count), Some(3), "{report}");
        let report = send.timing();
        assert_eq!(report.phase(Phase::Reserve), None, "{report}");
        for phase in [&[Phase::Encode, Phase::Flight], &RING[..]].concat() {
            assert_eq!(report.phase(phase).map_or(0, |it| it.count), 3, "{phase:?}\n{report}");
        }

        // Polls that take many publish each CQE.
        send.clear_timing();
        completions.clear_timing();
        let write = RdmaWrite::new(InlineBytes([0; 8]), remote);
        for value in 0..5u64 {
            // SAFETY: the payload is copied into the WQE.
            unsafe { send.post(value, write.signaled()).unwrap() };
        }
        mlx5_model::run();
        assert_eq!(completions.poll_all(&mut send).count(), 5);
        let (sent, polled) = (send.timing(), completions.timing());
        for phase in [&RING[..], &[Phase::Encode, Phase::Flight]].concat() {
            assert_eq!(sent.phase(phase).map_or(0, |it| it.count), 5, "{phase:?}\n{sent}");
        }
        for (phase, count) in [(Phase::Sight, 5), (Phase::Decode, 5), (Phase::Release, 5)] {
            assert_eq!(polled.phase(phase).map_or(0, |it| it.count), count, "{polled}");
        }

        send.clear_timing();
        completions.clear_timing();
        assert!(send.timing().phases().is_empty());
        assert!(completions.timing().phases().is_empty());
    }
}

#[test]
fn a_flight_lasts_until_its_completion_is_seen() {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let (cq, peer_cq) = (rig.cq(15), rig.cq(15));
    let shape = |cq| QueuePair::builder(&rig.pd, cq).max_send_wr(16);
    let (qp, _peer) = rig.connect(rig.init(shape(&cq)), rig.init(shape(&peer_cq)));
    let memory = rig.memory(4096);
    let sge = memory.sge(0, 8).unwrap();
    let remote = memory.remote(1024).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    // Two unsignaled ones and one that is: only the last one's completion is ever seen.
    for id in 0..3 {
        let write = RdmaWrite::new(sge, remote).signaled_if(id == 2);
        // SAFETY: the memory lives to the end.
        unsafe { send.post(id, write).unwrap() };
    }
    let rang = Instant::now();
    mlx5_model::run();
    let wait = Duration::from_millis(3);
    while rang.elapsed() < wait {
        std::hint::spin_loop();
    }
    assert!(
        matches!(completions.poll(&mut send), Ok(Some(Completion::Send(done))) if done.id == 2)
    );
    let report = send.timing();
    let flight = report.phase(Phase::Flight).expect("seen");
    assert_eq!(flight.count, 1);
    let nanoseconds = report.clock().nanoseconds(flight.last);
    // The counter's rate is known to 1%.
    assert!(nanoseconds >= 0.99 * wait.as_nanos() as f64, "{report}");
    let encode = report.phase(Phase::Encode).unwrap();
    assert!(encode.median < flight.median, "{report}");
}

#[test]
fn receives_are_counted_when_they_are_posted_and_when_they_complete() {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let (cq, peer_cq) = (rig.cq(15), rig.cq(15));
    let shape = |cq| {
        let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(8).max_recv_wr(8);
        builder.max_recv_sge(2).max_inline_data(64)
    };
    let (qp, peer) = rig.connect(rig.init(shape(&cq)), rig.init(shape(&peer_cq)));
    let memory = rig.memory(4096);
    let sge = memory.sge(0, 64).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let mut their_completions = CqReader::new(&peer_cq).unwrap();
    let mut send = SendQueue::new(&peer, &mut their_completions, SendConfig::default()).unwrap();
    // SAFETY: the memory lives to the end.
    unsafe {
        receive.post(0, sge).unwrap();
        receive.post(1, sge).unwrap();
        receive.post(2, [sge; 2]).unwrap();
        let mut batch = receive.batch();
        batch.append(3, sge).unwrap();
        batch.append(4, sge).unwrap();
        batch.ring();
        for id in 0..5 {
            send.post(id, SendMessage::new(Inline(b"message")).signaled()).unwrap();
        }
    }
    mlx5_model::run();
    assert!(matches!(completions.poll(&mut receive), Ok(Some(Completion::Receive(_)))));
    let mut rest = [const { None }; 5];
    for (place, found) in rest.iter_mut().zip(completions.poll_all(&mut receive)) {
        *place = Some(found.unwrap());
    }
    assert_eq!(rest.iter().flatten().count(), 4);

    let counts = |report: Report| -> Vec<(Phase, u64)> {
        report.phases().iter().map(|phase| (phase.phase, phase.count)).collect()
    };
    let posted = [(Phase::Reserve, 5), (Phase::Encode, 5), (Phase::Record, 4)];
    assert_eq!(counts(receive.timing()), posted);
    let polled = [(Phase::Sight, 5), (Phase::Decode, 5), (Phase::Release, 5)];
    assert_eq!(counts(completions.timing()), polled);
    receive.clear_timing();
    assert_eq!(counts(receive.timing()), []);
}

#[test]
fn the_safe_layer_counts_as_the_one_below_it() {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let cqs = [rig.cq(31), rig.cq(31)];
    let qps = cqs.each_ref().map(|cq| {
        let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(16).max_recv_wr(16);
        rig.init(builder.max_inline_data(64))
    });
    let mut completions = cqs.each_ref().map(|cq| CqReader::new(cq).unwrap());
    let mut receivers = Vec::new();
    for (qp, completions) in qps.iter().zip(&mut completions) {
        receivers.push(Receiver::new(qp, completions, ReceiveConfig::default()).unwrap());
    }
    let [first, second] = qps;
    let (first, second) = rig.connect(first, second);
    let [first, second] = {
        let mut parts = receivers.into_iter().zip(completions);
        [first, second].map(|qp| {
            let (receiver, completions) = parts.next().unwrap();
            Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap()
        })
    };
    let (mut sender, mut receiver) = (first, second);
    for id in 0..4 {
        receiver.post_receive(id, MrSlice::from(rig.memory(64))).unwrap();
    }
    for id in 0..4 {
        // Only every other one has a completion of its own.
        let slice = MrSlice::from(rig.memory(64));
        sender.post(id, SendMessage::new(slice).signaled_if(id % 2 == 1)).unwrap();
    }
    mlx5_model::run();
    for channel in [&mut sender, &mut receiver] {
        for id in 0..4 {
            let returned = channel.poll().next();
            assert!(matches!(&returned, Some(Ok(it)) if it.id == id), "{returned:?}");
        }
        assert!(channel.poll().next().is_none());
    }
    let check = |report: Report, expected: &[(Phase, u64)]| {
        let counts: Vec<_> = report.phases().iter().map(|it| (it.phase, it.count)).collect();
        assert_eq!(counts, expected, "{report}");
    };
    let mut sent: Vec<_> = POST.iter().chain(&RING).map(|&phase| (phase, 4)).collect();
    sent.push((Phase::Flight, 2));
    check(sender.send_queue().timing(), &sent);
    let received = [(Phase::Reserve, 4), (Phase::Encode, 4), (Phase::Record, 4)];
    check(receiver.receive_queue().timing(), &received);
    let polled = |count| [Phase::Sight, Phase::Decode, Phase::Release].map(|phase| (phase, count));
    check(sender.completions().timing(), &polled(2));
    check(receiver.completions().timing(), &polled(4));
}
