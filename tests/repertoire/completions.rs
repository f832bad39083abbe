//! Forms of completions: compressed, with inline data, with time stamps, and from other rings.

use std::time::{Duration, Instant, SystemTime};

use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Timestamp};
use mlx5::ib::{CqeCompression, Rc};
use mlx5::ring::CqReader;
use mlx5::verbs::attr::{CqeSize, ScatterToCqe};
use mlx5::verbs::{
    CompletionChannel, CompletionQueue, CompletionQueueBuilder, DeviceClock, QueuePair,
    QueuePairBuilder,
};
use mlx5::wqe::{FetchAdd, Inline, MaskedFetchAdd, RdmaRead, RdmaWrite, SendImm, SendMessage};
use mlx5_sys::verbs::{ibv_wc_status, ibv_wr_opcode};

use rig::random::Random;
use rig::verbs::{self, CqMemory, Request};
use rig::{PATIENCE, Rig, Side, wait};

const MEMORY: usize = 1 << 14;
const CQES: [CqeSize; 2] = [CqeSize::B64, CqeSize::B128];

/// The last byte of the CQE at the consumer index, as it is in the ring.
fn op_own(side: &Side<Rc>) -> u8 {
    // SAFETY: the CQ is alive.
    let cqes = unsafe { CqMemory::new(side.cq.as_raw()) };
    let consumer = u32::from_be_bytes(cqes.record()[..4].try_into().unwrap());
    let entry = cqes.entry((consumer % cqes.dv.cqe_cnt) as usize);
    entry[entry.len() - 1]
}

fn sides<'a>(
    rig: &'a Rig,
    cq: impl Fn(CompletionQueueBuilder) -> CompletionQueueBuilder + 'a,
    qp: impl Fn(QueuePairBuilder<Rc>) -> QueuePairBuilder<Rc> + 'a,
) -> [Side<Rc>; 2] {
    let pair = rig.pair::<Rc>().entries(127).memory(MEMORY).receives(32).cq(cq);
    let pair = pair.qp(move |builder| {
        let builder = builder.max_send_wr(64).max_recv_wr(64).max_send_sge(1).max_recv_sge(2);
        qp(builder.max_inline_data(64))
    });
    pair.sides()
}

#[test]
fn batches_complete_in_compressed_blocks() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut random = Random::new();
    let formats = [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride];
    for (format, size) in formats.into_iter().flat_map(|it| CQES.map(|size| (it, size))) {
        let [mut a, mut b] = sides(&rig, |cq| cq.cqe_size(size).compression(format), |qp| qp);
        assert_eq!(a.cq.compression(), Some(format));
        let mut blocks = 0;
        for _ in 0..60 {
            let count = 1 + random.below(24) as usize;
            let lengths: Vec<_> = (0..count).map(|_| 1 + random.below(200) as usize).collect();
            let sends = random.one_in(2);
            // SAFETY: the memory lives to the end.
            unsafe {
                for (at, length) in lengths.iter().enumerate().filter(|_| sends) {
                    b.receive.post(at as u64, [b.sge(at * 200, *length), b.sge(0, 0)]).unwrap();
                }
                let remote = b.remote(0);
                let (from, to): (Vec<_>, Vec<_>) = lengths
                    .iter()
                    .enumerate()
                    .map(|(at, length)| (a.sge(0, *length), a.sge(at * 200, *length)))
                    .unzip();
                let mut batch = a.send.batch();
                for (at, (from, to)) in from.into_iter().zip(to).enumerate() {
                    let id = at as u64;
                    if sends {
                        batch.append(id, SendImm::new(from, 7).signaled()).unwrap();
                    } else if at % 2 == 0 {
                        batch.append(id, RdmaRead::new(to, remote).signaled()).unwrap();
                    } else {
                        batch.append(id, RdmaWrite::new(from, remote).signaled()).unwrap();
                    }
                }
                batch.ring();
            }
            let mut done = 0;
            while done < count {
                blocks += u32::from(op_own(&a) >> 2 & 3 == 3);
                let Completion::Send(sent) = a.wait() else { panic!("not sent") };
                let (operation, byte_len) = match (sends, done % 2) {
                    (true, _) => (SendOperation::SendImm, 0),
                    (_, 0) => (SendOperation::Read, lengths[done]),
                    _ => (SendOperation::Write, 0),
                };
                assert_eq!((sent.id, sent.operation), (done as u64, operation));
                assert_eq!(sent.byte_len as usize, byte_len);
                done += 1;
            }
            for (at, length) in lengths.iter().enumerate().filter(|_| sends) {
                blocks += u32::from(op_own(&b) >> 2 & 3 == 3);
                let Completion::Receive(received) = b.wait() else { panic!("not received") };
                assert_eq!((received.id, received.byte_len as usize), (at as u64, *length));
                assert_eq!(received.kind, ReceiveKind::SendImm(7));
            }
        }
        assert!(blocks > 30, "{blocks} blocks of {format:?}");
    }
}

#[test]
fn a_reader_that_stops_within_a_block_leaves_the_rest_to_the_next() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [a, mut b] = sides(&rig, |cq| cq.compression(CqeCompression::Hash), |qp| qp);
    let Side { mut send, receive, mut completions, cq, memory, qp } = a;
    // SAFETY: the CQ lives longer.
    let cqes = unsafe { CqMemory::new(cq.as_raw()) };
    // SAFETY: the memory lives to the end.
    unsafe {
        let mut batch = send.batch();
        for id in 0..20 {
            batch.append(id, RdmaWrite::new(Inline(b"eight by"), b.remote(0)).signaled()).unwrap();
        }
        batch.ring();
    }
    for id in 0..5 {
        let Completion::Send(done) = wait(&mut completions, &mut send) else { panic!() };
        assert_eq!(done.id, id);
    }
    drop((receive, completions));
    // The entries that are not taken are those of CQEs as any other.
    for index in 5..20 {
        let entry = cqes.entry(index);
        assert_eq!(entry[60..64], [0, index as u8, 0, 0]);
    }
    drop((send, cq, memory, qp));
    assert!(b.completions.poll(&mut b.send).unwrap().is_none());
}

#[test]
fn short_answers_and_messages_come_in_cqes_on_both_sides() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for (size, scatter) in CQES.into_iter().flat_map(|size| {
        [ScatterToCqe::Receives, ScatterToCqe::Always, ScatterToCqe::Never].map(|it| (size, it))
    }) {
        let [mut a, mut b] = sides(&rig, |cq| cq.cqe_size(size), |qp| qp.scatter_to_cqe(scatter));
        let data: Vec<u8> = (0..200).map(|byte| byte as u8 ^ 0x5a).collect();
        b.memory.write(0, &data);
        a.memory.write(0, &data);
        let room = size.bytes() / 2;
        for length in [1, 8, 31, 32, 33, 63, 64, 65, 150] {
            a.memory.write(1000, &[0; 200]);
            b.memory.write(1000, &[0; 200]);
            // SAFETY: the memory lives to the end, and is read after the requests complete.
            unsafe {
                a.send.post(1, RdmaRead::new(a.sge(1000, length), b.remote(0)).signaled()).unwrap();
            }
            let format = op_own(&a) >> 2 & 3;
            let Completion::Send(done) = a.wait() else { panic!("not read") };
            assert_eq!(done.byte_len as usize, length);
            assert_eq!(
                a.memory.to_vec(1000, 150),
                [&data[..length], &vec![0; 150 - length]].concat()
            );
            // Only where it was asked for: the requests are not all signaled.
            let inside = scatter == ScatterToCqe::Always && length <= room;
            assert_eq!(format != 0, inside, "{length} bytes read, {size:?}, {scatter:?}");

            // In two pieces, which what comes in a CQE is put into as well.
            // SAFETY: the memory lives to the end, and is read after the requests complete.
            unsafe {
                b.receive.post(2, [b.sge(1000, 20), b.sge(1050, 150)]).unwrap();
                a.send.post(3, SendMessage::new(a.sge(0, length)).signaled()).unwrap();
            }
            let format = op_own(&b) >> 2 & 3;
            let Completion::Receive(done) = b.wait() else { panic!("not received") };
            assert_eq!((done.id, done.byte_len as usize), (2, length));
            let first = length.min(20);
            assert_eq!(b.memory.to_vec(1000, first), data[..first]);
            assert_eq!(b.memory.to_vec(1050, length - first), data[first..length]);
            let inside = scatter != ScatterToCqe::Never && length <= room;
            assert_eq!(format != 0, inside, "{length} bytes received, {size:?}, {scatter:?}");
            assert!(matches!(a.wait(), Completion::Send(_)));
        }
        // An atomic's old value.
        b.memory.write(16, &41u64.to_ne_bytes());
        let old = a.memory.word(1000).unwrap();
        // SAFETY: the memory lives to the end, and is read after the requests complete.
        unsafe { a.send.post(4, FetchAdd::new(old, b.remote(16), 1).signaled()) }.unwrap();
        let format = op_own(&a) >> 2 & 3;
        assert!(matches!(a.wait(), Completion::Send(_)));
        assert_eq!(format != 0, scatter == ScatterToCqe::Always);
        assert_eq!(a.memory.to_vec(1000, 8), 41u64.to_ne_bytes());
        assert_eq!(b.memory.to_vec(16, 8), 42u64.to_ne_bytes());
        // And of an atomic under masks.
        let old = a.memory.word(1000).unwrap();
        let add = MaskedFetchAdd::new(old, b.remote(16), 1u64);
        // SAFETY: the memory lives to the end, and is read after the request completes.
        unsafe { a.send.post(5, add.signaled()) }.unwrap();
        assert!(matches!(a.wait(), Completion::Send(done) if done.byte_len == 8));
        assert_eq!(a.memory.to_vec(1000, 8), 42u64.to_ne_bytes());
    }
}

/// In a CQE the old value is most significant byte first, as UCX takes it, and libmlx5 copies it so.
#[test]
fn libmlx5_leaves_an_atomics_answer_in_the_order_of_the_cqe() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for (scatter, in_order) in [(ScatterToCqe::Never, true), (ScatterToCqe::Always, false)] {
        let cqs = [rig.cq(16), rig.cq(16)];
        let [one, other] = [0, 1].map(|at: usize| {
            rig.init(QueuePair::<Rc, _>::builder(&rig.pd, &cqs[at]).scatter_to_cqe(scatter))
        });
        let (one, _other) = rig.connect(one, other);
        let mut memory = rig.memory(64);
        for opcode in
            [ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP]
        {
            let value = 0x0102_0304_0506_0708_u64;
            memory.write(8, &value.to_ne_bytes());
            let old = memory.sge(0, 8).unwrap();
            let request = Request {
                remote: (memory.remote_address() + 8, memory.rkey()),
                compare: value,
                swap_add: 1,
                ..Request::signaled(1, opcode, &[old])
            };
            // SAFETY: the queue pair and the memory live to the end of the block.
            unsafe { verbs::post_send(one.as_raw(), &[request]) }.unwrap();
            let deadline = Instant::now() + PATIENCE;
            let done = loop {
                // SAFETY: the CQ lives as long, and no other reader has it.
                if let Some(done) = unsafe { verbs::poll(cqs[0].as_raw()) }.unwrap() {
                    break done;
                }
                assert!(Instant::now() < deadline, "no completion");
            };
            assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS);
            let mut found = [0; 8];
            memory.read(0, &mut found);
            let expected = if in_order { value } else { value.swap_bytes() };
            assert_eq!(u64::from_ne_bytes(found), expected, "{scatter:?}");
        }
    }
}

/// Polls have no memory to copy it to, which threads that poll could share.
#[test]
fn payload_in_cqes_for_a_null_region_is_discarded() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let nothing = rig.pd.null_region().unwrap();
    assert_eq!(nothing.sge(64).addr, 0);
    for size in CQES {
        let always = |qp: QueuePairBuilder<Rc>| qp.scatter_to_cqe(ScatterToCqe::Always);
        let [mut a, mut b] = sides(&rig, |cq| cq.cqe_size(size), always);
        let data: Vec<u8> = (1..=40).collect();
        b.memory.write(0, &data);
        a.memory.write(0, &data);
        let rest = 12;
        // SAFETY: the memory lives to the end, and is read after the requests complete.
        unsafe {
            // Whole messages and answers, and the first part of one.
            b.receive.post(1, nothing.sge(64)).unwrap();
            b.receive.post(2, [nothing.sge(20), b.sge(1000, 64)]).unwrap();
            for (id, length) in [(1, 32), (2, 20 + rest)] {
                a.send.post(id, SendMessage::new(a.sge(0, length)).signaled()).unwrap();
                assert_ne!(op_own(&b) >> 2 & 3, 0, "the payload is in the CQE");
                assert!(matches!(b.wait(), Completion::Receive(done) if done.id == id));
                assert!(matches!(a.wait(), Completion::Send(_)));
            }
            assert_eq!(b.memory.to_vec(1000, rest), data[20..20 + rest]);
            let read = RdmaRead::new(nothing.sge(32), b.remote(0));
            a.send.post(3, read.signaled()).unwrap();
            assert_ne!(op_own(&a) >> 2 & 3, 0, "the answer is in the CQE");
            assert!(matches!(a.wait(), Completion::Send(done) if done.byte_len == 32));
        }
    }
}

#[test]
fn completions_have_their_time() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let clock = DeviceClock::new(&rig.context).unwrap();
    for compression in [None, Some(CqeCompression::Hash)] {
        let [mut a, b] = sides(
            &rig,
            |cq| match compression {
                Some(format) => cq.compression(format),
                None => cq,
            },
            |qp| qp,
        );
        assert!(a.completions.peek().unwrap().is_none());
        let mut last = Timestamp::from_raw(0);
        for _ in 0..100 {
            let count = clock.count().unwrap();
            let before = SystemTime::now();
            // SAFETY: the payload is copied.
            unsafe {
                let mut batch = a.send.batch();
                for id in 0..3 {
                    let write = RdmaWrite::new(Inline(b"now"), b.remote(0));
                    batch.append(id, write.signaled()).unwrap();
                }
                batch.ring();
            }
            let peeked = *a.completions.peek().unwrap().as_ref().unwrap();
            let (at, bytes) = (peeked.timestamp().unwrap(), peeked.bytes());
            assert_eq!((peeked.opcode(), peeked.qpn()), (0, a.send.qpn()));
            let after = SystemTime::now();
            assert!(count <= at && at <= clock.count().unwrap());
            assert!(at > last);
            last = at;
            let time = clock.read().unwrap().time(at);
            let slack = Duration::from_millis(2);
            assert!(time + slack >= before && time <= after + slack, "{before:?} {time:?}");
            // Nothing was taken.
            assert_eq!(a.completions.peek().unwrap().unwrap().bytes(), bytes);
            for id in 0..3 {
                let Completion::Send(done) = a.wait() else { panic!("not sent") };
                assert_eq!(done.id, id);
            }
        }
    }
}

#[test]
fn events_are_fewer_where_they_are_moderated() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let channel = CompletionChannel::new(&rig.context).unwrap();
    let [mut a, b] = sides(&rig, |cq| cq.channel(&channel), |qp| qp);
    let write = |a: &mut Side| {
        let write = RdmaWrite::new(Inline(b"x"), b.remote(0)).signaled();
        // SAFETY: the payload is copied.
        unsafe { a.send.post(0, write) }.unwrap();
        assert!(matches!(a.wait(), Completion::Send(_)));
    };
    let limit = Duration::from_micros(4095);
    assert!(a.cq.moderate(3, limit + Duration::from_micros(1)).is_err());
    for count in [1, 3, 1000] {
        a.cq.moderate(count, limit).unwrap();
        a.completions.arm();
        let start = Instant::now();
        for _ in 0..count.min(3) {
            write(&mut a);
        }
        assert!(channel.get_event(PATIENCE).unwrap().is_some_and(|queue| queue == a.cq));
        // The count is not reached: it was the time that brought it.
        assert!(count <= 3 || start.elapsed() >= limit);
        assert!(channel.try_event().unwrap().is_none());
    }
    a.cq.moderate(0, Duration::ZERO).unwrap();
    a.completions.arm();
    write(&mut a);
    assert!(channel.try_event().unwrap().is_some());
}

#[test]
fn a_queue_changes_its_size_before_it_is_taken_over() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let cq = rig.cq(15);
    let peer_cq = rig.cq(63);
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq));
    let (qp, peer) = rig.connect(qp, rig.init(QueuePair::builder(&rig.pd, &peer_cq)));
    let memory = rig.memory(64);
    let mut id = 0;
    let mut post = |count: u64| {
        let request = |id| Request {
            id,
            opcode: ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            list: vec![memory.sge(0, 8).unwrap()],
            inline: false,
            signaled: true,
            solicited: false,
            fenced: false,
            remote: (memory.remote_address(), memory.rkey()),
            imm: 0,
            compare: 0,
            swap_add: 0,
        };
        let requests: Vec<_> = (id..id + count).map(request).collect();
        if requests.is_empty() {
            return;
        }
        id += count;
        // SAFETY: QP and memory live to the end.
        unsafe { verbs::post_send(qp.as_raw(), &requests) }.unwrap();
    };
    let mut next = 0;
    let mut take = |cq: &CompletionQueue, count: u64| {
        for _ in 0..count {
            // SAFETY: the CQ is alive and libmlx5's.
            let done = unsafe { verbs::poll(cq.as_raw()) }.unwrap().expect("a completion");
            assert_eq!((done.wr_id, done.status), (next, ibv_wc_status::IBV_WC_SUCCESS));
            next += 1;
        }
        // SAFETY: the CQ is alive and libmlx5's.
        assert!(unsafe { verbs::poll(cq.as_raw()) }.unwrap().is_none());
    };
    for (waiting, size) in [(0, 31), (7, 63), (20, 31), (5, 15), (15, 127)] {
        post(waiting);
        cq.resize(size).unwrap();
        assert_eq!(cq.capacity(), size);
        take(&cq, waiting);
        post(9);
        take(&cq, 9);
    }
    // More is there than fits.
    post(20);
    assert!(cq.resize(15).is_err());
    assert_eq!(cq.capacity(), 127);
    take(&cq, 20);
    assert!(cq.resize(0).is_err());
    let completions = CqReader::new(&cq).unwrap();
    assert_eq!(completions.capacity(), 128);
    drop(completions);
    let refused = cq.resize(31).unwrap_err();
    assert!(matches!(refused, mlx5::Error::QueueInUse { .. }), "{refused}");
    drop(peer);
}
