//! Cycles of every row: this crate, libmlx5's interfaces, and the floor, in one process, in turns.
//!
//! ```text
//! cargo xtask bench --cycles
//! ```
//!
//! The loops are those whose instructions are counted. A row's sides exist while it is measured,
//! so no row's figures depend on what other rows there are. All rows are measured in three runs, one
//! after the other. `--check` fails if this crate's fastest tenth (p10) is not three times below
//! that of libmlx5's best interface, in each run, for each post and each poll that finds something.

use std::error::Error;
use std::path::PathBuf;

use crate::report::{self, Line, Report, Value, context};
use crate::rows::{How, Row, column};
use crate::side::columns;
use crate::timed::{CALLS, Timed, alternate, quantile};

/// Runs in a row.
const RUNS: usize = 3;

/// How many times fewer cycles than libmlx5's best interface this crate is to take.
const TIMES: f64 = 3.0;

/// libmlx5's interfaces, with its locks.
const LOCKED: &[&str] = &[column::CLASSIC, column::EXTENDED];

const TITLE: &str = if cfg!(target_arch = "x86_64") {
    "TSC cycles per call, median (p10 to p90)"
} else {
    "nanoseconds per call, median (p10 to p90)"
};

/// What is measured.
pub struct Choice {
    /// Samples of each row and side in a run.
    pub rounds: usize,
    /// Whether too small a ratio is a failure.
    pub check: bool,
    /// Where the report goes.
    pub record: Option<PathBuf>,
}

impl Default for Choice {
    fn default() -> Self {
        Self { rounds: 200, check: false, record: None }
    }
}

/// Values of a row in one run, per column.
type Values = Vec<Option<Value>>;

fn measure(row: Row, rounds: usize) -> Values {
    let columns = columns();
    let mut sides: Vec<_> = columns.iter().filter_map(|column| Timed::new(column, row)).collect();
    // These need new queues each time, which take long to make.
    alternate(&mut sides, if row.spec().how.fills() { rounds / 4 } else { rounds });
    let of = |column: &&str| {
        let samples = &sides.iter().find(|side| side.column() == *column)?.samples;
        let [low, value, high] = [0.1, 0.5, 0.9].map(|of| quantile(samples, of));
        Some(Value { value: value?, spread: Some([low?, high?]) })
    };
    columns.iter().map(of).collect()
}

/// How many times fewer cycles than the best of `others` the side in `column` takes, by the fastest
/// tenth of each: other work of the machine does not change that.
fn ratio(values: &Values, others: &[&str], column: &str) -> Option<f64> {
    let columns = columns();
    let fast = |of: &str| Some(values[columns.iter().position(|name| *name == of)?]?.spread?[0]);
    let best = others.iter().copied().filter_map(fast);
    Some(best.reduce(f64::min)? / fast(column)?)
}

/// Measures all rows, prints the table, and writes it. Returns false if a ratio is too small.
pub fn run(choice: Choice) -> Result<bool, Box<dyn Error>> {
    let runs: Vec<Vec<Values>> = (0..RUNS)
        .map(|_| Row::ALL.iter().map(|&row| measure(row, choice.rounds)).collect())
        .collect();
    // The last run is shown; the ratios of all are.
    let ratios = |row: usize, others: &[&str], column| -> Vec<f64> {
        runs.iter().filter_map(|run| ratio(&run[row], others, column)).collect()
    };
    let mut missed = Vec::new();
    let line = |(at, row): (usize, &Row)| {
        let text = |others: &[&str], column| {
            let ratios = ratios(at, others, column);
            ratios.iter().map(|ratio| format!("{ratio:.1}")).collect::<Vec<_>>().join(", ")
        };
        let asks = !matches!(row.spec().how, How::Idle | How::Fill | How::FillLists(_));
        if asks && !ratios(at, LOCKED, column::RAW).iter().all(|ratio| *ratio >= TIMES) {
            missed.push(row.text());
        }
        Line {
            name: row.text().to_owned(),
            values: runs[RUNS - 1][at].clone(),
            remarks: vec![
                ("best with locks / mlx5, p10, three runs", text(LOCKED, column::RAW)),
                ("no locks / mlx5, p10", text(&[column::UNLOCKED], column::RAW)),
                ("mlx5 / floor, p10", text(&[column::RAW], column::FLOOR)),
            ],
        }
    };
    let lines = Row::ALL.iter().enumerate().map(line).collect();
    let report = Report {
        title: TITLE,
        context: context::of("cargo xtask bench --cycles".to_owned()),
        columns: columns(),
        ours: column::RAW,
        lines,
    };
    println!("{} rounds of {CALLS} calls per run, in turns, in one process.", choice.rounds);
    println!("On the software model in manual mode: the CPU's side alone; register pages are");
    println!("ordinary memory here, and nothing of this is a device's speed.\n");
    println!("{}", report.text());
    let folder = choice.record.map_or_else(report::folder, Ok)?;
    report.write(&folder, "cycles")?;
    println!("also in {}/cycles.{{json,md,svg}}", folder.display());
    for row in &missed {
        println!("below {TIMES} times in a run: {row}");
    }
    Ok(!choice.check || missed.is_empty())
}
