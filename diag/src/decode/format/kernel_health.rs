//! Linux's mlx5_core: health reports of the firmware.
//!
//! `mlx5/core/health.c`, `print_health_info`: a line per word of the health buffer.

use crate::explain::{ExplainedCode, event, health};

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
    "raw fw_ver",
    "fw_ver",
    "hw_id",
    "irisc_index",
    "ext_synd",
    "severity",
];

/// Unrelated lines that may stand between those of a report.
const APART: usize = 2;

/// The parts of a report that were read so far.
#[derive(Default)]
struct Report {
    variables: Vec<u64>,
    syndrome: Option<u64>,
    said: Vec<String>,
    words: Vec<(&'static str, String)>,
}

/// Most reports that are read at the same time, of devices whose lines alternate.
const MOST: usize = 16;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    if !begins(lines.get(at)) {
        return None;
    }
    let mut reports = vec![(device(lines.get(at)), Report::default())];
    // The report that the last line belongs to: a line without a device goes on with it.
    let mut current = 0;
    let (mut end, mut next) = (at + 1, at);
    while next < lines.len() && next < end + APART {
        let line = lines.get(next);
        let begins = begins(line);
        let known = report_of(&reports, device(line), current).filter(|_| begins || goes_on(line));
        if known.is_some() || begins {
            if known.is_none() && reports.len() == MOST {
                break;
            }
            current = known.unwrap_or(reports.len());
            if known.is_none() {
                reports.push((device(line), Report::default()));
            }
            let report = &mut reports[current].1;
            // Another report begins with its first words again.
            if next > at && line.contains("assert_var[0]") && !report.variables.is_empty() {
                break;
            }
            report.take(line, lines.get(next + 1));
            end = next + 1;
        }
        next += 1;
    }
    let records: Vec<_> =
        reports.into_iter().filter_map(|(device, report)| report.record(device)).collect();
    (!records.is_empty()).then_some(Reading::until(end, records))
}

/// Returns the report that a line of this device belongs to.
fn report_of(
    reports: &[(Option<&str>, Report)],
    device: Option<&str>,
    current: usize,
) -> Option<usize> {
    if device.is_none() {
        return Some(current);
    }
    reports.iter().position(|(known, _)| known.is_none() || *known == device)
}

/// Returns whether a report may begin with this line.
fn begins(line: &str) -> bool {
    line.contains("assert_var[")
        || line.contains("print_health_info")
        || line.contains("Health issue observed")
        || line.contains("device's health compromised")
        || line.contains("poll_health") && line.contains("Fatal error")
        || synd(line).is_some_and(|(_, words)| health::by_words(words).is_some())
}

/// Returns whether a line belongs to a report that has begun: mails wrap lines, and devlink prints
/// them without a prefix.
fn goes_on(line: &str) -> bool {
    synd(line).is_some() || WORDS.iter().any(|name| value(line, name).is_some())
}

/// Returns the number of "synd 0x8: words", and the words. "ext_synd" is another field.
fn synd(line: &str) -> Option<(u64, &str)> {
    let rest = value(line, "synd")?;
    rest.starts_with("0x").then(|| scan::hexadecimal(rest)).flatten()
}

/// Returns the text after a word that stands alone, without surrounding blanks.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let stands_alone = |(at, _): &(usize, &str)| {
        let before = &line[..*at];
        let joined =
            before.ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        let after = &line[at + name.len()..];
        !joined
            && !before.ends_with("raw ")
            && (after.starts_with([' ', '(', ':']) || after.is_empty())
    };
    let (at, _) = line.match_indices(name).find(stands_alone)?;
    Some(line[at + name.len()..].trim_matches([' ', ':']))
}

impl Report {
    /// Reads one line. A value that the mail program wrapped is in the next one.
    fn take(&mut self, line: &str, next: &str) {
        if let Some(rest) = scan::after(line, "assert_var[") {
            // Eight words at most, however long the log.
            let value = rest.split_once(']').and_then(|(_, value)| scan::hexadecimal(value));
            self.variables
                .extend(value.filter(|_| self.variables.len() < 8).map(|(value, _)| value));
            return;
        }
        for issue in
            ["Health issue observed, ", "PCI slot", "device's health compromised", "Fatal error"]
        {
            // A report has few of these, however long the log.
            if let Some(at) = line.find(issue).filter(|_| self.said.len() < 4) {
                self.said.push(line[at..].trim_start_matches("Health issue observed, ").to_owned());
            }
        }
        let wrapped = format!("{line} {}", next.trim_start());
        let ends = |name: &str| value(line, name).is_some_and(str::is_empty);
        let whole = if ends("synd") || WORDS.into_iter().any(ends) { &wrapped } else { line };
        self.syndrome = self.syndrome.or(synd(whole).map(|(number, _)| number));
        for name in WORDS {
            if self.words.iter().all(|(known, _)| *known != name) {
                let found = value(whole, name).filter(|value| !value.is_empty());
                self.words.extend(found.map(|value| (name, value.to_owned())));
            }
        }
    }

    /// Returns the record; `None` if nothing was read.
    fn record(self, device: Option<&str>) -> Option<DecodedRecord> {
        let Report { variables, syndrome, said, words } = self;
        if variables.is_empty() && syndrome.is_none() && said.is_empty() && words.is_empty() {
            return None;
        }
        let mut record = DecodedRecord::new(RecordKind::Health, "");
        for (name, value) in words {
            record.field(name, value);
        }
        let gone =
            !variables.is_empty() && variables.iter().all(|word| *word == u64::from(u32::MAX));
        let is_range = variables.first() == Some(&health::NO_RANGE);
        let variables: Vec<String> = variables.iter().map(|word| format!("{word:#010x}")).collect();
        if !variables.is_empty() {
            record.field("assert_var", variables.join(" "));
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
            let code = ExplainedCode::health_syndrome(known);
            // The first word tells more, and another cause than the syndrome's.
            let causes = if is_range { Vec::new() } else { code.causes.clone() };
            record.findings.push(ExplainedCode { causes, ..code });
        } else if let Some(event) = said.iter().find_map(|said| event::find(said)) {
            record.findings.push(ExplainedCode::event(event));
        }
        if is_range {
            record.findings.push(ExplainedCode::health_range());
        }
        Some(record)
    }
}
