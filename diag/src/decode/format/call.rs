//! Calls of libibverbs and libmlx5 that failed, as programs report them.
//!
//! UCX: "ibv_create_cq(cqe=4096) failed: Cannot allocate memory". NCCL: "Call to ibv_modify_qp
//! failed with error Connection timed out errno 110". Many programs: "… ibv_reg_mr … failed …".

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
    if line.len() > LONGEST || !line.contains("ibv_") && !line.contains("mlx5dv_") {
        return None;
    }
    // Source code and backtraces name calls too.
    if line.trim_end().ends_with([';', '{', ')']) && !line.contains("ailed") {
        return None;
    }
    let (before, name) = named(line)?;
    let behind = &line[before + name.len()..];
    let (arguments, rest) = match behind.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((arguments, rest)) => (arguments, rest),
        None => ("", behind),
    };
    let failed = rest.contains("ailed") || line[..before].to_ascii_lowercase().contains("failed");
    let errno = call::errno(line)?;
    if !failed {
        return None;
    }
    let title = format!("{name} failed: {}", errno.name());
    let mut record = DecodedRecord::new(RecordKind::CallFailure, title);
    record.field("call", name);
    record.field_if("arguments", Some(arguments).filter(|text| !text.is_empty()));
    record.field_meaning("error", errno.name(), errno.words());
    record
        .field_if("length", scan::number_after(arguments, "length=").map(|size| size.to_string()));
    record.findings.push(ExplainedCode::call(name, errno));
    Some(Reading::to(at, vec![record]))
}

/// Returns place and name of the first call that a line names.
fn named(line: &str) -> Option<(usize, &str)> {
    let at = ["mlx5dv_", "ibv_"].iter().filter_map(|prefix| line.find(prefix)).min()?;
    let end = line[at..]
        .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .map_or(line.len(), |end| at + end);
    (end > at + 6).then(|| (at, &line[at..end]))
}
