//! How many cycles posting and polling take: this crate, libmlx5's interfaces, and a floor of bare
//! stores, in one process, in turns.
//!
//! ```text
//! cargo xtask bench --cycles
//! cargo bench --bench post_poll -- [--quick | --check] [--record FOLDER]
//! ```
//!
//! `benches/instructions` counts the instructions of the same loops. This benchmark measures cycles
//! of the time stamp counter per call (per WR for lists), caller included, with warm caches. The
//! model is in manual mode: it reads no registers or queues while the clock runs, and register
//! pages are ordinary memory. The time that an HCA and PCIe add to either side is **not** in these
//! numbers, above all the time that fences wait for real write-combining memory.
//!
//! Everything is measured in three runs, one after the other. `--check` fails if this crate's
//! median is not three times below that of libmlx5's best interface, in each run, for each post and
//! each poll that finds something.

#[allow(dead_code, reason = "nothing is compared with earlier results")]
mod report;
#[path = "../tests/rig/mod.rs"]
mod rig;
#[allow(dead_code, reason = "limits are about instructions")]
#[path = "instructions/rows.rs"]
mod rows;
#[path = "instructions/side.rs"]
mod side;

use std::path::PathBuf;
use std::process::ExitCode;

use mlx5_model::Mode;
use report::{Line, Report, Value, context};
use rig::verbs::QpMemory;
use rows::{How, Row, column};
use side::{LIST, MAKERS, Side, columns, measured, watched};

/// The model reads no registers or queues while the clock runs.
const MODE: Mode = Mode::Manual;

/// Calls before the clock starts, so that it finds caches and predictors warm, and while it runs.
const WARM: usize = 32;
const TIMED: usize = 64;

/// Runs in a row.
const RUNS: usize = 3;

/// How many times fewer cycles than libmlx5's best interface this crate is to take.
const TIMES: f64 = 3.0;

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

const TITLE: &str = if cfg!(target_arch = "x86_64") {
    "TSC cycles per call, median (p10 to p90)"
} else {
    "nanoseconds per call, median (p10 to p90)"
};

/// A side, and where its send and receive rings are.
struct Made {
    side: Box<dyn Side>,
    /// Addresses, and lengths in bytes.
    rings: Vec<(*const u64, usize)>,
}

impl Made {
    fn new(make: fn() -> Box<dyn Side>) -> Self {
        drop(watched());
        let side = make();
        let rings = watched().into_iter().flat_map(|(qp, _)| {
            // SAFETY: a side keeps its queue pair.
            let dv = unsafe { QpMemory::new(qp) }.dv;
            let ring = |start: *mut std::ffi::c_void, length: u32| {
                (start.cast_const().cast(), length as usize)
            };
            [
                ring(dv.sq.buf, dv.sq.wqe_cnt * dv.sq.stride),
                ring(dv.rq.buf, dv.rq.wqe_cnt * dv.rq.stride),
            ]
        });
        Self { rings: rings.collect(), side }
    }

    /// Brings the rings back into the processor's cache. A card would have left them there; but the
    /// model runs on this processor, and has work of its own.
    fn warm(rings: &[(*const u64, usize)]) {
        for &(start, length) in rings {
            for line in (0..length / 8).step_by(8) {
                // SAFETY: in the ring, which lives as long as the side.
                unsafe { start.add(line).read_volatile() };
            }
        }
    }
}

/// One side of the table, and its samples of a run per row.
struct Timed {
    column: &'static str,
    make: fn() -> Box<dyn Side>,
    made: Made,
    samples: Vec<Vec<f64>>,
}

impl Timed {
    /// One sample of a row, if the side has such calls.
    fn time(&mut self, at: usize, overhead: u64) {
        let row = Row::ALL[at];
        let how = row.spec().how;
        let (warm, timed) = match how {
            How::Lists(requests) | How::FillLists(requests) | How::TakeLists(requests) => {
                (LIST / requests, TIMED / requests)
            }
            // Each call takes the places of several requests.
            How::TakeFew => (WARM / 8, TIMED / 8),
            _ => (WARM, TIMED),
        };
        if self.made.side.run(row, 0).is_none() {
            return;
        }
        let mut new = how.fills().then(|| Made::new(self.make));
        let Made { side, rings } = new.as_mut().unwrap_or(&mut self.made);
        let side = &mut **side;
        let mut cycles = 0;
        // One call of the loop fires all that is prepared.
        let warm = if how == How::Fire { 0 } else { warm };
        let mut first = 0;
        let has = measured(side, row, warm + timed, |side| {
            if warm != 0 {
                first = side.run(row, warm)?;
            }
            Made::warm(rings);
            let start = now();
            let done = side.run(row, timed)?;
            cycles = (now() - start).saturating_sub(overhead);
            Some(first + done)
        });
        if has {
            self.samples[at].push(cycles as f64 / (timed * row.per_call()) as f64);
        }
    }

    /// Median, with the tenths at either end.
    fn value(&self, row: usize) -> Option<Value> {
        let mut sorted = self.samples[row].clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let quantile = |of: f64| sorted[(last as f64 * of) as usize];
        Some(Value { value: quantile(0.5), spread: Some([quantile(0.1), quantile(0.9)]) })
    }
}

/// Every row of every side, so many times, in turns.
fn run(sides: &mut [Timed], rounds: usize, overhead: u64) {
    for side in sides.iter_mut() {
        side.samples = vec![vec![]; Row::ALL.len()];
    }
    let count = sides.len();
    for round in 0..rounds {
        for (at, row) in Row::ALL.iter().enumerate() {
            // These need new queues each time, which take long to make.
            if row.spec().how.fills() && round % 20 != 0 {
                continue;
            }
            // Which side goes first changes from round to round.
            for turn in 0..count {
                sides[(round + turn) % count].time(at, overhead);
            }
        }
    }
}

/// Returns the values of a row in one run, per column.
fn values(sides: &[Timed], row: usize) -> Vec<Option<Value>> {
    let of = |column| sides.iter().filter(|side| side.column == column).find_map(|s| s.value(row));
    columns().into_iter().map(of).collect()
}

/// How many times fewer cycles than the best of `others` the side in `column` takes.
fn ratio(values: &[Option<Value>], others: &[&str], column: &str) -> Option<f64> {
    let columns = columns();
    let median = |of: &str| Some(values[columns.iter().position(|name| *name == of)?]?.value);
    let best = others.iter().copied().filter_map(median);
    Some(best.reduce(f64::min)? / median(column)?)
}

/// The parsed command line.
struct Choice {
    rounds: usize,
    check: bool,
    record: Option<PathBuf>,
}

fn choice(arguments: &[String]) -> Option<Choice> {
    let mut choice = Choice { rounds: 200, check: false, record: None };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // cargo's.
            "--bench" => {}
            "--quick" => choice.rounds = 60,
            "--check" => choice.check = true,
            "--record" => choice.record = Some(arguments.next()?.into()),
            _ => return None,
        }
    }
    Some(choice)
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let Some(choice) = choice(&arguments) else {
        eprintln!("usage: cargo bench --bench post_poll -- [--quick] [--check] [--record FOLDER]");
        return ExitCode::from(2);
    };
    if cfg!(debug_assertions) {
        println!("This is a debug build: the numbers say nothing. Use cargo bench.");
    }
    let make = |maker: &side::Maker| Timed {
        column: maker.column,
        make: maker.make,
        made: Made::new(maker.make),
        samples: vec![],
    };
    let mut sides: Vec<_> = MAKERS.iter().map(make).collect();
    // The clock's own cost.
    let clock = || {
        let start = now();
        now() - start
    };
    let overhead = (0..1000).map(|_| clock()).min().unwrap_or(0);

    let mut runs = Vec::new();
    for _ in 0..RUNS {
        run(&mut sides, choice.rounds, overhead);
        runs.push((0..Row::ALL.len()).map(|row| values(&sides, row)).collect::<Vec<_>>());
    }

    // The last run is shown; the ratios of all are.
    let ratios = |row: usize, others: &[&str], column| -> Vec<f64> {
        runs.iter().filter_map(|run| ratio(&run[row], others, column)).collect()
    };
    let locked = [column::CLASSIC, column::EXTENDED];
    let mut missed = Vec::new();
    let lines = Row::ALL.iter().enumerate().map(|(at, row)| {
        let text = |others: &[&str], column| {
            let ratios = ratios(at, others, column);
            ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(", ")
        };
        let asks = matches!(row.spec().how, How::Post | How::Lists(_) | How::Fire | How::Poll);
        if asks && !ratios(at, &locked, column::RAW).iter().all(|ratio| *ratio >= TIMES) {
            missed.push(row.text());
        }
        Line {
            name: row.text().to_owned(),
            values: runs[RUNS - 1][at].clone(),
            remarks: vec![
                ("libmlx5's best / mlx5, three runs", text(&locked, column::RAW)),
                ("libmlx5's best / floor", text(&locked, column::FLOOR)),
                ("no locks / mlx5", text(&[column::UNLOCKED], column::RAW)),
            ],
        }
    });
    let lines = lines.collect();
    let report = Report {
        title: TITLE,
        context: context::of("cargo xtask bench --cycles".to_owned()),
        columns: columns(),
        ours: column::RAW,
        lines,
    };
    println!("{} rounds of {TIMED} calls per run, in turns, in one process.", choice.rounds);
    println!("On the software model in manual mode: the CPU's side alone; register pages are");
    println!("ordinary memory here, and nothing of this is a device's speed.\n");
    println!("{}", report.text());
    let written = choice.record.map_or_else(report::folder, Ok).and_then(|folder| {
        report.write(&folder, "cycles")?;
        println!("also in {}/cycles.{{json,md,svg}}", folder.display());
        Ok(())
    });
    if let Err(error) = written {
        eprintln!("error: cannot write the report: {error}");
        return ExitCode::FAILURE;
    }
    for row in &missed {
        println!("below {TIMES} times in a run: {row}");
    }
    if choice.check && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
