//! tshark's and Wireshark's lines of RoCE and InfiniBand packets that refuse a request.
//!
//! "198.51.100.2 -> 198.51.100.1 RRoCE 62 RC Acknowledge QP=0x0001b7 AETH Syndrome: 98, Negative
//! Acknowledge, Remote Access Error". The syndrome is that of the AETH (InfiniBand Architecture
//! Specification, volume 1, 9.7.5.2): two bits of kind, then five of a code, a timer or credits.

use crate::explain::Status;

use super::super::completion::Said;
use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

/// The format of these lines.
pub(super) const FORMAT: Format = Format {
    name: "tshark",
    reads: "tshark, Wireshark: RoCE and InfiniBand packets with \"AETH Syndrome: 98, Negative Acknowledge, …\" or \"RNR Nak\"",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 2048;

/// Lines below "OpCode: Negative Acknowledge" in which its error stands.
const BELOW: usize = 2;

/// A refusal, with the status that the requester gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    words: &'static str,
    code: u64,
    status: Option<Status>,
}

/// The codes of a NAK.
const NAKS: [Refusal; 5] = [
    Refusal { words: "psn sequence error", code: 0, status: None },
    Refusal { words: "invalid request", code: 1, status: Some(Status::RemoteInvalidRequest) },
    Refusal { words: "remote access error", code: 2, status: Some(Status::RemoteAccess) },
    Refusal { words: "remote operational error", code: 3, status: Some(Status::RemoteOperation) },
    Refusal { words: "invalid rd request", code: 4, status: None },
];

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST
        || !["AETH", "cknowledge", "NAK", "Nak"].iter().any(|mark| line.contains(mark))
    {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let syndrome = scan::number_after(&lower, "syndrome").filter(|number| *number < 256);
    let negative =
        lower.contains("negative acknowledge") || lower.contains(" nak") && is_packet(&lower);
    let record = if syndrome.is_some_and(|number| number >> 5 == 1) || lower.contains("rnr nak") {
        not_ready(line, syndrome)
    } else if negative || syndrome.is_some_and(|number| number >> 5 == 3) && is_packet(&lower) {
        let code = syndrome.filter(|number| number >> 5 == 3).map(|number| number & 0x1f);
        let by_code = code.and_then(|code| NAKS.iter().find(|nak| nak.code == code));
        let named = |text: &str| NAKS.iter().find(|nak| text.contains(nak.words));
        // Wireshark's details have the error in one of the next lines.
        let below = || {
            let mut next = at + 1..=at + BELOW;
            next.find_map(|line| named(&lines.get(line).to_ascii_lowercase()))
        };
        let refusal = by_code.or_else(|| named(&lower)).or_else(below)?;
        refused(line, refusal, syndrome)
    } else {
        return None;
    };
    Some(Reading::to(at, vec![record]))
}

/// Returns whether a line in lower case is of a dissector of RDMA packets.
fn is_packet(lower: &str) -> bool {
    ["rroce", "roce", "infiniband", "aeth"].iter().any(|name| lower.contains(name))
}

fn refused(line: &str, refusal: &Refusal, syndrome: Option<u64>) -> DecodedRecord {
    let words = refusal.words;
    let mut record = match refusal.status {
        Some(status) => {
            let said = Said { status: Some(status), ..Said::default() };
            said.record(RecordKind::Packet)
        }
        None => DecodedRecord::new(RecordKind::Packet, ""),
    };
    let (from, to) = ends(line);
    let by = from.map(|from| format!(" from {from}")).unwrap_or_default();
    record.title = format!("NAK{by}: {words}");
    fields(&mut record, (from, to), line, syndrome);
    record.notes.push(match refusal.code {
        0 => "The responder missed a packet before this one. The requester repeats from there: look for the \
              loss (out_of_sequence, switch discards). Once is harmless; always at one place means that both \
              ends disagree about the PSN."
            .to_owned(),
        _ => "The responder refused the request before it in the capture. The requester gets the status above, \
              and the responder an asynchronous event."
            .to_owned(),
    });
    record
}

fn not_ready(line: &str, syndrome: Option<u64>) -> DecodedRecord {
    let (from, to) = ends(line);
    let by = from.map(|from| format!(" from {from}")).unwrap_or_default();
    let title = format!("RNR NAK{by}: the responder had no receive");
    let mut record = DecodedRecord::new(RecordKind::Packet, title);
    fields(&mut record, (from, to), line, syndrome);
    if let Some(timer) = syndrome.filter(|number| number >> 5 == 1).map(|number| number & 0x1f) {
        record.field_meaning(
            "RNR timer",
            timer.to_string(),
            "the code of min_rnr_timer of the responder",
        );
    }
    record.notes.push(
        "The requester waits and sends again, as often as rnr_retry says. It ends in IBV_WC_RNR_RETRY_EXC_ERR. \
         Post receives earlier at the responder, or set rnr_retry to 7."
            .to_owned(),
    );
    record
}

fn fields(
    record: &mut DecodedRecord,
    ends: (Option<&str>, Option<&str>),
    line: &str,
    syndrome: Option<u64>,
) {
    record.field_if("from", ends.0);
    record.field_if("to", ends.1);
    record.field_if("QP", scan::number_after(line, "QP=").map(|number| format!("{number:#x}")));
    record.field_if("PSN", scan::number_after(line, "PSN=").map(|number| number.to_string()));
    record.field_if("AETH syndrome", syndrome.map(|number| format!("{number:#04x}")));
}

/// Returns source and destination: the words beside an arrow.
fn ends(line: &str) -> (Option<&str>, Option<&str>) {
    let arrow = ["->", "\u{2192}"].into_iter().find_map(|arrow| line.split_once(arrow));
    let Some((before, behind)) = arrow else { return (None, None) };
    (before.split_whitespace().next_back(), behind.split_whitespace().next())
}
