//! libmlx5: the CQE of each error except flushed requests and exceeded retries.
//!
//! rdma-core `providers/mlx5/cq.c`, `dump_cqe`: four lines of four words, each the big-endian
//! value, after "mlx5: HOST: got completion with error:". A debug build with `MLX5_DEBUG_MASK` set
//! for it also prints every CQE, after "dump cqe for cqn".

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
    let error = line.contains("got completion with error:");
    if !error && !line.contains("dump cqe for cqn ") {
        return None;
    }
    let block = hex::block_near(lines, at + 1, APART, completion::SIZE)?;
    let mut record = completion::cqe(block.bytes.as_slice().try_into().ok()?);
    let host = scan::between(line, "mlx5: ", ": got completion");
    record.field_if("host", host.filter(|host| !host.is_empty()));
    record.field_if("CQ", scan::hexadecimal_after(line, "for cqn ").map(|cqn| format!("{cqn:#x}")));
    Some(Reading { end: block.end, records: vec![record] })
}
