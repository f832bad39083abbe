//! How many instructions a post and a poll execute: this crate, libmlx5's interfaces, and a floor of
//! bare stores, counted by callgrind in one run.
//!
//! ```text
//! cargo xtask bench --instructions
//! ```
//!
//! Counted is a loop of calls, caller included, twice: with a few and with many calls. The
//! difference, divided by the difference in calls, is free of everything around the loop. The model
//! is in manual mode, so nobody looks at registers and queues while instructions are counted; after
//! each section it executes what was posted, and every completion is asked for. So all sides post
//! what a card can execute.
//!
//! The counts do not depend on the machine's load. The exit status is 1 if a limit is passed.

mod callgrind;
mod floor;
mod libmlx5;
mod raw;
mod report;
#[path = "../../tests/rig/mod.rs"]
mod rig;
mod rows;
mod safe;
mod side;

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use mlx5_model::Mode;
use report::Table;
use side::{How, LIST, MAKERS, Row, columns, measured};

/// Nobody looks at registers and queues while instructions are counted.
const MODE: Mode = Mode::Manual;

/// Calls in the two sections of a row. Both together leave room in the rings, also as lists.
const CALLS: [usize; 2] = [8, 104];

/// Says to the program that it is the counted one.
const COUNTED: &str = "--counted";

fn calls(row: Row) -> [usize; 2] {
    match row.spec().how {
        How::Lists(requests) => [LIST / requests, 3 * LIST / requests],
        _ => CALLS,
    }
}

fn section(column: &str, row: Row, calls: usize) -> String {
    format!("{column}: {}: {calls}", row.text())
}

/// Runs every row of every side, on callgrind. Each row has a side of its own, so that no row's
/// count depends on what other rows there are.
fn counted() {
    for maker in MAKERS {
        for &row in Row::ALL {
            let mut side = (maker.make)();
            for calls in calls(row) {
                let name = section(maker.column, row, calls);
                measured(&mut *side, row, calls, |side| {
                    callgrind::counted(&name, || side.run(row, calls))
                });
            }
        }
    }
}

/// Counts, and makes the table of what was counted.
fn measure(folder: &Path) -> Result<Table, Box<dyn Error>> {
    // What an earlier run left there.
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    let status = callgrind::run(&std::env::current_exe()?, COUNTED, folder).map_err(|error| {
        format!("cannot run valgrind: {error}; `cargo xtask setup` installs it")
    })?;
    if !status.success() {
        return Err(format!("the counted program failed ({status})").into());
    }
    let sections: HashMap<_, _> = callgrind::sections(folder)?.into_iter().collect();
    let per_call = |column: &str, row: Row| -> Option<f64> {
        let [few, many] = calls(row);
        let count = |calls| sections.get(&section(column, row, calls)).copied();
        let difference = count(many)?.checked_sub(count(few)?)?;
        Some(difference as f64 / ((many - few) * row.per_call()) as f64)
    };
    let columns = columns();
    let counts = |&row: &Row| columns.iter().map(|column| per_call(column, row)).collect();
    Ok(Table { counts: Row::ALL.iter().map(counts).collect(), columns })
}

fn run() -> Result<bool, Box<dyn Error>> {
    // Two folders up from the executable: `target/release/deps`.
    let executable = std::env::current_exe()?;
    let target = executable.ancestors().nth(3).ok_or("the executable is not in target/")?;
    let folder = target.join("bench");
    let table = measure(&folder.join("callgrind"))?;
    let context = report::context();
    for (key, value) in &context {
        println!("{key}: {value}");
    }
    if cfg!(debug_assertions) {
        println!("This is a debug build: the numbers say nothing. Use cargo bench.");
    }
    println!("\n{}", table.text());
    let file = folder.join("instructions.json");
    std::fs::write(&file, table.json(&context))?;
    println!("also in {}", file.display());
    let passed = table.passed();
    for row in &passed {
        eprintln!("limit passed: {row}");
    }
    Ok(passed.is_empty())
}

fn main() -> ExitCode {
    // `--bench` is cargo's; `--quick` is for benchmarks that take time.
    if std::env::args().any(|argument| argument == COUNTED) {
        counted();
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
