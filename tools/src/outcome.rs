//! Exit statuses and errors of commands.

use std::io;
use std::process::ExitCode;

/// The outcome of a command that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command found no fault.
    Good,
    /// The command found a fault of the kind it searches for.
    Bad,
    /// The command could not run, and has printed a report that says why.
    Unable,
    /// The user ended the command early, which has printed what it knew.
    Interrupted,
    /// The exit status of the program that the command ran.
    Program(u8),
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Good => ExitCode::SUCCESS,
            Outcome::Bad => ExitCode::from(1),
            Outcome::Unable => ExitCode::from(3),
            // As shells report a program that SIGINT has ended.
            Outcome::Interrupted => ExitCode::from(128 + 2),
            Outcome::Program(status) => ExitCode::from(status),
        }
    }
}

/// The error of a command that failed. Its text names the cause and, where there is one, the cure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver, libibverbs or the HCA refused a call.
    #[error(transparent)]
    Driver(#[from] mlx5::Error),
    /// The machine has no device.
    #[error("{0}; with --model, the command runs on the model, a software ConnectX")]
    NoDevice(String),
    /// A file could not be read or written.
    #[error("{what}: {error}")]
    File {
        /// The attempted operation, with the file's name.
        what: String,
        /// The error of the operation.
        error: io::Error,
    },
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    /// The command line asks for something impossible.
    #[error("{0}")]
    Usage(String),
    /// Any other error, in words.
    #[error("{0}")]
    Told(String),
}

/// The result of a command.
pub type Result<T = Outcome, E = Error> = std::result::Result<T, E>;
