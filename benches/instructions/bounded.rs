//! Measures the rows that have bounds on their cycles.
//!
//! ```text
//! cargo xtask bench --bounds
//! ```

use std::error::Error;
use std::path::PathBuf;

use crate::bounds::{BLOCK, BOUNDS, Bound, TIMES, least};
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

/// Returns the cycles of a row and of its floor.
fn measured(bound: &Bound, most: f64) -> Option<[f64; 2]> {
    let row = Timed::new(bound.column, bound.row)?;
    let mut sides = [row, Timed::new(column::FLOOR, bound.floor)?];
    least(most, || {
        sides.iter_mut().for_each(|side| side.samples.clear());
        alternate(&mut sides, BLOCK);
        Some([quantile(&sides[0].samples, 0.1)?, quantile(&sides[1].samples, 0.1)?])
    })
}

/// Measures each row that has a bound, and prints a table. Returns false if a bound is passed. To
/// be recorded, every row is measured as long as one that fails.
///
/// # Errors
/// The record cannot be read, or the report cannot be written.
pub fn run(to: Option<PathBuf>) -> Result<bool, Box<dyn Error>> {
    let record = if to.is_some() { None } else { record()? };
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for bound in BOUNDS {
        let (most, source) = bound.most(record.as_ref());
        let until = if to.is_some() { 0.0 } else { most };
        // A processor without the instruction has no such row.
        let Some([row, floor]) = measured(bound, until) else { continue };
        let times = row / floor;
        let of = bound.floor.text();
        if times > most {
            failures.push(format!(
                "{}: {row:.1} {UNIT}, {times:.2} times {floor:.1} of the floor ({of}); at most \
                 {most:.2} {source}",
                bound.text()
            ));
        }
        lines.push(Line {
            name: bound.text(),
            values: [row, floor].map(|value| Some(value.into())).into(),
            remarks: vec![
                (TIMES, format!("{times:.2}")),
                ("bound", format!("{most:.2} {source}")),
                ("floor of", if bound.floor == bound.row { String::new() } else { of.to_owned() }),
            ],
        });
    }
    let report = Report {
        title: if cfg!(target_arch = "x86_64") { "TSC cycles per call" } else { "ns per call" },
        context: context::of("cargo xtask bench --bounds".to_owned()),
        columns: vec!["mlx5", "floor"],
        ours: "",
        lines,
    };
    println!("{}", report.text());
    report.write_text(&to.map_or_else(report::folder, Ok)?, "bounds")?;
    for failure in &failures {
        eprintln!("error: too slow: {failure}");
    }
    Ok(failures.is_empty())
}
