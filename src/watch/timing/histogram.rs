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
mod tests {
    use super::*;
    use crate::ring::random::Random;

    #[test]
    fn buckets_are_in_a_row_and_contain_what_they_say() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(least(at)), at);
            if at + 1 < BUCKETS {
                assert_eq!(bucket(least(at + 1) - 1), at, "no gap behind bucket {at}");
                let width = least(at + 1) - least(at);
                assert!(width == 1 || width * 64 <= least(at), "bucket {at} is {width} wide");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket(1 << 32), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut random = Random::from_clock();
        for _ in 0..200 {
            let mut histogram = Histogram::EMPTY;
            let count = 1 + random.below(300) as usize;
            let bits = 1 + random.below(30);
            let mut values: Vec<u64> =
                (0..count).map(|_| u64::from(random.below(1 << bits))).collect();
            values.iter().for_each(|&value| histogram.add(value));
            values.sort_unstable();
            for (numerator, denominator) in [(0, 1), (1, 2), (9, 10), (99, 100), (1, 1)] {
                let rank = (count * numerator).div_ceil(denominator).max(1);
                let exact = values[rank - 1];
                let found = histogram.quantile(numerator as u64, denominator as u64);
                assert!(
                    found <= exact.max(values[0]) && exact - found.min(exact) <= exact / 64,
                    "{numerator}/{denominator} of {values:?}: {found}"
                );
            }
            assert_eq!(histogram.count(), count as u64);
            assert_eq!(histogram.min(), values[0]);
            assert_eq!(histogram.max(), values[count - 1]);
            let limit = u64::from(random.below(129));
            let below = values.iter().filter(|&&value| value < limit).count();
            assert_eq!(histogram.below(limit), below as u64);
        }
    }

    #[test]
    fn nothing_is_all_zero() {
        let empty = Histogram::EMPTY;
        let of = (empty.count(), empty.min(), empty.quantile(1, 2), empty.max(), empty.below(128));
        assert_eq!(of, (0, 0, 0, 0, 0));
    }

    #[test]
    fn what_is_too_long_is_counted() {
        let mut histogram = Histogram::EMPTY;
        histogram.add(u64::MAX);
        histogram.add(u64::MAX - 1);
        assert_eq!((histogram.count(), histogram.max()), (2, u64::MAX));
        assert_eq!(histogram.quantile(1, 2), u64::MAX - 1, "not below the least");
    }
}
