//! The result of a run: the data of all outputs, and the content of the JSON files.

use serde::{Deserialize, Serialize};

use super::compare::Comparison;
use super::conduct::Link;
use super::facts::Facts;
use super::groups::{Group, Spot};
use super::launcher::Launcher;
use super::meeting::{Seat, State};
use super::odd::{Odd, Rising};
use super::outliers::{Bound, Outlier};
use super::words::Traffic;
use crate::perf::result::Kind;

/// A rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    /// Its number.
    pub rank: u32,
    /// Its state.
    pub state: State,
    /// Its rail: its number among the ranks of its host.
    pub rail: u32,
    /// The switch of its port, where it is known.
    pub switch: Option<String>,
    /// Its facts, if it came.
    pub facts: Option<Facts>,
    /// Counters that changed: the name, the first value, the last one before traffic, and the one after
    /// it.
    pub counters: Vec<(String, u64, u64, u64)>,
}

/// A kind of traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its name: `lat send rc 8 bytes`.
    pub name: String,
    /// The unit of the figure by which links are compared.
    pub unit: String,
    /// The kind of measurement, with the options of `mlx5 perf`.
    pub traffic: Traffic,
}

impl Measure {
    /// Returns the kind of measurement.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.traffic.kind
    }
}

/// The schedule that was measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// Links.
    pub links: usize,
    /// Rounds.
    pub rounds: usize,
    /// The fewest rounds that any schedule could have.
    pub optimum: usize,
}

/// A complete run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The command line of rank 0, word by word.
    pub command: Vec<String>,
    /// Its start: seconds since 1970, UTC.
    pub began: f64,
    /// Its duration in seconds.
    pub seconds: f64,
    /// The launcher that told the ranks.
    pub launcher: Launcher,
    /// The name of the pattern.
    pub pattern: String,
    /// The schedule.
    pub schedule: Scheduled,
    /// True if a device is the model's.
    pub model: bool,
    /// True if Ctrl-C ended it early.
    pub interrupted: bool,
    /// The kinds of traffic.
    pub traffic: Vec<Measure>,
    /// All ranks.
    pub ranks: Vec<Rank>,
    /// Facts that differ.
    pub odd: Vec<Odd>,
    /// Counters of errors that rose.
    pub rising: Vec<Rising>,
    /// All links.
    pub links: Vec<Link>,
    /// The bounds of the outliers.
    pub bounds: Vec<Bound>,
    /// The links of the second pass.
    pub again: Vec<Link>,
    /// Outliers.
    pub outliers: Vec<Outlier>,
    /// Links that were slow beside others, and not alone.
    pub beside: Vec<Outlier>,
    /// Groups of the outliers and of links without a result.
    pub groups: Vec<Group>,
    /// Comparison with an earlier run.
    pub comparison: Option<Comparison>,
    /// Remarks.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns whether nothing is wrong. A run without a link has shown nothing.
    #[must_use]
    pub fn is_good(&self) -> bool {
        (self.schedule.links > 0 || self.interrupted)
            && self.ranks.iter().all(Rank::is_good)
            && self.odd.is_empty()
            && self.outliers.is_empty()
            && self.links.iter().all(|link| link.error.is_none())
            && self.missed().next().is_none()
            && self.comparison.as_ref().is_none_or(|comparison| comparison.worse.is_empty())
    }

    /// Returns links that missed a limit or had wrong data, with words.
    pub fn missed(&self) -> impl Iterator<Item = (&Link, String)> {
        self.links.iter().flat_map(|link| {
            let more = link.figures.iter().filter_map(|figures| figures.more.as_deref());
            more.flat_map(move |more| {
                let wrong =
                    (more.wrong > 0).then(|| format!("{} messages with WRONG content", more.wrong));
                more.missed.iter().cloned().chain(wrong).map(move |words| (link, words))
            })
        })
    }

    /// Returns the links that were not measured.
    pub fn unmeasured(&self) -> impl Iterator<Item = (&Link, &str)> {
        self.links.iter().filter_map(|link| Some((link, link.error.as_deref()?)))
    }

    /// Returns the name of a rank: `rank 37, host c12`.
    #[must_use]
    pub fn name(&self, rank: u32) -> String {
        match self.ranks.get(rank as usize).and_then(|rank| rank.facts.as_ref()) {
            Some(facts) => format!("rank {rank}, host {}", facts.host),
            None => format!("rank {rank}"),
        }
    }
}

impl Rank {
    /// Returns whether it took part to the end.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.trouble().is_none()
    }

    /// Returns why it took no part, or not to the end.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        match &self.state {
            State::Awaited => Some("it has not come"),
            State::Absent(why) | State::Lost(why) => Some(why),
            State::Present => self.facts.as_ref().and_then(|facts| facts.obstacle.as_deref()),
        }
    }

    /// Returns where it is.
    #[must_use]
    pub fn spot(&self) -> Spot {
        let facts = self.facts.as_ref();
        Spot {
            host: facts
                .map_or_else(|| format!("of rank {}", self.rank), |facts| facts.host.clone()),
            port: facts.map_or(String::new(), |facts| format!("{}/{}", facts.device, facts.port)),
            rail: self.rail,
            switch: self.switch.clone(),
        }
    }
}

/// Returns the rail of each rank: as its launcher told, or else its place among those of its host.
#[must_use]
pub fn rails(seats: &[Seat]) -> Vec<u32> {
    let of = |(at, seat): (usize, &Seat)| {
        let Some(facts) = &seat.facts else { return 0 };
        facts.local.unwrap_or_else(|| {
            let before = seats[..at].iter().filter_map(|other| other.facts.as_ref());
            before.filter(|other| other.host == facts.host).count() as u32
        })
    };
    seats.iter().enumerate().map(of).collect()
}

/// Returns the counters of a rank that changed.
#[must_use]
pub fn changed(seat: &Seat) -> Vec<(String, u64, u64, u64)> {
    let [first, before, after] = &seat.readings[..] else { return Vec::new() };
    let of = |values: &[(String, u64)], name: &str| {
        values.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    };
    let all = after.values.iter().filter_map(|(name, last)| {
        let (first, before) = (of(&first.values, name)?, of(&before.values, name)?);
        Some((name.clone(), first, before, *last))
    });
    all.filter(|(_, first, before, last)| first != before || before != last).collect()
}
