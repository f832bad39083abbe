//! Comparison with an earlier run, link by link.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::conduct::Link;
use super::outliers::median_of;
use super::report::{Measure, Report};
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
    let text = std::fs::read(file).map_err(|error| Error::File { what: what(), error })?;
    let printed: Printed = serde_json::from_slice(&text).map_err(|error| {
        Error::Usage(format!("{}: it is not what `mlx5 mesh --json` prints: {error}", what()))
    })?;
    Ok(printed.report)
}

/// Compares links by rank and kind of traffic. A link is worse or better if its figure differs by more
/// than `apart` times.
#[must_use]
pub fn compare(
    file: &Path,
    old: &Report,
    traffic: &[Measure],
    links: &[Link],
    apart: f64,
) -> Comparison {
    let now: BTreeMap<(u32, u32), &Link> =
        links.iter().map(|link| ((link.from, link.to), link)).collect();
    let mut all = Comparison {
        file: file.display().to_string(),
        links: 0,
        ratios: Vec::new(),
        worse: Vec::new(),
        better: Vec::new(),
        notes: Vec::new(),
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
            let Some(other) = now.get(&(link.from, link.to)) else { continue };
            let before = figures.main(measure.kind());
            let now = other.of(place).map(|figures| figures.main(measure.kind()));
            let (from, to) = (link.from, link.to);
            let change = Change { from, to, traffic: place, before, now };
            let Some(now) = now else {
                all.worse.push(change);
                continue;
            };
            all.links += usize::from(place == 0);
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
    all
}
