//! With the feature `lint`, each way to a doorbell refuses a defective WQE. It names the defect,
//! does not ring, and leaves the queue unchanged.

#![cfg(feature = "lint")]

use mlx5::cqe::Completion;
use mlx5::diag::lint::{Finding, Segment};
use mlx5::endpoint::{Endpoint, MrSlice, Receiver};
use mlx5::expert::RawWqe;
use mlx5::ib::Rc;
use mlx5::ring::{
    CqReader, PostError, Prepared, ReceiveConfig, RegisterUse, SendConfig, SendQueue,
};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{FetchAdd, InlineBytes, Nop, RdmaWrite, Remote, Sge};
use rig::Rig;
use rig::verbs::QpMemory;

/// A queue of 64 blocks, and its memory.
struct Line {
    cq: CompletionQueue,
    qp: QueuePair<Rc, Rts>,
    _peer: QueuePair<Rc, Rts>,
    memory: MemoryRegion,
}

fn line() -> Line {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let cq = rig.cq(127);
    let shape = || {
        let builder = QueuePair::builder(&rig.pd, &cq).max_send_wr(64).max_recv_wr(16);
        builder.max_send_sge(2).max_inline_data(28)
    };
    let (qp, _peer) = rig.connect(rig.init(shape()), rig.init(shape()));
    let memory = rig.memory(4096);
    Line { cq, qp, _peer, memory }
}

impl Line {
    fn remote(&self) -> Remote {
        self.memory.remote(1024).unwrap()
    }

    fn sge(&self) -> Sge {
        self.memory.sge(0, 8).unwrap()
    }

    /// A fetch and add that the peer would refuse.
    fn unaligned(&self) -> FetchAdd {
        let old = self.memory.word(0).unwrap();
        FetchAdd::new(old, self.remote().offset(4), 1).signaled()
    }

    fn record(&self) -> [u8; 8] {
        self.rings().record()
    }

    fn rings(&self) -> QpMemory {
        // SAFETY: the QP is alive.
        unsafe { QpMemory::new(self.qp.as_raw()) }
    }

    /// Overwrites a byte of the ring, whose former value it returns.
    fn overwrite(&self, block: u32, at: usize, byte: u8) -> u8 {
        let offset = block as usize * 64 + at;
        let rings = self.rings();
        assert!(offset < (rings.dv.sq.wqe_cnt * rings.dv.sq.stride) as usize);
        // SAFETY: within the ring; nothing else accesses it meanwhile.
        unsafe {
            let place = rings.dv.sq.buf.cast::<u8>().add(offset);
            place.replace(byte)
        }
    }
}

/// Asserts that a post was refused for the named defect, and returns the finding.
#[track_caller]
fn finding(result: Result<(), PostError>, name: &str) -> Finding {
    match result {
        Err(PostError::Refused(finding)) => {
            assert_eq!(finding.defect.name(), name, "{finding}");
            finding
        }
        other => panic!("{other:?}, and not {name}"),
    }
}

/// The ids that complete, all well.
fn done(completions: &mut CqReader, send: &mut SendQueue) -> Vec<u64> {
    mlx5_model::run();
    let drained = completions.poll_all(send).map(|completion| match completion.unwrap() {
        Completion::Send(done) => done.id,
        other => panic!("{other:?}"),
    });
    drained.collect()
}

/// A WRITE of one entry, as bytes.
fn raw_write(line: &Line, ds: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0x08, 0, 0, 0, ds, 0, 0, 0, 8, 0, 0, 0, 0];
    bytes.extend(line.remote().addr.to_be_bytes());
    bytes.extend(line.remote().rkey.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(8u32.to_be_bytes());
    bytes.extend(line.sge().lkey.to_be_bytes());
    bytes.extend(line.sge().addr.to_be_bytes());
    bytes.truncate(usize::from(ds) * 16);
    bytes
}

#[test]
fn single_posts_with_a_defect_ring_nothing_and_leave_the_queue_as_it_was() {
    for register in [RegisterUse::Own, RegisterUse::Shared] {
        let line = line();
        let mut completions = CqReader::new(&line.cq).unwrap();
        let config = SendConfig { register, ..SendConfig::default() };
        let mut send = SendQueue::new(&line.qp, &mut completions, config).unwrap();
        let mut good = 0;
        // Often enough that it wraps, and that all ways are taken: the first post, and later ones.
        for round in 0..200 {
            let (free, record) = (send.free_blocks(), line.record());
            let mut raw = |bytes: &[u8]| {
                // SAFETY: the model never sees it.
                let result = unsafe { send.post(99, RawWqe::new(bytes).unwrap()) };
                (result, send.free_blocks())
            };
            let mut bytes = raw_write(&line, 3);
            bytes[3] = 0x7e;
            let (result, left) = raw(&bytes);
            assert_eq!(finding(result, "unknown-opcode").opcode, 0x7e);
            assert_eq!((left, line.record()), (free, record), "round {round}");
            // The WRITE without its remote address, which is two entries by then.
            let (result, _) = raw(&raw_write(&line, 1));
            assert_eq!(finding(result, "segment-missing").segment, Segment::Remote);
            // A change of keys, whose list is not what it says.
            let mut umr = vec![0, 0, 0, 0x25, 0, 0, 0, 12, 0, 0, 0, 8, 0, 0, 1, 0];
            umr.resize(192, 0);
            (umr[16], umr[21]) = (0x80, 8);
            finding(raw(&umr).0, "translation-size");
            // What types let pass.
            // SAFETY: the model never sees them.
            unsafe {
                finding(send.post(99, line.unaligned()), "unaligned");
                let nowhere = Sge { lkey: 0, ..line.sge() };
                finding(send.post(99, RdmaWrite::new(nowhere, line.remote())), "invalid-lkey");
                let behind = Sge { addr: u64::MAX - 3, ..line.sge() };
                finding(send.post(99, RdmaWrite::new(behind, line.remote())), "address-wraps");
            }
            assert_eq!((send.free_blocks(), line.record()), (free, record), "round {round}");
            // And it goes on.
            // SAFETY: the memory lives to the end.
            unsafe {
                send.post(good, RdmaWrite::new(InlineBytes([1; 8]), line.remote()).signaled())
                    .unwrap();
                send.post(good + 1, RdmaWrite::new(line.sge(), line.remote()).signaled()).unwrap();
                send.post(good + 2, RawWqe::new(&raw_write(&line, 3)).unwrap()).unwrap();
            }
            assert_eq!(done(&mut completions, &mut send), [good, good + 1, good + 2]);
            good += 3;
        }
        assert!(send.is_idle());
    }
}

#[test]
fn a_batch_with_a_defect_is_not_rung_at_all() {
    let line = line();
    let mut completions = CqReader::new(&line.cq).unwrap();
    let mut send = SendQueue::new(&line.qp, &mut completions, SendConfig::default()).unwrap();
    for round in 0..100 {
        let record = line.record();
        let mut batch = send.batch();
        batch.append(1, RdmaWrite::new(line.sge(), line.remote())).unwrap();
        batch.append(2, line.unaligned()).unwrap();
        batch.append(3, Nop::new().signaled()).unwrap();
        // SAFETY: the model never sees it.
        let found = finding(unsafe { batch.try_ring() }, "unaligned");
        assert_eq!((found.wqe, found.offset), (round + 1, 16));
        assert_eq!(line.record(), record);
        // The same by the call that returns nothing: the next that returns an error has it.
        for _ in 0..2 {
            let mut batch = send.batch();
            batch.append(4, line.unaligned()).unwrap();
            // SAFETY: the model never sees it.
            unsafe { batch.ring() };
            assert_eq!(line.record(), record);
        }
        // SAFETY: a NOP.
        let kept = unsafe { send.post(6, Nop::new().signaled()) };
        assert_eq!(finding(kept, "unaligned").wqe, round);
        assert_eq!(line.record(), record);
        let mut batch = send.batch();
        batch.append(5, Nop::new().signaled()).unwrap();
        // SAFETY: the request names no memory.
        unsafe { batch.try_ring() }.unwrap();
        assert_eq!(done(&mut completions, &mut send), [5]);
    }
}

#[test]
fn what_overwrites_the_ring_before_it_is_rung_is_seen() {
    let line = line();
    let mut completions = CqReader::new(&line.cq).unwrap();
    let mut send = SendQueue::new(&line.qp, &mut completions, SendConfig::default()).unwrap();
    // Byte of the second WQE, and what is found then.
    let seeds = [
        (0, 7, "unknown-modifier"),
        (1, 0x55, "wrong-index"),
        (3, 0x10, "inline-forbidden"),
        (5, 0xee, "wrong-queue-pair"),
        (7, 0, "size-zero"),
        (7, 0x43, "reserved-ctrl"),
        (11, 0xe8, "reserved-fence"),
        (28, 1, "reserved-field"),
    ];
    for (at, byte, name) in seeds {
        let blocks = send.blocks();
        let head = blocks - send.free_blocks();
        assert_eq!(head, 0, "idle");
        let slot = u32::from(u16::from_be_bytes(line.record()[6..8].try_into().unwrap())) % blocks;
        let mut batch = send.batch();
        for id in 0..3 {
            let write = RdmaWrite::new(InlineBytes([7; 8]), line.remote());
            batch.append(id, write.signaled()).unwrap();
        }
        line.overwrite((slot + 1) % blocks, at, byte);
        // SAFETY: nothing is rung.
        finding(unsafe { batch.try_ring() }, name);
        // SAFETY: a NOP.
        unsafe { send.post(9, Nop::new().signaled()) }.unwrap();
        assert_eq!(done(&mut completions, &mut send), [9]);
    }
}

#[test]
fn a_prepared_request_that_is_overwritten_is_not_fired_and_stays_prepared() {
    for register in [RegisterUse::Own, RegisterUse::Shared] {
        let line = line();
        let mut completions = CqReader::new(&line.cq).unwrap();
        let config = SendConfig { register, ..SendConfig::default() };
        let send = SendQueue::new(&line.qp, &mut completions, config).unwrap();
        let mut prepared = Prepared::new(send);
        for id in 0..3 {
            prepared
                .prepare(id, RdmaWrite::new(InlineBytes([0; 8]), line.remote()).signaled())
                .unwrap();
        }
        let record = line.record();
        let before = line.overwrite(0, 31, 1);
        for value in 1..3 {
            let refused = prepared.fire([value; 8]);
            assert_eq!(finding(refused, "reserved-field").offset, 28);
            assert_eq!((prepared.len(), line.record()), (3, record));
        }
        line.overwrite(0, 31, before);
        for value in 3..6 {
            prepared.fire([value; 8]).unwrap();
        }
        mlx5_model::run();
        for id in 0..3 {
            match completions.poll(&mut prepared).unwrap() {
                Some(Completion::Send(done)) => assert_eq!(done.id, id),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(completions.poll(&mut prepared).unwrap(), None);
    }
}

#[test]
fn the_queue_refuses_what_nothing_would_ever_free_before_the_lint_does() {
    let line = line();
    let mut completions = CqReader::new(&line.cq).unwrap();
    let mut send = SendQueue::new(&line.qp, &mut completions, SendConfig::default()).unwrap();
    let most = send.request_limit() - 1;
    for id in 0..most {
        // SAFETY: the memory lives to the end.
        unsafe { send.post(id.into(), RdmaWrite::new(line.sge(), line.remote())) }.unwrap();
    }
    // SAFETY: the memory lives to the end.
    let last = unsafe { send.post(0, RdmaWrite::new(line.sge(), line.remote())) };
    assert_eq!(last, Err(PostError::NothingSignaled { outstanding: most }));
    // SAFETY: the memory lives to the end.
    unsafe { send.post(77, RdmaWrite::new(line.sge(), line.remote()).signaled()) }.unwrap();
    assert_eq!(done(&mut completions, &mut send), [77]);
    assert!(send.is_idle());
}

#[test]
fn channels_give_a_refused_operation_back() {
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let cq = rig.cq(127);
    let shape = || QueuePair::builder(&rig.pd, &cq).max_send_wr(64).max_recv_wr(16);
    let (first, second) = (rig.init(shape()), rig.init(shape()));
    let mut completions = CqReader::new(&cq).unwrap();
    let config = ReceiveConfig::default();
    let receiver = Receiver::new(&first, &mut completions, config).unwrap();
    let (first, _second) = rig.connect(first, second);
    let mut channel = Endpoint::new(first, receiver, completions, SendConfig::default()).unwrap();
    let peer = rig.memory(4096);
    let remote = peer.remote(0).unwrap();
    let mut slice = MrSlice::new(rig.memory(8));
    for round in 0..200 {
        let add = FetchAdd::new(slice, remote.offset(2), 1);
        let refused = channel.post(round, add).unwrap_err();
        finding(Err(refused.error), "unaligned");
        slice = refused.operation.into_old();
        // A batch gives nothing back, but is not posted.
        let mut batch = channel.batch();
        let gone = MrSlice::new(rig.memory(8));
        batch.append(7, FetchAdd::new(gone, remote.offset(2), 1)).unwrap();
        finding(batch.try_ring(), "unaligned");
        channel.post(round, FetchAdd::new(slice, remote, 1).signaled()).unwrap();
        mlx5_model::run();
        let returned = channel.poll().next().expect("the request is retired").unwrap();
        assert_eq!(returned.id, round);
        slice = returned.buffers.one().unwrap();
        let mut old = [0; 8];
        slice.read(0, &mut old);
        assert_eq!(u64::from_ne_bytes(old), round, "those that were refused added nothing");
    }
}
