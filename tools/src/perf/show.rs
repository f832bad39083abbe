//! `mlx5 perf show`: a stored result in another form.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize as _;
use serde_json::Value;

use crate::outcome::{Error, Outcome, Result};
use crate::output::Output;
use crate::perf::output::Outputs;
use crate::perf::result::Run;

/// Show a result that was kept as JSON: as a table, a page, CSV or an HDR log
///
/// The output of `mlx5 perf … --json` has all that the other forms need, so a measurement is made
/// once and shown often, also on another machine and without a device.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// File with the output of `--json`
    file: PathBuf,
    #[command(flatten)]
    outputs: Outputs,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 perf lat --loopback --json > lat.json
  mlx5 perf show lat.json --report lat.html
  mlx5 perf show lat.json --csv - | column -s, -t";

impl Arguments {
    /// Prints and writes the requested forms.
    pub(crate) fn run(&self, output: &Output) -> Result {
        let file = self.file.display();
        let text = fs::read_to_string(&self.file)
            .map_err(|error| Error::File { what: format!("cannot read {file}"), error })?;
        // The file has the printed JSON, or the report alone.
        let kept = serde_json::from_str(&text).and_then(|mut kept: Value| {
            let report = kept.get_mut("report").map(Value::take);
            Run::deserialize(report.unwrap_or(kept))
        });
        let run = kept.map_err(|error| {
            Error::Told(format!(
                "{file} is no result of `mlx5 perf … --json` of this version ({error})"
            ))
        })?;
        run.check().map_err(|wrong| Error::Told(format!("{file} is damaged: {wrong}")))?;
        self.outputs.check(output)?;
        self.outputs.write("perf show", &run, output)?;
        Ok(Outcome::Good)
    }
}
