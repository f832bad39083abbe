//! Calls of libibverbs, libmlx5 and librdmacm that failed, as programs report them.
//!
//! UCX: "ibv_create_cq(cqe=4096) failed: Cannot allocate memory". NCCL: "Call to ibv_modify_qp
//! failed with error Connection timed out errno 110". Mooncake: "Failed to modify QP to RTR, …".

use crate::explain::call::CallKind;
use crate::explain::causes::{Facts, Symptom};
use crate::explain::{ExplainedCode, call};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading, call_words, kernel_message, words};

/// The format of reports of failed calls.
pub(super) const FORMAT: Format = Format {
    name: "a call that failed",
    reads: "any program: ibv_… or mlx5dv_… \"failed\" with an error in words or a number",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 4096;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST || !ABOUT.iter().any(|word| line.contains(word)) {
        return None;
    }
    // NCCL looks for functions that a library may have.
    if line.contains("dlvsym failed") || line.contains("dlsym failed") {
        return None;
    }
    // The driver's own objects are no program's.
    if kernel_message::is_of_driver(line) {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let checked = words::is_check(&lower);
    let errno = call::errno(line).or_else(|| checked.then(|| last_number(line)).flatten());
    // Source code and backtraces name calls too.
    if line.trim_end().ends_with([';', '{', ')']) && !line.contains("ailed") && errno.is_none() {
        return None;
    }
    let Named { end, name, by } = named(line)?;
    let (before, behind) = line.split_at(end);
    let (arguments, rest) = match behind.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((arguments, rest)) => (arguments, rest),
        None => ("", behind),
    };
    let lower = before.to_ascii_lowercase();
    // "Check failed: !(r = ibv_modify_qp(qp_, &attr, …)) QP to Ready to Receive 101".
    let checked = checked && matches!(by, By::Name);
    let behind = rest.trim_start();
    let nothing = behind.starts_with("returned null") || behind.starts_with("returned NULL");
    // The words of a program contain its words of failure.
    let failed = nothing
        || checked
        || matches!(by, By::Phrase)
        || rest.contains("ailed")
        || behind.trim_start_matches([':', ' ']).starts_with("fail")
        || errno.is_some() && behind.starts_with("return")
        || FAILED.iter().any(|word| lower.contains(word))
        || errno
            .is_some_and(|errno| rest.trim_start_matches([' ', ':']).starts_with(errno.words()));
    if !failed {
        return None;
    }
    let whole = match by {
        // NVSHMEM: "NULL value cannot allocate mlx5dv_devx_uar".
        By::Name => {
            nothing || checked || is_whole(rest) || lower.contains("null value") && is_end(rest)
        }
        By::Words | By::Phrase => is_end(rest),
    };
    if errno.is_none() && !whole {
        return None;
    }
    let errno = errno.or_else(|| below(lines, at));
    let name =
        if name == "ibv_reg_mr" && is_dma_buf(lines, at) { "ibv_reg_dmabuf_mr" } else { name };
    let why = errno.map(|errno| format!(": {}", errno.name())).unwrap_or_default();
    let mut record = DecodedRecord::new(RecordKind::CallFailure, format!("{name} failed{why}"));
    record.field("call", name);
    // A target of dynamic connections is moved by the same call.
    let is_target =
        matches!(by, By::Words | By::Phrase) && line.to_ascii_lowercase().contains(" dct ");
    record.field_if("object", is_target.then_some("DCT"));
    record.field_if("arguments", Some(arguments).filter(|text| !text.is_empty()));
    if let Some(errno) = errno {
        record.field_meaning("error", errno.name(), errno.words());
    }
    record
        .field_if("length", scan::number_after(arguments, "length=").map(|size| size.to_string()));
    let kind = match CallKind::of(name) {
        CallKind::Modify if is_to_init(line) => CallKind::Init,
        kind => kind,
    };
    record.findings.push(ExplainedCode::call_of(kind, name, errno));
    record.facts = Some(Facts::of(Symptom::Call(kind, errno)));
    Some(Reading::to(at, vec![record]))
}

/// Returns whether a line is about the move from RESET to INIT: "modify QP to INIT", and UCX's
/// "mlx5dv_devx_qp_modify(502)" with the opcode of RST2INIT_QP.
fn is_to_init(line: &str) -> bool {
    let marks = ["to INIT", "to init", ", INIT)", "RST2INIT", "(502)"];
    let leaves = line.contains("INIT to") || line.contains("INIT2");
    !leaves && marks.iter().any(|mark| line.contains(mark))
}

/// Lines before a failed registration that say how it registers.
const BEFORE: usize = 8;

/// Returns whether the lines before say that memory is registered by dma-buf, as perftest's do.
fn is_dma_buf(lines: &Lines<'_>, at: usize) -> bool {
    (at.saturating_sub(BEFORE)..at).any(|line| lines.get(line).contains("using DMA-BUF"))
}

/// Returns whether a call's name is followed by "failed" and the end of the message: other text
/// may be prose about calls.
fn is_whole(rest: &str) -> bool {
    let rest = rest.trim_start_matches([' ', ':', ')']);
    ["failed", "fail"].iter().find_map(|word| rest.strip_prefix(word)).is_some_and(is_end)
}

/// Returns whether only punctuation is left of a message, an abbreviation in brackets ("(CQ):"), or a
/// program's own number ("zerr 7").
fn is_end(rest: &str) -> bool {
    let marks = ['.', '!', ' ', ',', ';', ':', '"', '\''];
    let mut rest = rest.trim_matches(marks);
    if let Some((inside, behind)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        if inside.len() <= LONGEST_SHORT && inside.bytes().all(|letter| letter.is_ascii_uppercase())
        {
            rest = behind.trim_matches(marks);
        }
    }
    let mut words = rest.split([' ', '=', ':']).filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next()) {
        (None, ..) => true,
        (Some(name), Some(number), None) => {
            let number = number.trim_start_matches('-');
            name.bytes().all(|letter| letter.is_ascii_lowercase())
                && !number.is_empty()
                && number.bytes().all(|digit| digit.is_ascii_digit())
        }
        _ => false,
    }
}

/// Longest abbreviation of an object.
const LONGEST_SHORT: usize = 4;

/// Returns the errno at the end of a failed check.
fn last_number(line: &str) -> Option<call::CallError> {
    let number = line.trim_end().rsplit(' ').next()?;
    call::CallError::of_number(number.parse().ok()?)
}

/// Most lines between a failure and its errno, in the boxes that Open MPI prints.
const APART: usize = 6;

/// Returns the errno of a line "Error:    Cannot allocate memory" below a failure that ends with a
/// colon.
fn below(lines: &Lines<'_>, at: usize) -> Option<call::CallError> {
    if !lines.get(at).trim_end().ends_with(':') {
        return None;
    }
    let line = (at + 1..=at + APART).map(|line| lines.get(line).trim());
    line.filter_map(|line| line.strip_prefix("Error:")).find_map(call::errno)
}

/// Words of which a line about a failed call has at least one.
const ABOUT: [&str; 11] = [
    "ail", "ibv_", "mlx5dv_", "rdma_", "ib_", "ouldn't", "nable to", "ould not", "annot", "rror",
    "an't",
];

/// Words of failure before a call, in lower case.
const FAILED: [&str; 7] =
    ["failed", "couldn't", "could not", "unable to", "null value", "cannot allocate", "error"];

/// Words of programs that do not name the call, in lower case. [`call_words`] finds others.
const WORDS: [(&str, &str); 4] = [
    ("modify qp to rt", "ibv_modify_qp"),
    ("modify qp state to rt", "ibv_modify_qp"),
    ("modify qp to init", "ibv_modify_qp"),
    ("couldn't get context for the device", "ibv_open_device"),
];

/// Beginnings of functions of libmlx5, libibverbs, librdmacm and the kernel.
const PREFIXES: [&str; 18] = [
    "mlx5dv_",
    "ibv_",
    "rdma_create_",
    "rdma_resolve_",
    "rdma_getaddrinfo",
    "rdma_get_cm_",
    "rdma_bind_addr",
    "rdma_listen",
    "rdma_connect",
    "rdma_accept",
    "rdma_join_",
    "ib_post_",
    "ib_create_",
    "ib_modify_",
    "ib_alloc_",
    "ib_destroy_",
    "ib_reg_",
    "ib_dereg_",
];

/// How a line names a call.
#[derive(Clone, Copy, Debug)]
enum By {
    /// By the function's name.
    Name,
    /// By words of the program.
    Words,
    /// By a verb and an object, with a word of failure.
    Phrase,
}

/// A call that a line names.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    /// The end of its name in the line.
    end: usize,
    /// The function's name.
    name: &'a str,
    /// How the line names it.
    by: By,
}

/// Returns the first call that a line names. Names of files are no calls.
fn named(line: &str) -> Option<Named<'_>> {
    let in_words = || {
        // Of the same length: only letters of ASCII change.
        let lower = line.to_ascii_lowercase();
        let (words, name) = WORDS.iter().find(|(words, _)| lower.contains(words))?;
        let mut end = lower.find(words)? + words.len();
        // "RTR", "RTS" and what the program's words leave open.
        end += line[end..].bytes().take_while(u8::is_ascii_uppercase).count();
        Some(Named { end, name, by: By::Words })
    };
    let of = |prefix: &'static str| {
        line.match_indices(prefix).filter_map(move |(at, _)| {
            let alone = !line[..at]
                .ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
            let end = line[at..]
                .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .map_or(line.len(), |end| at + end);
            let long =
                end > at + prefix.len() + 1 || !prefix.ends_with('_') && end == at + prefix.len();
            (alone && long && !line[end..].starts_with(".c")).then(|| Named {
                end,
                name: &line[at..end],
                by: By::Name,
            })
        })
    };
    let names = PREFIXES.into_iter().flat_map(of);
    let of_words = || {
        let call = call_words::find(line)?;
        Some(Named { end: call.end, name: call.name, by: By::Phrase })
    };
    names.min_by_key(|named| named.end).or_else(in_words).or_else(of_words)
}
