//! Ranks the causes of each completion by what the record and the text around it know.

use crate::explain::causes::{self, Program};

use super::lines::Lines;
use super::record::DecodedRecord;

/// Lines before and behind a record that may name its program.
const AROUND: usize = 8;

/// Fills in the program of records whose own text does not name it.
pub(super) fn identify(records: &mut [DecodedRecord], lines: &Lines<'_>, at: usize, end: usize) {
    for record in records {
        let Some(facts) = &mut record.facts else { continue };
        // The record's own lines first, then its neighbours, the nearest first.
        let around =
            (end..end + AROUND).zip((0..at).rev().take(AROUND).map(Some).chain([None; AROUND]));
        let near = around.flat_map(|(behind, before)| [Some(behind), before]).flatten();
        facts.program = facts
            .program
            .or_else(|| (at..end).chain(near).find_map(|line| Program::of_line(lines.get(line))));
    }
}

/// Orders the causes of every completion.
pub(super) fn rank(records: &mut [DecodedRecord]) {
    for record in records {
        // The first finding of a completion is its status.
        if let (Some(facts), Some(status)) = (&record.facts, record.findings.first_mut()) {
            status.causes = causes::rank(facts);
        }
    }
}
