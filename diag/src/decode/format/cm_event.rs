//! Connections by librdmacm that were not made, as programs and the kernel report them.
//!
//! `rping.c` and programs like it: "cma event RDMA_CM_EVENT_REJECTED, error 28". The kernel's NVMe
//! host: "Connect rejected: status 8 (invalid service ID)". The numbers are negative errnos, or the
//! reasons of a REJ message (InfiniBand Architecture Specification, volume 1, 12.6.7.2).

use crate::explain::ExplainedCode;
use crate::explain::call::{self, CallError, CallKind};
use crate::explain::causes::{Facts, Symptom};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these events.
pub(super) const FORMAT: Format = Format {
    name: "an event of librdmacm",
    reads: "any program: RDMA_CM_EVENT_REJECTED, _UNREACHABLE and other failures; Linux: \"Connect rejected: status 8\"",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 2048;

/// Events that end an attempt to connect, with the number of the errno that they stand for.
const EVENTS: [(&str, u64); 5] = [
    ("RDMA_CM_EVENT_ADDR_ERROR", 19),
    ("RDMA_CM_EVENT_ROUTE_ERROR", 113),
    ("RDMA_CM_EVENT_CONNECT_ERROR", 0),
    ("RDMA_CM_EVENT_UNREACHABLE", 110),
    ("RDMA_CM_EVENT_REJECTED", 111),
];

/// Reasons of a REJ message.
const REASONS: [(u64, &str); 15] = [
    (1, "no queue pair"),
    (3, "no resources"),
    (4, "timeout"),
    (5, "unsupported request"),
    (6, "invalid communication ID"),
    (8, "invalid service ID: nobody listens"),
    (9, "invalid transport type"),
    (10, "stale connection"),
    (12, "invalid GID"),
    (13, "invalid LID"),
    (14, "invalid service level"),
    (15, "invalid traffic class"),
    (17, "invalid packet rate"),
    (26, "invalid MTU"),
    (28, "refused by the program"),
];

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST {
        return None;
    }
    let (name, rest, number) = event(line)?;
    // Source code names these events too.
    let code = line.trim_end().ends_with([';', '{']) || line.trim_start().starts_with("case ");
    if code || line.contains("==") {
        return None;
    }
    let (errno, reason) = outcome(rest, number);
    let mut record = DecodedRecord::new(RecordKind::CallFailure, format!("no connection: {name}"));
    record.field("event", name);
    if let Some((number, words)) = reason {
        record.field_meaning("reason", number.to_string(), *words);
    }
    if let Some(errno) = errno {
        record.field_meaning("error", errno.name(), errno.words());
    }
    record.findings.push(ExplainedCode::call(name, errno));
    record.facts = Some(Facts::of(Symptom::Call(CallKind::Connect, errno)));
    Some(Reading::to(at, vec![record]))
}

/// Returns the event that a line reports, the text after it, and the number of its errno.
fn event(line: &str) -> Option<(&'static str, &str, u64)> {
    let named =
        EVENTS.iter().find_map(|(name, number)| Some((*name, scan::after(line, name)?, *number)));
    let kernel = || {
        let rest = scan::after(line, "onnect rejected: status")?;
        Some(("RDMA_CM_EVENT_REJECTED", rest, 111))
    };
    // SPDK's initiator.
    let spdk = || Some(("rdma_connect", scan::after(line, "RDMA connect error")?, 0));
    named.or_else(kernel).or_else(spdk)
}

/// Returns the errno of an event, and the reason of a refusal. The first number after the event is
/// one of both: errnos are negative.
fn outcome(rest: &str, number: u64) -> (Option<CallError>, Option<&'static (u64, &'static str)>) {
    // "RDMA_CM_EVENT_REJECTED (8) from CM event channel (status = 28)": 8 is the event.
    let named = ["status", "error"].iter().find_map(|word| scan::after(rest, word));
    let rest =
        named.filter(|rest| rest.contains(|digit: char| digit.is_ascii_digit())).unwrap_or(rest);
    let digits = rest.find(|digit: char| digit.is_ascii_digit());
    let negative = digits.is_some_and(|at| rest[..at].ends_with('-'));
    let printed = digits.and_then(|at| scan::number(&rest[at..])).map(|(number, _)| number);
    let known = CallError::of_number(number);
    if negative || number != 111 {
        let errno = printed.and_then(CallError::of_number).or_else(|| call::errno(rest));
        return (errno.or(known), None);
    }
    (known, REASONS.iter().find(|(reason, _)| Some(*reason) == printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_errnos_or_reasons() {
        let outcome = |line| {
            let (_, rest, number) = event(line).expect(line);
            let (errno, reason) = outcome(rest, number);
            (errno.map(CallError::name), reason.map(|(_, words)| *words))
        };
        assert_eq!(
            outcome("cma event RDMA_CM_EVENT_REJECTED, error 28"),
            (Some("ECONNREFUSED"), Some("refused by the program"))
        );
        assert_eq!(
            outcome("nvme nvme0: Connect rejected: status 8 (invalid service ID)."),
            (Some("ECONNREFUSED"), Some("invalid service ID: nobody listens"))
        );
        assert_eq!(outcome("RDMA_CM_EVENT_ADDR_ERROR, error -110"), (Some("ETIMEDOUT"), None));
        assert_eq!(
            outcome("received RDMA_CM_EVENT_REJECTED (8) from CM event channel (status = 28)"),
            (Some("ECONNREFUSED"), Some("refused by the program"))
        );
        assert_eq!(outcome("*ERROR*: RDMA connect error -74"), (None, None));
        assert_eq!(outcome("got RDMA_CM_EVENT_UNREACHABLE"), (Some("ETIMEDOUT"), None));
        assert_eq!(outcome("RDMA_CM_EVENT_REJECTED"), (Some("ECONNREFUSED"), None));
    }
}
