//! Cycles of a row's calls on one side, by the time stamp counter.
//!
//! Caches are warm: calls precede the measured ones, and the rings are read. The model is in manual
//! mode: it reads no registers or queues while the clock runs, and register pages are ordinary
//! memory. The time that an HCA and PCIe add to either side is **not** in these numbers, above all
//! the time that fences wait for real write-combining memory.

use std::ffi::c_void;

use crate::rows::{How, Row};
use crate::side::{LIST, MAKERS, Maker, Side, measured, watched};
use rig::verbs::QpMemory;

/// Calls before the clock starts, so that it finds caches and predictors warm, and while it runs.
const WARM: usize = 32;
pub const CALLS: usize = 64;
/// Runs of a clock that goes in steps, for a sample. On Zen 4 a step is 26 cycles, a third of 64
/// empty polls, and one run can be a step too long or too short.
const RUNS: usize = 8;
/// Longest step in cycles with which one run is enough.
const STEP: u64 = 4;

/// The unit of the clock.
pub const UNIT: &str = if cfg!(target_arch = "x86_64") { "TSC cycles" } else { "nanoseconds" };

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

/// A clock as it was found.
#[derive(Clone, Copy)]
struct Clock {
    /// Cycles that reading it takes.
    overhead: f64,
    /// Its runs for a sample.
    runs: usize,
}

impl Clock {
    fn new() -> Self {
        let mut times: Vec<u64> = (0..1000)
            .map(|_| {
                let start = now();
                now() - start
            })
            .collect();
        times.sort_unstable();
        let step = times.iter().copied().fold(0, divisor);
        if step <= STEP {
            return Self { overhead: times[0] as f64, runs: 1 };
        }
        // One in so many is a step longer than the others. Those that were disturbed are longer still.
        let usual = &times[..times.len() * 3 / 4];
        let overhead = usual.iter().sum::<u64>() as f64 / usual.len() as f64;
        Self { overhead, runs: RUNS }
    }
}

/// Returns the greatest common divisor.
fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// A row on one side, and the samples of it.
pub struct Timed {
    maker: &'static Maker,
    row: Row,
    side: Box<dyn Side>,
    /// Addresses of the send and receive rings, and lengths in bytes.
    rings: Vec<(*const u64, usize)>,
    clock: Clock,
    /// Cycles per operation.
    pub samples: Vec<f64>,
}

impl Timed {
    /// Of the side in a column that has the row, if one does.
    pub fn new(column: &str, row: Row) -> Option<Self> {
        let maker =
            MAKERS.iter().find(|maker| maker.column == column && maker.rows.contains(&row))?;
        let (side, rings) = made(maker);
        Some(Self { maker, row, side, rings, clock: Clock::new(), samples: vec![] })
    }

    pub fn column(&self) -> &'static str {
        self.maker.column
    }

    /// Adds one sample, unless the processor lacks what the row needs.
    pub fn sample(&mut self) {
        let runs: Option<Vec<f64>> = (0..self.clock.runs).map(|_| self.run()).collect();
        if let Some(runs) = runs {
            self.samples.push(runs.iter().sum::<f64>() / runs.len() as f64);
        }
    }

    /// Returns the cycles per operation of one run of the clock; none if the processor lacks what the
    /// row needs.
    fn run(&mut self) -> Option<f64> {
        let Self { row, clock, .. } = *self;
        let how = row.spec().how;
        let (warm, timed) = match how {
            How::Lists(requests) | How::FillLists(requests) | How::TakeLists(requests) => {
                (LIST / requests, CALLS / requests)
            }
            // Each call takes the places of several requests.
            How::TakeFew => (WARM / 8, CALLS / 8),
            // One call of the loop fires all that is prepared.
            How::Fire => (0, CALLS),
            _ => (WARM, CALLS),
        };
        if how.fills() {
            (self.side, self.rings) = made(self.maker);
        }
        let rings = &self.rings;
        let mut cycles = 0;
        let has = measured(&mut *self.side, row, warm + timed, |side| {
            let first = if warm == 0 { 0 } else { side.run(row, warm)? };
            warmed(rings);
            let start = now();
            let done = side.run(row, timed)?;
            cycles = now() - start;
            Some(first + done)
        });
        has.then(|| (cycles as f64 - clock.overhead) / (timed * row.per_call()) as f64)
    }
}

fn made(maker: &Maker) -> (Box<dyn Side>, Vec<(*const u64, usize)>) {
    drop(watched());
    let side = (maker.make)();
    let rings = watched().into_iter().flat_map(|(qp, _)| {
        // SAFETY: a side keeps its queue pair.
        let dv = unsafe { QpMemory::new(qp) }.dv;
        let ring = |start: *mut c_void, length: u32| (start.cast_const().cast(), length as usize);
        [
            ring(dv.sq.buf, dv.sq.wqe_cnt * dv.sq.stride),
            ring(dv.rq.buf, dv.rq.wqe_cnt * dv.rq.stride),
        ]
    });
    let rings = rings.collect();
    (side, rings)
}

/// Brings the rings back into the processor's cache. A card would have left them there; but the
/// model runs on this processor, and has work of its own.
fn warmed(rings: &[(*const u64, usize)]) {
    for &(start, length) in rings {
        for line in (0..length / 8).step_by(8) {
            // SAFETY: in the ring, which lives as long as the side.
            unsafe { start.add(line).read_volatile() };
        }
    }
}

/// Takes so many samples of each, in turns. Which goes first changes from round to round.
pub fn alternate(sides: &mut [Timed], rounds: usize) {
    let count = sides.len();
    for round in 0..rounds {
        for turn in 0..count {
            sides[(round + turn) % count].sample();
        }
    }
}

/// The sample below which that part of the samples lies.
pub fn quantile(samples: &[f64], of: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * of) as usize])
}
