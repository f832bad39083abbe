//! Counts of how long something took, in a fixed array.

/// Durations below this have a bucket each.
const EXACT: u64 = 128;
/// Buckets per power of two above it.
const PER_OCTAVE: u64 = 64;
/// Powers of two above it: 2^7 to 2^31. Longer durations are counted in the last bucket.
const OCTAVES: u64 = 25;
const BUCKETS: usize = (EXACT + OCTAVES * PER_OCTAVE) as usize;

/// How often each duration was met: exact below 128 ticks, then in buckets that are at most 1/64
/// wide. Adding costs no allocation; a value is never lost.
#[derive(Clone)]
pub(crate) struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    min: u64,
    max: u64,
}

impl Histogram {
    pub(crate) const EMPTY: Self = Self { buckets: [0; BUCKETS], count: 0, min: u64::MAX, max: 0 };

    pub(crate) fn add(&mut self, ticks: u64) {
        self.buckets[bucket(ticks)] += 1;
        self.count += 1;
        self.min = self.min.min(ticks);
        self.max = self.max.max(ticks);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the least duration; 0 if there is none.
    pub(crate) fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// Returns the longest duration.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Durations less than `limit` ticks, which must be at most 128: exactly.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.buckets[..limit.min(EXACT) as usize].iter().sum()
    }

    /// Returns a duration that `numerator` of `denominator` of all are not above, as its bucket's
    /// least value, but never outside of what was met; 0 if there is none.
    pub(crate) fn quantile(&self, numerator: u64, denominator: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(numerator))
            .div_ceil(u128::from(denominator))
            .max(1) as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return least(at).clamp(self.min(), self.max);
            }
        }
        self.max
    }
}

/// The bucket of a duration.
fn bucket(ticks: u64) -> usize {
    if ticks < EXACT {
        return ticks as usize;
    }
    let octave = u64::from(ticks.ilog2() - EXACT.ilog2());
    if octave >= OCTAVES {
        return BUCKETS - 1;
    }
    let within = (ticks >> (octave + 1)) - PER_OCTAVE;
    (EXACT + octave * PER_OCTAVE + within) as usize
}

/// The least duration of a bucket.
fn least(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (octave, within) = ((bucket - EXACT) / PER_OCTAVE, (bucket - EXACT) % PER_OCTAVE);
    (PER_OCTAVE + within) << (octave + 1)
}

#[cfg(test)]
mod tests;
