//! One send queue, two threads: this crate's shared queue against libmlx5's queue pair, which takes
//! its spin lock for every post.
//!
//! ```text
//! cargo bench --bench shared -- [--quick]
//! ```
//!
//! In each round every side posts the same burst, by one thread and by two at once. Each thread has
//! its own processor. The side that goes first changes from round to round. The time stamp counter
//! times a burst from the start of the first thread to the end of the last. The time is divided by
//! the burst's posts. The model is in manual mode: it reads no registers or queues while the clock
//! runs, and register pages are ordinary memory. After each burst the model executes it, and every
//! request must have completed, once, with its own id.
//!
//! All of that is done three times. If two threads post, the median of the shared queue must be
//! better than those of both libmlx5 interfaces each time, or the benchmark fails (not with
//! `--quick`, whose medians are of few rounds).
//!
//! The exclusive queue is measured for comparison: in a `std::sync::Mutex` for two threads, and
//! without one for a single thread.

mod libmlx5;
mod sides;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use mlx5_model::Mode;
use rig::Rig;
use sides::{Exclusive, Locked, Shared};

/// Posts of each thread in a burst.
const POSTS: u64 = 200;

/// How often all is measured.
const RUNS: usize = 3;

/// The posted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inline,
    Pointer,
}

impl Kind {
    const fn text(self) -> &'static str {
        match self {
            Self::Inline => "8-byte inline WRITE",
            Self::Pointer => "64-byte pointer WRITE",
        }
    }
}

/// A way to post to a queue that threads share.
trait Side: Sync {
    fn name(&self) -> &'static str;

    /// Whether more than one thread may post.
    fn threads(&self) -> usize {
        2
    }

    /// Posts requests with these ids, all signaled; calls `go` when all is prepared, and returns
    /// the clock at the begin and at the end.
    fn burst(&self, kind: Kind, ids: std::ops::Range<u64>, go: &dyn Fn()) -> (u64, u64);

    /// Takes the ids that have completed.
    fn completed(&self, ids: &mut Vec<u64>);
}

/// Cycles of the time stamp counter, which is one for all processors.
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

/// Nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Keeps the calling thread on a processor.
fn pin(processor: usize) {
    // SAFETY: a set of bits, filled by the C library's own macros; the call reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    assert_eq!(result, 0, "processor {processor}: {}", std::io::Error::last_os_error());
}

/// Two processors that this program may run on.
fn processors() -> [usize; 2] {
    // SAFETY: a set of bits that the call fills.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        set
    };
    // SAFETY: within the set.
    let mut usable = (0..1024).filter(|&it| unsafe { libc::CPU_ISSET(it, &set) });
    match (usable.next(), usable.next()) {
        (Some(first), Some(second)) => [first, second],
        _ => {
            eprintln!("two threads on one processor would take turns: nothing to measure");
            std::process::exit(1);
        }
    }
}

/// A task of the second thread.
#[derive(Clone, Copy)]
struct Job {
    side: usize,
    kind: Kind,
    ids: (u64, u64),
}

/// The synchronization of the two threads.
struct Meeting {
    /// They sleep here between bursts.
    barrier: Barrier,
    /// And start together here.
    ready: AtomicUsize,
    job: Mutex<Option<Job>>,
    times: Mutex<(u64, u64)>,
}

impl Meeting {
    fn start_together(&self) {
        self.ready.fetch_add(1, Ordering::SeqCst);
        while self.ready.load(Ordering::SeqCst) < 2 {
            std::hint::spin_loop();
        }
    }
}

/// The measurements of one kind of post by one number of threads.
struct Case {
    threads: usize,
    kind: Kind,
    /// Cycles per post, by side and round.
    samples: Vec<Vec<f64>>,
}

impl Case {
    fn quantile(&self, side: usize, of: f64) -> f64 {
        let mut sorted = self.samples[side].clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * of) as usize]
    }

    /// How many times the shared queue's median fits that of another side.
    fn ratio(&self, side: usize, shared: usize) -> f64 {
        self.quantile(side, 0.5) / self.quantile(shared, 0.5)
    }
}

/// Prints one case of several runs. Returns whether the shared queue is faster than libmlx5 in
/// each.
fn report(sides: &[Box<dyn Side>], runs: &[&Case]) -> bool {
    let [Case { threads, kind, .. }, ..] = *runs else { return true };
    let shared = sides.iter().position(|side| side.name() == Shared::NAME).expect("a side");
    println!("{}, {threads} thread{}:", kind.text(), if *threads == 1 { "" } else { "s" });
    let mut faster = true;
    for (at, side) in sides.iter().enumerate().filter(|&(at, _)| !runs[0].samples[at].is_empty()) {
        let all = runs.iter().flat_map(|run| run.samples[at].iter().copied()).collect();
        let all = Case { threads: *threads, kind: *kind, samples: vec![all] };
        let [median, low, high] = [0.5, 0.1, 0.9].map(|of| all.quantile(0, of));
        let ratios: Vec<_> = runs.iter().map(|run| run.ratio(at, shared)).collect();
        let text: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!(
            "  {:40} {median:8.1} ({low:7.1} to {high:7.1})   {}",
            side.name(),
            text.join(", ")
        );
        faster &= !side.name().starts_with("libmlx5") || ratios.iter().all(|&ratio| ratio > 1.0);
    }
    println!();
    faster
}

/// Runs the bursts.
fn measure(sides: &[Box<dyn Side>], rounds: usize, processors: [usize; 2]) -> Vec<Case> {
    let meeting = Meeting {
        barrier: Barrier::new(2),
        ready: AtomicUsize::new(0),
        job: Mutex::new(None),
        times: Mutex::new((0, 0)),
    };
    let kinds = [Kind::Inline, Kind::Pointer];
    let case = |threads, kind| Case { threads, kind, samples: vec![vec![]; sides.len()] };
    let mut cases: Vec<_> =
        [1, 2].into_iter().flat_map(|threads| kinds.map(|kind| case(threads, kind))).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(processors[1]);
            loop {
                meeting.barrier.wait();
                let Some(job) = *meeting.job.lock().unwrap() else { break };
                let ids = job.ids.0..job.ids.1;
                let times = sides[job.side].burst(job.kind, ids, &|| meeting.start_together());
                *meeting.times.lock().unwrap() = times;
                meeting.barrier.wait();
            }
        });
        pin(processors[0]);
        let mut next = 0;
        let mut ids = Vec::new();
        for round in 0..rounds {
            for Case { threads, kind, samples } in &mut cases {
                let (threads, kind) = (*threads, *kind);
                for turn in 0..sides.len() {
                    let at = (round + turn) % sides.len();
                    let side = &*sides[at];
                    if threads > side.threads() {
                        continue;
                    }
                    let first = next;
                    next += threads as u64 * POSTS;
                    let (start, end) = if threads == 1 {
                        side.burst(kind, first..next, &|| ())
                    } else {
                        meeting.ready.store(0, Ordering::SeqCst);
                        let job = Job { side: at, kind, ids: (first + POSTS, next) };
                        *meeting.job.lock().unwrap() = Some(job);
                        meeting.barrier.wait();
                        let mine =
                            side.burst(kind, first..first + POSTS, &|| meeting.start_together());
                        meeting.barrier.wait();
                        let theirs = *meeting.times.lock().unwrap();
                        (mine.0.min(theirs.0), mine.1.max(theirs.1))
                    };
                    samples[at].push((end - start) as f64 / (next - first) as f64);
                    mlx5_model::run();
                    ids.clear();
                    side.completed(&mut ids);
                    ids.sort_unstable();
                    assert!(ids.iter().copied().eq(first..next), "each request completes once");
                }
            }
        }
        *meeting.job.lock().unwrap() = None;
        meeting.barrier.wait();
    });
    cases
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(':').nth(1)).unwrap_or(" unknown").trim().to_owned()
}

fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let quick = match arguments.as_slice() {
        [] => false,
        [quick] if quick == "--quick" => true,
        _ => {
            eprintln!("usage: cargo bench --bench shared -- [--quick]");
            std::process::exit(2);
        }
    };
    assert_ne!(
        std::env::var("MLX5_SINGLE_THREADED").as_deref(),
        Ok("1"),
        "libmlx5 takes no locks so, and must not be used by two threads"
    );
    let processors = processors();
    let rig = || Rig::new(Mode::Manual);
    let sides: Vec<Box<dyn Side>> = vec![
        Box::new(libmlx5::Classic::new(rig())),
        Box::new(libmlx5::Extended::new(rig())),
        Box::new(Shared::new(rig())),
        Box::new(Locked::new(rig())),
        Box::new(Exclusive::new(rig())),
    ];
    let rounds = if quick { 10 } else { 300 };
    let before = load();
    let runs: Vec<_> = (0..RUNS).map(|_| measure(&sides, rounds, processors)).collect();

    let unit = if cfg!(target_arch = "x86_64") { "TSC cycles" } else { "nanoseconds" };
    println!("cargo bench --bench shared -- {}", arguments.join(" "));
    println!(
        "{}, processors {processors:?}, load {before} before and {} after",
        self::processor(),
        load()
    );
    println!("{RUNS} runs of {rounds} rounds, {POSTS} posts per thread and burst, in turns");
    println!("{unit} per post: the burst's length through all its posts. Median (p10 to p90), and");
    println!("each run's median through that of the shared queue.");
    println!("On the software model in manual mode: the CPU's side alone, nothing of a device.\n");
    let mut lost = false;
    for case in 0..runs[0].len() {
        let runs: Vec<_> = runs.iter().map(|run| &run[case]).collect();
        lost |= !report(&sides, &runs) && runs[0].threads > 1;
    }
    if lost && !quick {
        eprintln!("with two threads, the shared queue is not faster than libmlx5's queue pair");
        std::process::exit(1);
    }
}
