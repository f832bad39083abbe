//! What posting and polling cost the CPU: this crate against libmlx5, in one process, in turns.
//!
//! ```text
//! cargo bench --bench post_poll -- [--quick]
//! ```
//!
//! Measured are cycles of the time stamp counter per call (per WR for lists), caller included, with
//! warm caches, on the model in manual mode: nobody looks at registers and queues while the clock
//! runs, and register pages are ordinary memory. So it is the instructions and their stores that
//! are compared. What a card and PCIe add to either side, above all the time that fences wait for
//! real write-combining memory, is **not** in these numbers.

#[path = "../tests/rig/mod.rs"]
mod rig;

use std::hint::black_box;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;

use mlx5::cqe::Completion;
use mlx5::ring::{Completions, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rc, Rts};
use mlx5::wqe::{InlineBytes, Remote, Sge, Write};
use mlx5_sys::verbs::{
    ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wc, ibv_wr_opcode,
};
use rig::Rig;

/// Posts per timed section, and WRs in a list.
const BURST: usize = 32;

/// The clock: cycles of the time stamp counter, or nanoseconds where there is none.
#[cfg(target_arch = "x86_64")]
fn now() -> u64 {
    use core::arch::x86_64::{__rdtscp, _mm_lfence};
    let mut processor = 0;
    // SAFETY: reads a counter; RDTSCP waits for earlier instructions, LFENCE holds later ones.
    unsafe {
        let now = __rdtscp(&mut processor);
        _mm_lfence();
        now
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// One measured operation: samples of both sides, in cycles per call.
struct Row {
    name: &'static str,
    /// libmlx5, this crate.
    samples: [Vec<f64>; 2],
}

impl Row {
    fn new(name: &'static str) -> Self {
        Self { name, samples: Default::default() }
    }

    /// Times `calls` calls that `work` makes.
    fn time<R>(&mut self, side: usize, calls: usize, overhead: u64, work: impl FnOnce() -> R) -> R {
        let start = now();
        let result = work();
        let cycles = (now() - start).saturating_sub(overhead);
        self.samples[side].push(cycles as f64 / calls as f64);
        result
    }

    fn quantile(&self, side: usize, of: f64) -> f64 {
        let mut sorted = self.samples[side].clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * of) as usize]
    }
}

/// A queue pair connected to one that does nothing.
struct Line {
    qp: QueuePair<Rc, Rts>,
    _peer: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

fn line(rig: &Rig) -> Line {
    let (cq, peer_cq) = (rig.cq(255), rig.cq(255));
    let shape = |cq| {
        let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(128).max_recv_wr(64);
        builder.max_inline_data(64)
    };
    let (qp, peer) = rig.connect(rig.init(shape(&cq)), rig.init(shape(&peer_cq)));
    Line { qp, _peer: peer, cq, memory: rig.memory(4096) }
}

/// libmlx5's side, with its work requests prepared.
struct Theirs {
    line: Line,
    sges: Vec<ibv_sge>,
    list: Vec<ibv_send_wr>,
}

impl Theirs {
    /// `inline`: 8 bytes in the WQE; otherwise 64 by pointer. Each WR signaled, chained or not.
    fn prepare(&mut self, inline: bool, chained: bool) {
        let (address, lkey) = (self.line.memory.address(), self.line.memory.lkey());
        let length = if inline { 8 } else { 64 };
        self.sges = vec![ibv_sge { addr: address, length, lkey }];
        let wr = |id| {
            // SAFETY: integers, pointers and unions of them.
            let mut wr: ibv_send_wr = unsafe { zeroed() };
            wr.wr_id = id;
            wr.sg_list = self.sges.as_mut_ptr();
            wr.num_sge = 1;
            wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            if inline {
                wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
            }
            wr.wr.rdma.remote_addr = self.line.memory.remote_address() + 1024;
            wr.wr.rdma.rkey = self.line.memory.rkey();
            wr
        };
        self.list = (0..BURST as u64).map(wr).collect();
        for at in 1..if chained { BURST } else { 0 } {
            self.list[at - 1].next = &raw mut self.list[at];
        }
    }

    fn post(&mut self, at: usize) {
        let mut bad = null_mut();
        // SAFETY: QP and memory live to the end.
        let result =
            unsafe { ibv_post_send(self.line.qp.as_raw().as_ptr(), &mut self.list[at], &mut bad) };
        assert_eq!(result, 0);
    }

    fn poll(&mut self) -> bool {
        let mut wc = MaybeUninit::<ibv_wc>::uninit();
        // SAFETY: room for one; nobody else polls.
        let found = unsafe { ibv_poll_cq(self.line.cq.as_raw().as_ptr(), 1, wc.as_mut_ptr()) };
        black_box(&wc);
        found == 1
    }
}

/// This crate's side.
struct Ours {
    line: Line,
    completions: Completions,
    send: SendQueue<Rc>,
}

impl Ours {
    fn sge(&self) -> Sge {
        Sge::new(self.line.memory.address(), 64, self.line.memory.lkey())
    }

    fn remote(&self) -> Remote {
        Remote::new(self.line.memory.remote_address() + 1024, self.line.memory.rkey())
    }

    fn poll(&mut self) -> bool {
        let found = self.completions.poll(&mut self.send);
        matches!(black_box(found), Ok(Some(Completion::Send(_))))
    }
}

fn rounds(
    rig: &Rig,
    theirs: &mut Theirs,
    ours: &mut Ours,
    rounds: usize,
    overhead: u64,
) -> Vec<Row> {
    let mut inline = Row::new("WRITE, 8 bytes inline, signaled, BlueFlame");
    let mut pointer = Row::new("WRITE, 64 bytes by pointer, signaled, BlueFlame");
    let mut list = Row::new("list of 32 such, one doorbell, per WR");
    let mut poll = Row::new("poll, one completion");
    let mut empty = Row::new("poll, empty");
    let mut receive = Row::new("post a receive, one SGE");
    let (sge, remote) = (ours.sge(), ours.remote());
    let payload = [7u8; 8];
    for round in 0..rounds {
        // Which side goes first changes from round to round.
        for side in [round % 2, (round + 1) % 2] {
            for kind in 0..3 {
                if side == 0 {
                    theirs.prepare(kind == 0, kind == 2);
                }
                // SAFETY: the memory lives to the end, and nobody looks at it.
                match (side, kind) {
                    (0, 0 | 1) => {
                        let row = if kind == 0 { &mut inline } else { &mut pointer };
                        row.time(0, BURST, overhead, || (0..BURST).for_each(|at| theirs.post(at)));
                    }
                    (0, _) => list.time(0, BURST, overhead, || theirs.post(0)),
                    (_, 0) => inline.time(1, BURST, overhead, || {
                        for id in 0..BURST as u64 {
                            let write = Write::new(InlineBytes(black_box(payload)), remote);
                            // SAFETY: as above.
                            unsafe { ours.send.post(id, write.signaled()) }.unwrap();
                        }
                    }),
                    (_, 1) => pointer.time(1, BURST, overhead, || {
                        for id in 0..BURST as u64 {
                            let write = Write::new(black_box(sge), remote).signaled();
                            // SAFETY: as above.
                            unsafe { ours.send.post(id, write) }.unwrap();
                        }
                    }),
                    _ => list.time(1, BURST, overhead, || {
                        let mut batch = ours.send.batch();
                        for id in 0..BURST as u64 {
                            let write = Write::new(black_box(sge), remote).signaled();
                            batch.append(id, write).unwrap();
                        }
                        // SAFETY: as above.
                        unsafe { batch.ring() };
                    }),
                }
                mlx5_model::run();
                let found = match side {
                    0 => poll.time(0, BURST, overhead, || (0..BURST).all(|_| theirs.poll())),
                    _ => poll.time(1, BURST, overhead, || (0..BURST).all(|_| ours.poll())),
                };
                assert!(found, "every request completes");
                let found = match side {
                    0 => empty.time(0, BURST, overhead, || (0..BURST).any(|_| theirs.poll())),
                    _ => empty.time(1, BURST, overhead, || (0..BURST).any(|_| ours.poll())),
                };
                assert!(!found, "and completes once");
            }
        }
    }
    // Nothing takes receives here, so queue pairs are filled with them, and others come.
    for _ in 0..rounds.div_ceil(50) {
        receives(rig, &mut receive, overhead);
    }
    vec![inline, pointer, list, poll, empty, receive]
}

/// Posts bursts of receives by both sides, on new queue pairs.
fn receives(rig: &Rig, row: &mut Row, overhead: u64) {
    const POSTS: usize = 16;
    let (theirs, ours) = (line(rig), line(rig));
    let mut completions = Completions::new(&ours.cq).unwrap();
    let config = ReceiveConfig::default();
    let mut queue = ReceiveQueue::new(&ours.qp, &mut completions, config).unwrap();
    let sge = Sge::new(ours.memory.address(), 64, ours.memory.lkey());
    let (address, lkey) = (theirs.memory.address(), theirs.memory.lkey());
    let mut their_sge = ibv_sge { addr: address, length: 64, lkey };
    // SAFETY: integers and pointers.
    let mut wr: ibv_recv_wr = unsafe { zeroed() };
    wr.sg_list = &mut their_sge;
    wr.num_sge = 1;
    for _ in 0..64 / POSTS {
        row.time(0, POSTS, overhead, || {
            for _ in 0..POSTS {
                let mut bad = null_mut();
                // SAFETY: QP and memory live to the end.
                let result =
                    unsafe { ibv_post_recv(theirs.qp.as_raw().as_ptr(), &mut wr, &mut bad) };
                assert_eq!(result, 0);
            }
        });
        row.time(1, POSTS, overhead, || {
            for id in 0..POSTS as u64 {
                // SAFETY: as above.
                unsafe { queue.post(id, black_box(sge)) }.unwrap();
            }
        });
    }
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(':').nth(1)).unwrap_or(" unknown").trim().to_owned()
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let quick = match arguments.as_slice() {
        [] => false,
        [quick] if quick == "--quick" => true,
        _ => {
            eprintln!("usage: cargo bench --bench post_poll -- [--quick]");
            std::process::exit(2);
        }
    };
    if cfg!(debug_assertions) {
        println!("This is a debug build: the numbers say nothing. Use cargo bench.");
    }
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let mut theirs = Theirs { line: line(&rig), sges: vec![], list: vec![] };
    let our_line = line(&rig);
    let mut completions = Completions::new(&our_line.cq).unwrap();
    let config = SendConfig::default();
    let send = SendQueue::new(&our_line.qp, &mut completions, config).unwrap();
    let mut ours = Ours { line: our_line, completions, send };

    // The clock's own cost.
    let clock = || {
        let start = now();
        now() - start
    };
    let overhead = (0..1000).map(|_| clock()).min().unwrap_or(0);
    let count = if quick { 200 } else { 5000 };
    let rows = rounds(&rig, &mut theirs, &mut ours, count, overhead);

    let unit = if cfg!(target_arch = "x86_64") { "TSC cycles" } else { "nanoseconds" };
    println!("cargo bench --bench post_poll -- {}", arguments.join(" "));
    println!("{}; {count} rounds of {BURST} calls, in turns, in one process", processor());
    println!("{unit} per call, on the software model in manual mode: the CPU's side alone.");
    println!("Register pages are ordinary memory here; nothing of this is a card's speed.\n");
    println!(
        "{:48} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8}   {:>6}",
        "", "libmlx5", "p10", "p90", "mlx5", "p10", "p90", "ratio"
    );
    for row in &rows {
        let [their, our] = [0, 1].map(|side| [0.5, 0.1, 0.9].map(|of| row.quantile(side, of)));
        println!(
            "{:48} {:8.1} {:8.1} {:8.1}   {:8.1} {:8.1} {:8.1}   {:5.2}x",
            row.name,
            their[0],
            their[1],
            their[2],
            our[0],
            our[1],
            our[2],
            their[0] / our[0]
        );
    }
}
