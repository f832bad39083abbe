//! Linux's mlx5_core and mlx5e: lines about power, modules, cables, temperature, health, start and
//! reset of the device, and about queues that do not move.

use crate::explain::{ExplainedCode, event};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::kernel_command::device;
use super::{Format, Reading, kernel_message};

/// The format of these lines.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5_core events",
    reads: "Linux: power, module and cable events, temperature, health, start-up, NETDEV WATCHDOG, page errors",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    // Most lines of a log are rejected here: each of these lines names the driver.
    if !["mlx5", "Port module event"].iter().any(|token| line.contains(token)) {
        return None;
    }
    let event = event::find(line)?;
    let mut record = DecodedRecord::new(RecordKind::KernelEvent, event.title);
    record.field_if("device", device(line));
    let begins = || line.rfind(event.begins()).map(|from| line[from..].trim());
    let message = kernel_message::text(line).or_else(begins);
    record.field_if("message", message);
    if let Some((name, opcode)) = message.and_then(kernel_message::command) {
        record.field_meaning("command", name, format!("opcode {opcode:#x}"));
    }
    record
        .field_if("module", scan::number_after(line, ": module ").map(|module| module.to_string()));
    record.findings.push(ExplainedCode::event(event));
    Some(Reading::to(at, vec![record]))
}
