//! MPI libraries over verbs: Open MPI's openib and MVAPICH2.
//!
//! `btl_openib_component.c`, `handle_wc`: "error polling LP CQ with status RETRY EXCEEDED ERROR
//! status number 12 for wr_id 25e14b8 opcode 1  vendor error 129 qp_idx 0", with `wr_id` in hex
//! (in decimal by old versions) and the rest in decimal. `ibv_channel_manager.c`: "Got completion
//! with error 12, vendor code=0x81, dest rank=3".

use crate::explain::causes::Program;

use super::super::completion::Said;
use super::super::record::RecordKind;
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these libraries' messages.
pub(super) const FORMAT: Format = Format {
    name: "MPI",
    reads: "Open MPI openib: \"error polling … CQ with status … status number 12\"; MVAPICH2: \"Got completion with error 12, vendor code=0x81\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.contains("error polling ") {
        return openib(lines, at);
    }
    if line.contains("ot completion with error ") {
        return mvapich(lines, at);
    }
    None
}

fn openib(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let mut text = lines.unwrapped(at);
    if !text.contains("vendor error ") {
        // A terminal breaks lines in the middle of words.
        text = [lines.get(at), lines.get(at + 1), lines.get(at + 2)].concat();
    }
    let rest = scan::after(&text, "error polling ")?;
    let (status, rest) = scan::number(scan::after(rest, "status number ")?)?;
    let said = Said {
        vendor: scan::number_after(rest, "vendor error "),
        program: Some(Program::OpenMpi),
        ..Said::of_wc_status(status)
    };
    said.status?;
    let mut record = said.record(RecordKind::Completion);
    record.field("program", "Open MPI openib");
    record.field_if("wr_id", scan::printed_after(rest, "wr_id "));
    let mut before = text.split("error polling ").next().unwrap_or_default().to_owned();
    // Its start, if a mail broke the line there.
    for earlier in (at.saturating_sub(2)..at).rev() {
        if !before.contains("btl_openib") {
            before = format!("{} {before}", lines.get(earlier));
        }
    }
    let names = scan::after(&before, "btl_openib").unwrap_or(&before);
    record.field_if("host", scan::between(names, "from ", " to"));
    record.field_if(
        "peer",
        scan::after(names, "to: ").and_then(|rest| rest.split_ascii_whitespace().next()),
    );
    let last = (at..at + 3).find(|line| lines.get(*line).contains(" qp_idx")).unwrap_or(at);
    Some(Reading::to(last, vec![record]))
}

fn mvapich(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let text = lines.unwrapped(at);
    let (status, rest) = scan::number(scan::after(&text, "ot completion with error ")?)?;
    let (vendor, rest) = scan::hexadecimal(scan::after(rest, "vendor code")?)?;
    let said = Said {
        vendor: Some(vendor),
        program: Some(Program::Mvapich),
        ..Said::of_wc_status(status)
    };
    said.status?;
    let mut record = said.record(RecordKind::Completion);
    record.field("program", "MVAPICH2");
    record
        .field_if("peer", scan::number_after(rest, "dest rank").map(|rank| format!("rank {rank}")));
    Some(Reading::wrapped(lines, at, "vendor code", vec![record]))
}
