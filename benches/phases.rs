//! Times the phases of posts and polls, by the time stamps of this crate's queues.
//!
//! ```text
//! cargo xtask bench --phases
//! cargo bench --features timing --bench phases -- [--quick]
//! ```
//!
//! The model is in manual mode: it reads no registers or queues while a post or a poll runs, and
//! register pages are ordinary memory. So `order` and `flush`, the phases of the fences, say
//! nothing about write-combining memory. `flight` is mostly the time that the model needs between
//! post and poll. The control at the end shows how much of a fence's time a stamp sees.

#[allow(dead_code, reason = "valgrind has no part in it")]
#[path = "report/context.rs"]
mod context;

use std::hint::black_box;

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, Prepared, SendConfig, SendQueue};
use mlx5::timing::Clock;
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{InlineBytes, RdmaWrite, Remote, Sge};
use rig::Rig;

/// Posts between two runs of the model, and WRs in a list.
const BURST: u64 = 32;

/// A queue pair, taken over, connected to one that does nothing.
struct Line {
    /// Absent while requests are prepared.
    send: Option<SendQueue>,
    completions: CqReader,
    memory: MemoryRegion,
    _ends: (QueuePair<Rc, Rts>, QueuePair<Rc, Rts>),
    _cqs: (CompletionQueue, CompletionQueue),
}

impl Line {
    fn new(rig: &Rig) -> Self {
        let (cq, peer_cq) = (rig.cq(255), rig.cq(255));
        let shape = |cq| {
            let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(128).max_recv_wr(1);
            builder.max_inline_data(64)
        };
        let (qp, peer) = rig.connect(rig.init(shape(&cq)), rig.init(shape(&peer_cq)));
        let mut completions = CqReader::new(&cq).expect("a CQ of its own");
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default());
        Self {
            send: Some(send.expect("a QP of its own")),
            completions,
            memory: rig.memory(4096),
            _ends: (qp, peer),
            _cqs: (cq, peer_cq),
        }
    }

    fn sge(&self) -> Sge {
        Sge::new(self.memory.address(), 64, self.memory.lkey())
    }

    fn remote(&self) -> Remote {
        Remote::new(self.memory.remote_address() + 1024, self.memory.rkey())
    }

    fn send(&mut self) -> &mut SendQueue {
        self.send.as_mut().expect("no request is prepared")
    }

    /// `rounds` bursts of posts by `post`, each executed and polled; the first ones only warm up.
    fn measure(&mut self, title: &str, rounds: u64, mut post: impl FnMut(&mut Self)) {
        for round in 0..rounds + rounds / 10 {
            if round == rounds / 10 {
                self.send().clear_timing();
                self.completions.clear_timing();
            }
            post(self);
            mlx5_model::run();
            for id in 0..BURST {
                let done = self.completions.poll(&mut self.send);
                let ours = matches!(done, Ok(Some(Completion::Send(done))) if done.id == id);
                assert!(ours, "{id}: {done:?}");
            }
            assert_eq!(self.completions.poll(&mut self.send), Ok(None));
        }
        println!("\n{title}\n{}", self.send().timing());
        println!("their polls\n{}", self.completions.timing());
    }
}

/// Returns the median ticks that a stamp measures for slow stores: from before 16 stores that miss
/// every cache until after the fence `behind` them.
#[cfg(target_arch = "x86_64")]
fn missing_stores(rounds: u64, behind: impl Fn()) -> u64 {
    use core::arch::x86_64::{_mm_clflush, _mm_lfence, _mm_mfence, _rdtsc};
    const LINES: usize = 16;
    /// From one store to the next: another page, so that nothing is fetched ahead.
    const STEP: usize = 512;
    let mut memory = vec![0u64; LINES * STEP];
    let base = memory.as_mut_ptr();
    let mut samples: Vec<u64> = (0..rounds)
        .map(|round| {
            // SAFETY: every address lies in `memory`; the rest reads the counter, or is a fence.
            unsafe {
                for line in 0..LINES {
                    _mm_clflush(base.add(line * STEP).cast());
                }
                _mm_mfence();
                _mm_lfence();
                let start = _rdtsc();
                for line in 0..LINES {
                    base.add(line * STEP).write_volatile(round);
                }
                behind();
                _mm_lfence();
                _rdtsc() - start
            }
        })
        .collect();
    samples.sort_unstable();
    samples[samples.len() / 2]
}

#[cfg(target_arch = "x86_64")]
fn control(rounds: u64) {
    use core::arch::x86_64::{_mm_mfence, _mm_sfence};
    let overhead = Clock::get().overhead();
    println!("\nwhat a stamp sees behind 16 stores to write-back memory that miss every cache:");
    let none = missing_stores(rounds, || ());
    // SAFETY: fences.
    let sfence = missing_stores(rounds, || unsafe { _mm_sfence() });
    // SAFETY: fences.
    let mfence = missing_stores(rounds, || unsafe { _mm_mfence() });
    for (name, ticks) in [("no fence", none), ("sfence", sfence), ("mfence", mfence)] {
        println!("{name:<12} {:>9}", ticks.saturating_sub(overhead));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn control(_rounds: u64) {}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let quick = match arguments.as_slice() {
        [] => false,
        [quick] if quick == "--quick" => true,
        _ => {
            eprintln!("usage: cargo bench --features timing --bench phases -- [--quick]");
            std::process::exit(2);
        }
    };
    let rounds = if quick { 100 } else { 5000 };
    if cfg!(debug_assertions) {
        println!("This is a debug build: the numbers say nothing. Use cargo bench.");
    }
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let command = ["cargo bench --features timing --bench phases --"].into_iter();
    let command: Vec<_> = command.chain(arguments.iter().map(String::as_str)).collect();
    for (key, value) in context::of(command.join(" ")) {
        println!("{key}: {value}");
    }
    println!(
        "\n{rounds} rounds of {BURST}, on the software model in manual mode; register pages are \
         ordinary memory: nothing here is a card's time, or a register's."
    );
    let mut line = Line::new(&rig);
    let (sge, remote) = (line.sge(), line.remote());
    line.measure("WRITE, 8 bytes inline, signaled, BlueFlame", rounds, |line| {
        for id in 0..BURST {
            let write = RdmaWrite::new(InlineBytes(black_box(id).to_ne_bytes()), remote).signaled();
            // SAFETY: the memory lives to the end, and the program does not access it.
            unsafe { line.send().post(id, write) }.expect("posted");
        }
    });
    line.measure("WRITE, 64 bytes by pointer, signaled, BlueFlame", rounds, |line| {
        for id in 0..BURST {
            let write = RdmaWrite::new(black_box(sge), remote).signaled();
            // SAFETY: the memory lives to the end, and the program does not access it.
            unsafe { line.send().post(id, write) }.expect("posted");
        }
    });
    line.measure("list of 32 such, one doorbell", rounds, |line| {
        let mut batch = line.send().batch();
        for id in 0..BURST {
            let write = RdmaWrite::new(black_box(sge), remote).signaled();
            batch.append(id, write).expect("appended");
        }
        // SAFETY: the memory lives to the end, and the program does not access it.
        unsafe { batch.ring() };
    });
    line.measure("prepared WRITE, 8 bytes inline, signaled: fire", rounds, |line| {
        let mut prepared = Prepared::new(line.send.take().expect("a queue"));
        for id in 0..BURST {
            let write = RdmaWrite::new(InlineBytes([0; 8]), remote).signaled();
            prepared.prepare(id, write).expect("prepared");
        }
        for value in 0..BURST {
            prepared.fire(black_box(value).to_ne_bytes()).expect("fired");
        }
        line.send = Some(prepared.into_queue());
    });
    control(rounds);
}
