//! Output of results: a table for people, JSON and CSV for programs, an interval log for tools of
//! HdrHistogram, and a page with plots. All outputs read the same figures from one [`Run`], and
//! compute only rates.

mod csv;
mod log;
mod table;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::page;
use super::result::Run;
use crate::outcome::{Error, Result};
use crate::output::{Form, Output, stdout};

/// Destinations of the results, besides the table.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Results")]
pub struct Outputs {
    /// Write one page with plots, for any browser; it needs no other file and no network
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write one line per size as CSV; `-` prints it instead of the table
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the histograms as HdrHistogram's interval log; `-` prints it instead of the table
    #[arg(long, value_name = "FILE")]
    pub hdr_log: Option<PathBuf>,
}

impl Outputs {
    /// Opens the files without changing them, so that a wrong folder is reported before a long
    /// measurement.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Told`] if two outputs ask for standard output.
    pub fn check(&self, output: &Output) -> Result<()> {
        let printed = [&self.csv, &self.hdr_log];
        let printed = printed.into_iter().flatten().filter(|file| is_standard(file)).count();
        if printed + usize::from(output.is_json()) > 1 {
            return Err(Error::Told(
                "standard output takes one thing: of --json, --csv - and --hdr-log - give one, \
                 and the others a file"
                    .to_owned(),
            ));
        }
        for file in [&self.report, &self.csv, &self.hdr_log].into_iter().flatten() {
            if !is_standard(file) {
                let opened = OpenOptions::new().create(true).append(true).open(file);
                opened.map_err(|error| cannot(file, error))?;
            }
        }
        Ok(())
    }

    /// Prints the result and writes the files.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Output`]; [`Error::Told`] if a histogram is damaged.
    pub fn write(&self, command: &str, run: &Run, output: &Output) -> Result<()> {
        let mut printed = false;
        if let Some(file) = &self.csv {
            printed |= put(file, csv::text(run).as_bytes())?;
        }
        if let Some(file) = &self.hdr_log {
            printed |= put(file, &log::text(run).map_err(Error::Told)?)?;
        }
        if let Some(file) = &self.report {
            put(file, page::text(run).map_err(Error::Told)?.as_bytes())?;
        }
        if printed { Ok(()) } else { output.report(command, run) }
    }
}

fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Returns whether the bytes went to standard output.
fn put(file: &Path, bytes: &[u8]) -> Result<bool> {
    if is_standard(file) {
        let mut out = stdout(Form::Text);
        out.write_all(bytes).and_then(|()| out.flush()).map_err(Error::Output)?;
        return Ok(true);
    }
    let written = File::create(file).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| cannot(file, error))?;
    Ok(false)
}

fn cannot(file: &Path, error: io::Error) -> Error {
    Error::File { what: format!("cannot write {}", file.display()), error }
}
