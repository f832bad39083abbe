//! Limits that a measurement must keep: `--at-most p99=20us`, `--at-least bw=90Gbit/s`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::perf::arguments::scaled;
use crate::perf::result::Point;

/// A figure of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Percentile(f64),
    Min,
    Mean,
    Max,
    /// Gigabits of payload per second.
    Bandwidth,
    /// Messages per second.
    Rate,
}

/// A figure and the value that bounds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    figure: Figure,
    /// In nanoseconds, gigabits per second or messages per second.
    value: f64,
    /// As it was given: `p99=20us`.
    text: String,
}

/// The side of a limit on which figures are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Figures up to the limit.
    AtMost,
    /// Figures from the limit on.
    AtLeast,
}

/// A limit, compared with the figure of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Bytes of a message.
    pub size: u64,
    /// The side of the limit.
    pub bound: Bound,
    /// The limit, as it was given: `p99=20us`.
    pub limit: String,
    /// The measured figure in the limit's unit: nanoseconds, gigabits per second or messages per
    /// second; `None` if the point has no such figure.
    pub measured: Option<f64>,
    /// Whether the limit was kept.
    pub kept: bool,
}

impl Figure {
    fn of(self, point: &Point) -> Option<f64> {
        let latency = point.latency.as_ref();
        match self {
            Figure::Percentile(percent) => {
                let histogram = latency?.histogram().ok()?;
                Some(histogram.value_at_percentile(percent).min(latency?.max_ns) as f64)
            }
            Figure::Min => Some(latency?.min_ns as f64),
            Figure::Mean => Some(latency?.mean_ns),
            Figure::Max => Some(latency?.max_ns as f64),
            Figure::Bandwidth => Some(point.gigabits_per_second()),
            Figure::Rate => Some(point.messages_per_second()),
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        const BITS: &[(&str, f64)] = &[("gbit/s", 1.0), ("mbit/s", 1e-3), ("gbit", 1.0)];
        const RATES: &[(&str, f64)] =
            &[("/s", 1.0), ("k/s", 1e3), ("m/s", 1e6), ("", 1.0), ("k", 1e3), ("m", 1e6)];
        let wrong = || {
            "it is a figure and its limit, such as p99=20us, max=1ms, mean=5us, bw=90Gbit/s or \
             rate=1M/s"
                .to_owned()
        };
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let percent = || name.strip_prefix('p')?.parse::<f64>().ok();
        let (figure, units) = match name {
            "min" => (Figure::Min, TIMES),
            "mean" => (Figure::Mean, TIMES),
            "max" => (Figure::Max, TIMES),
            "bw" => (Figure::Bandwidth, BITS),
            "rate" => (Figure::Rate, RATES),
            _ => {
                let percent = percent().filter(|percent| (0.0..=100.0).contains(percent));
                (Figure::Percentile(percent.ok_or_else(wrong)?), TIMES)
            }
        };
        let value = scaled(value, units).ok_or_else(wrong)?;
        Ok(Limit { figure, value, text: text.to_owned() })
    }
}

impl Limit {
    /// Compares the limit with a point. A figure that the point does not have keeps no limit.
    #[must_use]
    pub fn compare(&self, bound: Bound, point: &Point) -> Compared {
        let measured = self.figure.of(point);
        let kept = measured.is_some_and(|measured| match bound {
            Bound::AtMost => measured <= self.value,
            Bound::AtLeast => measured >= self.value,
        });
        Compared { size: point.size, bound, limit: self.text.clone(), measured, kept }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { size, bound, limit, measured, kept } = self;
        let option = match bound {
            Bound::AtMost => "--at-most",
            Bound::AtLeast => "--at-least",
        };
        write!(
            f,
            "of {size} bytes, {option} {limit} is {}: ",
            if *kept { "kept" } else { "MISSED" }
        )?;
        let Some(measured) = measured else { return f.write_str("there is no such figure") };
        match limit.split('=').next() {
            Some("bw") => write!(f, "{measured:.3} Gbit/s"),
            Some("rate") => write!(f, "{measured:.0} messages/s"),
            _ => write!(f, "{:.3} µs", measured / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::result::Via;
    use crate::perf::result::distribution::{Distribution, Timed};

    fn point(times: &[u64]) -> Point {
        let mut distribution = Distribution::new();
        times.iter().for_each(|&time| distribution.record(time));
        Point {
            via: Via::Direct,
            size: 125,
            began: 0.0,
            seconds: 1.0,
            messages: 1_000_000,
            planned_per_second: None,
            latency: distribution.latency(Timed::Completion, &[]),
            slowest: vec![],
            cpu: None,
            phases: vec![],
            counters: vec![],
            validated: None,
            back: None,
            gaps: None,
            events: None,
        }
    }

    fn is_kept(bound: Bound, limit: &str) -> bool {
        let times: Vec<u64> = (1..=100).map(|at| at * 1000).collect();
        limit.parse::<Limit>().unwrap().compare(bound, &point(&times)).kept
    }

    #[test]
    fn figures_on_the_right_side_keep_a_limit_and_others_do_not() {
        for (limit, at_most, at_least) in [
            ("p50=51us", true, false),
            ("p50=40us", false, true),
            ("p99.9=0.2ms", true, false),
            ("min=1us", true, true),
            ("mean=60us", true, false),
            ("max=100000ns", true, true),
            ("max=99us", false, true),
            ("bw=1Gbit/s", true, true),
            ("bw=900Mbit/s", false, true),
            ("rate=2M/s", true, false),
            ("rate=1000k", true, true),
        ] {
            assert_eq!(is_kept(Bound::AtMost, limit), at_most, "at most {limit}");
            assert_eq!(is_kept(Bound::AtLeast, limit), at_least, "at least {limit}");
        }
    }

    #[test]
    fn a_point_without_times_keeps_no_limit_of_times() {
        let limit: Limit = "p99=1s".parse().unwrap();
        let compared = limit.compare(Bound::AtMost, &point(&[]));
        assert!(!compared.kept);
        assert_eq!(
            compared.to_string(),
            "of 125 bytes, --at-most p99=1s is MISSED: there is no such figure"
        );
    }

    #[test]
    fn unknown_figures_and_units_are_refused() {
        for text in ["", "p99", "p101=1us", "p=1us", "p99=1", "p99=1Gbit/s", "bw=1us", "x=1us"] {
            assert!(text.parse::<Limit>().unwrap_err().contains("such as p99=20us"), "{text}");
        }
    }
}
