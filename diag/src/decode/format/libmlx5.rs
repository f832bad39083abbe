//! libmlx5: the CQE of each error except flushed requests and exceeded retries.
//!
//! rdma-core `providers/mlx5/cq.c`, `dump_cqe`: four lines of four words, each the big-endian
//! value, after "mlx5: HOST: got completion with error:". A debug build with `MLX5_DEBUG_MASK` set
//! for it also prints every CQE, after "dump cqe for cqn".

use crate::text;

use super::super::{completion, hex, lines::Lines, scan};
use super::{Format, Reading};

/// The format of libmlx5's messages.
pub(super) const FORMAT: Format = Format {
    name: "libmlx5",
    reads: "libmlx5: \"got completion with error:\" and four lines of four words",
    read,
};

/// Most lines between the heading and its dump, which other programs may print at the same time.
const APART: usize = 3;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    let error = is_heading(line);
    if !error && !line.contains("dump cqe for cqn ") {
        return None;
    }
    let block = hex::block_near(lines, at + 1, APART, completion::SIZE)?;
    let bytes = block.bytes.as_slice().try_into().ok();
    let host = scan::between(line, "mlx5: ", ": got completion").filter(|host| !host.is_empty());
    let Some(bytes) = bytes.filter(|bytes| !error || text::Cqe(bytes).error().is_some()) else {
        return error.then(|| mixed(lines, at, host)).flatten();
    };
    let mut record = completion::cqe(&bytes);
    record.field_if("host", host);
    record.field_if("CQ", scan::hexadecimal_after(line, "for cqn ").map(|cqn| format!("{cqn:#x}")));
    Some(Reading::until(block.end, vec![record]))
}

fn is_heading(line: &str) -> bool {
    line.contains("got completion with error:")
}

/// Most lines of mixed dumps that are read together.
const MIXED: usize = 256;

/// Reads dumps whose lines are mixed: processes print at the same time. Only the last line of a
/// dump tells whose it is, and it has all the codes.
fn mixed(lines: &Lines<'_>, at: usize, host: Option<&str>) -> Option<Reading> {
    let mut records = Vec::new();
    let mut end = at + 1;
    while end < lines.len() && end < at + MIXED {
        let row = hex::block(lines, end, completion::TAIL);
        let Some(row) = row.filter(|row| row.bytes.len() == completion::TAIL) else {
            if is_heading(lines.get(end)) {
                end += 1;
                continue;
            }
            break;
        };
        end = row.end;
        records.extend(completion::tail(&row.bytes));
    }
    for record in &mut records {
        record.field_if("host", host);
        record.notes.push(
            "The lines of several dumps are mixed: only the last line of each tells whose it is."
                .to_owned(),
        );
    }
    (!records.is_empty()).then_some(Reading::until(end, records))
}
