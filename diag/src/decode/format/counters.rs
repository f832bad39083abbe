//! Listings of counters: `hw_counters` of sysfs, `ethtool -S`, `rdma statistic`, `perfquery`, `ibqueryerrors`, `devlink
//! health diagnose … reporter vnic`.
//!
//! Lines are "PATH:VALUE" (grep), "NAME: VALUE", "NAME VALUE", and "link mlx5_0/1 NAME VALUE NAME
//! VALUE …". A text with two listings of one port is read as their difference.

use std::collections::HashMap;

use crate::explain::ExplainedCode;
use crate::explain::counter::{self, Counter, Normal};

use super::super::lines::Lines;
use super::super::record::{DecodedRecord, RecordKind};
use super::{Format, Reading};

/// The format of these listings.
pub(super) const FORMAT: Format = Format {
    name: "counters",
    reads: "counters of /sys/class/infiniband/*/ports/*/hw_counters, ethtool -S, rdma statistic, perfquery, ibqueryerrors and devlink's reporter vnic; two listings as their difference",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 8192;

/// Other lines that may stand inside a listing, and between two.
const APART: usize = 6;

/// A file of `hw_counters` that is no counter.
const SETTING: &str = "lifespan";

/// Lines before a listing that may name its interface or device.
const HEADER: usize = 4;

/// Most counters that one record keeps.
const MOST: usize = 1 << 14;

/// Most counters that one record shows.
const SHOWN: usize = 64;

/// The counters of one place, listing after listing.
#[derive(Debug, Default)]
struct Series {
    /// Device and port, or interface.
    place: String,
    /// Names in their order, each with its first and last value, and its number of values.
    counters: Vec<(String, u64, u64, usize)>,
    places: HashMap<String, usize>,
}

impl Series {
    fn take(&mut self, name: &str, value: u64) {
        if let Some(at) = self.places.get(name) {
            let (_, _, last, count) = &mut self.counters[*at];
            (*last, *count) = (value, *count + 1);
        } else if self.counters.len() < MOST {
            self.places.insert(name.to_owned(), self.counters.len());
            self.counters.push((name.to_owned(), value, value, 1));
        }
    }
}

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let first = pairs(lines.get(at))?;
    // A setting alone is no listing.
    let is_known = |name: &str| name != SETTING && counter::find(name).is_some();
    if !first.1.iter().any(|(name, _)| is_known(name) || (*name == SETTING && !first.0.is_empty()))
    {
        return None;
    }
    let mut all: Vec<Series> = Vec::new();
    // The lines before name the interface or device.
    let before = (at.saturating_sub(HEADER)..at).rev().find_map(|line| header(lines.get(line)));
    let (mut end, mut next, mut place) = (at, at, before.unwrap_or_default());
    let mut own = Vec::new();
    while next < lines.len() && next <= end + APART {
        let line = lines.get(next);
        if let Some(header) = header(line) {
            place = header;
            own.push(next);
        }
        if let Some((of, found)) = pairs(line) {
            if !of.is_empty() {
                place = of;
            }
            let series = match all.iter().position(|series| series.place == place) {
                Some(known) => &mut all[known],
                None if all.len() == APART * APART => break,
                None => {
                    all.push(Series { place: place.clone(), ..Series::default() });
                    all.last_mut()?
                }
            };
            found.into_iter().for_each(|(name, value)| series.take(name, value));
            own.push(next);
            end = next;
        }
        next += 1;
    }
    Some(Reading::of(&own, end, all.iter().map(record).collect()))
}

/// Returns device and port, or an empty text, and the counters of a line; `None` if it has none.
fn pairs(line: &str) -> Option<(String, Vec<(&str, u64)>)> {
    if line.len() > LONGEST {
        return None;
    }
    let text = line.trim();
    if let Some(rest) = text.strip_prefix("link ") {
        let (place, rest) = rest.split_once(' ')?;
        return Some((place.to_owned(), row(rest)?));
    }
    if text.contains(" == ") {
        return queried(text);
    }
    if !text.ends_with(|last: char| last.is_ascii_digit()) {
        return None;
    }
    // perfquery fills the line with dots.
    let marks = [':', ' ', '\t', '=', '.'];
    let (before, value) = text.rsplit_once(marks)?;
    let value = value.parse().ok()?;
    let before = before.trim_end_matches(marks);
    let (folder, name) = before.rsplit_once('/').unwrap_or(("", before));
    if folder.is_empty() && before.contains(' ') {
        return Some((String::new(), row(text)?));
    }
    is_name(name).then(|| (port(folder), vec![(name, value)]))
}

/// Returns the counters of ibqueryerrors: "GUID 0x1070fd03001a4c17 port 3: [LinkDownedCounter == 25]
/// [PortXmitWait == 14681376621 (13.673G)]".
fn queried(text: &str) -> Option<(String, Vec<(&str, u64)>)> {
    let (place, _) = text.split_once('[')?;
    let found = text.split('[').skip(1).filter_map(|part| {
        let (name, value) = part.split_once(" == ")?;
        let value = value.split([' ', ']']).next()?.parse().ok()?;
        is_name(name).then_some((name, value))
    });
    let found: Vec<(&str, u64)> = found.take(LONGEST).collect();
    (!found.is_empty()).then(|| (place.trim().trim_end_matches(':').to_owned(), found))
}

/// Returns the counters of "NAME VALUE NAME VALUE".
fn row(text: &str) -> Option<Vec<(&str, u64)>> {
    let mut words = text.split_ascii_whitespace();
    let mut found = Vec::new();
    while let Some(name) = words.next() {
        let name = name.trim_end_matches(':');
        // Counters of single queue pairs have their numbers behind them.
        let value = words.next().and_then(|value| value.parse().ok());
        let Some(value) = value.filter(|_| is_name(name) && found.len() < LONGEST) else { break };
        found.push((name, value));
    }
    (!found.is_empty()).then_some(found)
}

fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic());
    starts && name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

/// Returns "mlx5_0/1" for a path of sysfs, or an empty text.
fn port(folder: &str) -> String {
    let Some((before, behind)) = folder.split_once("/ports/") else { return String::new() };
    let device = before.rsplit('/').next().unwrap_or_default();
    let port = behind.split('/').next().unwrap_or_default();
    format!("{device}/{port}")
}

/// Returns the interface or device that a line between counters names.
fn header(line: &str) -> Option<String> {
    let text = line.trim();
    if let Some((_, rest)) = text.split_once("ethtool -S ") {
        return rest.split_ascii_whitespace().next().map(str::to_owned);
    }
    // perfquery: "# Port counters: Lid 12 port 1 (CapMask: 0x5300)".
    if let Some((_, rest)) = text.split_once("counters: Lid ") {
        let place = rest.split(" (").next().unwrap_or(rest);
        return Some(format!("LID {place}"));
    }
    let device = text.trim_end_matches(':');
    let is_device = device.starts_with("mlx5_") && !device.contains([' ', '=', ',']);
    (text.starts_with("pci/") || is_device).then(|| device.to_owned())
}

fn record(series: &Series) -> DecodedRecord {
    let of = if series.place.is_empty() { String::new() } else { format!(" of {}", series.place) };
    let twice = series.counters.iter().any(|(.., count)| *count > 1);
    let mut record = DecodedRecord::new(RecordKind::Counters, "");
    record.field_if("device", Some(series.place.as_str()).filter(|place| !place.is_empty()));
    let mut shown = Vec::new();
    for (name, first, last, count) in &series.counters {
        let Some(known) = counter::find(name) else { continue };
        let told = if twice { *count > 1 && last != first } else { *last != 0 };
        if !told || shown.len() == SHOWN || name == SETTING {
            continue;
        }
        let value = match last.checked_sub(*first) {
            _ if !twice => last.to_string(),
            Some(more) => format!("+{more} ({first} to {last})"),
            None => format!("{first} to {last}: it was reset"),
        };
        record.field_meaning(name.as_str(), value, known.counts);
        shown.push((name, known));
    }
    let still = shown.iter().filter(|(_, known)| known.normal == Normal::Still).count();
    record.title = title(&of, twice, still, shown.len());
    record.findings = findings(&shown);
    record.notes.push(match twice {
        true => format!(
            "Two listings were read: the difference of {} counters is shown where it is not zero.",
            series.counters.iter().filter(|(.., count)| *count > 1).count()
        ),
        false => format!(
            "{} counters were read. They count since the device was started: list them again under load, and \
             give both listings. What grows counts.",
            series.counters.len()
        ),
    });
    record
}

fn title(of: &str, twice: bool, still: usize, shown: usize) -> String {
    let faults = match still {
        0 => "none tells of a fault".to_owned(),
        1 => "1 tells of a fault".to_owned(),
        many => format!("{many} tell of faults"),
    };
    match (twice, shown) {
        (true, 0) => format!("counters{of}: none grew between two listings"),
        (true, _) => format!("counters{of} that grew between two listings: {faults}"),
        (false, _) => format!("counters{of}: {faults}"),
    }
}

/// Returns what counters mean, one for each check: faults before others.
fn findings(shown: &[(&String, &Counter)]) -> Vec<ExplainedCode> {
    let mut findings: Vec<ExplainedCode> = Vec::new();
    for normal in [Normal::Still, Normal::Grows] {
        for (name, known) in shown.iter().filter(|(_, known)| known.normal == normal) {
            if findings.iter().all(|finding| finding.check != Some(known.check)) {
                findings.push(ExplainedCode::counter(name, known));
            }
        }
    }
    findings
}
