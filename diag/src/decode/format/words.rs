//! Any other line that states in words why a completion failed.
//!
//! A line with a status by name (`IBV_WC_…`), in the words of `ibv_wc_status_str`, or as numbers
//! for status and vendor syndrome.

use super::super::completion::Said;
use super::super::record::RecordKind;
use super::super::{lines::Lines, scan, words};
use super::{Format, Reading};

/// The format of many programs' messages.
pub(super) const FORMAT: Format = Format {
    name: "a program",
    reads: "any program: a line with IBV_WC_… or ibv_wc_status_str's words, and a vendor code if there is one",
    read,
};

/// Words that programs put before the vendor syndrome.
const VENDOR: [&str; 7] = [
    "vendor_err_synd",
    "vendor syndrome",
    "vendor_err",
    "vendor error",
    "vendor err",
    "vendor code",
    "vend_err",
];

/// Other words in a line about a completion, in lower case. Without one of these, text such as
/// "remote access error" may be about anything.
const ABOUT: [&str; 13] = [
    "completion",
    "status",
    "vend",
    "wc ",
    "wc:",
    "cqe",
    "wr_id",
    "work request",
    "recv for",
    "error on cq",
    "cq error",
    "prov_err",
    "rpcrdma: ",
];

/// Words before a status that make it prose about completions, and not the report of one.
const PROSE: [&str; 20] = [
    "a", "an", "the", "after", "when", "if", "on", "of", "by", "for", "as", "or", "and", "like",
    "see", "seeing", "getting", "gets", "some", "many",
];

/// Returns whether a line is source code that compares a status.
fn is_code(line: &str) -> bool {
    line.contains("==") || line.contains("!=") || line.trim_start().starts_with("case ")
}

/// Returns whether a line only talks about a status.
fn is_prose(line: &str) -> bool {
    let Some(place) = words::place(line) else { return false };
    let before = line[..place].trim_end_matches([' ', '"', '`', '\'']);
    let word = before.rsplit(|letter: char| !letter.is_ascii_alphabetic()).next();
    word.is_some_and(|word| PROSE.contains(&word.to_ascii_lowercase().as_str()))
        && before.ends_with(|letter: char| letter.is_ascii_alphabetic())
}

/// Returns the number of a status: the first `status` that a number follows.
fn numbered(line: &str) -> Option<u64> {
    line.match_indices("status").find_map(|(at, token)| {
        let rest = line[at + token.len()..].trim_start_matches(" number");
        scan::number(rest).map(|(number, _)| number)
    })
}

/// Returns the number of "Error on CQ 0x…, … status: (12): transport retry co": SPDK cuts long lines.
fn in_brackets(line: &str) -> Option<u64> {
    let rest = scan::after(line, "error on cq ")?;
    scan::number(scan::after(rest, "status: (")?).map(|(number, _)| number)
}

/// Returns the vendor syndrome of "rpcrdma: Recv: local length error (1/0xd7)".
fn of_sunrpc(line: &str) -> Option<u64> {
    let (status, vendor) =
        scan::between(scan::after(line, "rpcrdma: ")?, "(", ")")?.split_once('/')?;
    status.parse::<u8>().ok()?;
    scan::number(vendor).map(|(vendor, _)| vendor)
}

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    // Most lines of a log are rejected here.
    if line.is_empty() || line.len() > 4096 {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let vendor = VENDOR.iter().find_map(|token| scan::identifier_after(&lower, token));
    let vendor = vendor.or_else(|| of_sunrpc(&lower));
    let named = words::status(line);
    // Prose that gives the numbers of a completion reports it.
    let numbers = vendor.is_some() && numbered(&lower).is_some();
    if named.is_some() && (is_code(line) || !numbers && is_prose(line)) {
        return None;
    }
    let status = match named {
        Some(status) => {
            let by_name = line.contains(status.name());
            // The kernel's asynchronous events: "mlx5_0/1: QP 51291 error: local length error".
            let event = lower.contains(": qp ") && lower.contains(" error: ");
            let about = by_name || event || ABOUT.iter().any(|word| lower.contains(word));
            about.then_some(status)
        }
        None => {
            let number = vendor.and(numbered(&lower)).or_else(|| in_brackets(&lower));
            number.and_then(|number| Said::of_wc_status(number).status)
        }
    }?;
    let said = Said {
        status: Some(status),
        vendor,
        qpn: ["qp_num", "qpn", "qp "]
            .iter()
            .find_map(|token| scan::number_after(&lower, token))
            .and_then(|number| u32::try_from(number).ok()),
        ..Said::default()
    };
    let mut record = said.record(RecordKind::Completion);
    record.field_if("wr_id", scan::printed_after(&lower, "wr_id"));
    Some(Reading::to(at, vec![record]))
}
