//! Traffic end to end on the model, both sides in this process, on the raw layer: on queue pairs
//! and CQs made by verbs, by command, and mixed.

use mlx5::cqe::{Completion, QueueKind, ReceiveKind, SendOperation, Status};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, PollError, PostError, Queues, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::attr::{Capacities, CqeSize};
use mlx5::verbs::{AsyncEventKind, MemoryRegion, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, Nop, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm,
    SendMessage, Sge,
};
use rig::made::{ALIKE, By, Cq, MADE, Qp, queue_pair};
use rig::random::Random;
use rig::{Rig, connect_made, verbs, wait};

/// One side, made by either interface.
type Side = rig::Side<Rc, Qp<Rc, Rts>, Cq>;

/// Bytes of each side's memory.
const MEMORY: usize = 1 << 16;

/// Polls the four completions of a queue pair that the reader does not know.
fn takes_the_strangers(side: &mut Side) {
    for _ in 0..4 {
        let completion = side.wait();
        assert!(matches!(completion, Completion::UnexpectedCqe(_)), "{completion:?}");
    }
}

struct Shape {
    max_send_wr: u32,
    max_sge: u32,
    max_inline: u32,
    cqes: u32,
    cqe_size: CqeSize,
    receives: u32,
}

const SHAPE: Shape = Shape {
    max_send_wr: 64,
    max_sge: 4,
    max_inline: 200,
    cqes: 512,
    cqe_size: CqeSize::B64,
    receives: 64,
};

fn pair(rig: &Rig, made: [By; 2], shape: &Shape) -> [Side; 2] {
    let make = |by| {
        let cq = Cq::new(&rig.context, by, shape.cqes, shape.cqe_size);
        let capacities = Capacities {
            max_send_wr: shape.max_send_wr,
            max_recv_wr: 64,
            max_send_sge: shape.max_sge,
            max_recv_sge: shape.max_sge,
            max_inline_data: shape.max_inline,
        };
        let qp = queue_pair::<Rc>(by, &rig.pd, &cq, capacities, false);
        let qp = qp.init(&rig.local.init()).unwrap();
        let mut completions = cq.completions();
        let config = ReceiveConfig { receives: shape.receives };
        let receive = qp.receive_queue(&mut completions, config).unwrap();
        (qp, (completions, receive, cq))
    };
    let [(first, first_side), (second, second_side)] = made.map(make);
    let (first, second) = connect_made(&rig.local, first, second);
    [(first, first_side), (second, second_side)].map(|(qp, (mut completions, receive, cq))| {
        let send = qp.send_queue(&mut completions, SendConfig::default()).unwrap();
        Side { memory: rig.memory(MEMORY), send, receive, completions, qp, cq }
    })
}

/// Everything but memory, so that the queue pair can be reset.
fn into_qp(side: Side) -> (MemoryRegion, CqReader, Qp<Rc, Rts>) {
    let Side { memory, send, receive, completions, qp, .. } = side;
    drop((send, receive));
    (memory, completions, qp)
}

fn failed(completion: Completion) -> (u64, QueueKind, Status) {
    match completion {
        Completion::Failed(failure) => (failure.id, failure.queue, failure.status),
        other => panic!("{other:?}"),
    }
}

fn sent(completion: Completion) -> (u64, SendOperation, u32) {
    match completion {
        Completion::Send(done) => (done.id, done.operation, done.byte_len),
        other => panic!("{other:?}"),
    }
}

fn received(completion: Completion) -> (u64, ReceiveKind, u32) {
    match completion {
        Completion::Receive(done) => (done.id, done.kind, done.byte_len),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_operation_moves_its_bytes() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let sizes = [CqeSize::B64, CqeSize::B128];
    for (made, cqe_size) in MADE.into_iter().flat_map(|made| sizes.map(|size| (made, size))) {
        let [mut a, mut b] = pair(&rig, made, &Shape { cqe_size, ..SHAPE });
        // SAFETY: for every post here, memory lives to the end, and is accessed only after the
        // requests on it complete.
        unsafe {
            a.memory.write(0, b"sent by entries");
            b.receive.post(1, [b.sge(100, 4), b.sge(200, 60)]).unwrap();
            a.send.post(2, SendMessage::new([a.sge(0, 5), a.sge(5, 10)]).signaled()).unwrap();
            assert_eq!(received(b.wait()), (1, ReceiveKind::Send, 15));
            assert_eq!(sent(a.wait()), (2, SendOperation::Send, 0));
            assert_eq!(
                (b.memory.to_vec(100, 4), b.memory.to_vec(200, 11)),
                (b"sent".into(), b" by entries".into())
            );

            b.receive.post(3, b.sge(300, 100)).unwrap();
            let request = SendImm::new(Inline(b"sent inline"), 0x1234_5678).signaled().solicited();
            a.send.post(4, request).unwrap();
            assert_eq!(received(b.wait()), (3, ReceiveKind::SendImm(0x1234_5678), 11));
            assert_eq!(sent(a.wait()), (4, SendOperation::SendImm, 0));
            assert_eq!(b.memory.to_vec(300, 11), b"sent inline");

            a.memory.write(1000, &[0x5a; 5000]);
            a.send.post(5, RdmaWrite::new(a.sge(1000, 5000), b.remote(2000)).signaled()).unwrap();
            assert_eq!(sent(a.wait()), (5, SendOperation::Write, 0));
            assert_eq!(b.memory.to_vec(1999, 5002), [&[0][..], &[0x5a; 5000], &[0]].concat());

            b.receive.post(6, b.sge(0, 0)).unwrap();
            let request = RdmaWriteImm::new(Inline(&[7; 150]), b.remote(9000), 99).signaled();
            a.send.post(7, request).unwrap();
            assert_eq!(received(b.wait()), (6, ReceiveKind::WriteImm(99), 150));
            assert_eq!(sent(a.wait()), (7, SendOperation::WriteImm, 0));
            assert_eq!(b.memory.to_vec(9000, 150), [7; 150]);

            b.memory.write(10_000, &(0..200).collect::<Vec<u8>>());
            let into = [a.sge(20_000, 3), a.sge(21_000, 197)];
            a.send.post(8, RdmaRead::new(into, b.remote(10_000)).signaled()).unwrap();
            assert_eq!(sent(a.wait()), (8, SendOperation::Read, 200));
            assert_eq!(a.memory.to_vec(20_000, 3), [0, 1, 2]);
            assert_eq!(a.memory.to_vec(21_000, 197), (3..200).collect::<Vec<u8>>());

            let word =
                |side: &Side, at| u64::from_ne_bytes(side.memory.to_vec(at, 8).try_into().unwrap());
            b.memory.write(16, &40u64.to_ne_bytes());
            let old = a.memory.word(64).unwrap();
            a.send.post(9, FetchAdd::new(old, b.remote(16), 2).signaled()).unwrap();
            assert_eq!(sent(a.wait()), (9, SendOperation::FetchAdd, 8));
            assert_eq!((word(&a, 64), word(&b, 16)), (40, 42));
            for (compare, id, after) in [(41, 10, 42), (42, 11, 1000)] {
                let request =
                    CompareSwap::new(old, b.remote(16), compare, 1000).signaled().fenced();
                a.send.post(id, request).unwrap();
                assert_eq!(sent(a.wait()), (id, SendOperation::CompareSwap, 8));
                assert_eq!((word(&a, 64), word(&b, 16)), (42, after));
            }

            a.send.post(12, Nop::new().signaled()).unwrap();
            assert_eq!(sent(a.wait()), (12, SendOperation::Nop, 0));
        }
        a.is_quiet();
        b.is_quiet();
    }
}

/// Batches of random WRITEs and READs of random sizes, mostly unsignaled, through many laps of
/// small rings and over the wrap of the 16-bit counter, against an oracle of both memories.
#[test]
fn batches_wrap_and_retire_through_many_laps() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut random = Random::new();
    let sizes = [CqeSize::B64, CqeSize::B128];
    for (made, cqe_size) in ALIKE.into_iter().flat_map(|made| sizes.map(|size| (made, size))) {
        let cqes = 8 << random.below(3);
        let max_send_wr = 8 << random.below(2);
        let shape = Shape { max_send_wr, cqes, cqe_size, receives: 2, ..SHAPE };
        let [mut a, b] = pair(&rig, made, &shape);
        let mut oracle = [vec![0; MEMORY], vec![0; MEMORY]];
        // Ids of signaled requests that are outstanding.
        let mut expected = std::collections::VecDeque::new();
        let mut next = 0u64;
        let mut requests = 0;
        let mut unsignaled = 0;
        // Most requests take more than one block, and the counter of blocks has 16 bits: it wraps.
        while requests < 40_000 {
            let mut batch = a.send.batch();
            let mut refused = false;
            for _ in 0..=random.below(6) {
                let longest = if random.one_in(8) { 3000 } else { 200 };
                let length = random.below(longest) as usize;
                let here = random.below((MEMORY - length) as u32) as usize;
                let there = random.below((MEMORY - length) as u32) as usize;
                let sge = |offset: usize, length: usize| {
                    let (address, lkey) = (a.memory.address(), a.memory.lkey());
                    Sge::new(address + offset as u64, length as u32, lkey)
                };
                let cut = random.below(length as u32 + 1) as usize;
                let list = [sge(here, cut), sge(here + cut, length - cut)];
                let remote = b.remote(there);
                // A ring that is full of unsignaled requests would never be free again. The
                // smallest here has 32 blocks, and a request takes four at most.
                let signaled = unsignaled == 4 || random.one_in(3);
                // All are fenced: without that, what follows a READ may change what it fetches.
                let (posted, write) = match random.below(3) {
                    0 => {
                        let write = RdmaWrite::new(list, remote).signaled_if(signaled).fenced();
                        (batch.append(next, write), true)
                    }
                    1 if length <= 200 => {
                        let bytes = random.bytes(length);
                        let write =
                            RdmaWrite::new(Inline(&bytes), remote).signaled_if(signaled).fenced();
                        let posted = batch.append(next, write);
                        if posted.is_ok() {
                            oracle[1][there..there + length].copy_from_slice(&bytes);
                        }
                        (posted, false)
                    }
                    _ => {
                        let read = RdmaRead::new(list, remote).signaled_if(signaled).fenced();
                        let posted = batch.append(next, read);
                        if posted.is_ok() {
                            let [here_bytes, there_bytes] = &mut oracle;
                            here_bytes[here..here + length]
                                .copy_from_slice(&there_bytes[there..there + length]);
                        }
                        (posted, false)
                    }
                };
                match posted {
                    Ok(()) => {}
                    Err(
                        PostError::QueueFull { .. }
                        | PostError::NothingSignaled { .. }
                        | PostError::CqFull { .. },
                    ) => {
                        refused = true;
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
                if write {
                    let [here_bytes, there_bytes] = &mut oracle;
                    there_bytes[there..there + length]
                        .copy_from_slice(&here_bytes[here..here + length]);
                }
                unsignaled += 1;
                if signaled {
                    expected.push_back(next);
                    unsignaled = 0;
                }
                next += 1;
            }
            requests += batch.len();
            // SAFETY: both memories live to the end, and are looked at when everything is complete.
            unsafe { batch.ring() };
            let mut poll = refused || random.one_in(2);
            while poll && !expected.is_empty() {
                let (id, ..) = sent(a.wait());
                assert_eq!(Some(id), expected.pop_front());
                poll = refused || random.one_in(2);
            }
        }
        while let Some(id) = expected.pop_front() {
            assert_eq!(sent(a.wait()).0, id);
        }
        a.is_quiet();
        assert!(a.memory.to_vec(0, MEMORY) == oracle[0], "this side's memory");
        assert!(b.memory.to_vec(0, MEMORY) == oracle[1], "the other side's memory");
    }
}

/// A failed request comes out with its status, what follows is flushed, nothing more can be posted;
/// after a reset the queues start from zero and do not see the old completions.
#[test]
fn a_queue_pair_fails_and_works_again() {
    MADE.into_iter().for_each(fails_and_works_again);
}

fn fails_and_works_again(made: [By; 2]) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = pair(&rig, made, &SHAPE);
    let bad = b.memory.remote(MEMORY - 4).unwrap();
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        b.receive.post(100, b.sge(0, 64)).unwrap();
        let mut batch = a.send.batch();
        batch.append(1, RdmaWrite::new(Inline(b"12345678"), b.remote(0))).unwrap();
        batch.append(2, RdmaWrite::new(Inline(b"12345678"), bad)).unwrap();
        batch.append(3, SendMessage::new(Inline(b"never"))).unwrap();
        batch.append(4, Nop::new().signaled()).unwrap();
        batch.ring();
    }
    let status = Status::RemoteAccess;
    assert_eq!(failed(a.wait()), (2, QueueKind::Send, status));
    assert_eq!(failed(a.wait()), (3, QueueKind::Send, Status::Flushed));
    // SAFETY: nothing is posted.
    assert_eq!(unsafe { a.send.post(5, Nop::new()) }, Err(PostError::WrongState));
    // The last flush, and the peer's, are left in the CQs.
    assert_eq!(b.memory.to_vec(0, 8), b"12345678");

    let [(a_memory, mut a_cq, a_qp), (b_memory, mut b_cq, b_qp)] = [a, b].map(into_qp);
    let again = |qp: Qp<Rc, Rts>| qp.reset().unwrap().init(&rig.local.init()).unwrap();
    let (a_qp, b_qp) = (again(a_qp), again(b_qp));
    let mut b_receive = b_qp.receive_queue(&mut b_cq, ReceiveConfig::default()).unwrap();
    let sge = b_memory.sge(0, 64).unwrap();
    // SAFETY: memory lives to the end, and is accessed only after the request completes.
    unsafe { b_receive.post(7, sge).unwrap() };
    let (a_qp, _b_qp) = connect_made(&rig.local, a_qp, b_qp);
    let mut a_send = a_qp.send_queue(&mut a_cq, SendConfig::default()).unwrap();
    // SAFETY: the payload is copied into the WQE.
    unsafe { a_send.post(8, SendMessage::new(Inline(b"again")).signaled()).unwrap() };
    assert_eq!(sent(wait(&mut a_cq, &mut a_send)), (8, SendOperation::Send, 0));
    assert_eq!(received(wait(&mut b_cq, &mut b_receive)), (7, ReceiveKind::Send, 5));
    drop(a_memory);
}

/// A queue is taken over exclusively, and no reset comes in between.
#[test]
fn a_queue_has_one_owner() {
    MADE.into_iter().for_each(has_one_owner);
}

fn has_one_owner(made: [By; 2]) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, b] = pair(&rig, made, &SHAPE);
    let mut second = |config| a.qp.send_queue(&mut a.completions, config).err();
    let error = second(SendConfig::default()).unwrap();
    assert!(matches!(error, mlx5::Error::QueueInUse { .. }), "{error}");
    // SAFETY: the payload is copied into the WQE.
    unsafe { a.send.post(1, RdmaWrite::new(Inline(b"x"), b.remote(0)).signaled()).unwrap() };
    let Side { send, receive, mut completions, qp, .. } = a;
    drop(send);
    // Its completion was never polled: the card could still be at work.
    let error = qp.send_queue(&mut completions, SendConfig::default()).unwrap_err();
    assert!(error.to_string().contains("outstanding"), "{error}");
    let (qp, error) = qp.reset().unwrap_err();
    assert!(error.to_string().contains("receive queue"), "{error}");
    drop(receive);
    let qp = qp.reset().unwrap();
    drop((qp, b));
}

/// The raw layer takes a queue pair over from libmlx5 at any index, and gives it back.
#[test]
fn queues_are_taken_over_where_libmlx5_left_them() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut random = Random::new();
    let (cq, peer_cq) = (rig.cq(64), rig.cq(64));
    let first = rig.init(QueuePair::builder(&rig.pd, &cq).max_inline_data(32));
    let second = rig.init(QueuePair::builder(&rig.pd, &peer_cq));
    let (qp, peer) = rig.connect(first, second);
    let memory = rig.memory(4096);
    let request = |id| verbs::Request {
        id,
        opcode: mlx5_sys::verbs::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        list: vec![memory.sge(0, 8).unwrap()],
        inline: false,
        signaled: true,
        solicited: false,
        fenced: false,
        remote: (memory.remote_address() + 64, memory.rkey()),
        imm: 0,
        compare: 0,
        swap_add: 0,
    };
    let theirs = random.below(150);
    for id in 0..u64::from(theirs) {
        // SAFETY: QP, CQ and memory live to the end.
        unsafe {
            verbs::post_send(qp.as_raw(), &[request(id)]).unwrap();
            assert_eq!(verbs::poll(cq.as_raw()).unwrap().unwrap().wr_id, id);
        }
    }
    // SAFETY: QP and CQ live to the end; libmlx5 has nothing outstanding, and is not called again.
    let (mut completions, mut queue) = unsafe {
        let mut completions = CqReader::from_raw(cq.as_raw()).unwrap();
        let config = SendConfig::default();
        let queue = SendQueue::<Rc>::from_raw(qp.as_raw(), &mut completions, config).unwrap();
        (completions, queue)
    };
    for id in 0..300 {
        let remote = memory.remote(128).unwrap();
        // SAFETY: the payload is copied into the WQE.
        unsafe { queue.post(id, RdmaWrite::new(Inline(b"direct"), remote).signaled()).unwrap() };
        assert_eq!(sent(wait(&mut completions, &mut queue)).0, id);
    }
    let mut bytes = [0; 6];
    memory.read(128, &mut bytes);
    assert_eq!(&bytes, b"direct");
    drop(peer);
}

/// A CQ overruns that also takes the CQEs of a queue pair that the reader does not know. The device
/// says so, and the reader tells it from an empty queue.
#[test]
fn an_overrun_is_not_an_empty_queue() {
    [[By::Verbs; 2], [By::CommandOnVerbsCq, By::Command]].into_iter().for_each(overruns);
}

fn overruns(made: [By; 2]) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, _peer] = overrun(&rig, made);
    loop {
        let event = rig.context.async_event(rig::PATIENCE).unwrap().expect("an event");
        if event.explanation().is_some_and(|(name, _)| name == "CQ_ERR") {
            break;
        }
    }
    a.completions.overrun();
    takes_the_strangers(&mut a);
    let queues = &mut (&mut a.send, &mut a.receive);
    assert_eq!(a.completions.poll(queues), Err(PollError::Overrun));
}

/// Polls that find nothing, until one of them fails.
fn polls_until_failure<Q: Queues>(completions: &mut CqReader, queues: &mut Q) -> u32 {
    let mut polls = 0;
    loop {
        match completions.poll(queues) {
            Ok(None) => polls += 1,
            Ok(Some(completion)) => panic!("{completion:?}"),
            Err(error) => {
                assert_eq!(error, PollError::Overrun);
                return polls;
            }
        }
        assert!(polls < MOST_POLLS, "no poll failed");
    }
}

/// The documented limit is about four million polls.
const MOST_POLLS: u32 = 5_000_000;

/// Nobody reads events, or says that the CQ overran.
#[test]
fn polls_report_an_overrun_to_a_program_that_reads_no_events() {
    for made in [[By::Verbs; 2], [By::CommandOnVerbsCq, By::Command]] {
        let rig = Rig::new(mlx5_model::Mode::Trapped);
        let [mut a, _peer] = overrun(&rig, made);
        takes_the_strangers(&mut a);
        let mut queues = (&mut a.send, &mut a.receive);
        polls_until_failure(&mut a.completions, &mut queues);
        assert_eq!(a.completions.poll(&mut queues), Err(PollError::Overrun));
        // The event is the program's, and still there.
        let mut events = rig.context.async_events().map(|event| event.unwrap().kind());
        assert!(events.any(|kind| kind == AsyncEventKind::CqError));
    }
}

/// Events of CQs that were made by command do not come to the context's event file.
#[test]
fn polls_report_an_overrun_of_a_cq_by_command() {
    let name = "traffic::polls_report_an_overrun_of_a_cq_by_command";
    let fault = "command alloc_pd 2 overrun cq";
    if let Some(text) = rig::process::where_it_says("MLX5_MODEL_FAULTS", fault, &["--exact", name])
    {
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, _peer] = pair(&rig, [By::Command, By::Verbs], &SHAPE);
    a.is_quiet();
    // The fault.
    ProtectionDomain::new(&rig.context).unwrap();
    let mut queues = (&mut a.send, &mut a.receive);
    polls_until_failure(&mut a.completions, &mut queues);
    assert_eq!(a.completions.poll(&mut queues), Err(PollError::Overrun));
}

/// A program that reads events by this crate, and drops them, need not say what they were.
#[test]
fn polls_report_an_overrun_whose_event_the_program_has_read() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, _peer] = overrun(&rig, [By::Verbs; 2]);
    let kinds: Vec<_> = rig.context.async_events().map(|event| event.unwrap().kind()).collect();
    assert!(kinds.contains(&AsyncEventKind::CqError), "{kinds:?}");
    takes_the_strangers(&mut a);
    polls_until_failure(&mut a.completions, &mut (&mut a.send, &mut a.receive));
}

/// A poll that is not given the queue of a CQE leaves the CQE where it is, so that no later message
/// is taken for the one before it.
#[test]
fn polls_without_the_queue_leave_completions_in_the_cq() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = pair(&rig, [By::Verbs; 2], &SHAPE);
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        b.receive.post(1, b.sge(0, 64)).unwrap();
        a.send.post(2, SendMessage::new(Inline(&[7; 40])).signaled()).unwrap();
    }
    for (side, queue) in [(&mut a, QueueKind::Send), (&mut b, QueueKind::Receive)] {
        let error = loop {
            match side.completions.poll(&mut ()) {
                Ok(found) => assert_eq!(found, None),
                Err(error) => break error,
            }
            std::thread::yield_now();
        };
        let qpn = side.send.qpn();
        assert_eq!(error, PollError::QueueNotGiven { qpn, queue });
        assert!(error.to_string().contains(&format!("queue of QP {qpn:#x}")), "{error}");
    }
    assert_eq!(sent(a.wait()), (2, SendOperation::Send, 0));
    assert_eq!(received(b.wait()), (1, ReceiveKind::Send, 40));
}

/// A reader of a CQ that the program made, which waits for events and polls now and then only: its
/// arms count.
#[test]
fn a_reader_that_arms_reports_an_overrun_after_few_polls() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, _peer] = overrun(&rig, [By::Verbs; 2]);
    takes_the_strangers(&mut a);
    let mut queues = (&mut a.send, &mut a.receive);
    let rounds = (0..100).find(|_| {
        a.completions.arm();
        a.completions.poll(&mut queues) == Err(PollError::Overrun)
    });
    assert!(rounds.is_some(), "no poll failed");
}

/// An event that is unread, of another CQ, is no failure of this one.
#[test]
fn a_cq_that_works_is_not_reported_when_another_one_failed() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut well, _peer] = pair(&rig, [By::Verbs; 2], &SHAPE);
    let _failed = overrun(&rig, [By::Verbs; 2]);
    let mut queues = (&mut well.send, &mut well.receive);
    for _ in 0..2 {
        for _ in 0..100 {
            well.completions.arm();
            assert_eq!(well.completions.poll(&mut queues), Ok(None));
        }
        // Nor when the event was read.
        rig.context.async_events().for_each(|event| assert!(event.is_ok()));
    }
}

/// A side whose CQ has overrun, and its peer. The CQ's four CQEs are of another queue pair, which
/// libibverbs posts to, and which no CQ slots are reserved for.
fn overrun(rig: &Rig, made: [By; 2]) -> [Side; 2] {
    let [a, b] = pair(rig, made, &Shape { cqes: 3, receives: 1, ..SHAPE });
    assert_eq!((a.completions.capacity(), a.send.request_limit()), (4, 3));
    let Cq::Verbs(cq) = &a.cq else { panic!("{:?}", a.cq) };
    let stranger = rig.init(QueuePair::builder(&rig.pd, cq).max_recv_wr(8));
    for id in 0..5 {
        // SAFETY: the queue pair is alive, and the receive names no memory.
        unsafe { verbs::post_receive(stranger.as_raw(), id, &[]) }.unwrap();
    }
    // Leaked: when it is destroyed, libmlx5 takes its CQEs out of the CQ.
    std::mem::forget(stranger.to_error().unwrap());
    [a, b]
}

/// The completions that come for a failed queue are those of its requests, however many blocks the
/// ring has: no sequence of posts makes the CQ overrun.
#[test]
fn a_failed_queue_fits_the_cq_of_the_documented_size() {
    for made in MADE {
        let rig = Rig::new(mlx5_model::Mode::Trapped);
        // Enough for one queue pair, by the rule.
        let [probe, _] = pair(&rig, made, &SHAPE);
        let (most, receives) = (probe.send.request_limit(), probe.receive.free());
        assert!(most < probe.send.blocks(), "{made:?}: the ring holds no more than the limit");
        let shape = Shape { cqes: most + receives, ..SHAPE };
        let [mut a, b] = pair(&rig, made, &shape);
        assert_eq!(a.send.request_limit(), most);
        for id in 0..receives.into() {
            // SAFETY: the receive names no memory.
            unsafe { a.receive.post(id, Sge::new(0, 0, 0)) }.unwrap();
        }
        let nowhere = Remote::new(b.memory.remote_address(), !b.memory.rkey());
        let mut batch = a.send.batch();
        batch.append(0, RdmaWrite::new(Inline(b"x"), nowhere).signaled()).unwrap();
        let refused = loop {
            let id = batch.len().into();
            if let Err(refused) = batch.append(id, Nop::new()) {
                break refused;
            }
        };
        assert_eq!((batch.len(), refused), (most, PostError::CqFull { slots: most }), "{made:?}");
        // SAFETY: the payload is copied into the WQE.
        unsafe { batch.ring() };
        // Flushes the receives, if the failure has not.
        let Side { memory: _memory, mut send, mut receive, mut completions, qp, .. } = a;
        let _failed = qp.to_error();
        let mut next = [0u64; 2];
        while next != [most, receives].map(u64::from) {
            let (id, queue, _) = failed(wait(&mut completions, &mut (&mut send, &mut receive)));
            let next = &mut next[usize::from(queue == QueueKind::Receive)];
            assert_eq!(id, *next, "{made:?}");
            *next += 1;
        }
        assert_eq!(completions.poll(&mut (&mut send, &mut receive)), Ok(None));
        assert!(send.is_idle());
    }
}
