//! Merges equal records, and joins completions with the WQEs that they name.

use std::collections::HashMap;

use crate::text::QueueKind;

use super::record::{DecodedRecord, Key, RecordKind};
use super::wqe;

/// Merges adjacent records that are equal in every field, such as flushed requests that a program
/// reports without a number.
pub(super) fn once(records: Vec<DecodedRecord>) -> Vec<DecodedRecord> {
    let mut once: Vec<DecodedRecord> = Vec::with_capacity(records.len());
    for record in records {
        match once.last_mut() {
            Some(last) if last.is_like(&record) => {
                last.times += 1;
                last.lines =
                    last.lines.zip(record.lines).map(|((first, _), (_, end))| (first, end));
            }
            _ => once.push(record),
        }
    }
    once
}

/// Lines between a failed call and the program's further words about it.
const AGAIN: usize = 3;

/// Joins reports of one failed call: programs print it where it failed, and again without its errno in
/// the function that called.
pub(super) fn reports(records: Vec<DecodedRecord>) -> Vec<DecodedRecord> {
    let mut joined: Vec<DecodedRecord> = Vec::with_capacity(records.len());
    for record in records {
        match joined.last_mut() {
            Some(last) if is_again(last, &record) => {
                let ends = last.lines.zip(record.lines);
                last.lines = ends.map(|((first, _), (_, end))| (first, end));
                last.notes.extend(record.lines.map(|(line, _)| {
                    format!("Line {line} reports the same failure again, without its errno.")
                }));
            }
            _ => joined.push(record),
        }
    }
    joined
}

/// Returns whether a record is the report of the one before again.
fn is_again(last: &DecodedRecord, record: &DecodedRecord) -> bool {
    let is_call = |record: &DecodedRecord| record.kind == RecordKind::CallFailure;
    let call =
        |record: &DecodedRecord| record.value("call").map(|name| name.replace("dmabuf_", ""));
    let near = last.lines.zip(record.lines);
    is_call(last)
        && is_call(record)
        && last.value("error").is_some()
        && record.value("error").is_none()
        && record.times == 1
        && call(last).is_some()
        && call(last) == call(record)
        && (&last.origin.host, &last.origin.rank) == (&record.origin.host, &record.origin.rank)
        && near.is_some_and(|((_, end), (first, _))| first.saturating_sub(end) <= AGAIN)
}

/// Links each completion to the WQE that it names, among the records or in the memory of a send
/// queue. A WQE in memory becomes a record of its own.
pub(super) fn join(mut records: Vec<DecodedRecord>) -> Vec<DecodedRecord> {
    take_from_rings(&mut records);
    // The records of each WQE, by queue number and index, and by index alone.
    let mut places: HashMap<(QueueKind, Option<u32>, u16), Vec<usize>> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        if let Key::Wqe { queue, qpn, index } = record.key {
            places.entry((queue, Some(qpn), index)).or_default().push(at);
            places.entry((queue, None, index)).or_default().push(at);
        }
    }
    for (at, record) in records.iter_mut().enumerate() {
        let Key::Names { queue, qpn, index } = record.key else { continue };
        let Some(places) = places.get(&(queue, qpn, index)) else { continue };
        // Takes the nearest of several, as when a log repeats; a WQE is printed after its CQE.
        let behind = places.partition_point(|place| *place < at);
        let around = [behind.checked_sub(1), Some(behind)];
        let around = around.into_iter().flatten().filter_map(|place| places.get(place));
        record.wqe =
            around.min_by_key(|place| (place.abs_diff(at), **place < at)).map(|place| place + 1);
    }
    records
}

/// Adds the WQEs that completions name as records, each after the memory that contains it.
fn take_from_rings(records: &mut Vec<DecodedRecord>) {
    let mut wanted: Vec<(Option<u32>, u16)> = records
        .iter()
        .filter_map(|record| match record.key {
            Key::Names { queue: QueueKind::Send, qpn, index } => Some((qpn, index)),
            _ => None,
        })
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut at = 0;
    while at < records.len() {
        let (format, lines) = (records[at].format, records[at].lines);
        let Key::Ring { bytes, addressing } = &records[at].key else {
            at += 1;
            continue;
        };
        let mut found: Vec<DecodedRecord> = wanted
            .iter()
            .filter_map(|(qpn, index)| wqe::in_ring(bytes, *index, *qpn))
            .map(|bytes| DecodedRecord { format, lines, ..wqe::send(&bytes, *addressing) })
            .collect();
        found.dedup_by(|one, other| one.title == other.title);
        if found.is_empty() && !wanted.is_empty() {
            records[at].notes.push("It has none of the WQEs that the completions name.".to_owned());
        }
        let count = found.len();
        records.splice(at + 1..at + 1, found);
        at += 1 + count;
    }
}
