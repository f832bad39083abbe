//! The text of a report.

use std::fmt::{self, Display, Formatter, Write as _};

use super::conduct::Link;
use super::groups::{Group, Shared};
use super::odd::list;
use super::outliers::{CERTAIN, FEWEST, LOSSES, Outlier, SPREADS, median_of};
use super::report::{Measure, Report};
use super::schedule::Pair;
use crate::output::counted;
use crate::perf::result::Kind;

/// Most ranks whose matrix is printed.
const MOST: usize = 24;
/// Most lines of one kind.
const LINES: usize = 20;
/// Links that are told of a group.
const OF_GROUP: usize = 3;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.title())?;
        let sections = self.sections();
        let (before, after) = sections.split_at(BEFORE);
        before.iter().try_for_each(|section| section.write(f))?;
        for traffic in 0..self.traffic.len() {
            self.measure(f, traffic)?;
        }
        after.iter().try_for_each(|section| section.write(f))?;
        if self.is_good() {
            write!(f, "\n\n{GOOD}")?;
        }
        Ok(())
    }
}

/// The sentence for a run without findings.
pub const GOOD: &str = "no link stands out, and no limit was missed";
/// Sections about what was found before traffic.
const BEFORE: usize = 3;

/// Lines under a heading.
#[derive(Debug)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// The lines.
    pub lines: Vec<String>,
}

impl Section {
    fn new(heading: &str, lines: impl Iterator<Item = String>) -> Section {
        Section { heading: heading.to_owned(), lines: lines.collect() }
    }

    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Section { heading, lines } = self;
        if lines.is_empty() {
            return Ok(());
        }
        write!(f, "\n\n{heading}:")?;
        lines.iter().take(LINES).try_for_each(|line| write!(f, "\n  {line}"))?;
        match lines.len().saturating_sub(LINES) {
            0 => Ok(()),
            more => write!(f, "\n  … and {more} more; --json and --report have all"),
        }
    }
}

impl Report {
    /// Returns the first line: what was measured.
    #[must_use]
    pub fn title(&self) -> String {
        let Report { schedule, pattern, seconds, .. } = self;
        let took_part = self.ranks.iter().filter(|rank| rank.is_good()).count();
        let all = self.ranks.len();
        let present = match took_part == all {
            true => counted(all as u64, "rank"),
            false => format!("{took_part} of {}", counted(all as u64, "rank")),
        };
        let fewest = match schedule.rounds == schedule.optimum {
            true => "the fewest possible".to_owned(),
            false => format!("{} at the fewest", schedule.optimum),
        };
        format!(
            "{present}, {pattern}: {} in {} ({fewest}), {seconds:.1} s",
            counted(schedule.links as u64, "link"),
            counted(schedule.rounds as u64, "round"),
        )
    }

    /// Returns the findings.
    #[must_use]
    pub fn sections(&self) -> Vec<Section> {
        let lost = self.ranks.iter().filter_map(|rank| Some((rank.rank, rank.trouble()?)));
        let lost = lost.map(|(rank, why)| format!("{}: {why}", self.name(rank)));
        let odd = self.odd.iter().map(|odd| match odd.ranks[..] {
            [rank] => format!("{}: {odd}", self.name(rank)),
            _ => format!("ranks {}: {odd}", list(&odd.ranks)),
        });
        let rising =
            self.rising.iter().map(|rising| format!("{}: {rising}", self.name(rising.rank)));
        let beside = self.beside.iter().map(|outlier| {
            format!("link {}-{}: {}", outlier.from, outlier.to, self.figure(outlier))
        });
        let missed = self
            .missed()
            .map(|(Link { from, to, .. }, words)| format!("link {from}-{to}: {words}"));
        let mut all = vec![
            Section::new("ranks that took no part, or not to the end", lost),
            Section::new("odd ones out", odd),
            Section::new("counters of errors", rising),
            Section::new("bad links, by what they share", self.blame().into_iter()),
            Section::new("slow beside others, and not alone", beside),
            Section::new("limits that were missed", missed),
        ];
        if let Some(comparison) = &self.comparison {
            let words = |change: &super::compare::Change| change.words(&self.traffic);
            let (worse, better) = (comparison.worse.iter(), comparison.better.iter());
            all.extend([
                Section::new("before and now", std::iter::once(comparison.to_string())),
                Section::new("worse than before", worse.map(words)),
                Section::new("better than before", better.map(words)),
            ]);
        }
        all.push(Section::new("to know", self.notes.iter().cloned()));
        all
    }

    fn blame(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for group in &self.groups {
            let Some(shared) = &group.shared else {
                lines.extend(group.links.iter().map(|&(one, other)| {
                    format!(
                        "link {one}-{other} ({}): {}",
                        self.ends(one, other),
                        self.why((one, other))
                    )
                }));
                continue;
            };
            lines.push(format!("{}: {}", self.shared(shared), share(group)));
            for &(one, other) in group.links.iter().take(OF_GROUP) {
                lines.push(format!("  link {one}-{other}: {}", self.why((one, other))));
            }
            if group.links.len() > OF_GROUP {
                lines.push(format!("  and {} more", group.links.len() - OF_GROUP));
            }
        }
        lines
    }
    fn measure(&self, f: &mut Formatter<'_>, traffic: usize) -> fmt::Result {
        let measure = &self.traffic[traffic];
        let values = || {
            let figures = self.links.iter().filter_map(move |link| link.of(traffic));
            figures.map(|figures| figures.main(measure.kind()))
        };
        let Some(median) = median_of(values()) else {
            return write!(f, "\n\n{}: no link was measured", measure.name);
        };
        let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        write!(
            f,
            "\n\n{}, {}: median {}, from {} to {}",
            measure.name,
            measure.unit,
            short(median),
            short(least),
            short(most)
        )?;
        if self.ranks.len() <= MOST { self.matrix(f, traffic) } else { Ok(()) }
    }

    /// Prints a value per pair: from the rank of the line to that of the column.
    fn matrix(&self, f: &mut Formatter<'_>, traffic: usize) -> fmt::Result {
        let kind = self.traffic[traffic].kind();
        let ranks = self.ranks.len();
        let mut cells = vec![vec![String::new(); ranks]; ranks];
        for link in &self.links {
            let (from, to) = (link.from as usize, link.to as usize);
            let cell = match (link.of(traffic), &link.error) {
                (Some(figures), _) => short(figures.main(kind)),
                (None, Some(_)) => "-".to_owned(),
                (None, None) => continue,
            };
            // Half of a round trip is the same from both ends, and so is the sum of both directions.
            let alike = kind == Kind::Lat
                || !self.links.iter().any(|other| (other.from, other.to) == (link.to, link.from));
            if alike {
                cells[to][from].clone_from(&cell);
            }
            cells[from][to] = cell;
        }
        let width = cells.iter().flatten().map(String::len).max().unwrap_or(1).max(3) + 1;
        write!(f, "\n     ")?;
        (0..ranks).try_for_each(|rank| write!(f, "{rank:>width$}"))?;
        for (rank, cells) in cells.iter().enumerate() {
            let mut line = format!("\n{rank:>5}");
            cells.iter().try_for_each(|cell| write!(line, "{cell:>width$}"))?;
            write!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Returns the hosts of a link.
    fn ends(&self, one: u32, other: u32) -> String {
        let host = |rank: u32| self.ranks[rank as usize].spot().host;
        format!("{} and {}", host(one), host(other))
    }

    fn shared(&self, shared: &Shared) -> String {
        match shared {
            Shared::Rank(rank) => {
                let spot = self.ranks[*rank as usize].spot();
                format!("rank {rank} (host {}, port {})", spot.host, spot.port)
            }
            Shared::Host(host) => format!("host {host}"),
            Shared::Switch(switch) => format!("switch {switch}"),
            Shared::Rail(rail) => format!("rail {rail}"),
        }
    }

    fn why(&self, pair: Pair) -> String {
        let of_pair = |from: u32, to: u32| (from.min(to), from.max(to)) == pair;
        let mut outliers = self.outliers.iter().filter(|outlier| of_pair(outlier.from, outlier.to));
        let failed = self.unmeasured().find(|(link, _)| of_pair(link.from, link.to));
        if let Some((_, why)) = failed {
            return format!("not measured: {why}");
        }
        let Some(first) = outliers.next() else { return "no figure".to_owned() };
        let more = match outliers.count() {
            0 => String::new(),
            more => format!("; {} more", counted(more as u64, "figure")),
        };
        format!("{}{more}", self.figure(first))
    }

    fn figure(&self, outlier: &Outlier) -> String {
        let measure = &self.traffic[outlier.traffic];
        let mut words = format!("{}: {}", measure.name, outlier.words(measure.kind()));
        for (name, rose) in &outlier.counters {
            let _ = write!(words, "; {name} {rose}");
        }
        words
    }
}

fn share(group: &Group) -> String {
    format!("{} of its {} are bad", group.links.len(), counted(group.of as u64, "link"))
}

/// Returns a figure with three significant digits, or as a whole number.
fn short(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

/// Returns the rule of outliers in a sentence.
#[must_use]
pub fn rule(apart: f64, measures: &[Measure]) -> String {
    let kinds = counted(measures.len() as u64, "kind");
    format!(
        "a link is bad if it is {apart} times worse than the median of its kind of traffic, and {SPREADS} \
         robust standard deviations or {CERTAIN} times; lossy from {LOSSES} losses on; {kinds} of traffic, \
         compared from {FEWEST} links on"
    )
}
