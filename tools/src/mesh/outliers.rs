//! The rule by which a link is called an outlier.
//!
//! Of the links with the same traffic, the logarithms of the main figures are compared: of latency the
//! median, of bandwidth and rate the value. A link is an outlier if it is worse than their median by more
//! than a given ratio ([`Rule::apart`]), and by more than [`SPREADS`] robust standard deviations: 1.4826
//! times the median distance from the median, of the links that are better than it. Those that are worse
//! do not count there, since up to half of all links may be bad. One that is [`CERTAIN`] times worse is an
//! outlier however wide the others are spread. A link is lossy if its ports missed packets at least
//! [`LOSSES`] times, and more than the ratio times the median of all links.
//!
//! A suspect of the first pass is measured again, alone. It is an outlier if it is beyond the same bound
//! then; otherwise it is slow beside others only.

use serde::{Deserialize, Serialize};

use super::conduct::Link;
use super::figures::{Figures, unit};
use crate::perf::result::Kind;

/// Robust standard deviations that an outlier is away from the median.
pub const SPREADS: f64 = 3.5;
/// The ratio to the median from which on a link is an outlier in any spread.
pub const CERTAIN: f64 = 20.0;
/// Events of missing packets that a lossy link has at least.
pub const LOSSES: u64 = 3;
/// Fewest links that are compared.
pub const FEWEST: usize = 4;
/// Makes a standard deviation of the median distance, for normal distributions.
const NORMAL: f64 = 1.4826;

/// The kind of an outlier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The least ratio to the median, above 1.
    pub apart: f64,
}

/// The figure that is beyond its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Latency, bandwidth or rate.
    Slow,
    /// Packets that were missing.
    Lossy,
}

/// The bound of one figure of one kind of traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The kind of traffic.
    pub traffic: usize,
    /// The figure.
    pub what: What,
    /// The median of all links.
    pub median: f64,
    /// The last value that is no outlier.
    pub bound: f64,
}

/// A figure beyond its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outlier {
    /// The rank that measured.
    pub from: u32,
    /// The rank that served.
    pub to: u32,
    /// The kind of traffic.
    pub traffic: usize,
    /// The figure.
    pub what: What,
    /// Its value.
    pub value: f64,
    /// The median of all links.
    pub median: f64,
    /// The last value that is no outlier.
    pub bound: f64,
    /// Its value when the link was measured again, alone; `None` if it was not or could not be.
    pub alone: Option<f64>,
    /// Counters that rose with it.
    pub counters: Vec<(String, u64)>,
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.len(), sorted.len() % 2) {
        (0, _) => 0.0,
        (_, 1) => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the median of figures.
#[must_use]
pub fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values = sorted(values.collect());
    (!values.is_empty()).then(|| median(&values))
}

/// Returns whether a value is worse than its bound.
fn is_beyond(kind: Kind, what: What, value: f64, bound: f64) -> bool {
    match (what, kind) {
        (What::Lossy, _) | (What::Slow, Kind::Lat) => value > bound,
        (What::Slow, Kind::Bw | Kind::Rate) => value < bound,
    }
}

fn value(kind: Kind, what: What, figures: &Figures) -> f64 {
    match what {
        What::Slow => figures.main(kind),
        What::Lossy => figures.lost as f64,
    }
}

/// Computes the bounds by all links. There are none of traffic that too few links have.
#[must_use]
pub fn bounds(links: &[Link], kinds: &[Kind], rule: Rule) -> Vec<Bound> {
    let of = |(traffic, &kind): (usize, &Kind)| {
        let figures = || links.iter().filter_map(move |link| link.of(traffic));
        let logs = sorted(
            figures().map(|figures| figures.main(kind).max(f64::MIN_POSITIVE).ln()).collect(),
        );
        if logs.len() < FEWEST {
            return Vec::new();
        }
        // The better one of two links in the middle, since the other may be the first of a bad half.
        let (middle, is_better): (f64, fn(f64, f64) -> bool) = match kind {
            Kind::Lat => (logs[(logs.len() - 1) / 2], |log, middle| log <= middle),
            Kind::Bw | Kind::Rate => (logs[logs.len() / 2], |log, middle| log >= middle),
        };
        let better = logs.iter().filter(|log| is_better(**log, middle));
        let distances = sorted(better.map(|log| (log - middle).abs()).collect());
        let spread = (median(&distances) * NORMAL * SPREADS).min(CERTAIN.ln());
        let distance = spread.max(rule.apart.ln());
        let bound = match kind {
            Kind::Lat => middle + distance,
            Kind::Bw | Kind::Rate => middle - distance,
        };
        let losses = median(&sorted(figures().map(|figures| figures.lost as f64).collect()));
        vec![
            Bound { traffic, what: What::Slow, median: middle.exp(), bound: bound.exp() },
            Bound {
                traffic,
                what: What::Lossy,
                median: losses,
                bound: (losses * rule.apart).max((LOSSES - 1) as f64),
            },
        ]
    };
    kinds.iter().enumerate().flat_map(of).collect()
}

/// Returns the figures of links that are beyond the bounds.
#[must_use]
pub fn beyond(links: &[Link], kinds: &[Kind], bounds: &[Bound]) -> Vec<Outlier> {
    let of_link = |link: &Link| -> Vec<Outlier> {
        let of_bound = |of: &Bound| {
            let figures = link.of(of.traffic)?;
            let kind = *kinds.get(of.traffic)?;
            let found = value(kind, of.what, figures);
            is_beyond(kind, of.what, found, of.bound).then(|| Outlier {
                from: link.from,
                to: link.to,
                traffic: of.traffic,
                what: of.what,
                value: found,
                median: of.median,
                bound: of.bound,
                alone: None,
                counters: figures
                    .more
                    .as_ref()
                    .map(|more| more.counters.clone())
                    .unwrap_or_default(),
            })
        };
        bounds.iter().filter_map(of_bound).collect()
    };
    links.iter().flat_map(of_link).collect()
}

/// Splits suspects by a second pass: those that are beyond their bound again, or could not be measured
/// again, and those that are slow beside others only.
#[must_use]
pub fn confirm(
    suspects: Vec<Outlier>,
    again: &[Link],
    kinds: &[Kind],
) -> (Vec<Outlier>, Vec<Outlier>) {
    let alone = |suspect: &Outlier| {
        let link = again.iter().find(|link| (link.from, link.to) == (suspect.from, suspect.to))?;
        Some(value(*kinds.get(suspect.traffic)?, suspect.what, link.of(suspect.traffic)?))
    };
    suspects.into_iter().map(|suspect| Outlier { alone: alone(&suspect), ..suspect }).partition(
        |suspect| {
            suspect.alone.is_none_or(|value| {
                is_beyond(kinds[suspect.traffic], suspect.what, value, suspect.bound)
            })
        },
    )
}

impl Outlier {
    /// Returns how far it is beyond its median, as a ratio.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let (value, median) = (self.value.max(1e-12), self.median.max(1e-12));
        (value / median).max(median / value)
    }

    /// Returns it in words, after the name of its link and traffic.
    #[must_use]
    pub fn words(&self, kind: Kind) -> String {
        let alone = self.alone.map_or(String::new(), |alone| match self.what {
            What::Slow => format!("; alone {alone:.3}"),
            What::Lossy => format!("; alone {alone:.0}"),
        });
        match self.what {
            What::Slow => format!(
                "{:.3} {} where the median is {:.3}{alone}",
                self.value,
                unit(kind),
                self.median
            ),
            What::Lossy => {
                format!(
                    "{:.0} times packets were missing, median {:.0}{alone}",
                    self.value, self.median
                )
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A link with these figures of one kind of traffic.
    pub fn link(from: u32, to: u32, main: f64, lost: u64) -> Link {
        let figures = Figures {
            traffic: 0,
            median_ns: main * 1000.0,
            p99_ns: main * 1000.0,
            max_ns: main * 1000.0,
            gbps: main,
            per_second: main * 1e6,
            messages: 1000,
            lost,
            more: None,
        };
        Link { from, to, figures: vec![figures], error: None }
    }

    fn found(kind: Kind, values: &[f64], apart: f64) -> Vec<u32> {
        let links: Vec<Link> =
            values.iter().zip(0..).map(|(value, to)| link(99, to, *value, 0)).collect();
        let bounds = bounds(&links, &[kind], Rule { apart });
        beyond(&links, &[kind], &bounds).iter().map(|outlier| outlier.to).collect()
    }

    #[test]
    fn only_what_is_worse_than_the_ratio_and_the_spread_is_an_outlier() {
        let quiet = [2.0, 2.01, 1.99, 2.0, 2.02, 2.6, 1.0];
        assert_eq!(found(Kind::Lat, &quiet, 1.25), [5]);
        assert_eq!(found(Kind::Lat, &quiet, 1.5), [0; 0]);
        assert_eq!(found(Kind::Bw, &quiet, 1.25), [6]);
        // In noise as wide as that, the same is none.
        let noisy = [2.0, 1.2, 3.1, 2.5, 1.5, 2.6, 1.0];
        assert_eq!(found(Kind::Lat, &noisy, 1.25), [0; 0]);
        assert_eq!(found(Kind::Bw, &noisy, 1.25), [0; 0]);
        // Ten times as long stands out of noise, too.
        assert_eq!(found(Kind::Lat, &[2.0, 1.6, 2.9, 2.5, 1.7, 2.6, 40.0], 1.25), [6]);
        assert_eq!(found(Kind::Lat, &[1.0, 1.0, 50.0], 1.25), [0; 0], "too few");
        // Measured between five processes on two processors that others used, too; the last four had a
        // delay.
        let busy = [48.8, 77.6, 121.0, 136.0, 161.0, 293.0, 10207.0, 10224.0, 10240.0, 10248.0];
        assert_eq!(found(Kind::Lat, &busy, 5.0), [6, 7, 8, 9]);
        assert_eq!(found(Kind::Lat, &[100.0, 2000.0, 4000.0, 200e3], 5.0), [3], "certain");
    }

    #[test]
    fn the_rule_holds_up_to_half_of_the_links() {
        let values = [2.0, 2.1, 1.9, 2.0, 2.05, 1.95, 90.0, 80.0, 95.0, 99.0];
        assert_eq!(found(Kind::Lat, &values, 1.5), [6, 7, 8, 9]);
        // All pairs of four ranks, of which one is bad.
        assert_eq!(found(Kind::Lat, &[5.2, 52.8, 5.1, 53.0, 5.3, 52.1], 1.5), [1, 3, 5]);
        assert_eq!(found(Kind::Bw, &[5.2, 52.8, 5.1, 53.0, 5.3, 52.1], 1.5), [0, 2, 4]);
    }

    #[test]
    fn losses_count_where_others_have_none() {
        let lossy = |losses: &[u64]| {
            let links: Vec<Link> =
                losses.iter().zip(0..).map(|(again, to)| link(9, to, 2.0, *again)).collect();
            let bounds = bounds(&links, &[Kind::Lat], Rule { apart: 1.5 });
            let found = beyond(&links, &[Kind::Lat], &bounds);
            found.iter().map(|outlier| outlier.to).collect::<Vec<_>>()
        };
        assert_eq!(lossy(&[0, 0, 0, 2, 3]), [4]);
        assert_eq!(lossy(&[10, 10, 10, 14, 16]), [4]);
    }

    #[test]
    fn a_second_pass_tells_slow_links_from_those_slow_beside_others() {
        let mut links: Vec<Link> = (0..6).map(|to| link(9, to, 2.0, 0)).collect();
        links.extend([link(9, 6, 50.0, 0), link(9, 7, 60.0, 0), link(9, 8, 70.0, 0)]);
        let kinds = [Kind::Lat];
        let bounds = bounds(&links, &kinds, Rule { apart: 1.5 });
        let suspects = beyond(&links, &kinds, &bounds);
        let failed = Link { figures: vec![], error: Some("why".into()), ..link(9, 8, 1.0, 0) };
        let again = [link(9, 6, 2.1, 0), link(9, 7, 55.0, 0), failed];
        let (outliers, beside) = confirm(suspects, &again, &kinds);
        let of = |found: &[Outlier]| found.iter().map(|found| found.to).collect::<Vec<_>>();
        assert_eq!((of(&outliers), of(&beside)), (vec![7, 8], vec![6]));
        assert_eq!(
            outliers[0].words(Kind::Lat),
            "60.000 µs where the median is 2.000; alone 55.000"
        );
        assert_eq!(outliers[1].alone, None);
    }
}
