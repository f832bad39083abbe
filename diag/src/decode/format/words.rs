//! Any other line that states why a completion failed.
//!
//! A line with a status by name (`IBV_WC_…`), in the words of `ibv_wc_status_str`, by an identifier of
//! another language's bindings, or as a number beside words of a completion.

use crate::explain::Status;
use crate::explain::causes::Program;

use super::super::completion::Said;
use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan, words};
use super::{Format, Reading};

/// The format of these programs' messages.
pub(super) const FORMAT: Format = Format {
    name: "a program",
    reads: "any program: a line with IBV_WC_… or ibv_wc_status_str's words, or a completion's status as a number, and a vendor code if there is one",
    read,
};

/// Words that programs put before the vendor syndrome.
const VENDOR: [&str; 9] = [
    "vendor_err_synd",
    "vendor syndrome",
    "vendor_error",
    "vendor_err",
    "vendor error",
    "vendor err",
    "vendor code",
    "vendor",
    " v:",
];

/// Words before a vendor syndrome in hexadecimal without `0x`: IPoIB, iSER, krping.
const VENDOR_HEX: [&str; 2] = ["vend_err", "vender_err"];

/// Other words in a line about a completion, in lower case. Without one of these, text such as
/// "remote access error" may be about anything.
const ABOUT: [&str; 17] = [
    "completion",
    "status",
    "vend",
    "wc ",
    "wc:",
    "[wc",
    "cqe",
    "wr_id",
    "work request",
    "recv for",
    "error on cq",
    "cq error",
    "prov_err",
    "rpcrdma: ",
    "svcrdma: ",
    "rdma_write",
    "rdma_read",
];

/// Words of a completion, in lower case, beside which a number is its status.
const COMPLETION: [&str; 24] = [
    "wc.status",
    "wc->status",
    "wc status",
    "wc[",
    "wc failed",
    "wc error",
    "work completion",
    "cq completion",
    "completion with error",
    "completion error",
    "completion status",
    "bad completion",
    "cqe error",
    "wr_id",
    "wrid",
    "send completion",
    "recv completion",
    "work item",
    "snd status",
    "rcv status",
    "comp->status",
    "failed receive status",
    "failed send status",
    "vendor_err",
];

/// Words of a check that failed. Source code has the same comparison without them.
pub(super) const CHECK: [&str; 5] =
    ["assert", "check failed", "enforce fail", "panicked", "verify failed"];

/// Words before a status that make it prose about completions, and not the report of one.
const PROSE: [&str; 20] = [
    "a", "an", "the", "after", "when", "if", "on", "of", "by", "for", "as", "or", "and", "like",
    "see", "seeing", "getting", "gets", "some", "many",
];

/// Returns whether a line is source code that compares a status.
fn is_code(line: &str, lower: &str) -> bool {
    let compares = line.contains("==") || line.contains("!=");
    compares && !is_check(lower) || line.trim_start().starts_with("case ")
}

/// Returns whether a line shows both sides of a comparison with success.
fn is_compared(lower: &str) -> bool {
    lower.contains("ib") && lower.contains("wc_success") && compared(lower).is_some()
}

pub(super) fn is_check(lower: &str) -> bool {
    CHECK.iter().any(|word| lower.contains(word))
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
fn numbered(lower: &str) -> Option<u64> {
    let of_status = lower.match_indices("status").find_map(|(at, token)| {
        let rest = lower[at + token.len()..].trim_start_matches(" number");
        scan::number(rest).map(|(number, _)| number)
    });
    let of_error = || scan::number_after(lower, "completion error: ");
    of_status.or_else(of_error).or_else(|| compared(lower))
}

/// Returns the status of a check that compared it with success, which is 0: "(12 vs. 0)", "5 vs 0".
fn compared(lower: &str) -> Option<u64> {
    let (before, behind) = lower.split_once(" vs. ").or_else(|| lower.split_once(" vs "))?;
    let digits = before.trim_end_matches(|digit: char| digit.is_ascii_digit()).len();
    let left: u64 = before[digits..].parse().ok()?;
    let right = scan::number(behind)?.0;
    (left == 0 || right == 0).then_some(left.max(right))
}

/// Returns the number of "Error on CQ 0x…, … status: (12): transport retry co": SPDK cuts long lines.
fn in_brackets(line: &str) -> Option<u64> {
    let rest = scan::after(line, "error on cq ")?;
    scan::number(scan::after(rest, "status: (")?).map(|(number, _)| number)
}

/// Returns the vendor syndrome of "rpcrdma: Recv: local length error (1/0xd7)".
fn of_sunrpc(line: &str) -> Option<u64> {
    let rest = ["rpcrdma: ", "svcrdma: "].iter().find_map(|token| scan::after(line, token))?;
    let (status, vendor) = scan::between(rest, "(", ")")?.split_once('/')?;
    status.parse::<u8>().ok()?;
    scan::number(vendor).map(|(vendor, _)| vendor)
}

/// Returns the vendor syndrome of a line in lower case.
fn vendor(lower: &str) -> Option<u64> {
    let of = |token: &&str| scan::identifier_after(lower, token);
    let hexadecimal = || VENDOR_HEX.iter().find_map(|token| scan::hexadecimal_after(lower, token));
    hexadecimal().or_else(|| VENDOR.iter().find_map(of)).or_else(|| of_sunrpc(lower))
}

/// Most lines between a status and a vendor syndrome of its own line: structures that a debugger or
/// a program prints field by field.
const APART: usize = 4;

/// Returns the vendor syndrome of a line after the status's, if no other status is between.
fn vendor_below(lines: &Lines<'_>, at: usize) -> Option<u64> {
    for line in (at + 1..=at + APART).map(|line| lines.get(line)) {
        if line.is_empty() || line.len() > LONGEST || words::status(line).is_some() {
            return None;
        }
        let lower = line.to_ascii_lowercase();
        let start = lower.trim_start_matches(|letter: char| !letter.is_ascii_alphabetic());
        if start.strip_prefix("wc ").unwrap_or(start).starts_with("vendor") {
            return vendor(&lower);
        }
    }
    None
}

/// Returns wr_id and vendor syndrome of "transport retry counter exceeded 12 139 129", which programs
/// with the code of TensorFlow's and BytePS's print.
fn trailing(rest: &str) -> Option<(u64, u64)> {
    let (wr_id, rest) = scan::number(rest.strip_prefix(' ')?)?;
    let (vendor, rest) = scan::number(rest.strip_prefix(' ')?)?;
    (rest.is_empty() || rest.starts_with(' ')).then_some((wr_id, vendor))
}

/// Longest line that is searched.
const LONGEST: usize = 4096;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    // Most lines of a log are rejected here.
    if line.is_empty() || line.len() > LONGEST {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let mut vendor = vendor(&lower);
    let beside = words::numbered(&lower);
    let Some(status) = status(line, &lower, vendor, beside) else {
        return unsaid(lines, at, &lower);
    };
    let tail = beside.and_then(trailing);
    vendor = vendor.or(tail.map(|(_, vendor)| vendor)).or_else(|| vendor_below(lines, at));
    let said = Said {
        status: Some(status),
        vendor,
        qpn: ["qp_num", "qpn", "qp "]
            .iter()
            .find_map(|token| scan::number_after(&lower, token))
            .and_then(|number| u32::try_from(number).ok()),
        operation: operation(&lower).map(str::to_owned),
        program: tail.map(|_| Program::TensorFlow),
        ..Said::default()
    };
    let mut record = said.record(RecordKind::Completion);
    let printed =
        scan::printed_after(&lower, "wr_id").or_else(|| scan::printed_after(&lower, "wrid"));
    record.field_if("wr_id", printed.or(tail.map(|(wr_id, _)| wr_id.to_string())));
    Some(Reading::to(at, vec![record]))
}

/// Returns the operation that a program names from its own request. The opcode of a failed
/// completion (`IBV_WC_RDMA_READ`) has no meaning.
fn operation(lower: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 4] = [
        ("op_rdma_write", "RDMA_WRITE"),
        ("op_rdma_read", "RDMA_READ"),
        ("rdma write ", "RDMA_WRITE"),
        ("rdma read ", "RDMA_READ"),
    ];
    NAMES.iter().find(|(token, _)| lower.contains(token)).map(|(_, name)| *name)
}

/// Returns the status that a line reports; `None` if it reports none.
fn status(line: &str, lower: &str, vendor: Option<u64>, beside: Option<&str>) -> Option<Status> {
    let named = words::status(line);
    // Prose that gives the numbers of a completion reports it.
    let numbers = beside.is_some() || vendor.is_some() && numbered(lower).is_some();
    let numbers = numbers || is_compared(lower);
    if named.is_some() && !numbers && (is_code(line, lower) || is_prose(line)) {
        return None;
    }
    if let Some(status) = named {
        let by_name = line.contains(status.name()) || words::syndrome(line).is_some();
        // The kernel's asynchronous events: "mlx5_0/1: QP 51291 error: local length error".
        let event = lower.contains(": qp ") && lower.contains(" error: ");
        let about = beside.is_some() || by_name || event;
        let about = about || ABOUT.iter().any(|word| lower.contains(word));
        return about.then_some(status);
    }
    let is_completion = vendor.is_some()
        || is_compared(lower)
        || COMPLETION.iter().any(|word| lower.contains(word));
    let number = numbered(lower).filter(|_| is_completion && !is_format(lower));
    number.or_else(|| in_brackets(lower)).and_then(|number| Said::of_wc_status(number).status)
}

/// Returns whether a line is source code: a number in it is no status.
fn is_format(lower: &str) -> bool {
    lower.contains("%d") || lower.contains("%u") || lower.trim_end().ends_with([';', '{'])
}

/// Reads the report of a failed completion that does not say why: "Assertion `wc.status ==
/// IBV_WC_SUCCESS' failed".
fn unsaid(lines: &Lines<'_>, at: usize, lower: &str) -> Option<Reading> {
    if !lower.contains("ibv_wc_success") && !lower.contains("ib_wc_success") {
        return None;
    }
    let fails = is_check(lower) || lower.contains("is not ibv_wc_success");
    // The next line may tell the status.
    let told = (at + 1..at + 3).any(|line| words::status(lines.get(line)).is_some());
    if !fails || told || is_format(lower) {
        return None;
    }
    let mut record =
        DecodedRecord::new(RecordKind::Completion, "a request failed; the text does not say why");
    record.notes.push(
        "Have the program print ibv_wc_status_str(wc.status) and wc.vendor_err: the cause depends on them."
            .to_owned(),
    );
    Some(Reading::to(at, vec![record]))
}
