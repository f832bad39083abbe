//! Reports of a recorder.

use core::fmt;

use super::Phase;
use super::clock::Clock;
use super::histogram::Histogram;

/// Durations of one phase, in ticks of the [`Clock`].
///
/// The cost of a stamp ([`Report::overhead`]) is subtracted from every duration. Shorter durations
/// count as 0, and `below` is their number.
///
/// See the example on [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseReport {
    /// The phase.
    pub phase: Phase,
    /// The number of durations.
    pub count: u64,
    /// How many took less than the cost of a stamp, and so count as 0.
    pub below: u64,
    /// The shortest.
    pub min: u64,
    /// Half of all took no longer. At most 1/64 less than exactly that.
    pub median: u64,
    /// 99 of 100 took no longer. At most 1/64 less than exactly that.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// The last.
    pub last: u64,
}

/// Durations of the phases of a queue's calls. `Display` prints a table.
///
/// ```
/// # let rig::Link { mut sends, .. } = rig::link()?;
/// use mlx5::timing::Phase;
/// use mlx5::wqe::Nop;
///
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new())? };
/// let report = sends.timing();
/// let encode = report.phase(Phase::Encode).ok_or("not stamped")?;
/// assert!(encode.count == 1 && encode.min <= encode.median);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    clock: &'static Clock,
    phases: Vec<PhaseReport>,
}

impl Report {
    pub(super) fn new(
        clock: &'static Clock,
        histograms: &[Histogram],
        last: &[u64; Phase::COUNT],
    ) -> Self {
        let overhead = clock.overhead();
        let net = |ticks: u64| ticks.saturating_sub(overhead);
        let phases = Phase::ALL.into_iter().filter_map(|phase| {
            let histogram = &histograms[phase as usize];
            (histogram.count() != 0).then(|| PhaseReport {
                phase,
                count: histogram.count(),
                below: histogram.below(overhead),
                min: net(histogram.min()),
                median: net(histogram.quantile(1, 2)),
                p99: net(histogram.quantile(99, 100)),
                max: net(histogram.max()),
                last: net(last[phase as usize]),
            })
        });
        Self { clock, phases: phases.collect() }
    }

    /// Returns the phases that occurred, in their order.
    pub fn phases(&self) -> &[PhaseReport] {
        &self.phases
    }

    /// Returns one of them; `None` if it did not occur.
    pub fn phase(&self, phase: Phase) -> Option<&PhaseReport> {
        self.phases.iter().find(|report| report.phase == phase)
    }

    /// Returns the clock that the ticks are of.
    pub fn clock(&self) -> &'static Clock {
        self.clock
    }

    /// Returns what was subtracted from each duration, in ticks.
    pub fn overhead(&self) -> u64 {
        self.clock.overhead()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.clock)?;
        write!(
            f,
            "{:<12} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
            "", "count", "min", "median", "p99", "max", "last", "median ns", "p99 ns", "below"
        )?;
        for phase in &self.phases {
            let ns = |ticks| self.clock.nanoseconds(ticks);
            write!(
                f,
                "\n{:<12} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9.1} {:>9.1} {:>9}",
                phase.phase.name(),
                phase.count,
                phase.min,
                phase.median,
                phase.p99,
                phase.max,
                phase.last,
                ns(phase.median),
                ns(phase.p99),
                phase.below
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
