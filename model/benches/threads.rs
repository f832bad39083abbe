//! Threads that use devices at the same time: their rate together, and how long a post takes while
//! another thread writes large messages on the same device.
//!
//! Time in which a thread could run and waits for a processor does not count, so that other load on
//! the machine disturbs less; time in which it sleeps counts.
//!
//! Every figure is measured in processes of their own, in rounds. With `-- --against PATH`, where
//! PATH is this program as built from other sources, each round runs both, one after the other.

#[path = "../tests/verbs/mod.rs"]
mod verbs;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{NonNull, null_mut};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mlx5_sys::verbs::*;
use verbs::{Device, Qp, connected};

/// Tells a process what to measure.
const CHILD: &str = "MLX5_MODEL_BENCH_THREADS";
const ROUNDS: usize = 7;
/// Time of a measurement.
const TIME: Duration = Duration::from_millis(800);
const SIZES: [u32; 2] = [8, 64 << 10];
const LARGE: u32 = 1 << 20;

/// A thread's time on a processor and its time in line for one, as the kernel counts them.
struct Schedule(File);

impl Schedule {
    fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").expect("CONFIG_SCHED_INFO"))
    }

    fn now(&self) -> [Duration; 2] {
        let mut text = [0; 96];
        let length = self.0.read_at(&mut text, 0).expect("three numbers");
        let text = std::str::from_utf8(&text[..length]).expect("text");
        let mut numbers = text.split(' ').map(|number| number.parse().expect("a number"));
        [(); 2].map(|()| Duration::from_nanos(numbers.next().expect("a number")))
    }
}

/// Time from now on, without the time in line for a processor.
struct Watch<'a> {
    schedule: &'a Schedule,
    began: Instant,
    before: [Duration; 2],
}

impl<'a> Watch<'a> {
    fn start(schedule: &'a Schedule) -> Self {
        let before = schedule.now();
        Self { schedule, began: Instant::now(), before }
    }

    /// Returns the time, and the time on a processor.
    fn stop(&self) -> (Duration, Duration) {
        let all = self.began.elapsed();
        let [ran, waited] = self.schedule.now();
        (all.saturating_sub(waited - self.before[1]), ran - self.before[0])
    }
}

/// A queue pair that writes to another one of its device.
struct Writer {
    device: Device,
    from: Qp,
    _to: Qp,
    region: NonNull<ibv_mr>,
    _memory: Vec<u8>,
}

impl Writer {
    fn open(device: usize, size: u32) -> Self {
        let device = Device::open(device);
        let (from, to) = connected(&device);
        let mut memory = vec![0; 2 * size as usize];
        let region = device.register(&mut memory);
        Self { device, from, _to: to, region, _memory: memory }
    }

    /// Posts a WRITE of the first half of the memory to the second.
    fn post(&self, size: u32) {
        // SAFETY: all zero is a valid request; queue pair, region and memory are there.
        unsafe {
            let (addr, key) = (self.region.as_ref().addr as u64, self.region.as_ref().lkey);
            let mut sge = ibv_sge { addr, length: size, lkey: key };
            let mut request: ibv_send_wr = std::mem::zeroed();
            (request.sg_list, request.num_sge) = (&mut sge, 1);
            request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            request.wr.rdma.remote_addr = addr + u64::from(size);
            request.wr.rdma.rkey = self.region.as_ref().rkey;
            let mut bad = null_mut();
            assert_eq!(ibv_post_send(self.from.0.as_ptr(), &mut request, &mut bad), 0);
        }
    }
}

/// Measures the rate of threads, each with a device of its own: prints the WRITEs each second, and
/// the microseconds of processor time for each.
fn rate(threads: usize, size: u32) {
    let start = Barrier::new(threads);
    let run = |index: usize| {
        let writer = Writer::open(index, size);
        start.wait();
        let schedule = Schedule::of_this_thread();
        let watch = Watch::start(&schedule);
        let mut count = 0u32;
        while watch.began.elapsed() < TIME {
            writer.post(size);
            assert_eq!(writer.device.poll().status, ibv_wc_status::IBV_WC_SUCCESS);
            count += 1;
        }
        let (time, used) = watch.stop();
        let count = f64::from(count);
        (count / time.as_secs_f64(), used.as_secs_f64() * 1e6 / count)
    };
    let all: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || run(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("its end")).collect()
    });
    let rate: f64 = all.iter().map(|(rate, _)| rate).sum();
    let used: f64 = all.iter().map(|(_, used)| used).sum::<f64>() / threads as f64;
    println!("{rate} {used}");
}

/// Measures posts of 8-byte WRITEs while another thread writes large messages on the same device:
/// prints the microseconds of half, of 99.9 % and of all posts.
fn posts() {
    let stop = AtomicBool::new(false);
    let start = Barrier::new(2);
    let mut times = std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = Writer::open(0, LARGE);
            start.wait();
            while !stop.load(Ordering::Relaxed) {
                writer.post(LARGE);
                writer.device.poll();
            }
        });
        let writer = Writer::open(0, 8);
        start.wait();
        let schedule = Schedule::of_this_thread();
        let mut times = Vec::new();
        let began = Instant::now();
        while began.elapsed() < 2 * TIME {
            let watch = Watch::start(&schedule);
            writer.post(8);
            times.push(watch.stop().0.as_secs_f64() * 1e6);
            writer.device.poll();
        }
        stop.store(true, Ordering::Relaxed);
        times
    });
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{} {} {}", at(0.5), at(0.999), at(1.0));
}

/// Has a process measure, and returns its figures.
fn measured(program: &PathBuf, what: &str) -> Vec<f64> {
    let mut command = Command::new(program);
    command.env(CHILD, what).env("MLX5_MODEL", "always").env("MLX5_MODEL_DEVICES", "2");
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("figures");
    text.split_whitespace().map(|figure| figure.parse().expect("a figure")).collect()
}

fn median(of: &[Vec<f64>], column: usize) -> f64 {
    let mut values: Vec<f64> = of.iter().map(|figures| figures[column]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn best(of: &[Vec<f64>], column: usize) -> f64 {
    of.iter().map(|figures| figures[column]).fold(0.0, f64::max)
}

fn print(name: &str, results: &[Vec<Vec<f64>>]) {
    for (size, pair) in SIZES.iter().zip(results.chunks_exact(2)) {
        let (one, two) = (&pair[0], &pair[1]);
        println!(
            "| {name} | {size} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} µs | {:.2} µs |",
            median(one, 0),
            median(two, 0),
            median(two, 0) / median(one, 0),
            best(two, 0) / best(one, 0),
            median(one, 1),
            median(two, 1),
        );
    }
    let posts = &results[2 * SIZES.len()];
    println!(
        "posts, {name}: median {:.1} µs, 99.9 % {:.1} µs, worst {:.1} µs (worst of all rounds {:.1} µs)",
        median(posts, 0),
        median(posts, 1),
        median(posts, 2),
        best(posts, 2),
    );
}

fn main() {
    if let Ok(what) = std::env::var(CHILD) {
        let words: Vec<&str> = what.split(' ').collect();
        return match words[..] {
            ["rate", threads, size] => rate(threads.parse().unwrap(), size.parse().unwrap()),
            _ => posts(),
        };
    }
    let mut programs = vec![("this", std::env::current_exe().expect("a path"))];
    let mut arguments = std::env::args().skip_while(|argument| argument != "--against").skip(1);
    programs.extend(arguments.next().map(|path| ("against", PathBuf::from(path))));
    let mut tasks: Vec<String> = Vec::new();
    for size in SIZES {
        tasks.extend([1, 2].map(|threads| format!("rate {threads} {size}")));
    }
    tasks.push("posts".into());
    let mut results = vec![vec![Vec::new(); tasks.len()]; programs.len()];
    for _ in 0..ROUNDS {
        for (task, what) in tasks.iter().enumerate() {
            for ((_, program), results) in programs.iter().zip(&mut results) {
                results[task].push(measured(program, what));
            }
        }
    }
    println!(
        "| build | bytes | 1 thread, /s | 2 threads, /s | ratio | ratio of the best | processor time | with 2 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for ((name, _), results) in programs.iter().zip(&results) {
        print(name, results);
    }
}
