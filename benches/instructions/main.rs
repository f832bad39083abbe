//! Instructions and cycles per post and per poll: this crate, libmlx5's interfaces, and a floor of
//! bare stores.
//!
//! ```text
//! cargo xtask bench [--instructions | --limits | --cycles | --bounds]
//! ```
//!
//! `cycles.rs` and `bounds.rs` say how cycles are measured. Instructions are counted by callgrind.
//!
//! A loop of calls, caller included, is counted twice: with few and with many calls. The difference
//! is divided by the difference in calls. The quotient is free of everything around the loop, and
//! covers whole laps of the rings. The model is in manual mode, so it reads no registers or queues
//! while instructions are counted. After each burst of calls the model executes the posted WQEs,
//! and every completion is polled. So all sides post WQEs that an HCA can execute.
//!
//! The counts do not depend on the machine's load. The exit status is 1 if a limit is exceeded, or
//! if a count of this crate in a row with a limit grew by more than 2% over the recorded one in
//! `docs/benchmarks`. Counts are compared only if the compiler is the same. `--record FOLDER`
//! records them instead. `--limits` counts this crate and the floor alone, and takes the recorded
//! counts of libmlx5 for limits that refer to them.

mod bounded;
mod bounds;
mod callgrind;
mod cycles;
mod disassembly;
mod limits;
mod recorder;
#[path = "../report/mod.rs"]
mod report;
mod rows;
mod side;
mod timed;

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgrind::Section;
use disassembly::{Disassembly, is_called};
use limits::{Counts, Standing};
use mlx5_model::Mode;
use report::earlier::Earlier;
use report::{Line, Report, Value, context};
use rows::{How, Row, column};
use side::{LIST, MAKERS, Maker, columns, measured, packets};

/// The model reads no registers or queues while instructions are counted.
const MODE: Mode = Mode::Manual;

/// So many times the calls of a section are made; in between, the model executes what was posted.
const BURSTS: usize = 8;

/// How often in a hundred calls a hot loop may call a function, as room is looked for once per lap.
const RARELY: u64 = 2;

/// Calls that are a part of some rows' work: their text is looked at, too.
const PARTS: &[&str] = &[
    "::commit_other",
    "::ring_otherwise",
    "::ring_by_size",
    "::ring_copied",
    "::retire_later",
    "::take_other",
    "::deliver",
];

/// Says to the program that it is the counted one.
const COUNTED: &str = "--counted";

/// Counts this crate's sides and the floor alone, and holds them to the limits of the rows.
const LIMITS: &str = "--limits";

/// The sides that are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sides {
    All,
    /// This project's and the floor, which the limits of the rows refer to.
    Limited,
}

impl Sides {
    fn include(self, column: &str) -> bool {
        use column::{FLOOR, HEADER, LIBRARY, OWNED, RAW};
        self == Self::All || [OWNED, RAW, HEADER, LIBRARY, FLOOR].contains(&column)
    }

    /// The argument that chooses them.
    fn argument(self) -> Option<&'static str> {
        (self == Self::Limited).then_some(LIMITS)
    }
}

/// The number of calls of a counted section, and its place.
#[derive(Clone, Copy)]
enum Part {
    Few,
    Many,
    /// Like [`Part::Few`], on a side that has already made as many calls. Where queues are filled
    /// and not emptied, this excludes the start of the first lap.
    Later,
}

/// How often a section makes calls, and how many at a time in the sections of few and of many.
///
/// The difference is whole laps of all rings, so that what happens once per lap is counted as often
/// as it happens. Where queues are filled, many are one lap and few are half of it.
fn calls(row: Row) -> (usize, [usize; 2]) {
    match row.spec().how {
        // A signaled request and the ones before it are nine blocks: all bursts are whole laps.
        How::TakeFew => (8 * BURSTS, [4, 12]),
        How::Lists(requests) | How::TakeLists(requests) => {
            (BURSTS, [LIST / requests, 3 * LIST / requests])
        }
        How::Fill => (1, [2 * LIST, 4 * LIST]),
        How::FillLists(requests) => (1, [2 * LIST / requests, 4 * LIST / requests]),
        _ => (BURSTS, [16, 80]),
    }
}

fn section(column: &str, row: Row, part: Part) -> String {
    let part = match part {
        Part::Few => "few",
        Part::Many => "many",
        Part::Later => "later",
    };
    format!("{column}: {}: {part}", row.text())
}

/// Runs every row of every chosen side that this process's link has, on callgrind. Each row has a side of its own, so that no
/// row's count depends on what other rows there are.
fn counted(sides: Sides) {
    for maker in MAKERS.iter().filter(|maker| sides.include(maker.column)) {
        for &row in maker.rows.iter().filter(|row| row.is_of_packets() == packets::are_here()) {
            count_row(maker, row);
        }
    }
}

fn count_row(maker: &Maker, row: Row) {
    let (bursts, [few, many]) = calls(row);
    let fills = row.spec().how.fills();
    let parts: &[Part] =
        if fills { &[Part::Few, Part::Many, Part::Later] } else { &[Part::Few, Part::Many] };
    let mut side = (maker.make)();
    for &part in parts {
        let calls = if matches!(part, Part::Many) { many } else { few };
        match part {
            Part::Many if fills => side = (maker.make)(),
            Part::Later => {
                side = (maker.make)();
                side.run(row, calls);
            }
            _ => {}
        }
        callgrind::begin();
        for _ in 0..bursts {
            let has = measured(&mut *side, row, calls, |side| {
                callgrind::counted(|| side.run(row, calls))
            });
            if !has {
                return;
            }
        }
        callgrind::end(&section(maker.column, row, part));
    }
}

/// Counts: all sections by name.
fn count(folder: &Path, sides: Sides) -> Result<HashMap<String, Section>, Box<dyn Error>> {
    // What an earlier run left there.
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let arguments: Vec<&str> = [COUNTED].into_iter().chain(sides.argument()).collect();
    let program = std::env::current_exe()?;
    let mut sections = HashMap::new();
    for link in ["infiniband", packets::LINK] {
        let folder = folder.join(link);
        std::fs::create_dir_all(&folder)?;
        let status = callgrind::run(&program, &arguments, link, &folder).map_err(|error| {
            format!("cannot run valgrind: {error}; `cargo xtask setup` installs it")
        })?;
        if !status.success() {
            return Err(format!("the counted program failed on {link} ({status})").into());
        }
        sections.extend(callgrind::sections(&folder)?);
    }
    Ok(sections)
}

/// Instructions per call.
fn counts(sections: &HashMap<String, Section>) -> Counts {
    let per_call = |column: &'static str, row: Row| {
        let (bursts, [few, many]) = calls(row);
        let count = |part| Some(sections.get(&section(column, row, part))?.count as f64);
        let per_call = (count(Part::Many)? - count(Part::Few)?) / (bursts * (many - few)) as f64;
        // What is done once per lap was in both.
        let per_lap = count(Part::Later).map_or(Some(0.0), |later| Some(count(Part::Few)? - later));
        Some((column, (per_call + per_lap? / many as f64) / row.per_call() as f64))
    };
    let counts = |&row| columns().into_iter().filter_map(|column| per_call(column, row)).collect();
    Row::ALL.iter().map(counts).collect()
}

/// Checks the raw layer's loops: the calls they made while they were counted, and their machine
/// code. Prints a line on each, and returns a sentence per violation in loops that have limits.
fn hot(sections: &HashMap<String, Section>) -> Result<Vec<String>, String> {
    let executable = std::env::current_exe().map_err(|error| error.to_string())?;
    let disassembly = Disassembly::of(&executable)?;
    let mut failures = Vec::new();
    for &row in Row::ALL {
        let (bursts, [_, many]) = calls(row);
        let Some(section) = sections.get(&section(column::RAW, row, Part::Many)) else { continue };
        let function = section.hottest();
        let many = bursts * many;
        let mut offences = disassembly.offences(function);
        println!("{}: {function}", row.text());
        println!("    store fences in its text: {}", disassembly.store_fences(function));
        for (callee, times) in section.called_by(function) {
            println!("    in {many} calls, {times} of {callee}");
            // What fires all that is prepared asks once more than there is, and once when it is asked
            // whether it has the row.
            let ends = if row.spec().how == How::Fire { 2 * bursts as u64 } else { 0 };
            let rarely = ends + RARELY * (many * row.per_call()).div_ceil(100) as u64;
            if PARTS.iter().any(|part| is_called(callee, part)) {
                offences.extend(disassembly.offences(callee));
            } else if times > rarely {
                offences.push(format!("{function} called {callee} {times} times in {many} calls"));
            }
        }
        if row.is_held() {
            failures.extend(offences);
        }
    }
    Ok(failures)
}

fn report(counts: &Counts) -> Report {
    let mut context = context::of("cargo xtask bench --instructions".to_owned());
    context.push(("counted by", context::valgrind()));
    let lines = Row::ALL.iter().zip(counts).map(|(row, counts)| {
        let best = [column::CLASSIC, column::EXTENDED].iter().filter_map(|of| counts.get(of));
        let best = best.copied().reduce(f64::min).zip(counts.get(column::RAW));
        let times = best.map(|(best, ours)| ("best / mlx5", format!("{:.1}", best / ours)));
        let limits: Vec<_> = Standing::of(row, counts).map(|standing| standing.text()).collect();
        let limits = (!limits.is_empty()).then(|| ("limit", limits.join("; ")));
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

/// The file of a record.
fn recorded(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    folder.join(name).with_extension("json")
}

/// Reads a record.
fn earlier(name: &str) -> Result<Earlier, Box<dyn Error>> {
    let file = recorded(name);
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(Earlier::read(&text)
        .map_err(|line| format!("{}: cannot understand `{line}`", file.display()))?)
}

/// Adds the recorded counts of libmlx5, which some limits refer to, to rows without them.
fn add_recorded(counts: &mut Counts) -> Result<(), Box<dyn Error>> {
    let earlier = earlier("instructions")?;
    for (row, counts) in Row::ALL.iter().zip(counts) {
        let Some(recorded) = earlier.rows.get(row.text()) else { continue };
        for column in columns().into_iter().filter(|column| !Sides::Limited.include(column)) {
            if let Some(&count) = recorded.get(column) {
                counts.insert(column, count);
            }
        }
    }
    Ok(())
}

/// Sentences on counts that are larger than the recorded ones.
fn compared(report: &Report, counts: &Counts) -> Result<Vec<String>, Box<dyn Error>> {
    let (file, earlier) = (recorded("instructions"), earlier("instructions")?);
    // A row without a held limit is a figure, and its count no promise.
    let rows = Row::ALL.iter().zip(counts).filter(|(row, _)| row.is_held());
    let rows: Vec<_> = rows.map(|(row, counts)| (row.text(), counts.clone())).collect();
    let rustc = report.context.iter().find(|(key, _)| *key == "rustc");
    let rustc = rustc.map_or("unknown", |(_, version)| version.as_str());
    Ok(limits::grown(&rows, rustc, &earlier).unwrap_or_else(|why| {
        println!("not compared with {}: {why}", file.display());
        vec![]
    }))
}

fn run(sides: Sides, record: Option<PathBuf>) -> Result<bool, Box<dyn Error>> {
    let folder = report::folder()?;
    let sections = count(&folder.join("callgrind"), sides)?;
    let mut counts = counts(&sections);
    if sides == Sides::Limited {
        add_recorded(&mut counts)?;
    }
    let report = report(&counts);
    if cfg!(debug_assertions) {
        println!("This is a debug build: the numbers say nothing. Use cargo bench.");
    }
    println!("{}", report.text());
    let mut failures = limits::passed(&counts);
    if record.is_none() {
        failures.extend(compared(&report, &counts)?);
    }
    if cfg!(target_arch = "x86_64") {
        failures.extend(hot(&sections)?);
    }
    let folder = record.unwrap_or(folder);
    if sides == Sides::All {
        report.write(&folder, "instructions")?;
        println!("also in {}/instructions.{{json,md,svg}}", folder.display());
    }
    for failure in &failures {
        eprintln!("error: {failure}");
    }
    Ok(failures.is_empty())
}

/// What the command line asks for.
fn chosen(arguments: &[&str]) -> Option<Result<bool, Box<dyn Error>>> {
    Some(match arguments {
        [COUNTED] => {
            counted(Sides::All);
            Ok(true)
        }
        [COUNTED, LIMITS] => {
            counted(Sides::Limited);
            Ok(true)
        }
        // `--quick` is for benchmarks that take time.
        [] | ["--quick"] => run(Sides::All, None),
        [LIMITS] => run(Sides::Limited, None),
        ["--record", folder] => run(Sides::All, Some(folder.into())),
        ["--bounds"] => bounded::run(None),
        ["--bounds", "--record", folder] => bounded::run(Some(folder.into())),
        ["--recorder", folder] => recorder::run(Path::new(folder)),
        ["--cycles"] => cycles::run(cycles::Choice::default()),
        ["--cycles", "--quick"] => {
            cycles::run(cycles::Choice { rounds: 20, ..cycles::Choice::default() })
        }
        ["--cycles", "--check"] => {
            cycles::run(cycles::Choice { check: true, ..cycles::Choice::default() })
        }
        ["--cycles", "--record", folder] => {
            let record = Some(folder.into());
            cycles::run(cycles::Choice { record, ..cycles::Choice::default() })
        }
        _ => return None,
    })
}

fn main() -> ExitCode {
    // `--bench` is cargo's.
    let arguments: Vec<_> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match chosen(&arguments) {
        None => {
            eprintln!(
                "usage: cargo bench --bench instructions -- [--limits | --record FOLDER | \
                 --bounds [--record FOLDER] | --recorder FOLDER | --cycles [--quick | --check | --record FOLDER]]"
            );
            ExitCode::from(2)
        }
        Some(Ok(true)) => ExitCode::SUCCESS,
        Some(Ok(false)) => ExitCode::FAILURE,
        Some(Err(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
