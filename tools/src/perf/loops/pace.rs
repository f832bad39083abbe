//! When the next message is sent, and from when on it is timed.
//!
//! A *closed* loop sends a message when the one before is done. So while something stalls, it sends
//! nothing, and the one message that was under way is all that it has to tell of the stall. An *open*
//! loop has a schedule that does not care: messages that are due while something stalls are late, and
//! each is timed from when it should have been sent. (This is what Gil Tene calls coordinated omission,
//! and its cure.)

use mlx5::timing::Clock;

use super::wait::Wait;
use crate::perf::path::Stop;
use crate::perf::plan::{Arrivals, Schedule};

/// A way to decide it.
pub(super) trait Pace {
    /// Waits until the next message is to be sent. Returns the tick from which it is timed.
    fn next(&mut self, wait: &mut Wait<'_>) -> Result<u64, Stop>;

    /// The same without waiting: `None` if none is due at the tick `now`.
    fn due(&mut self, now: u64) -> Option<u64>;
}

/// When there is room.
pub(super) struct Closed;

impl Pace for Closed {
    #[inline(always)]
    fn next(&mut self, _: &mut Wait<'_>) -> Result<u64, Stop> {
        Ok(Clock::now())
    }

    #[inline(always)]
    fn due(&mut self, now: u64) -> Option<u64> {
        Some(now)
    }
}

/// By schedule.
pub(super) struct Open {
    /// When the next message is due, in ticks after `began`.
    next: f64,
    began: u64,
    /// Ticks between two messages, in the mean.
    gap: f64,
    /// Where arrivals are by chance.
    random: Option<Random>,
}

impl Open {
    /// The schedule of one of so many threads, from the tick `began` on.
    pub(super) fn new(schedule: &Schedule, threads: u32, thread: usize, began: u64) -> Open {
        let gap = Clock::get().hertz() * f64::from(threads) / schedule.per_second;
        match schedule.arrivals {
            // Threads take turns.
            Arrivals::Fixed => {
                let next = gap * thread as f64 / f64::from(threads);
                Open { next, began, gap, random: None }
            }
            // Each is a Poisson process, and so are all of them together.
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

impl Pace for Open {
    #[inline(always)]
    fn next(&mut self, wait: &mut Wait<'_>) -> Result<u64, Stop> {
        loop {
            if let Some(due) = self.due(Clock::now()) {
                return Ok(due);
            }
            wait.once()?;
            // Waiting for the time to come is no silence.
            wait.over();
        }
    }

    #[inline(always)]
    fn due(&mut self, now: u64) -> Option<u64> {
        let due = self.began + self.next as u64;
        if due > now {
            return None;
        }
        self.advance();
        Some(due)
    }
}

/// SplitMix64: chance that can be had again.
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Random {
        Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Above 0, at most 1.
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
