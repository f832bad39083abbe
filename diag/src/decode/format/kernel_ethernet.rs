//! Linux's mlx5e: error CQEs of network interfaces, and the WQEs they name.
//!
//! `en/txrx.h`, `mlx5e_dump_error_cqe`: a line and a hex dump of the CQE. `wq.c`,
//! `mlx5_wq_cyc_wqe_dump`: "WQE DUMP: …" and a hex dump of the WQE.

use crate::text::Addressing;

use super::super::completion::{self, Said};
use super::super::record::{DecodedRecord, RecordKind};
use super::super::{hex, lines::Lines, scan, wqe};
use super::{Format, Reading};

/// The format of mlx5e's messages.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5e",
    reads: "Linux: \"Error cqe on cqn …\" and \"WQE DUMP: …\" of network interfaces, with hex dumps",
    read,
};

/// No driver writes WQEs longer than this.
const LONGEST: u64 = 1024;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.contains("WQE DUMP:") {
        return work(lines, at);
    }
    if !line.contains("Error cqe on cqn ") {
        return None;
    }
    let text = lines.unwrapped(at);
    let rest = scan::after(&text, "Error cqe on cqn ")?;
    let cqn = scan::number(rest)?.0;
    let (syndrome, behind) = scan::number(scan::after(rest, " syndrome ")?)?;
    let said = Said {
        vendor: scan::number_after(behind, "vendor syndrome "),
        qpn: scan::number_after(rest, "qn ").and_then(|number| u32::try_from(number).ok()),
        ..Said::of_syndrome(syndrome)
    };
    let block = hex::block_near(lines, at + 1, 3, completion::SIZE);
    let whole = block.and_then(|block| {
        let bytes: [u8; completion::SIZE] = block.bytes.as_slice().try_into().ok()?;
        Some((completion::cqe(&bytes), block.end))
    });
    let queue = said.qpn;
    let (mut record, end) = whole.unwrap_or_else(|| (said.record(RecordKind::Completion), at + 1));
    // The CQE of a receive queue does not say its number.
    record.field_if("queue number", queue.map(|number| format!("{number:#x}")));
    record.field("CQ", format!("{cqn:#x}"));
    let index = scan::number_after(rest, "ci ");
    record.field_if("CQE index", index.map(|index| format!("{index:#x}")));
    record.field_if("interface", interface(line));
    Some(Reading::until(end, vec![record]))
}

/// Reads the WQE that the preceding CQE names.
fn work(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let text = lines.unwrapped(at);
    let rest = scan::after(&text, "WQE DUMP:")?;
    let length = scan::number_after(rest, "len: ")?.min(LONGEST);
    let block = hex::block_near(lines, at + 1, 2, usize::try_from(length).ok()?)?;
    let addressing = lines.options.addressing.unwrap_or(Addressing::Ethernet);
    let mut record: DecodedRecord = wqe::send(&block.bytes, addressing);
    record.field_if(
        "ring size",
        scan::number_after(rest, "WQ size ").map(|blocks| format!("{blocks} blocks of 64 bytes")),
    );
    Some(Reading::until(block.end, vec![record]))
}

/// "mlx5_core 0000:3b:00.1 eth1: Error …": the word before the colon.
fn interface(line: &str) -> Option<&str> {
    let before = line.split_once(": Error cqe")?.0;
    before.split_ascii_whitespace().next_back()
}
