//! Text output of records.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use mlx5::diag::decode::{DecodedRecord, RecordField};
use mlx5::diag::explain::causes::Grounds;
use mlx5::diag::explain::{ExplainedCode, Knowledge};

use crate::output;

/// Columns of text: those of the terminal, if it has enough for a word behind an indent.
static WIDTH: LazyLock<usize> = LazyLock::new(|| output::columns().map_or(100, |all| all.max(40)));

/// Writes text in lines of at most [`WIDTH`] columns. The first line follows `first`; the others
/// are indented by the width of `first`. A longer word, such as a web address, is not broken.
pub(super) fn wrapped(f: &mut impl fmt::Write, first: &str, text: &str) -> fmt::Result {
    let indent = first.chars().count();
    f.write_str(first)?;
    let mut column = indent;
    for (at, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > *WIDTH {
            write!(f, "\n{:indent$}", "")?;
            column = indent;
        } else if at > 0 {
            f.write_str(" ")?;
            column += 1;
        }
        f.write_str(word)?;
        column += length;
    }
    writeln!(f)
}

/// Writes numbered records. The meaning of a code is shown at its first occurrence.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Codes and meanings already shown, with the number of the record that showed them.
    known: HashMap<(String, String), usize>,
    /// Records shown so far.
    count: usize,
}

impl Shown {
    /// Writes further records of an input; its name is given if there are several.
    pub(super) fn show(
        &mut self,
        f: &mut impl fmt::Write,
        file: Option<&str>,
        records: &[DecodedRecord],
    ) -> fmt::Result {
        for each in records {
            if self.count > 0 {
                writeln!(f)?;
            }
            self.count += 1;
            record(f, self.count, file, each, &mut self.known)?;
        }
        Ok(())
    }
}

/// Returns where a record stands: file, lines, time, host and rank.
pub(super) fn place(file: Option<&str>, record: &DecodedRecord) -> String {
    let mut place = String::new();
    if let Some(file) = file {
        place += &format!(", {file}");
    }
    match record.lines {
        Some((first, last)) if first == last => place += &format!(", line {first}"),
        Some((first, last)) => place += &format!(", lines {first} to {last}"),
        None => {}
    }
    let origin = &record.origin;
    for (name, value) in [("", &origin.time), ("host ", &origin.host), ("rank ", &origin.rank)] {
        if let Some(value) = value {
            place += &format!(", {name}{value}");
        }
    }
    place
}

fn record(
    f: &mut impl fmt::Write,
    number: usize,
    file: Option<&str>,
    record: &DecodedRecord,
    known: &mut HashMap<(String, String), usize>,
) -> fmt::Result {
    wrapped(f, &format!("{number}. "), &record.title)?;
    let place = place(file, record);
    let times = match record.times {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    writeln!(f, "   ({}{place}{times})", record.format)?;
    let width = record.fields.iter().map(|field| field.name.chars().count()).max().unwrap_or(0);
    for RecordField { name, value, meaning, .. } in &record.fields {
        let meaning = meaning.as_deref().map(|meaning| format!(" ({meaning})")).unwrap_or_default();
        wrapped(f, &format!("   {name:width$}  "), &format!("{value}{meaning}"))?;
    }
    for line in &record.text {
        wrapped(f, "   - ", line)?;
    }
    if let Some(wqe) = record.wqe {
        writeln!(f, "   Its WQE is record {wqe}.")?;
    }
    for each in &record.findings {
        let key = (each.code.clone(), each.meaning.clone());
        let first = *known.entry(key).or_insert(number);
        if first == number {
            code(f, each)?;
        } else {
            writeln!(f, "   * {}: see record {first}", each.code)?;
        }
    }
    for note in &record.notes {
        wrapped(f, "   Note: ", note)?;
    }
    Ok(())
}

/// Writes the meaning of a code.
pub(super) fn code(f: &mut impl fmt::Write, code: &ExplainedCode) -> fmt::Result {
    let name = code.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    let knowledge = match code.knowledge {
        Knowledge::Named => String::new(),
        other => format!(" [{other}]"),
    };
    wrapped(f, "   * ", &format!("{}{name}: {}{knowledge}", code.code, code.meaning))?;
    if let Some(source) = code.source {
        wrapped(f, "     see ", source)?;
    }
    if let Some(check) = code.check {
        wrapped(f, "     First check: ", check)?;
    }
    let mut supported = None;
    for (at, cause) in code.causes.iter().enumerate() {
        let is_supported = cause.grounds != Grounds::None;
        if supported.replace(is_supported) != Some(is_supported) {
            let heading = match (is_supported, at) {
                (true, _) => "Likely causes, the likeliest first:",
                (false, 0) => "To check, as nothing here tells which cause it is:",
                (false, _) => "Others, which nothing here supports:",
            };
            wrapped(f, "     ", heading)?;
        }
        wrapped(f, &format!("     {}. ", at + 1), cause.cause)?;
        wrapped(f, "        cure: ", cause.cure)?;
        if let Some(source) = cause.source {
            wrapped(f, "        as in ", source)?;
        }
    }
    Ok(())
}
