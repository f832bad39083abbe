//! Linux's mlx5_core, and libmlx5 on VFIO: failed firmware commands, and their bytes.
//!
//! `mlx5/core/cmd.c`: `cmd_status_err` and the older `mlx5_cmd_check` ("NAME(0x…) op_mod(0x…)
//! failed, status …, syndrome (0x…)"), the tracepoint mlx5_cmd, and the timeout of `wait_func`.
//! With debugging, also the mailboxes of `dump_command`.

use crate::explain::{ExplainedCode, event};

use super::super::command::{self, Failed};
use super::super::{hex, lines::Lines, scan};
use super::{Format, Reading};

/// The format of mlx5_core's messages about commands.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5_core",
    reads: "Linux: \"NAME(0x…) op_mod(0x…) failed, status …, syndrome (0x…)\", \"dump command …\"",
    read,
};

/// Longest command in practice. A longer dump is several commands.
const LONGEST: usize = 1 << 16;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.contains("dump command ") {
        return mailbox(lines, at);
    }
    if line.contains(" timeout") && lines.unwrapped(at).contains(LEAK) {
        return timeout(lines, at);
    }
    if !line.contains("op_mod(") {
        return None;
    }
    let text = lines.unwrapped(at);
    // Wrapped text continues in the next lines, up to the syndrome and the call's return value.
    let from = text.find("syndrome (")?;
    let mut end = from + text[from..].find(')')? + 1;
    if text[end..].starts_with(", err(") {
        end += text[end..].find(')')? + 1;
    }
    let text = &text[..end];
    let (before, rest) = text.split_once("op_mod(")?;
    // If this failure has no more fields, the end may belong to another failure.
    if rest.contains("op_mod(") {
        return None;
    }
    let (name, opcode) = called(before)?;
    let failed = Failed {
        name,
        opcode: Some(opcode),
        op_mod: scan::hexadecimal(rest).map(|(number, _)| number),
        status: status(rest),
        syndrome: scan::hexadecimal_after(rest, "syndrome ("),
        error: scan::between(rest, "err(", ")").map(str::to_owned),
    };
    if failed.status.is_none() && failed.syndrome.is_none() {
        return None;
    }
    let mut record = failed.record();
    record.field_if("device", device(line).or_else(|| device_before(lines, at)));
    // Wrapped lines belong to the failure.
    let mut last = at;
    let mut length = lines.get(at).trim().len();
    while length + 1 < end && last < at + 2 {
        last += 1;
        length += 1 + lines.get(last).trim().len();
    }
    Some(Reading::to(last, vec![record]))
}

/// "… CREATE_SQ(0x904) ": name and opcode at the end.
fn called(text: &str) -> Option<(Option<String>, u64)> {
    let text = text.trim_end().trim_end_matches(',').strip_suffix(')')?;
    let (before, number) = text.rsplit_once('(')?;
    let (opcode, rest) = scan::hexadecimal(number)?;
    let name =
        before.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next();
    // libmlx5 on VFIO does not know command names and prints its own function name instead.
    let name = name.filter(|name| !name.is_empty() && !name.starts_with("mlx5_vfio"));
    rest.is_empty().then(|| (name.map(str::to_uppercase), opcode))
}

/// "status bad parameter(0x3)": the number behind the words.
fn status(text: &str) -> Option<u64> {
    let (_, number) = scan::after(text, "status ")?.split_once('(')?;
    scan::hexadecimal(number).map(|(number, _)| number)
}

/// The words of Linux about a command without an answer.
const LEAK: &str = "Will cause a leak of a command resource";

/// Returns the device in the line before a wrapped one: "mlx5_core 0000:08:00.0: x:821:(pid 1):".
fn device_before<'a>(lines: &'a Lines<'_>, at: usize) -> Option<&'a str> {
    let before = lines.get(at.checked_sub(1)?).trim_end();
    device(before).filter(|_| before.ends_with(':'))
}

fn timeout(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let (before, _) = line.split_once(" timeout")?;
    let (name, opcode) = called(before)?;
    let failed = Failed {
        name,
        opcode: Some(opcode),
        error: Some("timeout".to_owned()),
        ..Failed::default()
    };
    let mut record = failed.record();
    record.field_if("device", device(line));
    record.findings.extend(event::find("No done completion").map(ExplainedCode::event));
    record.notes.push(
        "Firmware did not answer in time: look for health lines before it in the log; commands that \
         follow fail as well until the HCA is reset."
            .to_owned(),
    );
    Some(Reading::wrapped(lines, at, LEAK, vec![record]))
}

/// "dump command data CREATE_QP(0x500) INPUT", and lines of four words.
fn mailbox(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let rest = scan::after(line, "dump command ")?;
    let rest = rest.strip_prefix("data ").unwrap_or(rest);
    let (before, behind) = rest.split_once(") ")?;
    let (_, opcode) = called(&format!("{before})"))?;
    let input = match behind.trim() {
        side if side.starts_with("INPUT") => true,
        side if side.starts_with("OUTPUT") => false,
        _ => return None,
    };
    let block = hex::block_near(lines, at + 1, 2, LONGEST)?;
    let mut record = match input {
        true => command::input(&block.bytes),
        false => command::output(&block.bytes, Some(opcode)),
    };
    record.field_if("device", device(line));
    Some(Reading::until(block.end, vec![record]))
}

/// "mlx5_core 0000:02:00.0: …".
pub(super) fn device(line: &str) -> Option<&str> {
    let name = scan::after(line, "mlx5_core ")?.split_ascii_whitespace().next()?;
    let name = name.trim_end_matches(':');
    (name.len() >= 7 && name.contains(':')).then_some(name)
}
