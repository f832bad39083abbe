//! A report as JSON: one line per row, so that files can also be read and compared by line.

use std::fmt::Write as _;

use super::Report;

/// The whole report.
pub fn text(report: &Report) -> String {
    let mut json = String::from("{\n");
    for (key, value) in &report.context {
        let _ = writeln!(json, "  {}: {},", quoted(key), quoted(value));
    }
    let _ = writeln!(json, "  \"unit\": {},\n  \"rows\": [", quoted(report.title));
    for (at, line) in report.lines.iter().enumerate() {
        let _ = write!(json, "    {{\"row\": {}", quoted(&line.name));
        for (column, value) in report.columns.iter().zip(&line.values) {
            let _ = write!(json, ", {}: ", quoted(column));
            let _ = match value {
                None => write!(json, "null"),
                Some(value) => write!(json, "{:.2}", value.value),
            };
            if let Some([low, high]) = value.and_then(|value| value.spread) {
                let [ten, ninety] = ["p10", "p90"].map(|of| quoted(&format!("{column} {of}")));
                let _ = write!(json, ", {ten}: {low:.2}, {ninety}: {high:.2}");
            }
        }
        for (key, value) in &line.remarks {
            let _ = write!(json, ", {}: {}", quoted(key), quoted(value));
        }
        json.push_str(if at + 1 < report.lines.len() { "},\n" } else { "}\n" });
    }
    json.push_str("  ]\n}\n");
    json
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
