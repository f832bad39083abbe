//! Decides when the next message is sent, and from which time it is measured.
//!
//! A *closed* loop sends a message when the previous one is done. During a stall it sends nothing,
//! so only the one message in flight records the stall. An *open* loop follows a fixed schedule.
//! Messages that are due during a stall are late, and each is timed from its scheduled time. (Gil
//! Tene calls the defect of closed loops coordinated omission.)

use mlx5::timing::Clock;

use super::wait::Wait;
use crate::perf::path::Stop;
use crate::perf::plan::{Arrivals, Schedule};

/// A policy for the send times. It is a value and no type parameter: the comparison that it takes per
/// message is cheaper than each loop once more.
pub(super) enum Pace {
    /// Sends whenever the loop has space for a message.
    Closed,
    /// Sends by schedule.
    Open(Open),
}

impl Pace {
    /// Waits until the next message is due, or the measurement ends early. Returns the tick from
    /// which it is timed.
    #[inline(always)]
    pub(super) fn next(&mut self, wait: &mut Wait<'_>) -> Result<u64, Stop> {
        match self {
            Pace::Closed => Ok(Clock::now()),
            Pace::Open(open) => open.next(wait),
        }
    }

    /// Returns that tick without waiting; `None` if no message is due at the tick `now`.
    #[inline(always)]
    pub(super) fn due(&mut self, now: u64) -> Option<u64> {
        match self {
            Pace::Closed => Some(now),
            Pace::Open(open) => open.due(now),
        }
    }
}

/// A schedule.
pub(super) struct Open {
    /// When the next message is due, in ticks after `began`.
    next: f64,
    began: u64,
    /// Ticks between two messages, in the mean.
    gap: f64,
    /// The generator for random arrivals.
    random: Option<Random>,
}

impl Open {
    /// Creates the schedule of one of `threads` threads, from the tick `began` on.
    pub(super) fn new(schedule: &Schedule, threads: u32, thread: usize, began: u64) -> Open {
        let gap = Clock::get().hertz() * f64::from(threads) / schedule.per_second;
        match schedule.arrivals {
            // Threads take turns.
            Arrivals::Fixed => {
                let next = gap * thread as f64 / f64::from(threads);
                Open { next, began, gap, random: None }
            }
            // Each thread is a Poisson process, and so are all of them together.
            Arrivals::Poisson => {
                let random = Some(Random::new(schedule.seed, thread as u64));
                let mut open = Open { next: 0.0, began, gap, random };
                open.advance();
                open
            }
        }
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.next += match &mut self.random {
            None => self.gap,
            Some(random) => -random.unit().ln() * self.gap,
        };
    }
}

impl Open {
    /// Waits until the next message is due, or the measurement ends early.
    #[inline]
    fn next(&mut self, wait: &mut Wait<'_>) -> Result<u64, Stop> {
        loop {
            if let Some(due) = self.due(Clock::now()) {
                return Ok(due);
            }
            if wait.is_interrupted() {
                return Ok(u64::MAX);
            }
            wait.once()?;
            // Waiting for the scheduled time does not count as time without an event.
            wait.over();
        }
    }

    /// Returns when the next message is due, if that is over at the tick `now`.
    #[inline]
    fn due(&mut self, now: u64) -> Option<u64> {
        let due = self.began + self.next as u64;
        if due > now {
            return None;
        }
        self.advance();
        Some(due)
    }
}

/// SplitMix64: a reproducible random number generator.
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Random {
        Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Returns a number above 0 and at most 1.
    #[inline(always)]
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(arrivals: Arrivals, seed: u64, count: usize) -> Vec<u64> {
        let per_second = Clock::get().hertz() / 1000.0;
        let schedule = Schedule { per_second, arrivals, seed };
        let mut open = Open::new(&schedule, 1, 0, 5000);
        (0..count).map(|_| open.due(u64::MAX).unwrap()).collect()
    }

    #[test]
    fn fixed_arrivals_are_at_equal_distances_and_none_is_left_out() {
        let dues = dues(Arrivals::Fixed, 0, 1000);
        for (at, &due) in dues.iter().enumerate() {
            assert!(due.abs_diff(5000 + 1000 * at as u64) <= 1, "{at}: {due}");
        }
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_an_exponential_distribution() {
        let dues = dues(Arrivals::Poisson, 7, 20_000);
        let gaps: Vec<f64> = dues.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1000.0 - 1.0).abs() < 0.05, "mean {mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "deviation {}", variance.sqrt());
        assert_eq!(self::dues(Arrivals::Poisson, 7, 100), dues[..100], "the same seed");
        assert_ne!(self::dues(Arrivals::Poisson, 8, 100), dues[..100], "another seed");
    }

    #[test]
    fn what_is_not_due_is_not_sent() {
        let schedule = Schedule { per_second: 1.0, arrivals: Arrivals::Fixed, seed: 0 };
        let mut open = Open::new(&schedule, 2, 1, 0);
        // The second of two threads begins half a second after the first.
        let hertz = Clock::get().hertz() as u64;
        assert_eq!(open.due(hertz - 10), None);
        assert!(open.due(hertz + 10).unwrap().abs_diff(hertz) <= 1);
    }
}
