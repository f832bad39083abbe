//! Reports on standard output, all else on standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::cli::Options;
use crate::machine;
use crate::outcome::{Error, Result};

/// Where reports go, and in which form.
#[derive(Clone, Debug)]
pub struct Output {
    json: bool,
}

/// What is around each report in JSON.
#[derive(Serialize)]
struct Envelope<'a, R> {
    command: &'a str,
    version: &'static str,
    /// As [`machine::runs_on`] says.
    runs_on: Option<&'static str>,
    report: &'a R,
}

#[derive(Serialize)]
struct Failed {
    error: String,
}

impl Output {
    /// As the options say.
    #[must_use]
    pub fn new(options: &Options) -> Output {
        Output { json: options.json }
    }

    /// Whether programs read it: then nothing is printed on the way.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints the report of a command: its text, or in JSON with what it ran on.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub fn report<R: Serialize + Display>(&self, command: &str, report: &R) -> Result<()> {
        if self.json {
            self.json(&Envelope {
                command,
                version: env!("CARGO_PKG_VERSION"),
                runs_on: machine::runs_on(),
                report,
            })
        } else {
            let mut out = io::stdout().lock();
            writeln!(out, "{report}").and_then(|()| out.flush()).map_err(Error::Output)
        }
    }

    /// One JSON value on a line of its own, or over several lines if a person may look.
    fn json<T: Serialize>(&self, value: &T) -> Result<()> {
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, value)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
            .and_then(|()| out.flush())
            .map_err(Error::Output)
    }

    /// Says why the command could not be done: on standard error, in JSON on standard output too.
    pub fn failed(&self, error: &Error) {
        eprintln!("mlx5: {error}");
        if self.json {
            // The text is out already, and the exit status says the rest.
            let _ = self.json(&Failed { error: error.to_string() });
        }
    }
}
