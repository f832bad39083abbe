//! Programs that print `ibv_wc_status` as a number: perftest and NCCL.

use crate::explain::causes::Program;

use super::super::completion::Said;
use super::super::record::RecordKind;
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these programs' messages.
pub(super) const FORMAT: Format = Format {
    name: "perftest, NCCL",
    reads: "perftest: \"Failed status 12: wr_id 0 syndrom 0x81\"; NCCL: \"Got completion … status=12 … vendor err 129\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.contains("Failed status ") {
        return perftest(line, at);
    }
    if line.contains("Got completion ") {
        return nccl(lines, at);
    }
    None
}

fn perftest(line: &str, at: usize) -> Option<Reading> {
    let (status, rest) = scan::number(scan::after(line, "Failed status ")?)?;
    // perftest spells it "syndrom".
    let vendor = ["syndrom ", "syndrome ", "vendor_err "];
    let said = Said {
        vendor: vendor.iter().find_map(|token| scan::hexadecimal_after(rest, token)),
        program: Some(Program::Perftest),
        ..Said::of_wc_status(status)
    };
    said.status?;
    let mut record = said.record(RecordKind::Completion);
    record.field_if("wr_id", scan::printed_after(rest, "wr_id "));
    Some(Reading::to(at, vec![record]))
}

/// "Got completion from peer 10.0.0.1<123> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
/// and before 2.19 "… with error 12, opcode 0, len 0, vendor err 129".
fn nccl(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let text = lines.unwrapped(at);
    let rest = scan::after(&text, "Got completion ")?;
    let status = ["with status=", "with error "].iter().find_map(|token| {
        let rest = scan::after(rest, token)?;
        // Newer versions print the name, then the number.
        scan::number(rest).or_else(|| scan::number(rest.split_once('(')?.1))
    });
    let (vendor, behind) = scan::number(scan::after(rest, "vendor err ")?)?;
    let said = Said {
        vendor: Some(vendor),
        program: Some(Program::Nccl),
        ..Said::of_wc_status(status?.0)
    };
    said.status?;
    let mut record = said.record(RecordKind::Completion);
    record.field_if("peer", scan::between(rest, "from peer ", " "));
    record.field_if("request", scan::between(behind, "(", ")").filter(|side| side.len() < 8));
    // "localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2".
    for (name, token) in [("local GID", "localGid "), ("remote GID", "remoteGid")] {
        let value = scan::after(behind, token).map(|rest| rest.trim_start_matches(['s', ' ']));
        let value = value.and_then(|rest| rest.split([' ', ',']).next());
        record.field_if(name, value.filter(|gid| gid.contains(':')));
    }
    record.field_if(
        "device",
        scan::after(behind, " hca ").and_then(|rest| rest.split_ascii_whitespace().next()),
    );
    record.notes.push(format!(
        "NCCL prints the vendor's code in decimal: {vendor} is {vendor:#x}. Its opcode and length mean \
         nothing in a completion with an error."
    ));
    let wrapped = !lines.get(at).contains("vendor err ");
    Some(Reading::to(if wrapped { at + 1 } else { at }, vec![record]))
}
