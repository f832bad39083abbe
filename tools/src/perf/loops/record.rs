//! Times of messages.

use mlx5::timing::Clock;

use crate::perf::plan::Plan;
use crate::perf::result::distribution::{Distribution, Timed};

/// Times of one thread's messages, in all, and one by one if that was asked for.
#[derive(Debug)]
pub struct Record {
    clock: &'static Clock,
    /// A round trip is counted half.
    halves: bool,
    distribution: Distribution,
    raw: Vec<u64>,
    /// Times that there was no room for.
    dropped: u64,
    last: u64,
    wrong: u64,
}

impl Record {
    /// All memory is taken here: room for `raw` times one by one.
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

    /// A message that is timed from one tick to another.
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

    /// A message that is wrong, if it is.
    #[inline(always)]
    pub(super) fn check(&mut self, right: bool) {
        self.wrong += u64::from(!right);
    }

    /// Forgets what was so far, but for what was wrong.
    pub(super) fn clear(&mut self) {
        self.distribution.clear();
        self.raw.clear();
        self.dropped = 0;
    }

    /// The last tick.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Messages that were wrong.
    pub(super) fn wrong(&self) -> u64 {
        self.wrong
    }

    /// All times.
    #[must_use]
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// Times one by one, in nanoseconds, in the order in which messages were done.
    #[must_use]
    pub fn raw(&self) -> &[u64] {
        &self.raw
    }

    /// How many of them there was no room for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
