//! The table, the JSON file, and the limits.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::callgrind;
use crate::rows::{Limit, Row, column};

/// What was counted.
pub struct Table {
    /// In the table's order.
    pub columns: Vec<&'static str>,
    /// Per row of [`Row::ALL`], per column: instructions per call.
    pub counts: Vec<Vec<Option<f64>>>,
}

impl Table {
    fn count(&self, row: usize, column: &str) -> Option<f64> {
        let column = self.columns.iter().position(|name| *name == column)?;
        self.counts[row][column]
    }

    /// What the limited side executes, and the most that it may.
    fn against(&self, row: usize, limit: &Limit) -> Option<(f64, f64)> {
        let count = self.count(row, limit.column)?;
        let Some((times, other)) = limit.times else { return Some((count, limit.most)) };
        Some((count, limit.most.min(times * self.count(row, other)?)))
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{:44}", "instructions per call, caller included");
        for column in &self.columns {
            let _ = write!(text, " {column:>17}");
        }
        let _ = writeln!(text, " {:>8}", "limit");
        for (at, row) in Row::ALL.iter().enumerate() {
            let _ = write!(text, "{:44}", row.text());
            for count in &self.counts[at] {
                let _ = match count {
                    Some(count) => write!(text, " {count:17.1}"),
                    None => write!(text, " {:>17}", "-"),
                };
            }
            for limit in row.spec().limits {
                let Some((count, most)) = self.against(at, limit) else { continue };
                let of = if limit.column == column::RAW { "" } else { limit.column };
                let _ = match (count <= most, limit.held) {
                    (true, true) => write!(text, " {most:8.1}  kept {of}"),
                    (true, false) => write!(text, " {most:8.1}  kept, not held yet {of}"),
                    (false, true) => {
                        write!(text, " {most:8.1}  PASSED by {:.1} {of}", count - most)
                    }
                    (false, false) => write!(text, " {most:8.1}  {:.1} to go {of}", count - most),
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// Rows where a limit that is held is passed, or cannot be judged.
    pub fn passed(&self) -> Vec<&'static str> {
        let passed = |&(at, row): &(usize, &Row)| {
            row.spec().limits.iter().any(|limit| {
                limit.held && self.against(at, limit).is_none_or(|(count, most)| count > most)
            })
        };
        Row::ALL.iter().enumerate().filter(passed).map(|(_, row)| row.text()).collect()
    }

    /// For programs.
    pub fn json(&self, context: &[(&str, String)]) -> String {
        let mut json = String::from("{\n");
        for (key, value) in context {
            let _ = writeln!(json, "  {}: {},", quoted(key), quoted(value));
        }
        json.push_str("  \"rows\": [\n");
        for (at, row) in Row::ALL.iter().enumerate() {
            let _ = write!(json, "    {{\"row\": {}", quoted(row.text()));
            for (side, count) in self.columns.iter().zip(&self.counts[at]) {
                let count = count.map_or("null".to_owned(), |count| format!("{count:.2}"));
                let _ = write!(json, ", {}: {count}", quoted(side));
            }
            for limit in row.spec().limits.iter().filter(|limit| limit.column == column::RAW) {
                let Some((_, most)) = self.against(at, limit) else { continue };
                let _ = write!(json, ", \"limit\": {most:.2}, \"held\": {}", limit.held);
            }
            json.push_str(if at + 1 < Row::ALL.len() { "},\n" } else { "}\n" });
        }
        json.push_str("  ]\n}\n");
        json
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control < ' ' => quoted.push(' '),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// What the numbers depend on.
pub fn context() -> Vec<(&'static str, String)> {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = info.lines().find(|line| line.starts_with("model name"));
    let cpu = cpu.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown").trim().to_owned();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = maps
        .lines()
        .find(|line| line.contains("libmlx5"))
        .map_or("", |line| line.split_whitespace().last().unwrap_or_default());
    let real = std::fs::canonicalize(library).unwrap_or_else(|_| PathBuf::from(library));
    vec![
        ("command", "cargo xtask bench --instructions".to_owned()),
        ("cpu", cpu),
        ("counted by", callgrind::version()),
        ("libmlx5", real.display().to_string()),
        ("mlx5", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}
