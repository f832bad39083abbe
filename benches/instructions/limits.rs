//! Limits on the instruction counts of this crate: those of the rows, and the recorded ones.

use std::collections::HashMap;

use crate::report::earlier::Earlier;
use crate::rows::{Limit, Row, column};

/// By how much a count may grow over the recorded one.
pub const GROWTH: f64 = 1.02;

/// Columns whose counts are this crate's, so that they are compared with recorded ones.
const COMPARED: [&str; 2] = [column::RAW, column::OWNED];

/// Instructions per call, per row of [`Row::ALL`], per column.
pub type Counts = Vec<HashMap<&'static str, f64>>;

/// How a count stands to a limit.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    pub limit: Limit,
    /// The most that is allowed, by number and by the other side's count.
    pub most: f64,
    pub count: f64,
}

impl Standing {
    /// Returns the results of all limits of `row` that can be checked.
    pub fn of<'a>(row: &'a Row, counts: &'a HashMap<&str, f64>) -> impl Iterator<Item = Self> + 'a {
        row.spec().limits.iter().filter_map(|limit| {
            let times = match limit.times {
                None => f64::INFINITY,
                Some((times, other)) => times * counts.get(other)?,
            };
            let count = *counts.get(limit.column)?;
            Some(Self { limit: *limit, most: limit.most.min(times), count })
        })
    }

    pub fn text(&self) -> String {
        let Self { limit, most, count } = self;
        let state = match (count <= most, limit.held) {
            (true, true) => "held".to_owned(),
            (true, false) => "reached, not held yet".to_owned(),
            (false, true) => format!("PASSED by {:.1}", count - most),
            (false, false) => format!("{:.1} to go", count - most),
        };
        let side = if limit.column == column::RAW { "" } else { limit.column };
        format!("{side} {most:.1}, {state}").trim_start().to_owned()
    }
}

/// Sentences on limits that are held and passed, or cannot be judged.
pub fn passed(counts: &Counts) -> Vec<String> {
    let mut failures = Vec::new();
    for (row, counts) in Row::ALL.iter().zip(counts) {
        let standings: Vec<_> = Standing::of(row, counts).collect();
        if standings.len() != row.spec().limits.len() {
            failures.push(format!("{}: a limited side was not counted", row.text()));
        }
        for standing in standings.iter().filter(|at| at.limit.held && at.count > at.most) {
            failures.push(format!("{}: limit {}", row.text(), standing.text()));
        }
    }
    failures
}

/// Sentences on counts that grew over the recorded ones. Rows that were not recorded are new, and
/// judged by their limits alone.
///
/// # Errors
/// Why the counts cannot be compared: they are another compiler's work.
pub fn grown(
    rows: &[(&str, HashMap<&'static str, f64>)],
    rustc: &str,
    earlier: &Earlier,
) -> Result<Vec<String>, String> {
    let theirs = earlier.context.get("rustc").map_or("an unknown compiler", String::as_str);
    if theirs != rustc {
        return Err(format!("recorded with rustc {theirs}, counted with {rustc}"));
    }
    let mut failures = Vec::new();
    for (name, counts) in rows {
        let Some(recorded) = earlier.rows.get(*name) else { continue };
        for column in COMPARED {
            let (Some(count), Some(before)) = (counts.get(column), recorded.get(column)) else {
                continue;
            };
            // Files have two digits behind the point.
            if *count > before * GROWTH + 0.01 {
                failures.push(format!("{name}: {column} grew from {before:.1} to {count:.1}"));
            }
        }
    }
    Ok(failures)
}
