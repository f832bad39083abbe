//! The driver's flight recorder: the last WQEs, doorbells and CQEs of each queue.
//!
//! [`flight`](crate::flight) reads the lines, which begin with `mlx5-flight/1`. This module turns a
//! flight record into a timeline, with the failed CQE and the WQE that it names.

use crate::flight::{Doorbell, DoorbellKind, Dump, Event, Queue, Reason, Record, What, Wqe};
use crate::text::{self, Addressing, QueueKind, SendWqe};

use super::super::record::{DecodedRecord, Key, RecordKind};
use super::super::{completion, lines::Lines, wqe};
use super::{Format, Reading};

/// The format of queues built with the feature `flight-recorder`.
pub(super) const FORMAT: Format = Format {
    name: "flight recorder",
    reads: "mlx5: a flight record (MLX5_FLIGHT_DUMP, `SendQueue::flight_record`)",
    read,
};

/// The mark in each line of a record.
const MARK: &str = "mlx5-flight/";

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    if !lines.get(at).contains(MARK) {
        return None;
    }
    let end = end(lines, at);
    let text: Vec<&str> = (at..end).map(|line| lines.get(line)).collect();
    let dump = Dump::parse(&text.join("\n"));
    let mut records: Vec<DecodedRecord> = Vec::new();
    for (place, flight) in dump.records.iter().enumerate() {
        records.push(timeline(&dump, place));
        records.extend(failure(&dump, place, lines.options.addressing, flight));
    }
    if let (None, Some(damage)) = (records.first(), dump.damaged.first()) {
        records.push(DecodedRecord::new(
            RecordKind::Event,
            format!("lines of a flight record that cannot be read: {}", damage.reason),
        ));
    }
    if let Some(first) = records.first_mut() {
        first.notes.extend(dump.damaged.iter().map(|damage| {
            format!("Line {} of it cannot be read: {}.", at + damage.line, damage.reason)
        }));
    }
    Some(Reading::until(end, records))
}

/// Returns the line after the records that begin at `at`. They go on while another record line
/// follows the last line of a record, or while a record is open.
fn end(lines: &Lines<'_>, at: usize) -> usize {
    let (mut open, mut end, mut next) = (0_usize, at, at);
    while next < lines.len() {
        let line = lines.get(next);
        next += 1;
        match line.find(MARK).map(|mark| line[mark..].split_whitespace()) {
            Some(mut words) => {
                match words.nth(3) {
                    Some("begin") => open += 1,
                    Some("end") => open = open.saturating_sub(1),
                    _ => {}
                }
                end = next;
            }
            // Log lines between those of a record do not belong to it.
            None if open > 0 => {}
            None => break,
        }
    }
    end
}

/// Returns the name of the queue that a record belongs to.
fn name(flight: &Record) -> String {
    let transport = match flight.transport.as_str() {
        "" => String::new(),
        transport => format!(" ({transport})"),
    };
    let kind = match flight.queue {
        Queue::Send => "send queue",
        Queue::Receive => "receive queue",
        Queue::SharedReceive => "shared receive queue",
        Queue::Completion => "completion queue",
    };
    format!("{kind} {:#08x}{transport}", flight.number)
}

fn timeline(dump: &Dump, place: usize) -> DecodedRecord {
    let flight = &dump.records[place];
    let why = match flight.reason {
        Reason::Error => "up to a failure",
        Reason::Request => "on request",
    };
    let events = flight.events.len();
    let title = format!("the last {events} events of {}, {why}", name(flight));
    let mut record = DecodedRecord::new(RecordKind::Event, title);
    record
        .field("events before", flight.lost.to_string())
        .field("ring", format!("{} entries of {} bytes", flight.entries, flight.stride))
        .field("completion queue", format!("{:#08x}", flight.cqn))
        .field("first event", format!("tick {} of {} Hz", flight.tick, flight.hertz));
    let waiting = outstanding(flight);
    if flight.queue == Queue::Send && waiting > 0 {
        let text = format!("{waiting} WQEs, of those that are recorded");
        record.field("outstanding at its end", text);
    }
    record.text = (0..events)
        .map(|at| format!("+{} ns  {}", flight.events[at].at, line(dump, place, at)))
        .collect();
    match flight.changed() {
        Some(true) => record.notes.push(
            "The WQE that failed was other bytes in the ring when it failed than when it was posted: \
             something has written to the ring's memory between. Look for a stray pointer, or a DMA \
             that goes where the ring is."
                .to_owned(),
        ),
        Some(false) => record
            .notes
            .push("The WQE that failed lay in the ring as it was posted.".to_owned()),
        None => {}
    }
    if flight.missing != 0 {
        let missing = flight.missing;
        record.notes.push(format!("{missing} events of it are missing in the text."));
    }
    record
}

/// Returns how many WQEs of a send queue's record no recorded CQE completes.
fn outstanding(flight: &Record) -> usize {
    let last = flight.events.iter().rev().find_map(|event| match &event.what {
        What::Cqe(cqe) => Some(cqe.wqe_index()),
        _ => None,
    });
    let posted = flight.events.iter().filter_map(|event| match &event.what {
        What::Wqe(wqe) if !wqe.found => Some(wqe.index),
        _ => None,
    });
    // An index is outstanding if it is at most half of the index range ahead of the last completed
    // one.
    let after =
        |index: u16| last.is_none_or(|last| (1..0x8000).contains(&index.wrapping_sub(last)));
    posted.filter(|index| after(*index)).count()
}

/// Formats an event as a line.
fn line(dump: &Dump, place: usize, at: usize) -> String {
    let flight = &dump.records[place];
    let Event { at: when, what } = &flight.events[at];
    match what {
        What::Wqe(wqe) => {
            let how = if wqe.found { "in the ring" } else { "posted" };
            let cut = if wqe.is_cut() { ", of which the first are recorded" } else { "" };
            let operation = operation(flight, wqe);
            format!("WQE {:#06x} {how}: {operation}, {} bytes{cut}", wqe.index, wqe.size)
        }
        What::Doorbell(doorbell) => rung(doorbell),
        What::Cqe(cqe) => {
            let text = text::Cqe(&cqe.0).to_string();
            let Some((of, wqe)) = dump.wqe_of(place, at) else { return text };
            let posted = &dump.records[of];
            // Uses the bytes as posted. Bytes read again at the failure show the present state.
            let written = posted.events[..wqe + 1].iter().rev().find(|event| {
                matches!((&event.what, &posted.events[wqe].what), (What::Wqe(one), What::Wqe(other))
                    if one.index == other.index && !one.found)
            });
            match written {
                Some(written) if of == place => {
                    format!("{text}; {} ns after its WQE", when - written.at.min(*when))
                }
                _ => text,
            }
        }
    }
}

/// Returns the operation that a WQE requests.
fn operation(flight: &Record, wqe: &Wqe) -> String {
    if flight.queue != Queue::Send {
        return "receive".to_owned();
    }
    let text = SendWqe::new(&wqe.bytes, flight.addressing()).to_string();
    let first = text.lines().next().unwrap_or_default();
    // The name, and the text after number and size. The line already has those two.
    let name = first.split(" WQE ").next().unwrap_or(first);
    let flags = first.split_once(" ds ").and_then(|(_, rest)| rest.split_once(' '));
    match flags {
        Some((_, flags)) => format!("{name} {flags}"),
        None => name.to_owned(),
    }
}

fn rung(doorbell: &Doorbell) -> String {
    let Doorbell { kind, record, register } = doorbell;
    let at = register.map(|register| format!(" at {register:#05x}")).unwrap_or_default();
    match kind {
        DoorbellKind::Doorbell => {
            format!("doorbell: record {record:#06x}, 8 bytes to the register{at}")
        }
        DoorbellKind::BlueFlame => {
            format!("BlueFlame: record {record:#06x}, the WQE to the register{at}")
        }
        DoorbellKind::RecordOnly => format!("doorbell record {record:#06x}"),
        DoorbellKind::RegisterOnly => format!("doorbell: 8 bytes to the register{at}, no record"),
        DoorbellKind::Arm => format!("event asked for: arm word {record:#010x}{at}"),
    }
}

/// Returns the failed CQE and its WQE as separate records.
fn failure(
    dump: &Dump,
    place: usize,
    addressing: Option<Addressing>,
    flight: &Record,
) -> Vec<DecodedRecord> {
    let Some(at) = flight.failure() else { return Vec::new() };
    let What::Cqe(cqe) = &flight.events[at].what else { return Vec::new() };
    let mut records = vec![completion::cqe(&cqe.0)];
    let Some((of, found)) = dump.wqe_of(place, at) else { return records };
    let posted = &dump.records[of];
    let What::Wqe(found) = &posted.events[found].what else { return records };
    let mut record = match posted.queue {
        Queue::Send => {
            let addressing = addressing.unwrap_or_else(|| posted.addressing());
            wqe::send(&found.bytes, addressing)
        }
        // A linked-list WQE begins with the index of its successor.
        Queue::SharedReceive => wqe::receive(found.bytes.get(16..).unwrap_or_default()),
        Queue::Receive | Queue::Completion => wqe::receive(&found.bytes),
    };
    if let Key::None = record.key {
        let (queue, index) = (QueueKind::Receive, found.index);
        record.key = Key::Wqe { queue, qpn: cqe.qpn(), index };
    }
    if found.is_cut() {
        let note = format!("Its first {} of {} bytes are recorded.", found.bytes.len(), found.size);
        record.notes.push(note);
    }
    records.push(record);
    records
}
