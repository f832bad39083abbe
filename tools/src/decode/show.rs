//! Text output of records.

use std::collections::HashMap;
use std::fmt;

use mlx5::diag::decode::{DecodedRecord, RecordField};
use mlx5::diag::explain::{ExplainedCode, Knowledge};

/// Columns of text.
const WIDTH: usize = 100;

/// Writes text in lines of at most [`WIDTH`] columns. The first line follows `first`; the others
/// are indented by the width of `first`. A longer word, such as a web address, is not broken.
fn wrapped(f: &mut fmt::Formatter<'_>, first: &str, text: &str) -> fmt::Result {
    let indent = first.chars().count();
    f.write_str(first)?;
    let mut column = indent;
    for (at, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > WIDTH {
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

/// Codes and meanings already shown, with the number of the record that showed them.
type Known<'a> = HashMap<(&'a str, &'a str), usize>;

/// Numbered records. The meaning of a code is shown at its first occurrence.
pub(super) struct Shown<'a>(pub(super) &'a [DecodedRecord]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut known = Known::new();
        for (at, each) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            record(f, at + 1, each, &mut known)?;
        }
        Ok(())
    }
}

fn record<'a>(
    f: &mut fmt::Formatter<'_>,
    number: usize,
    record: &'a DecodedRecord,
    known: &mut Known<'a>,
) -> fmt::Result {
    wrapped(f, &format!("{number}. "), &record.title)?;
    let place = match record.lines {
        Some((first, last)) if first == last => format!(", line {first}"),
        Some((first, last)) => format!(", lines {first} to {last}"),
        None => String::new(),
    };
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
        let first = *known.entry((&each.code, &each.meaning)).or_insert(number);
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
pub(super) fn code(f: &mut fmt::Formatter<'_>, code: &ExplainedCode) -> fmt::Result {
    let name = code.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    let knowledge = match code.knowledge {
        Knowledge::Named => String::new(),
        other => format!(" [{other}]"),
    };
    wrapped(f, "   * ", &format!("{}{name}: {}{knowledge}", code.code, code.meaning))?;
    if let Some(source) = code.source {
        wrapped(f, "     see ", source)?;
    }
    for (at, cause) in code.causes.iter().enumerate() {
        if at == 0 {
            writeln!(f, "     Likely causes, the likeliest first:")?;
        }
        wrapped(f, &format!("     {}. ", at + 1), cause.cause)?;
        wrapped(f, "        cure: ", cause.cure)?;
    }
    Ok(())
}
