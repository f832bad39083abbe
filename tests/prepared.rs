//! Prepared requests, end to end on the model, which executes each doorbell in the store that rings
//! it. An unfired request must not reach the peer, a fired one must arrive in full, and the
//! register stores must be those of `docs/ordering.md`.

mod rig;

use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::ib::Rc;
use mlx5::ring::prepared::Either;
use mlx5::ring::variable::{Bytes, Immediate, Offset};
use mlx5::ring::{
    BlueFlameCopy, CqReader, FireError, Form, Prepared, Queues, ReceiveConfig, ReceiveQueue,
    RegisterUse, SendConfig, SendQueue, UarMapping,
};
use mlx5::verbs::{MemoryRegion, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{Inline, InlineBytes, RdmaWrite, Remote, SendImm, Sge};
use mlx5_model::Mode;
use mlx5_model::stores::{self, Store};
use rig::verbs::QpMemory;
use rig::{PATIENCE, Rig, wait};

const MEMORY: usize = 1 << 14;

/// A requester, and the memory that it reaches.
struct Line {
    send: SendQueue<Rc>,
    completions: CqReader,
    peer_completions: CqReader,
    peer_receive: ReceiveQueue,
    memory: MemoryRegion,
    qp: QueuePair<Rc, Rts>,
    _peer: QueuePair<Rc, Rts>,
}

impl Line {
    fn new(rig: &Rig) -> Self {
        Self::with(rig, SendConfig::default())
    }

    fn with(rig: &Rig, config: SendConfig) -> Self {
        let (cq, peer_cq) = (rig.cq(256), rig.cq(256));
        let builder = |cq| {
            let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(16).max_recv_wr(64);
            builder.max_inline_data(150).max_send_sge(2)
        };
        // A register of its own, so that BlueFlame is used.
        let domain = ThreadDomain::new(&rig.context).unwrap();
        let qp = rig.init(builder(&cq).thread_domain(&domain));
        let (qp, peer) = rig.connect(qp, rig.init(builder(&peer_cq)));
        let mut completions = CqReader::new(&cq).unwrap();
        let mut peer_completions = CqReader::new(&peer_cq).unwrap();
        let send = SendQueue::new(&qp, &mut completions, config).unwrap();
        let peer_receive =
            ReceiveQueue::new(&peer, &mut peer_completions, ReceiveConfig::default()).unwrap();
        let memory = rig.memory(MEMORY);
        Self { send, completions, peer_completions, peer_receive, memory, qp, _peer: peer }
    }

    fn remote(&self, offset: usize) -> Remote {
        Remote::new(self.memory.remote_address() + offset as u64, self.memory.rkey())
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge::new(self.memory.address() + offset as u64, length, self.memory.lkey())
    }
}

fn read<const N: usize>(memory: &MemoryRegion, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    memory.read(offset, &mut bytes);
    bytes
}

fn sent<Q: Queues>(completions: &mut CqReader, queues: &mut Q) -> (u64, SendOperation) {
    match wait(completions, queues) {
        Completion::Send(done) => (done.id, done.operation),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_fired_arrives_in_order_and_nothing_else_does() {
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig);
    let remote = line.remote(0);
    let mut prepared =
        Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, (Bytes, Offset)>>::new(&mut line.send);
    let blocks = u64::from(prepared.queue().blocks());
    // Many laps of the ring, and past the wrap of the record's low byte and of what it counts.
    for id in 0..700 {
        let write = RdmaWrite::new(InlineBytes([0xee; 8]), remote);
        prepared.prepare(id, write.signaled_if(id % 3 == 0)).unwrap();
        if id % 5 != 4 {
            continue;
        }
        for fired in id - 4..=id {
            let offset = fired * 8 % 4096;
            // SAFETY: an inline payload names no memory of this side.
            unsafe { prepared.next().unwrap().fire((fired.to_le_bytes(), offset)) };
            assert_eq!(u64::from_le_bytes(read(&line.memory, offset as usize)), fired);
            if fired % 3 == 0 {
                let done = sent(&mut line.completions, &mut prepared);
                assert_eq!(done, (fired, SendOperation::Write));
            }
        }
    }
    assert!(blocks < 350, "more than one lap");
    assert_eq!(prepared.next().unwrap_err(), FireError::NothingPrepared);
    assert_eq!(line.completions.poll(&mut prepared), Ok(None));
}

#[test]
fn the_register_gets_a_whole_wqe_in_stores_of_16_bytes() {
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig);
    // SAFETY: the queue pair lives as long as `self`.
    let memory = unsafe { QpMemory::new(line.qp.as_raw()) };
    assert_ne!(memory.dv.bf.size, 0, "a BlueFlame register");
    let qpn = line.qp.number().to_be_bytes();
    let remote = line.remote(0);
    let of_this = |stores: Vec<Store>| -> Vec<_> {
        let page = stores.iter().find(|store| store.bytes.get(4..7) == Some(&qpn[1..]));
        let page = page.expect("a doorbell").uar;
        let register = memory.dv.bf.reg.addr() % 4096;
        let mine = stores.into_iter().filter(|store| store.uar == page);
        mine.map(|store| (store.offset - register, store.bytes)).collect()
    };
    let _recording = stores::record();
    let mut prepared = Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut line.send);
    let mut halves = Vec::new();
    for id in 0..40_u64 {
        prepared.prepare(id, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled()).unwrap();
        drop(stores::take());
        // SAFETY: an inline payload names no memory of this side.
        unsafe { prepared.next().unwrap().fire([id as u8; 8]) };
        let made = of_this(stores::take());
        let half = made[0].0;
        let places: Vec<_> = made.iter().map(|(at, bytes)| (at - half, bytes.len())).collect();
        assert_eq!(places, [(0, 16), (16, 16), (32, 16), (48, 16)]);
        let wqe: Vec<u8> = made.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let slot = id as usize % memory.dv.sq.wqe_cnt as usize * 64;
        assert_eq!(wqe[..44], memory.send_ring()[slot..slot + 44]);
        assert_eq!(wqe[36..44], [id as u8; 8]);
        assert_eq!(memory.record()[4..], (id as u32 + 1).to_be_bytes());
        halves.push(half);
        assert_eq!(sent(&mut line.completions, &mut prepared), (id, SendOperation::Write));
    }
    assert!(halves.windows(2).all(|pair| pair[0] ^ pair[1] == memory.dv.bf.size as usize));

    // A NOP before it: one doorbell of eight bytes for both.
    prepared.prepare(100, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled()).unwrap();
    prepared.prepare(101, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled()).unwrap();
    assert_eq!(prepared.cancel(0), Some(100));
    drop(stores::take());
    // SAFETY: an inline payload names no memory of this side.
    unsafe { prepared.next().unwrap().fire([0x77; 8]) };
    let made = of_this(stores::take());
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].1.len(), 8);
    assert_eq!(sent(&mut line.completions, &mut prepared), (100, SendOperation::Nop));
    assert_eq!(sent(&mut line.completions, &mut prepared), (101, SendOperation::Write));
    assert_eq!(read(&line.memory, 0), [0x77; 8]);
}

#[test]
fn a_write_and_the_word_of_it_are_prepared_together() {
    type Forms = Either<Form<RdmaWrite<InlineBytes<64>>, Bytes>, Form<SendImm<Sge>, Immediate>>;
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig);
    let (remote, word) = (line.remote(0), line.sge(8192, 4));
    line.memory.write(8192, b"word");
    let into = line.sge(12288, 64);
    let mut prepared = Prepared::<_, Forms>::new(&mut line.send);
    for round in 0..50_u64 {
        // SAFETY: the memory lives to the end, and is read after the receive completes.
        unsafe { line.peer_receive.post(round, into).unwrap() };
        prepared
            .prepare(2 * round, Either::First(RdmaWrite::new(InlineBytes([0; 64]), remote)))
            .unwrap();
        let send = SendImm::new(word, 0).signaled();
        prepared.prepare(2 * round + 1, Either::Second(send)).unwrap();
        let queues = &mut line.peer_receive;
        assert_eq!(line.peer_completions.poll(queues), Ok(None), "nothing is fired");
        for _ in 0..2 {
            // SAFETY: no code writes the memory that the SEND reads.
            unsafe {
                match prepared.next().unwrap() {
                    Either::First(write) => write.fire([round as u8; 64]),
                    Either::Second(send) => send.fire(round as u32),
                }
            }
        }
        let received = wait(&mut line.peer_completions, &mut line.peer_receive);
        let Completion::Receive(done) = received else { panic!("{received:?}") };
        let imm = round as u32;
        assert_eq!((done.id, done.byte_len, done.kind), (round, 4, ReceiveKind::SendImm(imm)));
        assert_eq!(read(&line.memory, 0), [round as u8; 64]);
        let done = sent(&mut line.completions, &mut prepared);
        assert_eq!(done, (2 * round + 1, SendOperation::SendImm));
    }
}

#[test]
fn what_is_fired_after_a_failure_is_flushed_until_that_is_seen() {
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig);
    let (good, bad) = (line.remote(0), Remote::new(0, 0xdead_be00));
    let mut prepared = Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut line.send);
    for (id, remote) in [(1, good), (2, bad), (3, good), (4, good)] {
        prepared.prepare(id, RdmaWrite::new(InlineBytes([0; 8]), remote)).unwrap();
    }
    for byte in 1..=3 {
        // SAFETY: an inline payload names no memory of this side.
        unsafe { prepared.next().unwrap().fire([byte; 8]) };
    }
    for (id, status) in [(2, Status::RemoteAccess), (3, Status::Flushed)] {
        let completion = wait(&mut line.completions, &mut prepared);
        let Completion::Failed(failure) = completion else { panic!("{completion:?}") };
        assert_eq!((failure.id, failure.status), (id, status));
        assert_eq!(prepared.next().unwrap_err(), FireError::WrongState);
    }
    drop(prepared);
    assert_eq!(read(&line.memory, 0), [1; 8]);
    // The way on: RESET, and everything anew.
    let Line { send, completions, memory, qp, .. } = line;
    drop((send, completions, qp));
    let mut line = Line::new(&rig);
    let remote = Remote::new(memory.remote_address(), memory.rkey());
    let mut prepared = Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut line.send);
    prepared.prepare(9, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled()).unwrap();
    // SAFETY: an inline payload names no memory of this side.
    unsafe { prepared.next().unwrap().fire([9; 8]) };
    assert_eq!(sent(&mut line.completions, &mut prepared), (9, SendOperation::Write));
    assert_eq!(read(&memory, 0), [9; 8]);
}

#[test]
fn what_is_dropped_or_leaked_prepared_never_arrives() {
    let rig = Rig::new(Mode::Trapped);
    for leak in [false, true] {
        let mut line = Line::new(&rig);
        let (remote, other) = (line.remote(0), line.remote(64));
        let mut prepared =
            Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut line.send);
        for id in 0..8 {
            prepared
                .prepare(id, RdmaWrite::new(InlineBytes([0xaa; 8]), remote).signaled())
                .unwrap();
        }
        // SAFETY: an inline payload names no memory of this side.
        unsafe { prepared.next().unwrap().fire([1; 8]) };
        if leak {
            std::mem::forget(prepared)
        } else {
            drop(prepared)
        }
        for id in 100..200 {
            // SAFETY: an inline payload names no memory of this side.
            unsafe {
                line.send.post(id, RdmaWrite::new(InlineBytes([2; 8]), other).signaled()).unwrap();
            }
            if id == 100 {
                let first = sent(&mut line.completions, &mut line.send);
                assert_eq!(first, (0, SendOperation::Write));
            }
            let done = sent(&mut line.completions, &mut line.send);
            assert_eq!(done, (id, SendOperation::Write), "leaked: {leak}");
        }
        assert_eq!(line.completions.poll(&mut line.send), Ok(None));
        assert_eq!((read(&line.memory, 0), read(&line.memory, 64)), ([1; 8], [2; 8]));
    }
}

#[test]
fn every_kind_of_register_is_told() {
    let rig = Rig::new(Mode::Trapped);
    let own = SendConfig::default();
    let mut configs = vec![SendConfig { register: RegisterUse::Shared, ..own }];
    let memory = UarMapping::Uncached;
    configs.push(SendConfig { memory, ..own });
    configs.extend(BlueFlameCopy::available().map(|copy| SendConfig { copy, ..own }));
    for config in configs {
        let mut line = Line::with(&rig, config);
        let remote = line.remote(0);
        let write = RdmaWrite::new(InlineBytes([0; 8]), remote);
        let mut prepared =
            Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut line.send);
        for id in 0..300_u64 {
            prepared.prepare(id, write.signaled_if(id % 2 == 0)).unwrap();
            // SAFETY: an inline payload names no memory of this side.
            unsafe { prepared.next().unwrap().fire(id.to_le_bytes()) };
            assert_eq!(u64::from_le_bytes(read(&line.memory, 0)), id, "{config:?}");
            if id % 2 == 0 {
                assert_eq!(sent(&mut line.completions, &mut prepared), (id, SendOperation::Write));
            }
        }
    }
}

/// Unsignaled prepared requests reserve CQ slots, but bring no CQE: a drain posts the marker that
/// does.
#[test]
fn unsignaled_prepared_requests_are_drained() {
    let rig = Rig::new(Mode::Trapped);
    let mut line = Line::new(&rig);
    let write = RdmaWrite::new(InlineBytes([0; 8]), line.remote(0));
    for (round, last) in [None, Some(false), Some(true)].into_iter().enumerate() {
        let mut prepared =
            Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(&mut line.send);
        for id in 0..6_u64 {
            prepared.prepare(id, write).unwrap();
            // SAFETY: an inline payload names no memory of this side.
            unsafe { prepared.next().unwrap().fire(id.to_le_bytes()) };
        }
        // A request of two blocks is the last of some.
        if let Some(signaled) = last {
            let long = RdmaWrite::new(Inline(&[7; 100]), line.remote(64)).signaled_if(signaled);
            // SAFETY: an inline payload names no memory of this side.
            unsafe { line.send.post(6, long) }.unwrap();
        }
        let silent = last != Some(true);
        assert_eq!((line.send.is_silent(), line.send.is_idle()), (silent, false), "round {round}");
        let mut found = Vec::new();
        let drained =
            line.completions.drain_sends(
                &mut line.send,
                &mut (),
                77,
                PATIENCE,
                |done| match done {
                    Completion::Send(done) => found.push(done.id),
                    other => panic!("{other:?}"),
                },
            );
        assert_eq!(drained, Ok(()), "round {round}");
        assert_eq!(found, if silent { vec![] } else { vec![6] }, "round {round}");
        assert!(line.send.is_idle() && !line.send.is_silent());
        assert_eq!(u64::from_le_bytes(read(&line.memory, 0)), 5);
    }
}
