//! Ranks the causes of completions and failed calls by what the record and the text around it know.

use crate::explain::Status;
use crate::explain::causes::{self, Program, Signs, Symptom};

use super::lines::Lines;
use super::record::DecodedRecord;

/// Lines before and behind a record that may name its program.
const AROUND: usize = 8;

/// Lines before and behind a record that may have signs of its cause.
const REACH: usize = 30;

/// Longest line whose signs are read.
const LONGEST: usize = 4096;

/// The text around records.
pub(super) struct Surroundings<'a> {
    lines: &'a Lines<'a>,
    /// The signs of each line that was asked for.
    signs: Vec<Option<Signs>>,
}

impl<'a> Surroundings<'a> {
    /// Creates the surroundings of records in these lines.
    pub(super) fn new(lines: &'a Lines<'a>) -> Surroundings<'a> {
        Surroundings { lines, signs: vec![None; lines.len()] }
    }

    /// Fills in what the text from line `at` to `end`, and the text around it, tells of records.
    pub(super) fn identify(&mut self, records: &mut [DecodedRecord], at: usize, end: usize) {
        for record in records {
            let apart = apart(record);
            let Some(facts) = &mut record.facts else { continue };
            facts.program = facts.program.or_else(|| self.program(at, end));
            facts.signs |= self.signs(at, end) | apart;
        }
    }

    /// Returns the program that the record's own lines name, or its neighbours, the nearest first.
    fn program(&self, at: usize, end: usize) -> Option<Program> {
        let before = (0..at).rev().take(AROUND).map(Some).chain([None; AROUND]);
        let near = (end..end + AROUND).zip(before);
        let near = near.flat_map(|(behind, before)| [Some(behind), before]).flatten();
        (at..end).chain(near).find_map(|line| Program::of_line(self.lines.get(line)))
    }

    fn signs(&mut self, at: usize, end: usize) -> Signs {
        let last = (end + REACH).min(self.lines.len());
        (at.saturating_sub(REACH)..last).fold(Signs::empty(), |signs, line| {
            let found = self.of_line(line);
            signs | if line < at { found } else { found - Signs::BEFORE }
        })
    }

    fn of_line(&mut self, line: usize) -> Signs {
        let text = self.lines.get(line);
        let read = || if text.len() > LONGEST { Signs::empty() } else { Signs::of_line(text) };
        *self.signs[line].get_or_insert_with(read)
    }
}

/// Returns whether a record names two ports that are likely not to reach each other: of different
/// kinds of GIDs, of different IPv4 networks, or of different numbers.
fn apart(record: &DecodedRecord) -> Signs {
    let network = |field: &str| {
        let address = record.value(field)?.strip_prefix("::ffff:")?;
        Some(address.rsplit_once('.')?.0.to_owned())
    };
    let other = |one: Option<String>, other: Option<String>| {
        one.zip(other).is_some_and(|(one, other)| one != other)
    };
    let device = record.value("device").map(str::to_owned);
    let peer = record.value("peer").and_then(|peer| peer.split_once('@'));
    let peer = peer.map(|(_, device)| device.to_owned());
    let starts =
        |field: &str, with: &str| record.value(field).is_some_and(|gid| gid.starts_with(with));
    let kinds = |one: &str, other: &str| starts(one, "::ffff:") && starts(other, "fe80");
    if kinds("local GID", "remote GID") || kinds("remote GID", "local GID") {
        return Signs::GID_KINDS;
    }
    if other(network("local GID"), network("remote GID")) || other(device, peer) {
        Signs::OTHER_NETWORK
    } else {
        Signs::empty()
    }
}

/// Orders the causes of every completion and failed call.
pub(super) fn rank(records: &mut [DecodedRecord]) {
    let mut failed = false;
    for record in records {
        let Some(facts) = &mut record.facts else { continue };
        if failed {
            facts.signs |= Signs::EARLIER;
        }
        if let Symptom::Status(status) = facts.symptom {
            failed |= status != Status::Flushed;
        }
        // The first finding of such a record is what was seen.
        if let Some(seen) = record.findings.first_mut() {
            seen.causes = causes::rank(facts);
            seen.check = causes::check(facts.symptom).map(|check| check.text);
        }
    }
}
