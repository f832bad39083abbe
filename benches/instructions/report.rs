//! The table, the JSON file, and the limits.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::callgrind;
use crate::side::Row;

/// Sides in the order of the table's columns.
pub struct Table {
    pub sides: Vec<&'static str>,
    /// Per row of [`Row::ALL`], per side: instructions per call.
    pub counts: Vec<Vec<Option<f64>>>,
}

/// The most that the raw layer may take.
struct Limit {
    most: f64,
    /// And so many times the floor.
    floors: Option<f64>,
    /// Whether passing it is a failure. Where not, the table shows how far it is.
    held: bool,
}

const fn limit(row: Row) -> Limit {
    let (most, floors, held) = match row {
        Row::Inline => (60.0, Some(1.5), true),
        Row::Pointer => (55.0, Some(1.5), true),
        Row::List => (32.0, None, true),
        Row::Poll => (30.0, None, false),
        Row::Empty => (8.0, None, false),
        Row::Receive => (20.0, None, false),
    };
    Limit { most, floors, held }
}

impl Table {
    fn count(&self, row: usize, side: &str) -> Option<f64> {
        let column = self.sides.iter().position(|name| *name == side)?;
        self.counts[row][column]
    }

    /// This crate's count, and the limit in instructions.
    fn against_limit(&self, at: usize) -> Option<(f64, f64)> {
        let ours = self.count(at, "mlx5")?;
        let limit = limit(Row::ALL[at]);
        let floors = limit.floors.zip(self.count(at, "floor"));
        Some((ours, floors.map_or(limit.most, |(times, floor)| limit.most.min(times * floor))))
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{:44}", "instructions per call, caller included");
        for side in &self.sides {
            let _ = write!(text, " {side:>17}");
        }
        let _ = writeln!(text, " {:>8}", "limit");
        for (at, row) in Row::ALL.into_iter().enumerate() {
            let _ = write!(text, "{:44}", row.text());
            for count in &self.counts[at] {
                let _ = match count {
                    Some(count) => write!(text, " {count:17.1}"),
                    None => write!(text, " {:>17}", "-"),
                };
            }
            if let Some((ours, most)) = self.against_limit(at) {
                let _ = write!(text, " {most:8.1}");
                let _ = match (ours <= most, limit(row).held) {
                    (true, true) => writeln!(text, "  kept"),
                    (true, false) => writeln!(text, "  kept, not held yet"),
                    (false, true) => writeln!(text, "  PASSED by {:.1}", ours - most),
                    (false, false) => writeln!(text, "  {:.1} to go", ours - most),
                };
            }
        }
        text
    }

    /// Rows whose limit is held and passed.
    pub fn passed(&self) -> Vec<&'static str> {
        let passed = |at: &usize| {
            limit(Row::ALL[*at]).held
                && self.against_limit(*at).is_none_or(|(ours, most)| ours > most)
        };
        (0..Row::ALL.len()).filter(passed).map(|at| Row::ALL[at].text()).collect()
    }

    /// For programs.
    pub fn json(&self, context: &[(&str, String)]) -> String {
        let mut json = String::from("{\n");
        for (key, value) in context {
            let _ = writeln!(json, "  {}: {},", quoted(key), quoted(value));
        }
        json.push_str("  \"rows\": [\n");
        for (at, row) in Row::ALL.into_iter().enumerate() {
            let _ = write!(json, "    {{\"row\": {}", quoted(row.text()));
            for (side, count) in self.sides.iter().zip(&self.counts[at]) {
                let count = count.map_or("null".to_owned(), |count| format!("{count:.2}"));
                let _ = write!(json, ", {}: {count}", quoted(side));
            }
            if let Some((_, most)) = self.against_limit(at) {
                let _ = write!(json, ", \"limit\": {most:.2}, \"held\": {}", limit(row).held);
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
