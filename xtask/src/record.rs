//! Copies the tables of `docs/benchmarks` into the page that discusses them.

use std::fs;
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;

/// The page.
const PAGE: &str = "docs/performance.md";

/// A table stands between a line of `<!-- benchmarks/NAME.md -->`, with the file it is from, and this.
const END: &str = "<!-- end -->";

/// Puts what is recorded into the page.
pub fn page() -> Result {
    let file = build::root().join(PAGE);
    let old = fs::read_to_string(&file).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    let new = with_tables(&old, table)?;
    fs::write(&file, new).map_err(|error| format!("cannot write {PAGE}: {error}"))
}

/// Runs a benchmark, and keeps what it prints as `docs/benchmarks/NAME.md`.
///
/// # Errors
/// It cannot be run, or fails.
pub fn output(name: &str, command: &mut Command) -> Result {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    if !output.status.success() {
        return Err(format!("{name} failed ({})", output.status));
    }
    let file = build::root().join(format!("docs/benchmarks/{name}.md"));
    fs::write(&file, format!("```text\n{}\n```\n", text.trim()))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn table(name: &str) -> Result<String> {
    fs::read_to_string(build::root().join("docs").join(name))
        .map_err(|error| format!("cannot read docs/{name}: {error}"))
}

/// `page` with the tables that `table` gives for names.
fn with_tables(page: &str, table: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut new = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        new.push_str(line);
        new.push('\n');
        let name = line.strip_prefix("<!-- benchmarks/").and_then(|line| line.strip_suffix(" -->"));
        let Some(name) = name else { continue };
        new.push('\n');
        new.push_str(table(&format!("benchmarks/{name}"))?.trim());
        new.push_str("\n\n");
        if !lines.any(|line| line == END) {
            return Err(format!("{PAGE}: nothing ends the table of {name}"));
        }
        new.push_str(END);
        new.push('\n');
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_replaced_and_nothing_else_is() {
        let page =
            "one\n<!-- benchmarks/a.md -->\nold\n\nolder\n<!-- end -->\ntwo\n<!-- other -->\n";
        let table = |name: &str| Ok(format!("table of {name}\n"));
        let new = with_tables(page, table).unwrap();
        assert_eq!(
            new,
            "one\n<!-- benchmarks/a.md -->\n\ntable of benchmarks/a.md\n\n<!-- end -->\ntwo\n\
             <!-- other -->\n"
        );
        assert_eq!(with_tables(&new, table).unwrap(), new);
        let endless = with_tables("<!-- benchmarks/a.md -->\nold\n", table);
        assert!(endless.unwrap_err().contains("a.md"));
        let missing = with_tables(page, |name| Err(format!("no {name}")));
        assert_eq!(missing.unwrap_err(), "no benchmarks/a.md");
    }

    #[test]
    fn the_page_shows_what_is_recorded() {
        let page = fs::read_to_string(build::root().join(PAGE)).unwrap();
        assert!(page.contains("<!-- benchmarks/instructions.md -->"));
        assert_eq!(with_tables(&page, table).unwrap(), page, "run cargo xtask bench --record");
    }
}
