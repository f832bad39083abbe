//! Time and randomness: one source, so that a run can be replayed.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

/// A source of time for a device, instead of the machine's clock.
pub trait TimeSource: Debug + Send + Sync {
    /// Returns the nanoseconds since the device was created.
    fn now(&self) -> u64;
}

#[cfg(test)]
thread_local! {
    /// Readings of the machine's clock by this thread, for devices and the engine.
    pub(crate) static READINGS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the nanoseconds of the machine's clock since an instant.
pub(crate) fn since(start: Instant) -> u64 {
    #[cfg(test)]
    READINGS.set(READINGS.get() + 1);
    start.elapsed().as_nanos() as u64
}

/// The source of the device's time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's monotonic clock, counted from this instant.
    Real(Instant),
    /// A time that moves only when it is set, in nanoseconds.
    Manual(u64),
    /// Another source: one that records the machine's clock, or repeats a recording.
    Source(Arc<dyn TimeSource>),
}

impl Clock {
    /// Returns the machine's clock, starting at zero now.
    pub fn real() -> Self {
        Self::Real(Instant::now())
    }

    /// Returns the nanoseconds since the device was created.
    pub fn now(&self) -> u64 {
        match self {
            Self::Real(start) => since(*start),
            Self::Manual(now) => *now,
            Self::Source(source) => source.now(),
        }
    }

    /// Moves a manual clock forward. Other clocks advance by themselves.
    pub fn advance(&mut self, nanoseconds: u64) {
        if let Self::Manual(now) = self {
            *now += nanoseconds;
        }
    }
}

/// A small generator (SplitMix64): enough for numbering, never for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed; the same seed gives the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
