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
mod safe;
mod side;

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use report::Table;
use side::{Row, Side};

/// Calls in the two sections of a row. Both leave room in the rings, also as lists.
const CALLS: [usize; 2] = [8, 104];
const LISTS: [usize; 2] = [1, 3];

/// Says to the program that it is the counted one.
const COUNTED: &str = "--counted";

const SIDES: [&str; 5] = ["ibv_post/poll", "ibv_wr/start_poll", "mlx5 owned", "mlx5", "floor"];

fn calls(row: Row) -> [usize; 2] {
    if row == Row::List { LISTS } else { CALLS }
}

fn section(side: &str, row: Row, calls: usize) -> String {
    format!("{side}: {}: {calls}", row.text())
}

/// Runs every row of a side, on callgrind.
fn count(side: &mut dyn Side) {
    for row in [Row::Inline, Row::Pointer, Row::List] {
        for calls in calls(row) {
            let name = section(side.name(), row, calls);
            let Some(posted) = callgrind::counted(&name, || side.run(row, calls)) else { continue };
            assert_eq!(posted, calls * row.per_call(), "{name}");
            mlx5_model::run();
            // One poll row is enough: the inline one's, which comes first.
            let found = if row == Row::Inline {
                let name = section(side.name(), Row::Poll, calls);
                callgrind::counted(&name, || side.run(Row::Poll, calls))
            } else {
                side.run(Row::Poll, posted)
            };
            assert_eq!(found, Some(posted), "{name}: every request completes");
            let name = section(side.name(), Row::Empty, calls);
            let found = if row == Row::Inline {
                callgrind::counted(&name, || side.run(Row::Empty, calls))
            } else {
                side.run(Row::Empty, calls)
            };
            assert_eq!(found, Some(0), "{name}: and completes once");
        }
    }
    for calls in calls(Row::Receive) {
        let name = section(side.name(), Row::Receive, calls);
        let posted = callgrind::counted(&name, || side.run(Row::Receive, calls));
        assert!(posted.is_none_or(|posted| posted == calls), "{name}");
    }
}

fn counted() {
    count(&mut libmlx5::Classic::new());
    count(&mut libmlx5::Extended::new());
    count(&mut safe::Safe::new());
    count(&mut raw::Raw::new());
    count(&mut floor::Floor::new());
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
    let per_call = |side: &str, row: Row| -> Option<f64> {
        let [few, many] = calls(row);
        // A side that has no such call posted nothing: a handful of instructions each time.
        let count = |calls| sections.get(&section(side, row, calls)).copied();
        let difference = count(many)?.checked_sub(count(few)?)?;
        let calls = ((many - few) * row.per_call()) as f64;
        (difference != 0).then(|| difference as f64 / calls)
    };
    let counts = Row::ALL.map(|row| SIDES.iter().map(|side| per_call(side, row)).collect()).into();
    Ok(Table { sides: SIDES.into(), counts })
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
