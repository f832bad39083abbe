//! Connections by librdmacm that were not made, as programs and the kernel report them.
//!
//! `rping.c` and programs like it: "cma event RDMA_CM_EVENT_REJECTED, error 28". The kernel's NVMe
//! host: "Connect rejected: status 8 (invalid service ID)", iSER: "rejected (8): status 28 conn …",
//! Lustre: "10.0.0.1@o2ib: ADDR ERROR -110". The numbers are negative errnos, or the reasons of a REJ
//! message (InfiniBand Architecture Specification, volume 1, 12.6.7.2).

use crate::explain::ExplainedCode;
use crate::explain::call::{self, CallError, CallKind};
use crate::explain::causes::{Facts, Symptom};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these events.
pub(super) const FORMAT: Format = Format {
    name: "an event of librdmacm",
    reads: "any program: RDMA_CM_EVENT_REJECTED, _UNREACHABLE and other failures; Linux: \"Connect rejected: status 8\", \"rdma connection establishment failed\", \"rpcrdma: connection to … closed\"; Lustre ko2iblnd: \"ADDR ERROR -110\", \"rejected: …\"",
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

/// The same events in the words of the kernel's iSER initiator (`rdma_event_msg`) and of Lustre's
/// ko2iblnd. A line of the latter has the name of a function of it.
const IN_WORDS: [(&str, &str); 9] = [
    ("address error (1): status", "RDMA_CM_EVENT_ADDR_ERROR"),
    ("route error (3): status", "RDMA_CM_EVENT_ROUTE_ERROR"),
    ("connect error (6): status", "RDMA_CM_EVENT_CONNECT_ERROR"),
    ("unreachable (7): status", "RDMA_CM_EVENT_UNREACHABLE"),
    ("rejected (8): status", "RDMA_CM_EVENT_REJECTED"),
    (": ADDR ERROR ", "RDMA_CM_EVENT_ADDR_ERROR"),
    (": ROUTE ERROR ", "RDMA_CM_EVENT_ROUTE_ERROR"),
    (": CONNECT ERROR ", "RDMA_CM_EVENT_CONNECT_ERROR"),
    (": UNREACHABLE ", "RDMA_CM_EVENT_UNREACHABLE"),
];

/// Words with which drivers of the kernel end an attempt to connect, with an errno behind them.
const ENDS: [(&str, &str); 5] = [
    ("rdma connection establishment failed (", "rdma_connect"),
    ("rdma_resolve_addr wait failed (", "rdma_connect"),
    ("rpcrdma: connection to ", "rdma_connect"),
    ("Failed to write to /dev/nvme-fabrics: Connection reset", "rdma_connect"),
    ("kiblnd_connect_peer()) Can't resolve addr", "rdma_resolve_addr"),
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
    if is_no_event(line, rest) {
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
    record.findings.push(ExplainedCode::call_of(CallKind::Connect, name, errno));
    record.facts = Some(Facts::of(Symptom::Call(CallKind::Connect, errno)));
    Some(Reading::to(at, vec![record]))
}

/// Returns whether a line only names an event: source code, lists and statistics do.
fn is_no_event(line: &str, rest: &str) -> bool {
    let text = line.trim();
    text.ends_with([';', '{', ','])
        || ["case ", "#define", "enum "].iter().any(|word| text.starts_with(word))
        || ["==", "!=", "printf(", " is the event", "\\n"].iter().any(|word| text.contains(word))
        || rest.starts_with(['=', '_', '"'])
        || rest.trim_start().starts_with("count")
}

/// Returns the event that a line reports, the text after it, and the number of its errno.
fn event(line: &str) -> Option<(&'static str, &str, u64)> {
    let named =
        EVENTS.iter().find_map(|(name, number)| Some((*name, scan::after(line, name)?, *number)));
    let kernel = || {
        let rest = scan::after(line, "onnect rejected: status")?;
        Some(("RDMA_CM_EVENT_REJECTED", rest, 111))
    };
    let in_words = || {
        let (words, name) = IN_WORDS.iter().find(|(words, _)| line.contains(words))?;
        let of_lustre = !words.starts_with(':') || line.contains("kiblnd_");
        let (_, number) = EVENTS.iter().find(|(known, _)| known == name)?;
        of_lustre.then(|| Some((*name, scan::after(line, words)?, *number)))?
    };
    let lustre = || {
        let rest = scan::after(line, " rejected: ").filter(|_| line.contains("kiblnd_rejected"))?;
        // "no listener at 987" has the number of a port, "reason 28, size 148" a reason.
        let rest = if rest.contains("no listener") { "" } else { rest };
        Some(("RDMA_CM_EVENT_REJECTED", rest, 111))
    };
    let ended = || {
        let (words, name) = ENDS.iter().find(|(words, _)| line.contains(words))?;
        let from = line.find(words)?;
        // What is not an errno is no failure: "rpcrdma: connection to … established".
        errno_at_end(&line[from..]).map(|_| (*name, &line[from..], 0))
    };
    // SPDK's initiator.
    let spdk = || Some(("rdma_connect", scan::after(line, "RDMA connect error")?, 0));
    named.or_else(kernel).or_else(in_words).or_else(lustre).or_else(ended).or_else(spdk)
}

/// Returns the errno in the last brackets of a line, or in its words: "closed (-111)".
fn errno_at_end(text: &str) -> Option<CallError> {
    let negative = text.rsplit_once('-').and_then(|(_, rest)| scan::number(rest));
    let number = negative.and_then(|(number, _)| CallError::of_number(number));
    number.or_else(|| call::errno(text))
}

/// Returns the errno of an event, and the reason of a refusal. The first number after the event is
/// one of both: errnos are negative.
fn outcome(rest: &str, number: u64) -> (Option<CallError>, Option<&'static (u64, &'static str)>) {
    // "RDMA_CM_EVENT_REJECTED (8) from CM event channel (status = 28)": 8 is the event.
    if number == 0 {
        return (errno_at_end(rest), None);
    }
    let named = ["status", "error", "reason"].iter().find_map(|word| scan::after(rest, word));
    let is_number = |rest: &&str| {
        let marks = [' ', '=', ':', '(', '-', ','];
        rest.trim_start_matches(marks).starts_with(|digit: char| digit.is_ascii_digit())
    };
    // Other numbers are those of events, addresses and queue pairs.
    let bare = Some(rest).filter(|rest| !rest.trim_start().starts_with('('));
    let rest = named.filter(is_number).or_else(|| bare.filter(is_number)).unwrap_or("");
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
        for (line, errno) in [
            ("nvme nvme0: rdma connection establishment failed (-104)", "ECONNRESET"),
            ("rpcrdma: connection to 10.0.0.9:20049 closed (-111)", "ECONNREFUSED"),
            ("Failed to write to /dev/nvme-fabrics: Connection reset by peer", "ECONNRESET"),
            (
                "(o2iblnd_cb.c:3255:kiblnd_cm_callback()) 10.0.0.1@o2ib: ADDR ERROR -110",
                "ETIMEDOUT",
            ),
            (
                "(o2iblnd_cb.c:1355:kiblnd_connect_peer()) Can't resolve addr for 10.0.0.1@o2ib: -113",
                "EHOSTUNREACH",
            ),
            ("iser: iser_cma_handler: unreachable (7): status -110 conn 0 id 0", "ETIMEDOUT"),
        ] {
            assert_eq!(outcome(line), (Some(errno), None), "{line}");
        }
        assert_eq!(
            outcome("iser: iser_cma_handler: rejected (8): status 28 conn 000 id 000"),
            (Some("ECONNREFUSED"), Some("refused by the program"))
        );
        let lustre =
            "(o2iblnd_cb.c:2878:kiblnd_rejected()) 10.0.0.1@o2ib rejected: no listener at 987";
        assert_eq!(outcome(lustre), (Some("ECONNREFUSED"), None));
        assert!(event("rpcrdma: connection to 10.0.0.9:20049 on mlx5_0, memreg 'FRWR'").is_none());
        assert!(event("x: ADDR ERROR -1").is_none());
        for (line, errno) in [
            ("RDMA_CM_EVENT_REJECTED from peer 10.0.0.28:7471", "ECONNREFUSED"),
            ("event RDMA_CM_EVENT_REJECTED (8)", "ECONNREFUSED"),
            ("RDMA_CM_EVENT_ADDR_ERROR, qp 12", "ENODEV"),
            ("RDMA_CM_EVENT_UNREACHABLE from 113.0.0.28", "ETIMEDOUT"),
        ] {
            assert_eq!(outcome(line), (Some(errno), None), "{line}");
        }
        for line in [
            "stats: RDMA_CM_EVENT_REJECTED=0 RDMA_CM_EVENT_ESTABLISHED=12",
            "  RDMA_CM_EVENT_REJECTED,",
            "#define X RDMA_CM_EVENT_REJECTED",
            "RDMA_CM_EVENT_REJECTED is the event when the peer refuses.",
        ] {
            let (_, rest, _) = event(line).expect(line);
            assert!(is_no_event(line, rest), "{line}");
        }
        assert_eq!(outcome("got RDMA_CM_EVENT_UNREACHABLE"), (Some("ETIMEDOUT"), None));
        assert_eq!(outcome("RDMA_CM_EVENT_REJECTED"), (Some("ECONNREFUSED"), None));
    }
}
