//! Linux's mlx5_core: health reports of the firmware.
//!
//! `mlx5/core/health.c`, `print_health_info`: a line per word of the health buffer.

use crate::explain::{ExplainedCode, health};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::kernel_command::device;
use super::{Format, Reading};

/// The format of mlx5_core's health reports.
pub(super) const FORMAT: Format = Format {
    name: "Linux mlx5_core health",
    reads: "Linux: health reports (\"assert_var[0] …\", \"Health issue observed …\", \"synd 0x…\")",
    read,
};

/// Words of the report that are shown as they are.
const WORDS: [&str; 8] = [
    "assert_exit_ptr",
    "assert_callra",
    "fw_ver",
    "hw_id",
    "irisc_index",
    "ext_synd",
    "raw fw_ver",
    "severity",
];

/// Unrelated lines that may stand between those of a report.
const APART: usize = 2;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    if !is_report(lines.get(at)) {
        return None;
    }
    let mut record = DecodedRecord::new(RecordKind::Health, "");
    let mut syndrome = None;
    let mut variables = Vec::new();
    let mut said = Vec::new();
    let device = device(lines.get(at));
    let (mut end, mut next) = (at + 1, at);
    while next < lines.len() && next < end + APART {
        let line = lines.get(next);
        // Each device has a report of its own.
        let same =
            self::device(line).is_none_or(|other| device.is_none_or(|device| device == other));
        if is_report(line) && same {
            take(line, &mut record, &mut variables, &mut syndrome, &mut said);
            end = next + 1;
        }
        next += 1;
    }
    if variables.is_empty() && syndrome.is_none() && said.is_empty() && record.fields.is_empty() {
        return None;
    }
    let gone = !variables.is_empty() && variables.iter().all(|word| *word == u64::from(u32::MAX));
    let words: Vec<String> = variables.iter().map(|word| format!("{word:#010x}")).collect();
    if !words.is_empty() {
        record.field("assert_var", words.join(" "));
    }
    record.field_if("device", device);
    let known = match syndrome {
        Some(number) => u8::try_from(number).ok().and_then(health::explain),
        None => said.iter().find_map(|said| health::by_words(said)),
    };
    record.title = match (known, said.first()) {
        _ if gone => "health report of an HCA that does not answer".to_owned(),
        (Some(known), _) => format!("health report: {}", known.words),
        (None, Some(said)) => format!("health report: {said}"),
        (None, None) => "health report".to_owned(),
    };
    if let Some(number) = syndrome {
        record.field("synd", format!("{number:#x}"));
    }
    if gone {
        record.notes.push(
            "Every word is all ones: the HCA does not answer on PCIe (link down, powered off, unplugged, \
             or its function was taken away). The report itself means nothing; look for PCIe, hotplug \
             and AER lines before it."
                .to_owned(),
        );
    } else if let Some(known) = known {
        record.findings.push(ExplainedCode::health_syndrome(known));
    }
    Some(Reading { end, records: vec![record] })
}

fn is_report(line: &str) -> bool {
    line.contains("assert_var[")
        || line.contains("print_health_info")
        || line.contains("Health issue observed")
        || line.contains("device's health compromised")
        || line.contains("poll_health") && line.contains("Fatal error")
}

fn take(
    line: &str,
    record: &mut DecodedRecord,
    variables: &mut Vec<u64>,
    syndrome: &mut Option<u64>,
    said: &mut Vec<String>,
) {
    if let Some(rest) = scan::after(line, "assert_var[") {
        // Eight words at most, however long the log.
        let value = rest.split_once(']').and_then(|(_, value)| scan::hexadecimal(value));
        variables.extend(value.filter(|_| variables.len() < 8).map(|(value, _)| value));
        return;
    }
    for issue in
        ["Health issue observed, ", "PCI slot", "device's health compromised", "Fatal error"]
    {
        // A report has few of these, however long the log.
        if let Some(at) = line.find(issue).filter(|_| said.len() < 4) {
            said.push(line[at..].trim_start_matches("Health issue observed, ").to_owned());
        }
    }
    if let Some(number) = scan::hexadecimal_after(line, " synd 0x") {
        *syndrome = Some(number);
    }
    let message = line.rsplit_once("): ").map_or(line, |(_, message)| message);
    for name in WORDS {
        if record.fields.iter().any(|field| field.name == name) {
            continue;
        }
        let value = message.strip_prefix(name).map(str::trim);
        record.field_if(name, value.filter(|value| !value.is_empty()));
    }
}
