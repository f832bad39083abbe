//! Calls of libibverbs and libmlx5 that failed, as programs report them.
//!
//! UCX: "ibv_create_cq(cqe=4096) failed: Cannot allocate memory". NCCL: "Call to ibv_modify_qp
//! failed with error Connection timed out errno 110". Mooncake: "Failed to modify QP to RTR, …".

use crate::explain::{ExplainedCode, call};

use super::super::record::{DecodedRecord, RecordKind};
use super::super::{lines::Lines, scan};
use super::{Format, Reading};

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
    if line.len() > LONGEST || !["ailed", "ibv_", "mlx5dv_"].iter().any(|word| line.contains(word))
    {
        return None;
    }
    // Source code and backtraces name calls too.
    if line.trim_end().ends_with([';', '{', ')']) && !line.contains("ailed") {
        return None;
    }
    let (end, name) = named(line)?;
    let (before, behind) = line.split_at(end);
    let (arguments, rest) = match behind.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((arguments, rest)) => (arguments, rest),
        None => ("", behind),
    };
    let failed = rest.contains("ailed") || before.to_ascii_lowercase().contains("failed");
    if !failed {
        return None;
    }
    let errno = call::errno(line);
    if errno.is_none() && !is_whole(rest) {
        return None;
    }
    let why = errno.map(|errno| format!(": {}", errno.name())).unwrap_or_default();
    let mut record = DecodedRecord::new(RecordKind::CallFailure, format!("{name} failed{why}"));
    record.field("call", name);
    record.field_if("arguments", Some(arguments).filter(|text| !text.is_empty()));
    if let Some(errno) = errno {
        record.field_meaning("error", errno.name(), errno.words());
    }
    record
        .field_if("length", scan::number_after(arguments, "length=").map(|size| size.to_string()));
    record.findings.push(match errno {
        Some(errno) => ExplainedCode::call(name, errno),
        None => ExplainedCode::call_without_error(name),
    });
    Some(Reading::to(at, vec![record]))
}

/// Returns whether a call's name is followed by "failed" and the end of the message: other text
/// may be prose about calls.
fn is_whole(rest: &str) -> bool {
    rest.trim_start_matches([' ', ':', ')'])
        .strip_prefix("failed")
        .is_some_and(|end| end.trim_matches(['.', '!', ' ', ',', ';', '"', '\'']).is_empty())
}

/// Words of programs that do not name the call.
const WORDS: [(&str, &str); 4] = [
    ("modify QP to RT", "ibv_modify_qp"),
    ("modify QP state to RT", "ibv_modify_qp"),
    ("Failed to register memory", "ibv_reg_mr"),
    ("Failed to query GID", "ibv_query_gid"),
];

/// Returns the end and the name of the first call that a line names. Names of files are no calls.
fn named(line: &str) -> Option<(usize, &str)> {
    let in_words = || {
        let (words, name) = WORDS.iter().find(|(words, _)| line.contains(words))?;
        Some((line.find(words)? + words.len(), *name))
    };
    let of = |prefix: &'static str| {
        line.match_indices(prefix).filter_map(move |(at, _)| {
            let alone = !line[..at]
                .ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
            let end = line[at..]
                .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .map_or(line.len(), |end| at + end);
            (alone && end > at + prefix.len() + 1 && !line[end..].starts_with(".c"))
                .then(|| (end, &line[at..end]))
        })
    };
    of("mlx5dv_").chain(of("ibv_")).min_by_key(|(end, _)| *end).or_else(in_words)
}
