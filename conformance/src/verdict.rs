//! How a case ends, and the checks that end it.

use std::error::Error;
use std::fmt::{Debug, Display};

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The device, or the driver, did something else than the case expects.
    Failed(String),
    /// The bed lacks what the case needs.
    NotApplicable(String),
}

/// The result of a case, or of a step of one.
pub type Verdict<T = ()> = Result<T, Stop>;

impl<E: Error> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// Returns the end of a case that found something wrong.
pub fn failed(why: impl Display) -> Stop {
    Stop::Failed(why.to_string())
}

/// Returns the end of a case whose need is not met.
pub fn lacking(why: impl Display) -> Stop {
    Stop::NotApplicable(why.to_string())
}

/// Checks that what was met is what is expected.
pub fn same<T: PartialEq + Debug>(what: impl Display, met: T, expected: T) -> Verdict {
    match met == expected {
        true => Ok(()),
        false => Err(failed(format!("{what}: {met:?}, expected {expected:?}"))),
    }
}

/// Checks a condition.
pub fn holds(condition: bool, otherwise: impl Display) -> Verdict {
    match condition {
        true => Ok(()),
        false => Err(failed(otherwise)),
    }
}
