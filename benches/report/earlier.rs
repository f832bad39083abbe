//! Reads a report that was written earlier.

use std::collections::HashMap;

/// A report that was written earlier.
#[derive(Debug, Default, PartialEq)]
pub struct Earlier {
    /// Command line, CPU, versions.
    pub context: HashMap<String, String>,
    /// Per row, per column.
    pub rows: HashMap<String, HashMap<String, f64>>,
}

impl Earlier {
    /// Reads what [`super::json`] wrote: a line is one pair of strings, or one row.
    ///
    /// # Errors
    /// The line that is neither.
    pub fn read(json: &str) -> Result<Self, String> {
        let mut earlier = Self::default();
        for line in json.lines() {
            let line = line.trim().trim_end_matches(',');
            if matches!(line, "{" | "}" | "]" | "\"rows\": [") {
                continue;
            }
            let row = line.strip_prefix('{').and_then(|line| line.strip_suffix('}'));
            let fields = fields(row.unwrap_or(line)).ok_or_else(|| line.to_owned())?;
            if row.is_none() {
                earlier.context.extend(fields);
                continue;
            }
            let name =
                fields.iter().find(|(key, _)| key == "row").ok_or_else(|| line.to_owned())?;
            let number = |(key, value): &(String, String)| Some((key.clone(), value.parse().ok()?));
            let values = fields.iter().filter_map(number).collect();
            if earlier.rows.insert(name.1.clone(), values).is_some() {
                return Err(line.to_owned());
            }
        }
        Ok(earlier)
    }
}

/// `"key": value, …`, where a value is a string, a number or `null`.
fn fields(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let (key, after) = string(rest)?;
        rest = after.strip_prefix(": ")?;
        let (value, after) = if rest.starts_with('"') {
            string(rest)?
        } else {
            let end = rest.find(", ").unwrap_or(rest.len());
            let (value, after) = rest.split_at(end);
            if value != "null" && value.parse::<f64>().is_err() {
                return None;
            }
            (value.to_owned(), after)
        };
        fields.push((key, value));
        match after.strip_prefix(", ") {
            Some(after) => rest = after,
            None if after.is_empty() => return Some(fields),
            None => return None,
        }
    }
}

/// The string at the start, and what follows it.
fn string(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.strip_prefix('"')?.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 2..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}
