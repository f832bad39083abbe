//! Times of messages.

use mlx5::timing::Clock;

use crate::perf::plan::Plan;
use crate::perf::result::distribution::{Distribution, Timed};

/// Times of one thread's messages: all together, and one by one on request.
#[derive(Debug)]
pub struct Record {
    clock: &'static Clock,
    /// Whether a round trip counts half.
    halves: bool,
    distribution: Distribution,
    raw: Vec<u64>,
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
        if self.raw.len() < self.raw.capacity() {
            self.raw.push(time);
        } else {
            self.dropped += 1;
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

    /// Returns how many single times were dropped for lack of space.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
