//! CQ kinds that commands make: compressed in both layouts, collapsed, and without the overrun
//! check.

use mlx5::Error;
use mlx5::cqe::{Completion, SendDone, Status};
use mlx5::devx::Firmware;
use mlx5::devx::ifc::cqc;
use mlx5::expert::{CollapsedCqReader, Publish};
use mlx5::ib::{CqeCompression, Dci};
use mlx5::ring::{CqReader, QueueError, SendConfig, SendQueue};
use mlx5::verbs::attr::{CqeSize, DciStreams, InitAttributes, Mtu, RtsAttributes};
use mlx5::verbs::{CompletionQueue, QueuePairBuilder};
use mlx5::wqe::{Inline, Nop, RdmaWrite, SendMessage};

use super::ends::{Device, receives, sends};
use rig::random::Random;
use rig::wait;

const FORMATS: [CqeCompression; 3] =
    [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride];

/// Posts so many signaled NOPs with one doorbell, so that their completions come together.
fn post(queue: &mut SendQueue, first: u64, count: u64) {
    let mut batch = queue.batch();
    for id in first..first + count {
        batch.append(id, Nop::new().signaled()).unwrap();
    }
    // SAFETY: NOPs name no memory.
    unsafe { batch.ring() };
}

fn id(completion: Completion) -> u64 {
    match completion {
        Completion::Send(SendDone { id, .. }) => id,
        other => panic!("{other:?}"),
    }
}

/// A compressing CQ, in either layout.
fn compressing(device: &Device, size: CqeSize, enhanced: bool) -> CompletionQueue<Firmware> {
    let builder = CompletionQueue::by_command(&device.context, 64).cqe_size(size);
    let builder = match enhanced {
        false => builder.compression(CqeCompression::Hash),
        true => builder.enhanced_compression(CqeCompression::Hash),
    };
    builder.build().unwrap()
}

#[test]
fn compressed_completions_are_taken_in_order_in_both_layouts() {
    let device = Device::new();
    let mut random = Random::new();
    for (size, enhanced) in
        [(CqeSize::B64, false), (CqeSize::B128, false), (CqeSize::B64, true), (CqeSize::B128, true)]
    {
        let cq = compressing(&device, size, enhanced);
        assert_eq!(cq.compression(), Some(CqeCompression::Hash));
        // All of the CQ is for the requests.
        let qp = device.builder(&cq).max_send_wr(48).max_recv_wr(0).build().unwrap();
        let qp = device.alone(qp);
        let mut completions = CqReader::new(&cq).unwrap();
        let mut queue = sends(&qp, &mut completions);
        let (mut posted, mut done) = (0, 0);
        // Many laps of the ring.
        while done < 3000 {
            let room = 40 - (posted - done);
            let count = u64::from(random.below(room as u32 + 1));
            if count > 0 {
                post(&mut queue, posted, count);
                posted += count;
            }
            for _ in 0..random.below(40) {
                let Some(completion) = completions.poll(&mut queue).unwrap() else { break };
                assert_eq!(id(completion), done, "{size:?}, enhanced: {enhanced}");
                done += 1;
            }
        }
        while done < posted {
            assert_eq!(id(wait(&mut completions, &mut queue)), done);
            done += 1;
        }
        assert!(completions.poll(&mut queue).unwrap().is_none());
    }
}

#[test]
fn messages_keep_their_lengths_in_both_layouts() {
    let device = Device::new();
    for (enhanced, format) in
        [false, true].into_iter().flat_map(|layout| FORMATS.map(|format| (layout, format)))
    {
        let builder = CompletionQueue::by_command(&device.context, 64);
        let cq = match enhanced {
            false => builder.compression(format),
            true => builder.enhanced_compression(format),
        }
        .build()
        .unwrap();
        let peer_cq = device.cq(64);
        let [qp, peer] = device.connect(
            device
                .builder(&cq)
                .scatter_to_cqe(mlx5::verbs::attr::ScatterToCqe::Never)
                .build()
                .unwrap(),
            device.builder(&peer_cq).build().unwrap(),
        );
        let mut completions = CqReader::new(&cq).unwrap();
        let mut receiver = receives(&qp, &mut completions);
        let mut peers = CqReader::new(&peer_cq).unwrap();
        let mut sender = sends(&peer, &mut peers);
        let memory = device.memory(4096);
        for round in 0..10u64 {
            for id in 0..20 {
                let sge = memory.sge(id as usize * 64, 64).unwrap();
                // SAFETY: memory of the region, which is not looked at.
                unsafe { receiver.post(round * 20 + id, sge) }.unwrap();
            }
            let mut batch = sender.batch();
            for id in 0..20 {
                let bytes = [id as u8; 32];
                batch
                    .append(id, SendMessage::new(Inline(&bytes[..id as usize + 1])).signaled())
                    .unwrap();
            }
            // SAFETY: inline payloads name no memory.
            unsafe { batch.ring() };
            for id in 0..20 {
                let _ = wait(&mut peers, &mut sender);
                let completion = wait(&mut completions, &mut receiver);
                let Completion::Receive(done) = completion else { panic!("{completion:?}") };
                assert_eq!((done.id, done.byte_len), (round * 20 + id, id as u32 + 1));
            }
        }
    }
}

#[test]
fn another_reader_goes_on_where_the_first_stopped() {
    let device = Device::new();
    for (enhanced, first) in [false, true].into_iter().flat_map(|it| (1..20).map(move |n| (it, n)))
    {
        let cq = compressing(&device, CqeSize::B64, enhanced);
        let qp = device.alone(device.builder(&cq).max_send_wr(48).build().unwrap());
        for round in 0..5u64 {
            // In the enhanced layout, its first completions are like one that the reader before took.
            let mut completions = CqReader::new(&cq).unwrap();
            let mut queue = sends(&qp, &mut completions);
            for start in [0, 100] {
                post(&mut queue, start, first + round);
                for at in 0..first + round {
                    assert_eq!(id(wait(&mut completions, &mut queue)), start + at);
                }
            }
        }
    }
}

#[test]
fn completions_of_a_queue_that_went_are_dropped_out_of_the_middle() {
    let device = Device::new();
    for enhanced in [false, true] {
        let cq = compressing(&device, CqeSize::B64, enhanced);
        let make = || device.alone(device.builder(&cq).max_send_wr(16).build().unwrap());
        let (stays, goes) = (make(), make());
        let mut completions = CqReader::new(&cq).unwrap();
        let mut kept = sends(&stays, &mut completions);
        let mut lost = sends(&goes, &mut completions);
        for round in 0..6u64 {
            post(&mut kept, round * 2, 1);
            post(&mut lost, 100, 2);
            post(&mut kept, round * 2 + 1, 1);
        }
        drop(lost);
        drop(goes);
        // What it was promised comes back when the next is taken over.
        let next = make();
        let mut other = sends(&next, &mut completions);
        for expected in 0..12 {
            assert_eq!(id(wait(&mut completions, &mut (&mut kept, &mut other))), expected);
        }
        post(&mut other, 7, 3);
        for expected in 7..10 {
            assert_eq!(id(wait(&mut completions, &mut (&mut kept, &mut other))), expected);
        }
        assert!(completions.poll(&mut (&mut kept, &mut other)).unwrap().is_none());
    }
}

#[test]
fn a_collapsed_cq_tells_of_the_last_request() {
    let device = Device::new();
    for size in [CqeSize::B64, CqeSize::B128] {
        let builder = CompletionQueue::by_command(&device.context, 1).cqe_size(size);
        let cq = builder.collapsed().build().unwrap();
        assert!(cq.ignores_overrun());
        let qp = device.alone(device.builder(&cq).max_send_wr(128).build().unwrap());
        let mut completions = CollapsedCqReader::new(&cq).unwrap();
        let mut queue = completions.send_queue(&qp, SendConfig::default()).unwrap();
        assert_eq!(completions.poll(&mut queue), Ok(None));
        let mut next = 0;
        for round in 0..200 {
            // The whole queue, which is free again each time.
            let count = if round % 3 == 0 { 128 } else { 1 + round % 5 };
            post(&mut queue, next, count);
            next += count;
            let completion = completions.poll(&mut queue).unwrap().expect("a completion");
            assert_eq!(id(completion), next - 1);
            assert_eq!(completions.poll(&mut queue), Ok(None));
            assert!(queue.is_idle());
        }
        // More than 2^16 WQEs later the counter is the same as before.
        for _ in 0..520 {
            post(&mut queue, 0, 126);
            assert_eq!(id(completions.poll(&mut queue).unwrap().expect("the 126th")), 125);
        }
    }
}

#[test]
fn a_collapsed_cq_tells_of_errors_and_starts_anew() {
    let device = Device::new();
    let cq = CompletionQueue::by_command(&device.context, 16).collapsed().build().unwrap();
    let peer_cq = device.cq(16);
    let [qp, _peer] = device
        .connect(device.builder(&cq).build().unwrap(), device.builder(&peer_cq).build().unwrap());
    let mut completions = CollapsedCqReader::new(&cq).unwrap();
    let mut queue = completions.send_queue(&qp, SendConfig::default()).unwrap();
    assert!(matches!(
        completions.send_queue(&qp, SendConfig::default()),
        Err(Error::Queue(QueueError::CollapsedTaken))
    ));
    let target = device.read_only(64);
    let remote = target.remote(0).unwrap();
    // SAFETY: the peer refuses it.
    unsafe { queue.post(1, RdmaWrite::new(Inline(&[1; 8]), remote).signaled()) }.unwrap();
    let failed = completions.poll(&mut queue).unwrap().expect("a completion");
    let Completion::Failed(failure) = failed else { panic!("{failed:?}") };
    assert_eq!((failure.status, failure.id), (Status::RemoteAccess, 1));
    // Through RESET: the first request has the index that the one before had.
    // SAFETY: nothing is posted before the queue is restarted.
    let qp = unsafe { qp.reset_under_queues() }.unwrap();
    let qp = device.alone(qp);
    // SAFETY: the queue pair went through RESET, and nothing of its former life is waited for.
    unsafe { completions.restart(&mut queue) }.unwrap();
    assert_eq!(completions.poll(&mut queue), Ok(None));
    post(&mut queue, 5, 1);
    assert_eq!(id(completions.poll(&mut queue).unwrap().expect("a completion")), 5);
    drop((queue, completions));
    // And by another reader.
    let mut completions = CollapsedCqReader::new(&cq).unwrap();
    let mut queue = completions.send_queue(&qp, SendConfig::default()).unwrap();
    assert_eq!(completions.poll(&mut queue), Ok(None));
    post(&mut queue, 6, 2);
    assert_eq!(id(completions.poll(&mut queue).unwrap().expect("a completion")), 7);
}

#[test]
fn a_collapsed_cq_refuses_streams_whose_completions_it_would_lose() {
    let device = Device::new();
    let cq = CompletionQueue::by_command(&device.context, 16).collapsed().build().unwrap();
    let streams = DciStreams { log_concurrent: 1, log_errored: 1 };
    let builder = QueuePairBuilder::<Dci, _>::by_command(&device.pd, &cq).streams(streams);
    let qp = builder.build().unwrap().init(&InitAttributes::new(1)).unwrap();
    let qp = qp.rtr(Mtu::Mtu1024).unwrap().rts(&RtsAttributes::default()).unwrap();
    let mut reader = CollapsedCqReader::new(&cq).unwrap();
    let refused = reader.send_queue(&qp, SendConfig::default());
    assert!(matches!(refused, Err(Error::Queue(QueueError::CollapsedStreams))), "{refused:?}");
}

#[test]
fn a_cq_that_is_not_collapsed_after_all_checks_for_overruns() {
    let device = Device::new();
    let builder = || CompletionQueue::by_command(&device.context, 16);
    for format in FORMATS {
        let cq = builder().collapsed().enhanced_compression(format).build().unwrap();
        assert!(!cq.ignores_overrun());
        assert_eq!(cqc::OI.get(&cq.query().unwrap()), 0);
        let cq = builder().enhanced_compression(format).collapsed().build().unwrap();
        assert!(cq.ignores_overrun());
        assert_eq!(cqc::OI.get(&cq.query().unwrap()), 1);
    }
}

#[test]
fn each_reader_takes_its_own_kind_of_cq() {
    let device = Device::new();
    let usual = device.cq(16);
    let collapsed = CompletionQueue::by_command(&device.context, 16).collapsed().build().unwrap();
    assert!(matches!(CqReader::new(&collapsed), Err(Error::Queue(QueueError::Collapsed))));
    assert!(matches!(CollapsedCqReader::new(&usual), Err(Error::Queue(QueueError::NotCollapsed))));
    // Neither is taken by that.
    assert!(CqReader::new(&usual).is_ok());
    let reader = CollapsedCqReader::new(&collapsed).unwrap();
    assert!(matches!(CollapsedCqReader::new(&collapsed), Err(Error::QueueInUse { .. })));
    drop(reader);
    assert!(CollapsedCqReader::new(&collapsed).is_ok());
}

#[test]
fn what_no_cq_has_is_told_before_it_is_asked_for() {
    let device = Device::new();
    let builder = CompletionQueue::by_command(&device.context, (1 << 16) + 1);
    let error = builder.enhanced_compression(CqeCompression::Hash).build().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Attribute { .. }) && text.contains("65536"), "{text}");
}

#[test]
fn the_card_need_not_be_told_where_overruns_are_ignored() {
    let device = Device::new();
    let builder = CompletionQueue::by_command(&device.context, 32);
    // SAFETY: its only queue has 16 WQEs, so no more than 16 CQEs wait.
    let cq = unsafe { builder.ignore_overrun() }.build().unwrap();
    let qp = device.alone(device.builder(&cq).max_send_wr(16).build().unwrap());
    let mut completions = CqReader::new(&cq).unwrap();
    completions.publish(Publish::Never).unwrap();
    let mut queue = sends(&qp, &mut completions);
    for round in 0..50 {
        post(&mut queue, round, 10);
        for at in 0..10 {
            assert_eq!(id(wait(&mut completions, &mut queue)), round + at);
        }
    }
    let usual = device.cq(16);
    let mut completions = CqReader::new(&usual).unwrap();
    assert_eq!(completions.publish(Publish::Never), Err(QueueError::OverrunChecked));
}
