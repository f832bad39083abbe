//! Receives that several packets share.

use mlx5::Error;
use mlx5::cqe::Status;
use mlx5::endpoint::{Frame, FrameArrival, MrSlice, StridingReceiver};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, PacketEvent, PostError, StridingRq};
use mlx5::verbs::{Flow, RssQueues, StridingQueue};
use mlx5::wqe::{EthSend, Sge};

use crate::{Side, address, rig, udp};
use rig::Rig;
use rig::random::Random;

/// A hash's key that spreads.
const KEY: [u8; 40] = [0x5a; 40];

fn queue(rig: &Rig, entries: u32) -> (StridingQueue, mlx5::verbs::CompletionQueue) {
    let cq = rig.cq(entries);
    let queue = StridingQueue::builder(&rig.pd, &cq).strides(8).wqes(4).build().unwrap();
    (queue, cq)
}

fn send(a: &mut Side, frame: &[u8]) {
    a.memory.write(0, frame);
    // SAFETY: the memory lives, and is touched again when the completion is there.
    unsafe { a.send.post(1, EthSend::new(a.sge(0, frame.len())).checksums().signaled()).unwrap() };
    a.sent_well(1);
}

/// Fact F104: of devices that take fewer strides than 512 (`ext_stride_num_range`).
#[test]
fn a_stride_has_64_bytes_at_least_and_a_wqe_8_strides() {
    let rig = rig();
    let cq = rig.cq(64);
    let build = |stride, strides| {
        let builder = StridingQueue::builder(&rig.pd, &cq).stride(stride);
        builder.strides(strides).wqes(4).build()
    };
    build(64, 8).unwrap();
    for (stride, strides, least) in [(32, 8, "from 64"), (64, 4, "from 8")] {
        let error = build(stride, strides).unwrap_err().to_string();
        assert!(error.contains(least), "{error}");
    }
}

#[test]
fn packets_share_wqes_until_these_are_used_up() {
    let rig = rig();
    let mut a = Side::new(&rig);
    let (queue, cq) = queue(&rig, 64);
    let spread = RssQueues::new(std::slice::from_ref(&queue), &KEY).unwrap();
    let _flow = Flow::builder(1).destination(address(20)).build(&spread).unwrap();
    let mut receives = StridingRq::new(&queue, &cq).unwrap();
    assert!(StridingRq::new(&queue, &cq).is_err(), "it is somebody's");
    let memory = rig.memory(4096);
    let at = |wqe: u64| memory.sge((wqe * 512) as usize, 512).unwrap();
    // SAFETY: the memory lives to the end, and is read where frames are.
    unsafe {
        let short = Sge { length: 511, ..at(0) };
        assert_eq!(receives.post(1, short), Err(PostError::ReceiveTooShort { needed: 512 }));
        for wqe in 0..4 {
            receives.post(10 + wqe, at(wqe)).unwrap();
        }
        assert_eq!(receives.post(99, at(4)), Err(PostError::QueueFull { free: 0 }));
    }
    // Three strides, five: a WQE. Four; then one that does not fit what is left.
    let lengths = [192 - 42, 300 - 42, 256 - 42, 257 - 42];
    for (index, length) in lengths.into_iter().enumerate() {
        send(&mut a, &udp(address(20), 5, &vec![index as u8; length]));
    }
    let mut next = || match receives.poll().unwrap() {
        Some(PacketEvent::Packet(packet)) => {
            assert!(packet.info().checksums_ok());
            let mut byte = [0];
            let wqe = packet.id - 10;
            memory.read(wqe as usize * 512 + packet.offset as usize + 42, &mut byte);
            (packet.id, packet.offset / 64, packet.byte_len, packet.last, byte[0])
        }
        Some(PacketEvent::UsedUp { id }) => (id, 0, 0, true, 0xff),
        other => panic!("{other:?}"),
    };
    assert_eq!(next(), (10, 0, 192, false, 0));
    assert_eq!(next(), (10, 3, 300, true, 1));
    assert_eq!(next(), (11, 0, 256, false, 2));
    assert_eq!(next(), (11, 0, 0, true, 0xff));
    assert_eq!(next(), (12, 0, 257, false, 3));
    assert_eq!(receives.poll(), Ok(None));
    assert_eq!((receives.outstanding(), receives.free()), (2, 2));
    // A frame longer than a WQE fails it, and the queue.
    send(&mut a, &udp(address(20), 5, &[0; 500]));
    for (id, status) in [(12, Status::LocalLength), (13, Status::Flushed)] {
        match receives.poll().unwrap() {
            Some(PacketEvent::Failed(failure)) => {
                assert_eq!((failure.id, failure.status), (id, status));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn as_many_wqes_are_posted_as_the_cq_has_room_for_frames() {
    let rig = rig();
    let (small, cq) = queue(&rig, 3);
    assert!(StridingRq::new(&small, &cq).unwrap_err().to_string().contains("CQ"));
    let (queue, cq) = queue(&rig, 15);
    let mut receives = StridingRq::new(&queue, &cq).unwrap();
    let memory = rig.memory(4096);
    let mut posted = 0;
    // SAFETY: the memory lives to the end.
    while unsafe { receives.post(0, memory.sge(0, 512).unwrap()) }.is_ok() {
        posted += 1;
    }
    // Of the CQ's sixteen entries each takes eight.
    assert_eq!(posted, 2);
}

/// Packets for the WQEs may come later, and their CQEs have numbers that flows choose.
#[test]
fn the_cq_of_a_queue_that_was_dropped_with_wqes_posted_stays_taken() {
    let rig = rig();
    let memory = rig.memory(4096);
    for posted in [false, true] {
        let (queue, cq) = queue(&rig, 64);
        let mut receives = StridingRq::new(&queue, &cq).unwrap();
        if posted {
            let all = memory.sge(0, 512).unwrap();
            // SAFETY: the memory lives to the end, and is not accessed.
            unsafe { receives.post(1, all).unwrap() };
        }
        drop(receives);
        let again = CqReader::new(&cq);
        assert_eq!(matches!(again, Err(Error::QueueInUse { .. })), posted, "{again:?}");
    }
}

fn frame(receiver: &mut StridingReceiver) -> Frame {
    match receiver.poll().unwrap() {
        Some(FrameArrival::Frame(frame)) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_keep_the_memory_that_they_are_in_and_no_longer() {
    let rig = rig();
    let mut a = Side::new(&rig);
    let (queue, cq) = queue(&rig, 64);
    let spread = RssQueues::new(std::slice::from_ref(&queue), &KEY).unwrap();
    let _flow = Flow::builder(1).destination(address(21)).build(&spread).unwrap();
    let mut receiver = StridingReceiver::new(&queue, &cq).unwrap();
    let mut memory = MrSlice::new(rig.pd.allocate(4 * 512, Access::LOCAL_WRITE).unwrap());
    for _ in 0..3 {
        let rest = memory.split_off(512);
        receiver.post(memory).unwrap();
        memory = rest;
    }
    let (error, memory) = {
        let mut short = memory;
        let rest = short.split_off(100);
        let refused = receiver.post(short).unwrap_err();
        (refused.error, refused.operation.join(rest).unwrap())
    };
    assert_eq!(error, PostError::ReceiveTooShort { needed: 512 });
    receiver.post(memory).unwrap();
    let mut random = Random::new();
    let mut kept: Vec<(Frame, Vec<u8>)> = Vec::new();
    for round in 0..400u32 {
        let length = 60 + random.below(440) as usize - 42;
        let payload: Vec<u8> = (0..length).map(|at| (at as u32 * 7 + round) as u8).collect();
        send(&mut a, &udp(address(21), 6, &payload));
        kept.push((frame(&mut receiver), payload));
        // Frames are dropped in any order; what is reclaimed is posted anew, and nothing that is
        // kept changes meanwhile.
        while kept.len() > 2 {
            let (frame, payload) = kept.swap_remove(random.below(kept.len() as u32) as usize);
            assert_eq!((frame.len(), &frame.to_vec()[42..]), (payload.len() + 42, &payload[..]));
            assert!(frame.info.checksums_ok() && !frame.is_empty());
        }
        for (frame, payload) in &kept {
            let mut bytes = vec![0; payload.len()];
            frame.read(42, &mut bytes);
            assert_eq!(bytes, *payload);
        }
        while let Some(memory) = receiver.reclaim() {
            receiver.post(memory).unwrap();
        }
    }
    // Frames outlive their queue.
    let (last, payload) = kept.pop().unwrap();
    drop((receiver, queue, spread));
    assert_eq!(last.to_vec()[42..], payload);
}

#[test]
fn connections_are_spread_and_stay_together() {
    let rig = rig();
    let mut a = Side::new(&rig);
    let queues = [queue(&rig, 64), queue(&rig, 64)];
    let spread = RssQueues::new(
        &[queues[0].0.clone(), queues[1].0.clone()],
        &std::array::from_fn(|at| (at as u8).wrapping_mul(29) ^ 0x6d),
    )
    .unwrap();
    let _flow = Flow::builder(1).destination(address(22)).build(&spread).unwrap();
    let memory = rig.memory(8192);
    let mut offset = 0;
    let mut receives = queues.each_ref().map(|(queue, cq)| {
        let mut receives = StridingRq::new(queue, cq).unwrap();
        for id in 0..4 {
            let sge = memory.sge(offset, 512).unwrap();
            offset += 512;
            // SAFETY: the memory lives to the end.
            unsafe { receives.post(id, sge).unwrap() };
        }
        receives
    });
    let mut met = [[0u32; 2]; 12];
    for _ in 0..2 {
        for port in 0..12u16 {
            send(&mut a, &udp(address(22), 100 + port, b"hash"));
            for (index, receives) in receives.iter_mut().enumerate() {
                if let Some(PacketEvent::Packet(packet)) = receives.poll().unwrap() {
                    assert_eq!(packet.info().hash as usize & 1, index);
                    met[usize::from(port)][index] += 1;
                }
            }
        }
    }
    assert!(met.iter().all(|ways| ways.contains(&2)), "each stays on its queue: {met:?}");
    for index in 0..2 {
        assert!(met.iter().any(|ways| ways[index] == 2), "each queue has some: {met:?}");
    }
}

#[test]
fn memory_of_a_dropped_receiver_stays_with_the_queue() {
    let rig = rig();
    let (queue, cq) = queue(&rig, 64);
    let mut receiver = StridingReceiver::new(&queue, &cq).unwrap();
    let bytes = queue.wqe_bytes() as usize;
    let memory = rig.pd.allocate(bytes, Access::LOCAL_WRITE).unwrap();
    let (address, lkey) = (memory.address(), memory.lkey());
    receiver.post(MrSlice::new(memory)).unwrap();
    let read_only = rig.pd.allocate(bytes, Access::empty()).unwrap();
    let refusal = PostError::NoLocalWrite { lkey: read_only.lkey() };
    let refused = receiver.post(MrSlice::new(read_only)).unwrap_err();
    assert_eq!(refused.error, refusal);
    drop(refused);
    drop(receiver);
    // The region is still registered, so no other one has its key.
    let others = || rig.pd.allocate(bytes, Access::LOCAL_WRITE).unwrap();
    let others: Vec<_> = (0..8).map(|_| others()).collect();
    assert!(others.iter().all(|other| other.lkey() != lkey && other.address() != address));
    drop(others);
    drop(queue);
    // The cache gives the last key first.
    assert_eq!(rig.pd.allocate(bytes, Access::LOCAL_WRITE).unwrap().lkey(), lkey);
}
