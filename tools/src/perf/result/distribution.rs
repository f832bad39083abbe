//! Times, stored as a histogram of any range, with the exact shortest and longest time.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Significant decimal digits: a time is off by at most a thousandth of itself.
pub const DIGITS: u8 = 3;
/// The longest time that is distinguished from longer ones, in nanoseconds: an hour.
pub const LONGEST: u64 = 3_600_000_000_000;

/// Recorded times in nanoseconds.
///
/// Creation allocates all memory (about 270 KiB), so [`record`](Self::record) allocates nothing.
#[derive(Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u128,
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution::new()
    }
}

impl Distribution {
    /// Creates an empty distribution.
    #[must_use]
    pub fn new() -> Distribution {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS)
            .expect("the bounds are a histogram's: 1 < 2 × 1 < LONGEST, at most 5 digits");
        Distribution { histogram, min: u64::MAX, max: 0, sum: 0 }
    }

    /// Adds one time. A time beyond [`LONGEST`] counts as that, except in [`max`](Self::max).
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.histogram.saturating_record(nanoseconds);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
        self.sum += u128::from(nanoseconds);
    }

    /// Adds all times of another distribution, such as another thread's.
    pub fn add(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// Adds all times of a result.
    ///
    /// # Errors
    /// Returns in words what is wrong with its histogram.
    pub fn add_latency(&mut self, latency: &Latency) -> Result<(), String> {
        let histogram = latency.histogram()?;
        self.histogram.add(&histogram).map_err(|error| error.to_string())?;
        self.min = self.min.min(latency.min_ns);
        self.max = self.max.max(latency.max_ns);
        self.sum += (latency.mean_ns * latency.count as f64).round() as u128;
        Ok(())
    }

    /// Removes all times, and keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.min, self.max, self.sum) = (u64::MAX, 0, 0);
    }

    /// Returns the number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the exact longest time; 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns a percentile: exact, or up to a thousandth larger. 0 gives the exact shortest time,
    /// 100 the exact longest; 0 if there is none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        percentile(&self.histogram, self.min, self.max, percent)
    }

    /// Returns the part that a result contains; `None` if there is no time.
    #[must_use]
    pub fn latency(&self, timed: Timed, percentiles: &[f64]) -> Option<Latency> {
        if self.count() == 0 {
            return None;
        }
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.histogram, &mut bytes)
            .expect("a buffer in memory takes all");
        Some(Latency {
            timed,
            count: self.count(),
            min_ns: self.min,
            mean_ns: self.sum as f64 / self.count() as f64,
            max_ns: self.max,
            deviation_ns: self.histogram.stdev(),
            percentiles: percentiles
                .iter()
                .map(|&percent| Percentile { percent, ns: self.percentile(percent) })
                .collect(),
            digits: DIGITS,
            histogram: BASE64_STANDARD.encode(bytes),
        })
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distribution")
            .field("count", &self.count())
            .field("min", &self.min)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

/// Returns a percentile. The value of a bucket is its highest one, so it is limited to the measured
/// range.
fn percentile(histogram: &Histogram<u64>, min: u64, max: u64, percent: f64) -> u64 {
    if histogram.is_empty() {
        return 0;
    }
    match percent {
        percent if percent <= 0.0 => min,
        percent if percent >= 100.0 => max,
        percent => histogram.value_at_percentile(percent).clamp(min, max),
    }
}

/// The interval that a time measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timed {
    /// From before the post of a message until its answer was seen, halved.
    HalfRoundTrip,
    /// From before the post of a READ or atomic until its completion was seen.
    RoundTrip,
    /// From before the post of a message until its completion was seen.
    Completion,
    /// From the scheduled time of a message, whether or not it was sent then, until its answer or
    /// completion was seen.
    Planned,
    /// From the arrival of a packet to that of the next one, by the HCA's clock.
    Arrivals,
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Timed::HalfRoundTrip => "half of a round trip",
            Timed::RoundTrip => "post to completion, there and back",
            Timed::Completion => "post to completion",
            Timed::Planned => "planned time of sending to completion",
            Timed::Arrivals => "arrival to arrival",
        })
    }
}

/// Times in the form of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The measured interval.
    pub timed: Timed,
    /// The number of times; at least one.
    pub count: u64,
    /// The exact shortest time.
    pub min_ns: u64,
    /// The mean of the exact times.
    pub mean_ns: f64,
    /// The exact longest time.
    pub max_ns: u64,
    /// Standard deviation, computed from the histogram.
    pub deviation_ns: f64,
    /// The requested percentiles.
    pub percentiles: Vec<Percentile>,
    /// Significant decimal digits of percentiles and of the histogram.
    pub digits: u8,
    /// All times: HdrHistogram's form V2, compressed, in Base64.
    pub histogram: String,
}

/// A percentile: this part of all times is no longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// The percentage, from 0 to 100.
    pub percent: f64,
    /// The time.
    pub ns: u64,
}

impl Latency {
    /// Returns the histogram of a result that may have been modified.
    ///
    /// # Errors
    /// Returns in words what is wrong with it.
    pub fn histogram(&self) -> Result<Histogram<u64>, String> {
        let bytes = BASE64_STANDARD
            .decode(&self.histogram)
            .map_err(|error| format!("its histogram is no Base64 ({error})"))?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("its histogram is none of HdrHistogram's ({error})"))?;
        if histogram.len() != self.count || self.count == 0 {
            return Err(format!(
                "its histogram has {} times, and it says {}",
                histogram.len(),
                self.count
            ));
        }
        Ok(histogram)
    }

    /// Returns a percentile, as [`Distribution::percentile`] does. `histogram` must be the one of
    /// this result.
    #[must_use]
    pub fn percentile(&self, histogram: &Histogram<u64>, percent: f64) -> u64 {
        percentile(histogram, self.min_ns, self.max_ns.max(self.min_ns), percent)
    }

    /// Returns whether there are enough times for a percentile: one that is longer than it. Of 200
    /// times, 99.9% would be the longest, as each higher percentile. 100 is the longest of any, and
    /// one time is a median.
    #[must_use]
    pub fn resolves(&self, percent: f64) -> bool {
        let above = self.count as f64 * (100.0 - percent) / 100.0;
        // Decimal fractions such as 99.9 are not exact.
        percent <= 50.0 || percent >= 100.0 || above >= 1.0 - 1e-6
    }

    /// Returns a requested percentile; `None` if it was not requested, or if there are too few times
    /// for it.
    #[must_use]
    pub fn asked(&self, percent: f64) -> Option<u64> {
        let asked = self.percentiles.iter().find(|asked| asked.percent == percent);
        asked.filter(|_| self.resolves(percent)).map(|asked| asked.ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By definition: the smallest time such that at least this percentage is no longer.
    fn reference(sorted: &[u64], percent: f64) -> u64 {
        let rank = (percent / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank.min(sorted.len()) - 1]
    }

    proptest! {
        #[test]
        fn percentiles_are_within_a_thousandth_of_the_raw_ones(
            times in prop::collection::vec(prop_oneof![0u64..5000, 0u64..10_000_000_000], 1..300),
            percent in prop_oneof![Just(0.0), Just(50.0), Just(99.0), Just(99.9), Just(100.0)],
        ) {
            let mut distribution = Distribution::new();
            for &time in &times {
                distribution.record(time);
            }
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let (found, exact) = (distribution.percentile(percent), reference(&sorted, percent));
            prop_assert!(found >= exact && found <= exact + exact / 1000 + 1, "{found} for {exact}");
            let latency = distribution.latency(Timed::Completion, &[percent]).unwrap();
            prop_assert_eq!((latency.min_ns, latency.max_ns), (sorted[0], sorted[sorted.len() - 1]));
            let resolved = Some(found).filter(|_| latency.resolves(percent));
            prop_assert_eq!(latency.asked(percent), resolved);
            let histogram = latency.histogram().unwrap();
            prop_assert_eq!(latency.percentile(&histogram, percent), found);
        }

        #[test]
        fn a_histogram_from_elsewhere_is_refused_and_never_a_panic(text in "[A-Za-z0-9+/]{0,200}={0,2}") {
            let mut distribution = Distribution::new();
            distribution.record(7);
            let mut latency = distribution.latency(Timed::Completion, &[]).unwrap();
            latency.histogram = text;
            prop_assert!(latency.histogram().is_err());
        }
    }

    #[test]
    fn a_percentile_without_a_longer_time_is_not_told() {
        let mut distribution = Distribution::new();
        let mut of = |count: u64, percent| {
            distribution.clear();
            (1..=count).for_each(|time| distribution.record(time));
            distribution.latency(Timed::Completion, &[percent]).unwrap().asked(percent)
        };
        assert_eq!((of(1000, 99.9).is_some(), of(999, 99.9)), (true, None));
        assert_eq!((of(10_000, 99.99).is_some(), of(9_999, 99.99)), (true, None));
        assert_eq!((of(200, 99.5), of(200, 99.9)), (Some(199), None));
        assert_eq!((of(1, 0.0), of(1, 50.0), of(1, 100.0)), (Some(1), Some(1), Some(1)));
    }

    #[test]
    fn the_longest_is_exact_also_beyond_the_histogram() {
        let mut distribution = Distribution::new();
        distribution.record(LONGEST * 3 + 1);
        let mut other = Distribution::new();
        other.record(5);
        distribution.add(&other);
        assert_eq!(distribution.percentile(100.0), LONGEST * 3 + 1);
        assert_eq!(distribution.percentile(0.0), 5);
        distribution.clear();
        assert_eq!((distribution.count(), distribution.percentile(50.0)), (0, 0));
        assert!(distribution.latency(Timed::RoundTrip, &[50.0]).is_none());
    }
}
