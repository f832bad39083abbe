//! Measures the rows that have bounds on their cycles.
//!
//! ```text
//! cargo xtask bench --bounds
//! ```

use std::error::Error;
use std::path::PathBuf;

use crate::bounds::{BLOCK, BOUNDS, Bound, NONE, PASSES, TIMES, least};
use crate::report::earlier::Earlier;
use crate::report::{self, Line, Report, context};
use crate::rows::column;
use crate::timed::{Timed, UNIT, alternate, quantile};

/// The record, if it is of this processor and compiler.
fn record() -> Result<Option<Earlier>, Box<dyn Error>> {
    if !crate::recorded("bounds").exists() {
        println!("There is no record to compare with.\n");
        return Ok(None);
    }
    let earlier = crate::earlier("bounds")?;
    let here = context::of(String::new());
    for key in ["cpu", "rustc"] {
        let here = here.iter().find(|(of, _)| *of == key).map_or("unknown", |(_, text)| text);
        let there = earlier.context.get(key).map_or("unknown", String::as_str);
        if here != there {
            println!("Not compared with the record: its {key} is {there}, here it is {here}.\n");
            return Ok(None);
        }
    }
    Ok(Some(earlier))
}

/// A bound, and what was measured.
struct Judged {
    bound: &'static Bound,
    /// The most, as so many times the floor, and where that is from.
    most: (f64, &'static str),
    /// The cycles of the row and of its floor.
    least: [f64; 2],
    /// The sides so far. They stay, so that the next pass gets other memory: some processors take twice as
    /// long where addresses of a row are equal in certain bits.
    measured: Vec<[Timed; 2]>,
}

impl Judged {
    fn new(bound: &'static Bound, record: Option<&Earlier>) -> Self {
        Self { bound, most: bound.most(record), least: NONE, measured: Vec::new() }
    }

    /// Measures, until the row takes at most `until` times the floor. Returns none where the
    /// processor cannot execute the row.
    fn measure(&mut self, until: f64) -> Option<()> {
        let row = Timed::new(self.bound.column, self.bound.row)?;
        let mut sides = [row, Timed::new(column::FLOOR, self.bound.floor)?];
        self.least = least(until, self.least, || {
            sides.iter_mut().for_each(|side| side.samples.clear());
            alternate(&mut sides, BLOCK);
            Some([quantile(&sides[0].samples, 0.1)?, quantile(&sides[1].samples, 0.1)?])
        })?;
        self.measured.push(sides);
        Some(())
    }

    fn times(&self) -> f64 {
        self.least[0] / self.least[1]
    }

    fn is_kept(&self) -> bool {
        self.times() <= self.most.0
    }

    fn line(&self) -> Line {
        let Self { bound, most: (most, source), least, .. } = self;
        let of = if bound.floor == bound.row { "" } else { bound.floor.text() };
        Line {
            name: bound.text(),
            values: least.map(|value| Some(value.into())).into(),
            remarks: vec![
                (TIMES, format!("{:.2}", self.times())),
                ("bound", format!("{most:.2} {source}")),
                ("floor of", of.to_owned()),
            ],
        }
    }

    fn failure(&self) -> String {
        let ([row, floor], (most, source)) = (self.least, self.most);
        format!(
            "{}: {row:.1} {UNIT}, {:.2} times {floor:.1} of the floor ({}); at most {most:.2} \
             {source}",
            self.bound.text(),
            self.times(),
            self.bound.floor.text()
        )
    }
}

/// Measures each row that has a bound, and prints a table. Returns false if a bound is passed. To
/// be recorded, every row is measured as long as one that fails.
///
/// # Errors
/// The record cannot be read, or the report cannot be written.
pub fn run(to: Option<PathBuf>) -> Result<bool, Box<dyn Error>> {
    let record = if to.is_some() { None } else { record()? };
    let mut all = Vec::new();
    for bound in BOUNDS {
        let mut judged = Judged::new(bound, record.as_ref());
        let until = if to.is_some() { 0.0 } else { judged.most.0 };
        if judged.measure(until).is_some() {
            if judged.is_kept() {
                judged.measured.clear();
            }
            all.push(judged);
        }
    }
    for _ in 1..PASSES {
        for judged in all.iter_mut().filter(|judged| !judged.is_kept()) {
            judged.measure(judged.most.0);
        }
    }
    let report = Report {
        title: if cfg!(target_arch = "x86_64") { "TSC cycles per call" } else { "ns per call" },
        context: context::of("cargo xtask bench --bounds".to_owned()),
        columns: vec!["mlx5", "floor"],
        ours: "",
        lines: all.iter().map(Judged::line).collect(),
    };
    println!("{}", report.text());
    report.write_text(&to.map_or_else(report::folder, Ok)?, "bounds")?;
    let failures = all.iter().filter(|judged| !judged.is_kept());
    Ok(failures.map(|judged| eprintln!("error: too slow: {}", judged.failure())).count() == 0)
}
