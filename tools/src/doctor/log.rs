//! The kernel's lines about the device, decoded.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use mlx5::diag::decode::{DecodedRecord, Options, text};

use super::check::{Check, Group, Question};
use super::situation::Situation;
use crate::output::counted;

/// Most bytes of the log that are kept: its end.
const MOST: usize = 1 << 20;
/// Most events that are shown: the last ones.
const SHOWN: usize = 3;
/// Where sosreports and distributions keep a copy of the kernel's log.
const COPIES: [&str; 3] =
    ["sos_commands/kernel/dmesg", "sos_commands/kernel/dmesg_-T", "var/log/dmesg"];

pub fn look(situation: &Situation) -> Vec<Check> {
    vec![events(situation)]
}

fn events(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Pci,
        "kernel log",
        "/dev/kmsg, read without waiting; of a copy, its dmesg",
        "the driver tells of power, cables, health and refused commands in the log alone",
    );
    if situation.model {
        return question.not_applicable("the kernel does not know the model");
    }
    let Some(function) = situation.function() else {
        return question.not_applicable("there is no device");
    };
    let log = match situation.tree.is_own() {
        true => read(),
        false => COPIES
            .iter()
            .find_map(|path| situation.tree.read(path))
            .ok_or_else(|| "the copy has no dmesg".to_owned()),
    };
    match log {
        Ok(log) => judge(question, &log, &function.address),
        Err(why) if situation.tree.is_own() => question.unknown(
            why,
            Some("sudo dmesg | mlx5 decode    # or sysctl -w kernel.dmesg_restrict=0".to_owned()),
        ),
        Err(why) => question.not_applicable(why),
    }
}

/// Judges the lines that name the function, `0000:3b:00.0`.
fn judge(question: Question, log: &str, address: &str) -> Check {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(address)).collect();
    if lines.is_empty() {
        return question.good(format!("no line about {address}"));
    }
    let records = text(&lines.join("\n"), Options::default());
    let cure = |record: &DecodedRecord| {
        let causes = record.findings.iter().flat_map(|finding| finding.causes.first());
        causes.map(|cause| cause.cure.to_owned()).next()
    };
    // Events without a cause are no faults: a cable that was plugged in.
    let wrong: Vec<(&DecodedRecord, String)> =
        records.iter().filter_map(|record| Some((record, cure(record)?))).collect();
    let Some((_, last)) = wrong.last() else {
        let them = if lines.len() == 1 { "it" } else { "them" };
        let lines = counted(lines.len() as u64, "line");
        return question.good(format!("{lines}, and no fault in {them}"));
    };
    let shown = wrong.iter().rev().take(SHOWN).map(|(record, _)| record.title.clone());
    let shown = shown.collect::<Vec<_>>().join("; ");
    question.warning(
        format!("{}, the last first: {shown}", counted(wrong.len() as u64, "fault")),
        format!("{last}    # all of it: sudo dmesg | mlx5 decode"),
    )
}

/// Reads the kernel's log as it is now. Each read returns one record: `prefix;text` and lines of
/// details (`Documentation/ABI/testing/dev-kmsg`).
fn read() -> Result<String, String> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let mut file = options.open("/dev/kmsg").map_err(|error| format!("/dev/kmsg: {error}"))?;
    let mut log = Vec::new();
    let mut record = vec![0; 8192];
    loop {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => log.extend_from_slice(line(&record[..length])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The kernel has overwritten records that were not read yet.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => continue,
            Err(error) => return Err(format!("/dev/kmsg: {error}")),
        }
        if log.len() > 2 * MOST {
            log.drain(..log.len() - MOST);
        }
    }
    Ok(String::from_utf8_lossy(&log).into_owned())
}

/// Returns the text of a record with its newline.
fn line(record: &[u8]) -> &[u8] {
    let begin = record.iter().position(|byte| *byte == b';').map_or(0, |at| at + 1);
    let end = record[begin..].iter().position(|byte| *byte == b'\n');
    &record[begin..end.map_or(record.len(), |at| begin + at + 1)]
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    const ADDRESS: &str = "0000:3b:00.0";

    fn judged(log: &str) -> Check {
        judge(Question::new(Group::Pci, "kernel log", "place", "why"), log, ADDRESS)
    }

    #[test]
    fn a_record_of_the_log_is_read_without_its_prefix() {
        let record = b"4,1,5,-;mlx5_core 0000:3b:00.0: text\n SUBSYSTEM=pci\n DEVICE=+pci:0\n";
        assert_eq!(line(record), b"mlx5_core 0000:3b:00.0: text\n");
        assert_eq!(line(b"no record"), b"no record");
    }

    #[test]
    fn faults_of_this_function_are_named_and_those_of_others_are_not() {
        let power = "mlx5_core 0000:3b:00.0: Detected insufficient power on the PCIe slot (27W).";
        let check = judged(&format!("[ 1.0] {power}\n"));
        assert_eq!(check.verdict, Verdict::Warning, "{check:?}");
        assert!(check.found.contains("1 fault"), "{check:?}");
        assert!(check.cure.unwrap().contains("mlx5 decode"));
        assert_eq!(judged(&power.replace("3b", "5e")).verdict, Verdict::Good);
        let quiet = judged("mlx5_core 0000:3b:00.0: firmware version: 20.35.1012\n");
        assert_eq!(quiet.verdict, Verdict::Good, "{quiet:?}");
    }

    #[test]
    fn the_log_of_this_machine_is_read_or_refused_in_words() {
        match read() {
            Ok(log) => assert!(log.len() <= 2 * MOST + 8192),
            Err(why) => assert!(why.starts_with("/dev/kmsg: "), "{why}"),
        }
    }
}
