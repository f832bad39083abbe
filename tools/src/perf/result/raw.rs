//! The file of single times.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::outcome::{Error, Result};
use crate::perf::loops::Measured;
use crate::perf::plan::Plan;

/// The file. Its first line names the columns.
pub struct Raw {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Raw {
    /// Creates the file, empty, before the measurement.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn create(path: &Path) -> Result<Raw> {
        let path = path.to_owned();
        let file = File::create(&path).map_err(|error| cannot(&path, error))?;
        let mut raw = Raw { path, file: BufWriter::new(file) };
        raw.line("size,thread,nanoseconds")?;
        Ok(raw)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        writeln!(self.file, "{line}").map_err(|error| cannot(&self.path, error))
    }

    /// Adds the times of a point, in the order in which messages completed. Returns how many were
    /// dropped for lack of space.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&mut self, plan: &Plan, threads: &[Measured]) -> Result<u64> {
        for (thread, measured) in threads.iter().enumerate() {
            for time in measured.record.raw() {
                self.line(&format!("{},{thread},{time}", plan.size))?;
            }
        }
        Ok(threads.iter().map(|thread| thread.record.dropped()).sum())
    }

    /// Writes buffered data.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn finish(mut self) -> Result<()> {
        self.file.flush().map_err(|error| cannot(&self.path, error))
    }
}

fn cannot(path: &Path, error: std::io::Error) -> Error {
    Error::File { what: format!("cannot write {}", path.display()), error }
}
