//! Times, stored as a histogram of any range, with the exact shortest and longest time.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Significant decimal digits: a time is off by at most a thousandth of itself.
pub const DIGITS: u8 = 3;
/// The longest time that is told apart from longer ones, in nanoseconds: an hour.
pub const LONGEST: u64 = 3_600_000_000_000;

/// Times in nanoseconds, as they are recorded.
///
/// All memory (about 270 KiB) is taken when it is made: [`record`](Self::record) allocates nothing.
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
    /// Without any time.
    #[must_use]
    pub fn new() -> Distribution {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS)
            .expect("the bounds are a histogram's: 1 < 2 × 1 < LONGEST, at most 5 digits");
        Distribution { histogram, min: u64::MAX, max: 0, sum: 0 }
    }

    /// Adds one time. What is longer than [`LONGEST`] counts as that, but in [`max`](Self::max).
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.histogram.saturating_record(nanoseconds);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
        self.sum += u128::from(nanoseconds);
    }

    /// Adds all times of another, such as another thread's.
    pub fn add(&mut self, other: &Distribution) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// Adds all times of a result.
    ///
    /// # Errors
    /// What is wrong with its histogram, in words.
    pub fn add_latency(&mut self, latency: &Latency) -> Result<(), String> {
        let histogram = latency.histogram()?;
        self.histogram.add(&histogram).map_err(|error| error.to_string())?;
        self.min = self.min.min(latency.min_ns);
        self.max = self.max.max(latency.max_ns);
        self.sum += (latency.mean_ns * latency.count as f64).round() as u128;
        Ok(())
    }

    /// Forgets all times, and keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.min, self.max, self.sum) = (u64::MAX, 0, 0);
    }

    /// How many times there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The longest, exactly; 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// What so many percent of all took no longer than: exactly that, or up to a thousandth more.
    /// Of 0 the shortest and of 100 the longest, exactly; 0 if there is none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        percentile(&self.histogram, self.min, self.max, percent)
    }

    /// What goes into a result; `None` if there is no time.
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

/// A value of a bucket is the bucket's highest, which may be beyond what was measured.
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

/// What a time is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timed {
    /// From before the post of a message until its answer was seen, halved.
    HalfRoundTrip,
    /// From before the post of a READ or atomic until its completion was seen.
    RoundTrip,
    /// From before the post of a message until its completion was seen.
    Completion,
    /// From when a message was to be sent by plan, whether or not it was, until its answer or
    /// completion was seen.
    Planned,
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Timed::HalfRoundTrip => "half of a round trip",
            Timed::RoundTrip => "post to completion, there and back",
            Timed::Completion => "post to completion",
            Timed::Planned => "planned time of sending to completion",
        })
    }
}

/// Times as a result has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// What they are of.
    pub timed: Timed,
    /// How many there are; at least one.
    pub count: u64,
    /// The shortest, exactly.
    pub min_ns: u64,
    /// Of the exact times.
    pub mean_ns: f64,
    /// The longest, exactly.
    pub max_ns: u64,
    /// Standard deviation, of the histogram.
    pub deviation_ns: f64,
    /// Those that were asked for.
    pub percentiles: Vec<Percentile>,
    /// Significant decimal digits of percentiles and of the histogram.
    pub digits: u8,
    /// All of them: HdrHistogram's form V2, compressed, in Base64.
    pub histogram: String,
}

/// So many percent of all took no longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// 0 to 100.
    pub percent: f64,
    /// How long that is.
    pub ns: u64,
}

impl Latency {
    /// The histogram, out of a result that may have been changed on its way.
    ///
    /// # Errors
    /// What is wrong with it, in words.
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

    /// What so many percent of all took no longer than, as [`Distribution::percentile`]; of the
    /// histogram that belongs to this.
    #[must_use]
    pub fn percentile(&self, histogram: &Histogram<u64>, percent: f64) -> u64 {
        percentile(histogram, self.min_ns, self.max_ns.max(self.min_ns), percent)
    }

    /// The one that was asked for, if it was.
    #[must_use]
    pub fn asked(&self, percent: f64) -> Option<u64> {
        self.percentiles.iter().find(|asked| asked.percent == percent).map(|asked| asked.ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By definition: the smallest time that at least so many percent are no longer than.
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
            prop_assert_eq!(latency.asked(percent), Some(found));
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
