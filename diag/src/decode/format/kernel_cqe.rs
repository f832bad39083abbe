//! Linux's mlx5_ib: error CQEs of the kernel's own queue pairs (NVMe, NFS, iSER, SMC, UMR …).
//!
//! `drivers/infiniband/hw/mlx5/cq.c`: `dump_cqe`, with the status in words since 5.17 ("WC error:
//! 10, Message: …") and as 32-bit words before 4.13. With dynamic debug, also "Responder error cqe
//! on cqn …" of `mlx5_poll_one`.

use crate::text::QueueKind;

use super::super::completion::{self, Said};
use super::super::record::{DecodedRecord, RecordKind};
use super::super::{hex, lines::Lines, scan};
use super::{Format, Reading};

/// The format of mlx5_ib's messages.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5_ib",
    reads: "Linux: \"dump error cqe\" or \"WC error: …\" with its hex dump, \"error cqe on cqn …\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let device = device(line);
    if line.contains("error cqe on cqn ") {
        return said(lines, at, device);
    }
    let status = scan::number_after(line, "WC error:");
    let dumped = line.contains("dump error cqe") || line.contains("cqe_dump:");
    if status.is_none() && !dumped {
        return None;
    }
    // The status text, the heading, and unrelated log lines may stand in between.
    let block = hex::block_near(lines, at, 4, completion::SIZE);
    let whole = block.and_then(|block| {
        let bytes: [u8; completion::SIZE] = block.bytes.as_slice().try_into().ok()?;
        Some((completion::cqe(&bytes), block.end))
    });
    let (mut record, end) = match (whole, status) {
        (Some(found), _) => found,
        (None, Some(status)) => (Said::of_wc_status(status).record(RecordKind::Completion), at + 1),
        (None, None) => return None,
    };
    record.field_if("device", device);
    Some(Reading::until(end, vec![record]))
}

/// Reads a failure that two lines of text report.
fn said(lines: &Lines<'_>, at: usize, device: Option<&str>) -> Option<Reading> {
    let line = lines.get(at);
    let text = lines.unwrapped(at);
    let rest = scan::after(&text, "error cqe on cqn ")?;
    let (cqn, rest) = scan::number(rest)?;
    let (syndrome, rest) = scan::number(scan::after(rest, "syndrome ")?)?;
    let mut said = Said::of_syndrome(syndrome);
    said.vendor = scan::number_after(rest, "vendor syndrome ");
    // The kernel spells the other side both ways.
    said.queue = match line {
        line if line.contains("Responder") => Some(QueueKind::Receive),
        line if line.contains("Request") => Some(QueueKind::Send),
        _ => None,
    };
    let mut record: DecodedRecord = said.record(RecordKind::Completion);
    record.field("CQ", format!("{cqn:#x}"));
    record.field_if("device", device);
    let last = if line.contains("vendor syndrome") { at } else { at + 1 };
    Some(Reading::to(last, vec![record]))
}

/// "infiniband mlx5_0: …".
fn device(line: &str) -> Option<&str> {
    let name = scan::between(line, "infiniband ", ":")?;
    (!name.is_empty() && !name.contains(' ')).then_some(name)
}
