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
//! The counts do not depend on the machine's load. The exit status is 1 if a limit is passed, or if a
//! count of this crate grew by more than 2% over the recorded one in `docs/benchmarks`, which is
//! looked at where the compiler is the same: with `--record FOLDER`, counts are recorded instead.

mod callgrind;
mod floor;
mod libmlx5;
mod limits;
mod raw;
mod receives;
#[path = "../report/mod.rs"]
mod report;
#[path = "../../tests/rig/mod.rs"]
mod rig;
mod rows;
mod safe;
mod side;

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use limits::{Counts, Standing};
use mlx5_model::Mode;
use report::earlier::Earlier;
use report::{Line, Report, Value, context};
use rows::{How, Row, column};
use side::{LIST, MAKERS, columns, measured};

/// Nobody looks at registers and queues while instructions are counted.
const MODE: Mode = Mode::Manual;

/// Calls in the two sections of a row. Both together leave room in the rings, also as lists.
const CALLS: [usize; 2] = [8, 104];

/// Says to the program that it is the counted one.
const COUNTED: &str = "--counted";

fn calls(row: Row) -> [usize; 2] {
    match row.spec().how {
        How::Lists(requests) | How::FillLists(requests) => [LIST / requests, 3 * LIST / requests],
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

/// Counts, and computes instructions per call.
fn measure(folder: &Path) -> Result<Counts, Box<dyn Error>> {
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
    let per_call = |column: &'static str, row: Row| {
        let [few, many] = calls(row);
        let count = |calls| sections.get(&section(column, row, calls)).copied();
        let difference = count(many)?.checked_sub(count(few)?)?;
        Some((column, difference as f64 / ((many - few) * row.per_call()) as f64))
    };
    let counts = |&row| columns().into_iter().filter_map(|column| per_call(column, row)).collect();
    Ok(Row::ALL.iter().map(counts).collect())
}

fn report(counts: &Counts) -> Report {
    let mut context = context::of("cargo xtask bench --instructions".to_owned());
    context.push(("counted by", context::valgrind()));
    let lines = Row::ALL.iter().zip(counts).map(|(row, counts)| {
        let best = [column::CLASSIC, column::EXTENDED].iter().filter_map(|of| counts.get(of));
        let best = best.copied().reduce(f64::min).zip(counts.get(column::RAW));
        let times = best.map(|(best, ours)| ("best / mlx5", format!("{:.1}", best / ours)));
        let limits = Standing::of(row, counts).map(|standing| ("limit", standing.text()));
        let value = |column| counts.get(column).map(|count| Value::from(*count));
        Line {
            name: row.text().to_owned(),
            values: columns().into_iter().map(value).collect(),
            remarks: times.into_iter().chain(limits).collect(),
        }
    });
    Report {
        title: "Instructions per call, caller included",
        context,
        columns: columns(),
        ours: column::RAW,
        lines: lines.collect(),
    }
}

/// Sentences on counts that are larger than the recorded ones.
fn compared(report: &Report, counts: &Counts) -> Result<Vec<String>, Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks/instructions.json");
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let earlier = Earlier::read(&text)
        .map_err(|line| format!("{}: cannot understand `{line}`", file.display()))?;
    let rows = Row::ALL.iter().zip(counts);
    let rows: Vec<_> = rows.map(|(row, counts)| (row.text(), counts.clone())).collect();
    let rustc = report.context.iter().find(|(key, _)| *key == "rustc");
    let rustc = rustc.map_or("unknown", |(_, version)| version.as_str());
    Ok(limits::grown(&rows, rustc, &earlier).unwrap_or_else(|why| {
        println!("not compared with {}: {why}", file.display());
        vec![]
    }))
}

fn run(record: Option<PathBuf>) -> Result<bool, Box<dyn Error>> {
    let folder = report::folder()?;
    let counts = measure(&folder.join("callgrind"))?;
    let report = report(&counts);
    if cfg!(debug_assertions) {
        println!("This is a debug build: the numbers say nothing. Use cargo bench.");
    }
    println!("{}", report.text());
    let mut failures = limits::passed(&counts);
    if record.is_none() {
        failures.extend(compared(&report, &counts)?);
    }
    let folder = record.unwrap_or(folder);
    report.write(&folder, "instructions")?;
    println!("also in {}/instructions.{{json,md,svg}}", folder.display());
    for failure in &failures {
        eprintln!("error: {failure}");
    }
    Ok(failures.is_empty())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [COUNTED] => {
            counted();
            return ExitCode::SUCCESS;
        }
        // `--bench` is cargo's; `--quick` is for benchmarks that take time.
        ["--bench" | "--quick"] | [] | ["--quick", "--bench"] => run(None),
        ["--record", folder, "--bench"] => run(Some(folder.into())),
        _ => {
            eprintln!("usage: cargo bench --bench instructions -- [--record FOLDER]");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
