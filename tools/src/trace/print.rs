//! The destination of lines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use crate::outcome::{Error, Result};
use crate::output::{Filtered, Form, stderr, stdout};

/// Writes lines to a file, to standard output or to standard error.
pub(crate) struct Printer {
    to: BufWriter<Filtered<Box<dyn Write>>>,
    /// The file's name.
    file: Option<PathBuf>,
    /// The error after which nothing more can be written.
    failed: Option<io::Error>,
}

impl Printer {
    /// Opens a named file, else one of the standard streams.
    pub fn open(file: &Option<PathBuf>, is_output: bool, form: Form) -> Result<Printer> {
        let to: Box<dyn Write> = match file {
            Some(path) => Box::new(File::create(path).map_err(|error| Error::File {
                what: format!("cannot write {}", path.display()),
                error,
            })?),
            None if is_output => Box::new(stdout(form)),
            None => Box::new(stderr(form)),
        };
        // A file may be shown on a terminal later, so its content is filtered too.
        let to = BufWriter::new(Filtered::new(to, form));
        Ok(Printer { to, file: file.clone(), failed: None })
    }

    /// Writes a line. Errors are reported at the end, so that a traced program runs on.
    pub fn line(&mut self, line: &str) {
        if self.failed.is_none() {
            self.failed = writeln!(self.to, "{line}").err();
        }
    }

    /// Makes the lines written so far visible to readers.
    pub fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.to.flush().err();
        }
    }

    /// Returns whether writing has failed, as when the reader has closed its end.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns the result of all writes. A reader that stops early is not an error.
    pub fn finish(mut self) -> Result<()> {
        self.flush();
        match (self.failed.take(), &self.file) {
            (Some(error), Some(file)) => {
                Err(Error::File { what: format!("cannot write {}", file.display()), error })
            }
            (Some(error), None) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::Output(error))
            }
            _ => Ok(()),
        }
    }
}
