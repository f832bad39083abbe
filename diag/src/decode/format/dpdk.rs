//! DPDK's mlx5 drivers: error CQEs, queue memory, and failed commands.
//!
//! `net/mlx5/mlx5_tx.c` and `mlx5_rx.c` write a line and hex dumps to `/var/log` or the working
//! folder (`mlx5_dump_debug_information`). `common/mlx5/mlx5_devx_cmds.c` logs "DevX … failed …".
//! `net/mlx5/hws/mlx5dr_send.c` logs "CQE ERR:0x…".

use crate::explain::Status;
use crate::text::{Addressing, Cqe, CqeError, QueueKind};

use super::super::command::Failed;
use super::super::completion::{self, Said};
use super::super::record::{DecodedRecord, Key, RecordKind};
use super::super::{hex, lines::Lines, scan, wqe};
use super::{Format, Reading};

/// The format of DPDK's messages.
pub(super) const FORMAT: Format = Format {
    name: "DPDK",
    reads: "DPDK: \"Unexpected CQE error syndrome …\", \"MLX5 Error CQ/SQ/RQ:\" dumps, \"DevX … failed …\"",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.contains("Unexpected CQE error syndrome ") {
        return said(line, at);
    }
    if line.contains("CQE ERR:0x") {
        return steering(line, at);
    }
    if let Some(dumped) = ["CQE:", "CQ:", "SQ:", "RQ:"].iter().find(|queue| {
        scan::after(line, "MLX5 Error ").is_some_and(|rest| rest.starts_with(**queue))
    }) {
        return memory(lines, at, dumped.trim_end_matches(':'));
    }
    let rest = scan::after(line, "DevX ")?;
    let (what, numbers) = rest.split_once(" failed errno=")?;
    let failed = Failed {
        name: Some(what.to_owned()),
        status: scan::number_after(numbers, "status="),
        syndrome: scan::number_after(numbers, "syndrome="),
        error: scan::number(numbers).map(|(errno, _)| format!("errno {errno}")),
        ..Failed::default()
    };
    Some(Reading::to(at, vec![failed.record()]))
}

fn said(line: &str, at: usize) -> Option<Reading> {
    let rest = scan::after(line, "Unexpected CQE error syndrome ")?;
    let (syndrome, rest) = scan::hexadecimal(rest)?;
    let sent = scan::number_after(rest, "SQN = ");
    let received = scan::number_after(rest, "RQN = ");
    let said = Said {
        queue: match (sent, received) {
            (Some(_), _) => Some(QueueKind::Send),
            (None, Some(_)) => Some(QueueKind::Receive),
            (None, None) => None,
        },
        qpn: sent.or(received).and_then(|number| u32::try_from(number).ok()),
        wqe: scan::number_after(rest, "wqe_counter = ").and_then(|index| u16::try_from(index).ok()),
        ..Said::of_syndrome(syndrome)
    };
    let mut record = said.record(RecordKind::Completion);
    record.field_if("CQ", scan::number_after(rest, "CQN = ").map(|number| format!("{number:#x}")));
    for index in ["wq_ci", "rq_ci", "cq_ci"] {
        record.field_if(
            index,
            scan::number_after(rest, &format!("{index} = ")).map(|at| at.to_string()),
        );
    }
    Some(Reading::to(at, vec![record]))
}

/// Reads a line about hardware steering.
fn steering(line: &str, at: usize) -> Option<Reading> {
    let said = Said {
        vendor: scan::hexadecimal_after(line, "Vendor_ERR:"),
        queue: Some(QueueKind::Send),
        qpn: scan::hexadecimal_after(line, "QPN:").and_then(|number| u32::try_from(number).ok()),
        wqe: scan::hexadecimal_after(line, "WQE_CNT:").and_then(|index| u16::try_from(index).ok()),
        ..Said::of_syndrome(scan::hexadecimal_after(line, "CQE ERR:")?)
    };
    Some(Reading::to(at, vec![said.record(RecordKind::Completion)]))
}

fn memory(lines: &Lines<'_>, at: usize, queue: &str) -> Option<Reading> {
    let length = scan::number_after(lines.get(at), "len=")?;
    let block = hex::block_near(lines, at + 1, 1, usize::try_from(length).ok()?)?;
    let mut records = match queue {
        "CQE" | "CQ" => completions(&block.bytes),
        "SQ" => vec![ring(&block.bytes, lines.options.addressing)],
        _ => vec![DecodedRecord::new(
            RecordKind::WorkQueue,
            format!("a receive queue's memory, {} bytes", block.bytes.len()),
        )],
    };
    if (block.bytes.len() as u64) < length {
        let note = format!("Only {} of {length} bytes are there.", block.bytes.len());
        records.iter_mut().for_each(|record| record.notes.push(note.clone()));
    }
    Some(Reading::until(block.end, records))
}

/// Returns the first error CQE in full and the others by number: later ones are flushed requests.
fn completions(bytes: &[u8]) -> Vec<DecodedRecord> {
    let entries: Vec<&[u8; completion::SIZE]> =
        bytes.chunks_exact(completion::SIZE).filter_map(|entry| entry.try_into().ok()).collect();
    if let [only] = entries[..] {
        return vec![completion::cqe(only)];
    }
    let errors: Vec<(usize, CqeError)> = entries
        .iter()
        .enumerate()
        .filter_map(|(at, bytes)| Some((at, Cqe(bytes).error()?)))
        .collect();
    let mut record = DecodedRecord::new(
        RecordKind::CompletionQueue,
        format!(
            "a completion queue's memory: {} CQEs, {} with errors",
            entries.len(),
            errors.len()
        ),
    );
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for (_, entry) in &errors {
        let name = entry.status.to_string();
        match kinds.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    for (name, count) in kinds {
        record.field(name, count.to_string());
    }
    let cause =
        errors.iter().find(|(_, entry)| entry.status != Status::Flushed).or_else(|| errors.first());
    let first = cause.map(|(at, _)| {
        let mut first = completion::cqe(entries[*at]);
        first.field("CQE index", at.to_string());
        first
    });
    std::iter::once(record).chain(first).collect()
}

fn ring(bytes: &[u8], addressing: Option<Addressing>) -> DecodedRecord {
    let mut record = DecodedRecord::new(
        RecordKind::WorkQueue,
        format!(
            "a send queue's memory: {} blocks of {} bytes",
            bytes.len() / wqe::BLOCK,
            wqe::BLOCK
        ),
    );
    record.key =
        Key::Ring { bytes: bytes.to_vec(), addressing: addressing.unwrap_or(Addressing::Ethernet) };
    record
}
