//! Benchmark results, as a table for people, JSON for programs, Markdown and an SVG for pages.

pub mod context;
pub mod earlier;
pub mod json;
pub mod svg;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// One cell: a count, or the middle of many samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    pub value: f64,
    /// Below which a tenth of the samples lies, and above which a tenth.
    pub spread: Option<[f64; 2]>,
}

/// One row.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// One per column; none where a column has no such thing.
    pub values: Vec<Option<Value>>,
    /// Remarks after the values: a heading and a text each.
    pub remarks: Vec<(&'static str, String)>,
}

/// A table, and all it depends on.
#[derive(Clone, Debug)]
pub struct Report {
    /// The description of a value, with its unit.
    pub title: &'static str,
    /// Command line, CPU, versions.
    pub context: Vec<(&'static str, String)>,
    pub columns: Vec<&'static str>,
    /// The column that all others are compared with.
    pub ours: &'static str,
    pub lines: Vec<Line>,
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self { value, spread: None }
    }
}

impl Value {
    fn text(&self) -> String {
        match self.spread {
            None => format!("{:.1}", self.value),
            Some([low, high]) => format!("{:.1} ({low:.1} to {high:.1})", self.value),
        }
    }
}

impl Report {
    /// Rows of cells, headings first.
    fn cells(&self) -> Vec<Vec<String>> {
        let mut heads: Vec<&str> = Vec::new();
        for (head, _) in self.lines.iter().flat_map(|line| &line.remarks) {
            if !heads.contains(head) {
                heads.push(head);
            }
        }
        let mut first = vec![self.title.to_owned()];
        first.extend(self.columns.iter().chain(&heads).map(|&head| head.to_owned()));
        let line = |line: &Line| {
            let mut cells = vec![line.name.clone()];
            cells.extend(line.values.iter().map(|value| match value {
                Some(value) => value.text(),
                None => "–".to_owned(),
            }));
            cells.extend(heads.iter().map(|head| {
                let remarks = line.remarks.iter().filter(|(of, _)| of == head);
                remarks.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("; ")
            }));
            cells
        };
        std::iter::once(first).chain(self.lines.iter().map(line)).collect()
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let cells = self.cells();
        let count = |cell: &String| cell.chars().count();
        let widths: Vec<usize> = (0..cells[0].len())
            .map(|at| cells.iter().map(|line| count(&line[at])).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for (key, value) in &self.context {
            let _ = writeln!(text, "{key}: {value}");
        }
        text.push('\n');
        for line in &cells {
            let mut row = String::new();
            for (at, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                // Names and remarks begin at the left, values end at the right.
                if at == 0 || at > self.columns.len() {
                    let _ = write!(row, "{cell:width$}  ");
                } else {
                    let _ = write!(row, "{cell:>width$}  ");
                }
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }

    /// For a page.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (at, line) in self.cells().iter().enumerate() {
            let _ = writeln!(text, "| {} |", line.join(" | "));
            if at == 0 {
                let ruler = |at| if at == 0 || at > self.columns.len() { "---" } else { "---:" };
                let rulers: Vec<_> = (0..line.len()).map(ruler).collect();
                let _ = writeln!(text, "| {} |", rulers.join(" | "));
            }
        }
        text.push('\n');
        for (key, value) in &self.context {
            let _ = writeln!(text, "- {key}: `{value}`");
        }
        text
    }

    /// Writes JSON, Markdown and SVG into `folder`, as `name` with each one's ending.
    pub fn write(&self, folder: &Path, name: &str) -> io::Result<()> {
        self.write_text(folder, name)?;
        fs::write(folder.join(format!("{name}.svg")), svg::text(self))
    }

    /// The same without SVG, for what is no bar.
    pub fn write_text(&self, folder: &Path, name: &str) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(format!("{name}.json")), json::text(self))?;
        fs::write(folder.join(format!("{name}.md")), self.markdown())
    }
}

/// Returns the folder of benchmark files: `target/bench`.
pub fn folder() -> io::Result<PathBuf> {
    // The executable is in `target/release/deps`.
    let executable = std::env::current_exe()?;
    let target = executable.ancestors().nth(3);
    target.map(|target| target.join("bench")).ok_or_else(|| {
        io::Error::other(format!("{} is not in a target folder", executable.display()))
    })
}
