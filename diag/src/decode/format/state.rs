//! The state of links, devices and their objects: `mlxlink`, `devlink health show`, `rdma resource`.

use crate::explain::causes::MANY_CONTEXTS;
use crate::explain::{ExplainedCode, state};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these listings.
pub(super) const FORMAT: Format = Format {
    name: "mlxlink, devlink, rdma",
    reads: "mlxlink: \"State : …\", \"Status Opcode : …\"; devlink health show: \"reporter fw\", \"state error …\"; rdma resource: \"0: mlx5_0: pd 2 cq 3 … ctx 5\"",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 1024;

/// Most lines of one listing.
const MOST: usize = 256;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST {
        return None;
    }
    let text = line.trim_start();
    if let Some(name) = text.strip_prefix("reporter ") {
        return reporter(lines, at, name);
    }
    if line.contains(": pd ") {
        return Some(Reading::to(at, vec![objects(line)?]));
    }
    let (name, _) = value(line)?;
    matches!(name, "State" | "Physical state" | "Status Opcode").then(|| link(lines, at))?
}

/// Other lines between those of a link: modes and headings.
const APART: usize = 14;

/// Returns name and value of "Physical state    : Polling".
fn value(line: &str) -> Option<(&str, &str)> {
    // ibstat's names have no blank before the colon.
    let (name, value) = line.split_once(" : ")?;
    let name = name.trim();
    (!name.is_empty() && name.len() < 40).then(|| (name, value.trim()))
}

/// Fields of mlxlink that are shown.
const LINK: [&str; 8] = [
    "State",
    "Physical state",
    "Speed",
    "Width",
    "FEC",
    "Auto Negotiation",
    "Status Opcode",
    "Recommendation",
];

fn link(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let mut record = DecodedRecord::new(RecordKind::State, "");
    let (mut end, mut next) = (at, at);
    while next < lines.len() && next <= end + APART && next < at + MOST {
        if let Some((name, value)) = value(lines.get(next)) {
            // Another port's listing begins.
            if record.value(name).is_some() {
                break;
            }
            if LINK.contains(&name) {
                record.field(name, value);
                end = next;
            }
        }
        next += 1;
    }
    let opcode = record.value("Status Opcode").and_then(|code| code.parse().ok());
    // Other tools print a state too.
    if opcode.is_none() && record.value("Physical state").is_none() {
        return None;
    }
    let state = record.value("State").unwrap_or("of an unknown state").to_owned();
    let said = record.value("Recommendation").filter(|words| !words.starts_with("No issue"));
    let why = said.map(|words| format!(": {words}")).unwrap_or_default();
    record.title = format!("mlxlink: the link is {state}{why}");
    match opcode.and_then(state::link) {
        Some(known) => {
            if let Some(field) = record.fields.iter_mut().find(|field| field.name == "Status Opcode") {
                field.meaning = Some(known.words.to_owned());
            }
            record.findings.push(ExplainedCode::link(known));
        }
        None if state.eq_ignore_ascii_case("active") => {}
        None => record.notes.push(
            "The status opcode is not among those that Linux's mlxsw names. Compare speed, FEC and auto \
             negotiation of both ends (`mlxlink -d DEVICE -m -c`), then try another cable."
                .to_owned(),
        ),
    }
    Some(Reading::to(end, vec![record]))
}

/// Reads "reporter fw" and the line with its state.
fn reporter(lines: &Lines<'_>, at: usize, name: &str) -> Option<Reading> {
    let name = name.trim();
    let state = lines.get(at + 1).trim();
    let rest = state.strip_prefix("state ")?;
    let word = rest.split(' ').next()?;
    let count = |token: &str| scan::number_after(rest, token);
    // The first "error" may be the state itself.
    let errors = scan::number_after(rest.strip_prefix(word).unwrap_or(rest), "error ")?;
    let title = format!("devlink reporter {name}: {word}, {errors} errors");
    let mut record = DecodedRecord::new(RecordKind::State, title);
    record.field_if("device", device(lines, at));
    record.field("reporter", name).field("state", word).field("errors", errors.to_string());
    record.field_if("recoveries", count("recover ").map(|count| count.to_string()));
    let date = scan::after(rest, "last_dump_date ").and_then(|rest| rest.split(' ').next());
    let time = scan::after(rest, "last_dump_time ").and_then(|rest| rest.split(' ').next());
    record.field_if("last dump", date.zip(time).map(|(date, time)| format!("{date} {time}")));
    if errors > 0 || word == "error" {
        record.findings.extend(state::reporter(name).map(ExplainedCode::reporter));
    }
    Some(Reading::to(at + 1, vec![record]))
}

/// Returns the device in the nearest line before, such as "pci/0000:82:00.0:".
fn device<'a>(lines: &'a Lines<'_>, at: usize) -> Option<&'a str> {
    let before = (at.saturating_sub(16)..at).rev().map(|line| lines.get(line).trim());
    let line = before
        .into_iter()
        .find(|line| line.starts_with("pci/") || line.starts_with("auxiliary/"))?;
    Some(line.trim_end_matches(':'))
}

/// Kinds of objects in the lines of `rdma resource`.
const KINDS: [&str; 7] = ["pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"];

/// Reads a line of `rdma resource show`: "0: mlx5_0: pd 2 cq 3 qp 1 cm_id 0 mr 0 ctx 4027 srq 2".
fn objects(line: &str) -> Option<DecodedRecord> {
    let (before, rest) = line.split_once(": pd ")?;
    let device = before.rsplit([' ', ':']).next().filter(|name| !name.is_empty())?;
    let rest = format!("pd {rest}");
    let words: Vec<&str> = rest.split_ascii_whitespace().take(2 * KINDS.len()).collect();
    let mut record = DecodedRecord::new(RecordKind::State, "");
    record.field("device", device);
    let mut contexts = 0;
    for pair in words.chunks_exact(2) {
        let count: u64 = pair[1].parse().ok()?;
        let kind = KINDS.iter().find(|kind| **kind == pair[0])?;
        record.field(*kind, count.to_string());
        if *kind == "ctx" {
            contexts = count;
        }
    }
    record.value("qp")?;
    record.title = match contexts {
        MANY_CONTEXTS.. => format!("objects of {device}: {contexts} open contexts"),
        _ => format!("objects of {device}"),
    };
    if contexts >= MANY_CONTEXTS {
        record.findings.push(ExplainedCode::contexts());
    }
    Some(record)
}
