//! How a command ends.

use std::io;
use std::process::ExitCode;

/// A command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is wrong.
    Good,
    /// Something is wrong that the command looks for.
    Bad,
    /// As a program did that the command ran.
    Program(u8),
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Good => ExitCode::SUCCESS,
            Outcome::Bad => ExitCode::from(1),
            Outcome::Program(status) => ExitCode::from(status),
        }
    }
}

/// A command could not be done. Its text names the cause and, where there is one, the cure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver, libibverbs or the card refused something.
    #[error(transparent)]
    Driver(#[from] mlx5::Error),
    /// A file could not be read or written.
    #[error("{what}: {error}")]
    File {
        /// What was to be done with which file.
        what: String,
        /// Why it was not.
        error: io::Error,
    },
    /// Standard output took no more.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// Something else, in words.
    #[error("{0}")]
    Told(String),
}

/// What commands return.
pub type Result<T = Outcome, E = Error> = std::result::Result<T, E>;
