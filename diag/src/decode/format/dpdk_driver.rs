//! Lines of DPDK's mlx5 drivers about a device that they cannot use, or an object that they cannot make.
//!
//! "mlx5_net: probe of PCI device 0000:18:00.0 aborted after encountering an error: Operation not
//! supported", "mlx5_common: Verbs device not found: 18:00.0", "mlx5_net: port 0 Tx queue 0 …
//! creation failure". Names before 20.11: `net_mlx5`, `common_mlx5`.

use crate::explain::ExplainedCode;
use crate::explain::call::{self, CallError, CallKind};
use crate::explain::causes::{Facts, Program, Symptom};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these messages.
pub(super) const FORMAT: Format = Format {
    name: "DPDK's driver",
    reads: "DPDK: \"mlx5_net: probe of PCI device … aborted …\", and other failures that mlx5_net, mlx5_common and the like log",
    read,
};

/// Names that the drivers put before their messages.
const DRIVERS: [&str; 10] = [
    "mlx5_net: ",
    "net_mlx5: ",
    "mlx5_common: ",
    "common_mlx5: ",
    "mlx5_pci: ",
    "mlx5_vdpa: ",
    "mlx5_crypto: ",
    "mlx5_regex: ",
    "mlx5_compress: ",
    "librte_pmd_mlx5: ",
];

/// Words of a failed probe, and the number of the errno that they stand for; 0 for none.
const PROBES: &[(&str, u64)] = &[
    ("probe of PCI device", 0),
    ("probe of device", 0),
    ("Verbs device not found", 19),
    ("no Verbs device matches", 2),
    ("cannot list devices, is ib_uverbs loaded", 38),
    ("unable to recognize master/representors", 0),
    ("Failed to load driver", 0),
    ("Device probing failed", 0),
];

/// Words of other failures, in lower case.
const FAILURES: [&str; 9] = [
    "fail",
    "cannot",
    "can't",
    "unable to",
    "not supported",
    "aborted",
    "could not",
    "no enough",
    "too many sges",
];

/// Longest line that is searched.
const LONGEST: usize = 2048;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    // Most lines of a log are rejected here.
    if line.len() > LONGEST || !line.contains("mlx5") && !line.contains("ort ") {
        return None;
    }
    let named = DRIVERS.iter().find_map(|driver| scan::after(line, driver));
    let message = named.or_else(|| of_queue(line))?.trim();
    // The drivers' debug builds put file, line and function before it.
    let message = message.rsplit_once("(): ").map_or(message, |(_, message)| message);
    let (kind, error) = sort(message)?;
    let mut record = DecodedRecord::new(RecordKind::CallFailure, format!("DPDK: {message}"));
    record.field("message", message);
    let device = message.split([' ', ',']).map(|word| word.trim_end_matches(['.', ':', ',']));
    record.field_if("device", device.into_iter().find(|word| is_address(word)));
    record.field_if("port", scan::number_after(message, "port ").map(|port| port.to_string()));
    if let Some(error) = error {
        record.field_meaning("error", error.name(), error.words());
    }
    let name = match kind {
        CallKind::Probe => "probe of a device",
        _ => "a step of DPDK's driver",
    };
    record.findings.push(ExplainedCode::call_of(kind, name, error));
    let program = Some(Program::Dpdk);
    record.facts = Some(Facts { program, ..Facts::of(Symptom::Call(kind, error)) });
    Some(Reading::to(at, vec![record]))
}

/// Words of a queue of a port, in lower case.
const QUEUES: [&str; 5] = ["rx queue ", "tx queue ", "rxq ", "txq ", "hairpin queue"];

/// Returns a message about a queue whose driver's name is cut off: "port 0 Rx queue 0 CQ creation
/// failure".
fn of_queue(line: &str) -> Option<&str> {
    let from = line.find("port ").or_else(|| line.find("Port "))?;
    let message = &line[from..];
    scan::number(&message["port ".len()..])?;
    let lower = message.to_ascii_lowercase();
    let failed = lower.contains("creation fail") || lower.contains("allocation fail");
    let failed = failed || lower.contains("initialization fail");
    (failed && QUEUES.iter().any(|queue| lower.contains(queue))).then_some(message)
}

/// Returns the kind and the errno of a failure; `None` if the message is about no failure.
fn sort(message: &str) -> Option<(CallKind, Option<CallError>)> {
    if let Some((_, number)) = PROBES.iter().find(|(words, _)| message.contains(words)) {
        return Some((CallKind::Probe, call::errno(message).or(CallError::of_number(*number))));
    }
    let lower = message.to_ascii_lowercase();
    if !FAILURES.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let kind = match &lower {
        text if text.contains("register") => CallKind::Register,
        text if text.contains("uar") => CallKind::Open,
        text if text.contains("creat") || text.contains("alloc") => CallKind::Create,
        text if text.contains("mbuf") || text.contains("sges") => CallKind::Create,
        text if text.contains("qp state") || text.contains("modify") => CallKind::Modify,
        _ => CallKind::Other,
    };
    Some((kind, call::errno(message)))
}

/// Returns whether a word is the address of a PCI device.
fn is_address(word: &str) -> bool {
    word.len() >= 7
        && word.contains(':')
        && word.contains('.')
        && word.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_sorted_and_other_lines_are_none() {
        let sorted =
            |message| sort(message).map(|(kind, error)| (kind, error.map(CallError::name)));
        assert_eq!(
            sorted(
                "probe of PCI device 0000:18:00.0 aborted after encountering an error: Operation not supported"
            ),
            Some((CallKind::Probe, Some("EOPNOTSUPP")))
        );
        assert_eq!(
            sorted("Verbs device not found: 18:00.0"),
            Some((CallKind::Probe, Some("ENODEV")))
        );
        assert_eq!(sorted("Failed to load driver mlx5_eth"), Some((CallKind::Probe, None)));
        assert_eq!(
            sorted("Cannot change Tx QP state to INIT Invalid argument"),
            Some((CallKind::Modify, Some("EINVAL")))
        );
        assert_eq!(sorted("Failed to create RQ using DevX"), Some((CallKind::Create, None)));
        assert_eq!(sorted("port 0 MTU is 1500"), None);
        assert_eq!(
            of_queue("x: port 0 Rx queue 3 CQ creation failure"),
            Some("port 0 Rx queue 3 CQ creation failure")
        );
        assert_eq!(of_queue("port 0 Tx queue 1 started"), None);
        assert!(is_address("0000:18:00.0") && is_address("18:00.0"));
        assert!(!is_address("18:00") && !is_address("12.5.1.0"));
    }
}
