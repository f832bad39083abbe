//! Comparison with an earlier run, link by link.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::conduct::Link;
use super::outliers::median_of;
use super::report::{Measure, Rank, Report};
use crate::outcome::{Error, Result};
use crate::output::counted;
use crate::perf::result::Kind;

/// A link whose figure changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The rank that measured.
    pub from: u32,
    /// The rank that served.
    pub to: u32,
    /// The kind of traffic.
    pub traffic: usize,
    /// Its figure in the earlier run.
    pub before: f64,
    /// Its figure now; `None` if it was not measured now.
    pub now: Option<f64>,
}

impl Change {
    /// Returns it in words.
    #[must_use]
    pub fn words(&self, traffic: &[Measure]) -> String {
        let Change { from, to, before, .. } = self;
        let measure = &traffic[self.traffic];
        let now = match self.now {
            Some(now) => format!("{now:.3} {}", measure.unit),
            None => "not measured".to_owned(),
        };
        format!("link {from}-{to}: {}: {now}, and {before:.3} before", measure.name)
    }
}

/// A comparison with an earlier run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The file of the earlier run.
    pub file: String,
    /// Links that are in both runs.
    pub links: usize,
    /// Per kind of traffic: the median of the ratios of figures now to those before.
    pub ratios: Vec<Option<f64>>,
    /// Links that are worse.
    pub worse: Vec<Change>,
    /// Links that are better.
    pub better: Vec<Change>,
    /// Why not all could be compared.
    pub notes: Vec<String>,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = counted(self.links as u64, "link");
        write!(f, "compared with {}: {links} in both", self.file)?;
        for ratio in self.ratios.iter().flatten() {
            write!(f, ", {ratio:.3} times as much in the median")?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// Longest report that is read, in bytes. One of 1,024 ranks has less than a tenth of it.
const LONGEST: u64 = 4 << 30;

#[derive(Deserialize)]
struct Printed {
    report: Report,
}

/// Reads the report of an earlier run: what `mlx5 mesh --json` printed.
///
/// # Errors
/// Returns which file cannot be read, or is none.
pub fn read(file: &Path) -> Result<Report> {
    let what = || format!("--compare {}", file.display());
    let mut text = Vec::new();
    File::open(file)
        .and_then(|file| file.take(LONGEST).read_to_end(&mut text))
        .map_err(|error| Error::File { what: what(), error })?;
    let printed: Printed = serde_json::from_slice(&text).map_err(|error| {
        Error::Usage(format!("{}: it is not what `mlx5 mesh --json` prints: {error}", what()))
    })?;
    Ok(printed.report)
}

/// The links of this run.
struct Now<'a>(BTreeMap<(u32, u32), &'a Link>);

impl Now<'_> {
    /// Returns the link in which this traffic was measured, or was to be: from the same end, or else from
    /// the other one, which measures the same of traffic without a direction.
    fn find(&self, (from, to): (u32, u32), traffic: usize) -> Option<&Link> {
        let ends = [(from, to), (to, from)];
        let mut found = ends.iter().filter_map(|ends| self.0.get(ends).copied());
        found.find(|link| link.of(traffic).is_some() || link.error.is_some())
    }
}

/// The ranks of an earlier run that have the same port now: by host, device and port if these are no two
/// ranks' own in either run, or else by number.
struct Ports {
    ranks: BTreeMap<u32, u32>,
    /// Ranks of the same number on another host.
    moved: usize,
}

impl Ports {
    fn of(old: &[Rank], now: &[Rank]) -> Ports {
        type Port<'a> = (&'a str, &'a str, u8);
        fn ports(ranks: &[Rank]) -> Option<BTreeMap<Port<'_>, u32>> {
            let mut all = BTreeMap::new();
            for rank in ranks {
                let Some(facts) = &rank.facts else { continue };
                let port = (facts.host.as_str(), facts.device.as_str(), facts.port);
                if all.insert(port, rank.rank).is_some() {
                    return None;
                }
            }
            Some(all)
        }
        if let Some((before, after)) = ports(old).zip(ports(now)) {
            let same = before.iter().filter_map(|(port, rank)| Some((*rank, *after.get(port)?)));
            return Ports { ranks: same.collect(), moved: 0 };
        }
        let host = |rank: &Rank| rank.facts.as_ref().map(|facts| facts.host.clone());
        let numbers = old.iter().zip(now);
        let moved = numbers.clone().filter(|(old, now)| host(old) != host(now)).count();
        Ports { ranks: numbers.map(|(old, now)| (old.rank, now.rank)).collect(), moved }
    }

    /// Returns the ranks that a link has now.
    fn now(&self, link: &Link) -> Option<(u32, u32)> {
        self.ranks.get(&link.from).copied().zip(self.ranks.get(&link.to).copied())
    }

    fn note(&self) -> Option<String> {
        let ranks = counted(self.moved as u64, "rank");
        (self.moved > 0).then(|| {
            format!("ranks of one port were compared by number, and {ranks} moved to another host")
        })
    }
}

/// Compares links by their ports and kind of traffic. A link is worse or better if its figure differs by
/// more than `apart` times.
#[must_use]
pub fn compare(
    file: &Path,
    old: &Report,
    (traffic, ranks): (&[Measure], &[Rank]),
    links: &[Link],
    apart: f64,
) -> Comparison {
    let now = Now(links.iter().map(|link| ((link.from, link.to), link)).collect());
    let ports = Ports::of(&old.ranks, ranks);
    let mut both = BTreeSet::new();
    let mut all = Comparison {
        file: file.display().to_string(),
        links: 0,
        ratios: Vec::new(),
        worse: Vec::new(),
        better: Vec::new(),
        notes: ports.note().into_iter().collect(),
    };
    for (place, measure) in traffic.iter().enumerate() {
        let Some(before) = old.traffic.iter().position(|other| other.name == measure.name) else {
            all.notes.push(format!("the earlier run has no {}", measure.name));
            all.ratios.push(None);
            continue;
        };
        let mut ratios = Vec::new();
        for link in &old.links {
            let Some(figures) = link.of(before) else { continue };
            let Some(pair) = ports.now(link) else { continue };
            let Some(other) = now.find(pair, place) else { continue };
            let before = figures.main(measure.kind());
            let now = other.of(place).map(|figures| figures.main(measure.kind()));
            let (from, to) = (other.from, other.to);
            let change = Change { from, to, traffic: place, before, now };
            let Some(now) = now else {
                all.worse.push(change);
                continue;
            };
            both.insert((from.min(to), from.max(to)));
            let ratio = now.max(f64::MIN_POSITIVE) / before.max(f64::MIN_POSITIVE);
            ratios.push(ratio);
            let slower = if measure.kind() == Kind::Lat { ratio } else { 1.0 / ratio };
            if slower > apart {
                all.worse.push(change);
            } else if slower < 1.0 / apart {
                all.better.push(change);
            }
        }
        all.ratios.push(median_of(ratios.into_iter()));
    }
    all.links = both.len();
    all
}
