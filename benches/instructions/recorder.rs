//! What the driver's feature `flight-recorder` costs: counts of a build with it, beside recorded ones.
//!
//! ```text
//! cargo bench -p mlx5-instructions --features mlx5/flight-recorder -- --recorder FOLDER
//! ```

use std::error::Error;
use std::path::Path;

use crate::report::{self, Line, Report, context};
use crate::rows::{Row, column};
use crate::{Sides, count, counts, earlier};

/// The rows that are shown.
const ROWS: &[Row] = {
    use Row::*;
    &[
        Inline,
        Pointer,
        List,
        DoorbellPointer,
        Prepared,
        UdPointer,
        Poll,
        Empty,
        PollReceive,
        Receive,
        ReceiveList,
        ReceiveShared,
    ]
};

/// Counts this crate's sides, and writes the report into `folder`.
///
/// # Errors
/// The calls cannot be counted, or a file cannot be read or written.
pub fn run(folder: &Path) -> Result<bool, Box<dyn Error>> {
    let sections = count(&report::folder()?.join("callgrind"), Sides::Limited)?;
    let (counts, earlier) = (counts(&sections), earlier("instructions")?);
    let line = |row: &Row| {
        let at = Row::ALL.iter().position(|of| of == row)?;
        let recorded = earlier.rows.get(row.text())?;
        let best = [column::CLASSIC, column::EXTENDED].iter().filter_map(|of| recorded.get(*of));
        let values = [
            recorded.get(column::RAW).copied(),
            counts[at].get(column::RAW).copied(),
            best.copied().reduce(f64::min),
        ];
        let values = values.map(|value| value.map(Into::into)).into();
        Some(Line { name: row.text().to_owned(), values, remarks: vec![] })
    };
    let report = Report {
        title: "Instructions per call, raw layer",
        context: context::of("cargo xtask bench --record".to_owned()),
        columns: vec!["without", "with", "libmlx5's best"],
        ours: "",
        lines: ROWS.iter().filter_map(line).collect(),
    };
    println!("{}", report.text());
    report.write_text(folder, "recorder")?;
    Ok(true)
}
