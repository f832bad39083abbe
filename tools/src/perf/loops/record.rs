//! Times of messages.

use mlx5::timing::Clock;

use crate::perf::plan::Plan;
use crate::perf::result::distribution::{Distribution, Timed};

/// The number of slowest messages that are kept with the moment of their end.
pub const SLOWEST: usize = 16;

/// Times of one thread's messages: all together, and one by one on request.
#[derive(Debug)]
pub struct Record {
    clock: &'static Clock,
    /// Whether a round trip counts half.
    halves: bool,
    distribution: Distribution,
    raw: Vec<u64>,
    /// The slowest messages: nanoseconds, and the tick of the end.
    slowest: Vec<(u64, u64)>,
    /// Messages up to this time are not among them.
    usual: u64,
    /// Times dropped for lack of space.
    dropped: u64,
    last: u64,
    wrong: u64,
}

impl Record {
    /// Allocates all memory, with space for `raw` single times.
    #[must_use]
    pub fn new(plan: &Plan, raw: usize) -> Record {
        Record {
            clock: Clock::get(),
            halves: plan.timed() == Timed::HalfRoundTrip,
            distribution: Distribution::new(),
            raw: Vec::with_capacity(raw),
            slowest: Vec::with_capacity(SLOWEST),
            usual: 0,
            dropped: 0,
            last: 0,
            wrong: 0,
        }
    }

    /// Adds a message that took from one tick to another.
    #[inline(always)]
    pub(super) fn add(&mut self, since: u64, now: u64) {
        self.last = now;
        let ticks = now.saturating_sub(since);
        let time = self.clock.whole_nanoseconds(if self.halves { ticks / 2 } else { ticks });
        self.distribution.record(time);
        if time > self.usual {
            self.keep(time, now);
        }
        if self.raw.len() < self.raw.capacity() {
            self.raw.push(time);
        } else {
            self.dropped += 1;
        }
    }

    /// Keeps a message among the slowest ones.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, time: u64, now: u64) {
        if self.slowest.len() == SLOWEST {
            let fastest = (0..SLOWEST).min_by_key(|&at| self.slowest[at].0).unwrap_or(0);
            self.slowest.swap_remove(fastest);
        }
        self.slowest.push((time, now));
        if self.slowest.len() == SLOWEST {
            self.usual = self.slowest.iter().map(|&(time, _)| time).min().unwrap_or(0);
        }
    }

    /// Counts a message if it is wrong.
    #[inline(always)]
    pub(super) fn check(&mut self, right: bool) {
        self.wrong += u64::from(!right);
    }

    /// Clears all times, but keeps the count of wrong messages.
    pub(super) fn clear(&mut self) {
        self.distribution.clear();
        self.raw.clear();
        self.slowest.clear();
        self.usual = 0;
        self.dropped = 0;
    }

    /// Returns the last tick.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of wrong messages.
    pub(super) fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Returns all times.
    #[must_use]
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// Returns single times in nanoseconds, in the order in which messages completed.
    #[must_use]
    pub fn raw(&self) -> &[u64] {
        &self.raw
    }

    /// Returns the slowest messages in no order: nanoseconds, and the tick of the end.
    #[must_use]
    pub fn slowest(&self) -> &[(u64, u64)] {
        &self.slowest
    }

    /// Returns how many single times were dropped for lack of space.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::tests::plan;

    #[test]
    fn the_slowest_messages_are_kept_with_their_ends() {
        let mut record = Record::new(&plan(), 0);
        record.halves = false;
        let ticks = |micros: u64| record_ticks(micros * 1000);
        // Of 100 messages in a mixed order, each ends at its own tick.
        for at in 0..100 {
            let now = 1 << 40 | at;
            record.add(now - ticks(at * 37 % 100 + 1), now);
        }
        let mut kept = record.slowest().to_vec();
        kept.sort_unstable();
        assert_eq!(kept.len(), SLOWEST);
        for (&(time, end), micros) in kept.iter().zip(85..=100) {
            assert!(time.abs_diff(micros * 1000) <= 2, "{time} ns");
            assert_eq!((end & 0xff) * 37 % 100 + 1, micros);
        }
        record.clear();
        assert!(record.slowest().is_empty());
    }

    fn record_ticks(nanoseconds: u64) -> u64 {
        Clock::get().ticks_of(nanoseconds as f64)
    }
}
