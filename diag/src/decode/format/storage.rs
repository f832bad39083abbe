//! Storage and transfer programs that print failures in their own forms: Lustre's ko2iblnd,
//! Mooncake, SPDK.

use crate::explain::ExplainedCode;
use crate::explain::call::{self, CallKind};
use crate::explain::causes::{Facts, Symptom};
use crate::text::QueueKind;

use super::super::completion::Said;
use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan, words};
use super::{Format, Reading};

/// The format of these programs' messages.
pub(super) const FORMAT: Format = Format {
    name: "Lustre, Mooncake, SPDK",
    reads: "Lustre ko2iblnd: \"Tx -> … failed 12\", \"Rx from … failed: 5\"; Mooncake: \"Process failed for slice (…): …\"; SPDK: \"CQ transport error -6\", \"ABORTED - SQ DELETION\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.contains("Process failed for slice") {
        return mooncake(lines, at);
    }
    if ENDED.iter().any(|words| line.contains(words)) {
        return ended(line, at);
    }
    if !line.contains("kiblnd_") && !line.contains("o2iblnd") {
        return None;
    }
    lustre(lines, at)
}

/// Words of NVMe requests that a queue gave back because its connection ended.
const ENDED: [&str; 4] = [
    "CQ transport error ",
    "ABORTED - SQ DELETION",
    "aborting queued i/o",
    "aborting outstanding i/o",
];

/// "CQ transport error -6 (No such device or address) on qpair id 1", "ABORTED - SQ DELETION (00/08)".
fn ended(line: &str, at: usize) -> Option<Reading> {
    let error = call::errno(line);
    let what = "NVMe over Fabrics queue";
    let title = "an NVMe queue ended: its requests were aborted";
    let mut record = DecodedRecord::new(RecordKind::CallFailure, title);
    record.field_if(
        "queue",
        ["qpair id ", "qid:"]
            .iter()
            .find_map(|token| scan::number_after(line, token).map(|number| number.to_string())),
    );
    if let Some(error) = error {
        record.field_meaning("error", error.name(), error.words());
    }
    record.findings.push(ExplainedCode::call_of(CallKind::Ended, what, error));
    record.facts = Some(Facts::of(Symptom::Call(CallKind::Ended, error)));
    Some(Reading::to(at, vec![record]))
}

/// "Tx -> 10.0.0.1@o2ib cookie 0x5d8 sending 1 waiting 1: failed 12", "Rx from … failed: 5".
fn lustre(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let text = lines.unwrapped(at);
    let (queue, rest) = match (scan::after(&text, "Tx -> "), scan::after(&text, "Rx from ")) {
        (Some(rest), _) => (QueueKind::Send, rest),
        (None, Some(rest)) => (QueueKind::Receive, rest),
        (None, None) => return None,
    };
    let (peer, rest) = rest.split_once(' ')?;
    let (status, _) = scan::number(scan::after(rest, "failed")?)?;
    let said = Said { queue: Some(queue), ..Said::of_wc_status(status) };
    said.status?;
    let mut record = said.record(RecordKind::Completion);
    record.field("program", "Lustre ko2iblnd").field("peer", peer);
    Some(Reading::wrapped(lines, at, "failed", vec![record]))
}

/// "Worker: Process failed for slice (opcode: 1, …, local_nic: mlx5_7, peer_nic: …): transport
/// retry counter exceeded". The opcode is Mooncake's: 0 reads, 1 writes.
fn mooncake(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let text = lines.unwrapped(at);
    let rest = scan::after(&text, "Process failed for slice")?;
    let (inside, words) = rest.split_once("): ")?;
    let said = Said {
        status: Some(words::status(words)?),
        queue: Some(QueueKind::Send),
        operation: match scan::number_after(inside, "opcode: ") {
            Some(0) => Some("RDMA_READ".to_owned()),
            Some(1) => Some("RDMA_WRITE".to_owned()),
            _ => None,
        },
        ..Said::default()
    };
    let mut record = said.record(RecordKind::Completion);
    record.field("program", "Mooncake");
    for (name, token) in [
        ("device", "local_nic: "),
        ("peer", "peer_nic: "),
        ("remote address", "dest_addr: "),
        ("length", "length: "),
        ("rkey", "dest_rkey: "),
        ("retries", "retry_cnt: "),
    ] {
        let value = scan::after(inside, token).and_then(|rest| rest.split([',', ')']).next());
        record.field_if(name, value.map(str::trim));
    }
    Some(Reading::wrapped(lines, at, "): ", vec![record]))
}
