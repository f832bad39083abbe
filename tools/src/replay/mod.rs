//! `mlx5 replay`: repeats a recording on a fresh model, and compares.

mod report;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use mlx5_model::replay::replay;
use mlx5_model::trace::Reader;
use serde::Serialize;

use crate::outcome::{Error, Outcome, Result};
use crate::output::Output;
use crate::trace::recording;
use report::Report;

/// Replay a recording on a fresh model, and compare the results
///
/// The recording of `mlx5 trace --record` has what the program told its devices and what they read, so
/// neither the program nor its peer is needed. Replies to commands, CQEs, EQEs, packets, interrupts and
/// all that the devices wrote to memory are compared, byte for byte. The first difference is shown with
/// what happened before it.
///
/// Use it to keep a problem that is hard to provoke, to see whether a change of the model changes what a
/// program sees, or to find out how a request with a changed byte would have ended.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The recording
    file: PathBuf,
}

const EXAMPLES: &str = "\
Exit status 0: all is equal; 1: something is not; 3: it is no recording, damaged, or cannot be read.

Examples:
  mlx5 trace --record run.trace -- ./program
  mlx5 replay run.trace
  mlx5 replay --json run.trace | jq .report.first";

impl Arguments {
    /// Replays the recording.
    pub(crate) fn run(&self, output: &Output) -> Result {
        let report = compare(&self.file, || recording::open(&self.file))?;
        output.report("replay", &report)?;
        Ok(if report.is_equal() { Outcome::Good } else { Outcome::Bad })
    }
}

/// Returns the output of `mlx5 replay` for the recording that `open` opens, here named `file`.
///
/// # Errors
/// Fails if it cannot be replayed. It is opened up to three times, to show the events before a
/// difference.
fn compare<R: Read>(file: &Path, open: impl Fn() -> Result<Reader<R>>) -> Result<Report> {
    let mut reader = open()?;
    let header = reader.header().clone();
    let is_foreign = reader.is_foreign();
    let verdict =
        replay(&mut reader).map_err(|error| Error::Told(format!("{}: {error}", file.display())))?;
    Report::of(file, open, &header, is_foreign, verdict)
}

/// Returns the output of `mlx5 replay` for a recording's bytes.
///
/// # Errors
/// Fails if they are not a recording, or one that cannot be replayed.
pub fn replayed(recording: &[u8]) -> Result<impl fmt::Display + Serialize> {
    let open = || Reader::new(recording).map_err(|error| Error::Told(error.to_string()));
    compare(Path::new("-"), open)
}
