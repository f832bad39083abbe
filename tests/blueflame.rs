//! Every way of storing to a doorbell register, on the model, which executes each store when it is
//! made. Checks number, width and order of the stores, and that the HCA executes the posted
//! requests. In a program of its own, which the gate runs alone: some tests compare times.

use mlx5::cqe::Completion;
use mlx5::expert::{BlueFlameCopy, ProbeError, UarMapping};
use mlx5::ib::Rc;
use mlx5::ring::{
    CqReader, QueueError, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig, SendQueue,
};
use mlx5::verbs::{MemoryRegion, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{Inline, InlineBytes, Nop, RdmaWrite, Remote};
use mlx5_model::Mode;
use rig::random::Random;
use rig::stores::{self, Store};
use rig::verbs::QpMemory;
use rig::{Rig, wait};

/// Blocks of the ring: a handful, so that its end is met often.
const WRS: u32 = 4;
const MEMORY: usize = 4096;
/// Offset of the memory that the peer's HCA writes; requests take payloads from the other half.
const TARGET: usize = 2048;

/// A queue on a register of its own.
struct Line {
    queue: SendQueue<Rc>,
    completions: CqReader,
    memory: MemoryRegion,
    rings: QpMemory,
    qps: [QueuePair<Rc, Rts>; 2],
    next: u64,
}

impl Line {
    fn new(rig: &Rig, config: SendConfig) -> Self {
        let (cq, peer_cq) = (rig.cq(64), rig.cq(64));
        let domain = ThreadDomain::new(&rig.context).unwrap();
        let builder = QueuePair::builder(&rig.pd, &cq).max_send_wr(WRS).max_send_sge(4);
        let builder = builder.max_inline_data(250).thread_domain(&domain);
        let peer = QueuePair::builder(&rig.pd, &peer_cq);
        let (qp, peer) = rig.connect(rig.init(builder), rig.init(peer));
        let mut completions = CqReader::new(&cq).unwrap();
        let queue = SendQueue::new(&qp, &mut completions, config).unwrap();
        // SAFETY: the QP lives as long as `self`.
        let rings = unsafe { QpMemory::new(qp.as_raw()) };
        assert_eq!(rings.dv.bf.size, 256, "a BlueFlame register");
        let memory = rig.memory(MEMORY);
        Self { queue, completions, memory, rings, qps: [qp, peer], next: 0 }
    }

    fn remote(&self) -> Remote {
        self.memory.remote(TARGET).unwrap()
    }

    /// Polls for the completion of everything posted, and compares what was written.
    fn done(&mut self, what: &str, expected: &[u8]) {
        match wait(&mut self.completions, &mut self.queue) {
            Completion::Send(done) => assert_eq!(done.id, self.next, "{what}"),
            other => panic!("{other:?}, {what}"),
        }
        assert!(self.queue.is_idle());
        let bytes = self.memory.to_vec(TARGET, expected.len());
        assert_eq!(bytes, expected, "{what}");
    }

    /// The stores to this queue's register since the last call, without the page. Their bytes must
    /// be those of the ring from block `first` on.
    /// On x86-64 the model executes them in one fault, or one for each block, or for each word in an unoptimised
    /// build, which copies it in a call.
    fn stores(&self, first: u32) -> Vec<(usize, usize)> {
        let ring = self.rings.send_ring();
        let mut at = first as usize * 64 % ring.len();
        let mut places = Vec::new();
        for Store { offset, bytes, .. } in stores::by_register() {
            for byte in &bytes {
                assert_eq!(*byte, ring[at]);
                at = (at + 1) % ring.len();
            }
            places.push((offset - self.rings.dv.bf.reg.addr() % 4096, bytes.len()));
        }
        let faults = mlx5_model::stores::faults();
        if cfg!(target_arch = "x86_64") {
            let (first, stored) = (places[0].1, places.iter().map(|(_, length)| length).sum());
            let blocks = usize::div_ceil(stored, 64);
            let unoptimised = cfg!(debug_assertions) && first == 8;
            let most = if unoptimised { places.len() } else { blocks };
            assert!((1..=most).contains(&faults), "{faults} faults: {places:?}");
        }
        places
    }
}

/// The stores of a post: `bytes` bytes in stores of `width`, from the half `half` on.
fn expected(half: usize, bytes: usize, width: usize) -> Vec<(usize, usize)> {
    (0..bytes).step_by(width).map(|at| (half + at, width)).collect()
}

/// Posts WRITEs of every size from one block to four, singly and in batches, over several laps.
fn posts_as_listed(rig: &Rig, config: SendConfig, width: usize) {
    let what = format!("{config:?}");
    let mut random = Random::new();
    let mut line = Line::new(rig, config);
    let blocks = line.queue.blocks();
    let (mut head, mut half) = (0, 0);
    stores::by_register();
    mlx5_model::stores::faults();
    for turn in 0..200u32 {
        let remote = line.remote();
        let many = if random.one_in(2) { 1 } else { 2 + random.below(2) };
        let mut last = (0, 0);
        let mut expected_bytes = Vec::new();
        let mut batch = line.queue.batch();
        let (mut at, mut sized) = (head, 0);
        for _ in 0..many {
            let length = 1 + random.below(230) as usize;
            let payload = random.bytes(length);
            let ds = 2 + (4 + payload.len()).div_ceil(16);
            // Room for all of them in the ring.
            if sized + ds.div_ceil(4) > blocks as usize {
                break;
            }
            sized += ds.div_ceil(4);
            line.next += 1;
            let write = RdmaWrite::new(Inline(&payload), remote).signaled();
            batch.append(line.next, write).unwrap();
            last = (at, ds);
            at += ds.div_ceil(4) as u32;
            expected_bytes = payload;
        }
        let posted = batch.len();
        // SAFETY: the payload is copied into the WQE.
        unsafe { batch.ring() };
        let (first, ds) = last;
        let copied = ds <= 16 && line.queue.copy().is_some() && (posted == 1 || config.copy_last);
        let stored = match copied {
            true => expected(half, ds.div_ceil(4) * 64, width),
            false => vec![(half, 8)],
        };
        assert_eq!(line.stores(first), stored, "{what}, turn {turn}, {posted} of them, ds {ds}");
        (head, half) = (at, half ^ 256);
        let (target, ids) = (expected_bytes, line.next);
        for id in ids + 1 - u64::from(posted)..ids {
            match wait(&mut line.completions, &mut line.queue) {
                Completion::Send(done) => assert_eq!(done.id, id),
                other => panic!("{other:?}, {what}"),
            }
        }
        line.done(&what, &target);
    }
    assert!(head > 4 * blocks, "the ring's end was met");
}

/// Posts of one block by [`SendQueue::post`]: sizes known at compile time, at run time, one unit.
fn single_blocks(rig: &Rig, config: SendConfig, width: usize) {
    let what = format!("{config:?}");
    let mut line = Line::new(rig, config);
    line.memory.write(0, &[0x5a; 64]);
    let (mut head, mut half) = (0, 0);
    stores::by_register();
    mlx5_model::stores::faults();
    for turn in 0..60u64 {
        let (remote, sge) = (line.remote(), line.memory.sge(0, 64).unwrap());
        line.next += 1;
        let (id, bytes) = (line.next, turn.to_ne_bytes());
        let copied = line.queue.copy().is_some();
        // SAFETY: the memory lives as long as the line, and no code writes it.
        let (written, copied) = unsafe {
            match turn % 4 {
                0 => {
                    line.queue
                        .post(id, RdmaWrite::new(InlineBytes(bytes), remote).signaled())
                        .unwrap();
                    (bytes.to_vec(), copied)
                }
                1 => {
                    let length = 1 + turn as usize % 28;
                    let bytes: Vec<u8> = (0..length as u8).collect();
                    let write = RdmaWrite::new(Inline(&bytes), remote).signaled();
                    line.queue.post(id, write).unwrap();
                    (bytes, copied)
                }
                2 => {
                    line.queue.post(id, RdmaWrite::new(sge, remote).signaled()).unwrap();
                    (vec![0x5a; 64], copied)
                }
                _ => {
                    line.queue.post(id, Nop::new().signaled()).unwrap();
                    (vec![], false)
                }
            }
        };
        let stored = if copied { expected(half, 64, width) } else { vec![(half, 8)] };
        assert_eq!(line.stores(head), stored, "{what}, turn {turn}");
        (head, half) = (head + 1, half ^ 256);
        line.done(&what, &written);
    }
}

/// The log of stores is the process's: everything that reads it is one test.
#[test]
fn every_way_of_storing_is_as_listed_and_understood() {
    let rig = Rig::new(Mode::Trapped);
    let _recording = stores::record();
    let mut tried = 0;
    for copy in BlueFlameCopy::available() {
        for copy_last in [false, true] {
            let config = SendConfig { copy, copy_last, ..SendConfig::default() };
            posts_as_listed(&rig, config, copy.width());
            single_blocks(&rig, config, copy.width());
        }
        tried += 1;
    }
    println!("{tried} ways of copying");
    assert!(tried > 1, "each architecture has a vector copy");
    // What is not copied: shared registers, and uncached memory.
    let shared = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
    // SAFETY: the model's register is not in write-combining memory.
    let memory = unsafe { UarMapping::uncached() };
    let uncached = SendConfig { memory, ..SendConfig::default() };
    for config in [shared, SendConfig { copy_last: true, ..uncached }] {
        posts_as_listed(&rig, config, 8);
        single_blocks(&rig, config, 8);
    }
    refused(&rig);
    probed(&rig);
}

/// A probe is made of the stores that it times.
fn probed(rig: &Rig) {
    const ROUNDS: u32 = 9;
    let mut line = Line::new(rig, SendConfig::default());
    stores::by_register();
    let probe = line.queue.probe_copies(&mut line.completions, ROUNDS).unwrap();
    println!("{probe}");
    let mut widths: Vec<_> = stores::by_register().iter().map(|store| store.bytes.len()).collect();
    let times = probe.times();
    let tried: Vec<_> = BlueFlameCopy::available().collect();
    assert_eq!(times.iter().map(|time| time.copy).collect::<Vec<_>>(), tried);
    assert!(times.iter().all(|time| time.post != 0));
    let fastest = times.iter().map(|time| time.completion).min();
    let found = times.iter().find(|time| time.copy == probe.fastest()).unwrap();
    assert_eq!(Some(found.completion), fastest);
    let mut expected: Vec<_> = tried
        .iter()
        .flat_map(|copy| vec![copy.width(); 64 / copy.width() * ROUNDS as usize])
        .collect();
    widths.sort_unstable();
    expected.sort_unstable();
    assert_eq!(widths, expected);
    // The queue works on as before, or by what was found.
    for copy in [line.queue.copy().unwrap(), BlueFlameCopy::detect()] {
        line.queue.set_copy(copy).unwrap();
        let (remote, bytes) = (line.remote(), 77u64.to_ne_bytes());
        line.next += 1;
        let write = RdmaWrite::new(InlineBytes(bytes), remote).signaled();
        // SAFETY: the payload is copied into the WQE.
        unsafe { line.queue.post(line.next, write).unwrap() };
        let widths: Vec<_> = stores::by_register().iter().map(|store| store.bytes.len()).collect();
        assert_eq!(widths, vec![copy.width(); 64 / copy.width()]);
        if copy == BlueFlameCopy::detect() {
            let busy = line.queue.probe_copies(&mut line.completions, 1);
            assert_eq!(busy, Err(ProbeError::NotIdle));
        }
        line.done("after the probe", &bytes);
    }
    assert!(line.queue.set_copy(unavailable()).is_err());
    assert_eq!(line.queue.copy(), Some(BlueFlameCopy::detect()));
    // Where it could not be done, nothing is.
    let shared = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
    let mut other = Line::new(rig, shared);
    let refused = other.queue.probe_copies(&mut other.completions, 1);
    assert_eq!(refused, Err(ProbeError::NoBlueFlame));
    let refused = line.queue.probe_copies(&mut other.completions, 1);
    assert_eq!(refused, Err(ProbeError::SharedCq));
    let config = ReceiveConfig { receives: 1 };
    let [qp, _] = &line.qps;
    let _receive = ReceiveQueue::new(qp, &mut line.completions, config).unwrap();
    let refused = line.queue.probe_copies(&mut line.completions, 1);
    assert_eq!(refused, Err(ProbeError::SharedCq));
    assert!(stores::by_register().is_empty());
}

fn unavailable() -> BlueFlameCopy {
    let missing = BlueFlameCopy::ALL.into_iter().find(|copy| !copy.is_available());
    missing.expect("no processor has them all")
}

fn refused(rig: &Rig) {
    let (cq, peer_cq) = (rig.cq(64), rig.cq(64));
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq));
    let (qp, peer) = rig.connect(qp, rig.init(QueuePair::builder(&rig.pd, &peer_cq)));
    let mut completions = CqReader::new(&cq).unwrap();
    for copy in BlueFlameCopy::ALL.into_iter().filter(|copy| !copy.is_available()) {
        let config = SendConfig { copy, ..SendConfig::default() };
        let error = SendQueue::new(&qp, &mut completions, config).unwrap_err();
        let feature = copy.feature().expect("what is always there is available");
        assert!(matches!(error, mlx5::Error::Queue(QueueError::CopyUnavailable(_))), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(feature) && text.contains(copy.name()), "{text}");
    }
    // Nothing was changed by the refusals.
    let queue = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    assert_eq!(queue.request_limit(), qp.capacities().max_send_wr.min(64));
    drop(peer);
}

#[test]
fn the_widest_copy_is_one_that_the_processor_has() {
    let widest = BlueFlameCopy::available().map(BlueFlameCopy::width).max().unwrap();
    let detected = BlueFlameCopy::detect();
    assert!(detected.is_available() && detected != BlueFlameCopy::St64b);
    assert_eq!(detected.width(), widest);
    assert_eq!(SendConfig::default().copy, BlueFlameCopy::Words);
    assert!(unavailable().feature().is_some());
}
