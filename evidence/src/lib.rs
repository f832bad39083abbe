//! What others measured on ConnectX devices: the ledger.
//!
//! A [`Fact`] is one statement about a device: how it was found, how good its source is, and whether
//! this project agrees. Facts are in `facts/AREA.toml`, and numbers in `tables/NAME.csv`. A test that
//! holds the project to a table reads it as a [`Table`], and can put the model's own values beside
//! the measured ones in a [`Comparison`].
//!
//! [`Seen`] is what a device answered, in a file that its owner has sent. [`Expectations`] say which
//! answers agree with the facts.
//!
//! The command (`cargo xtask evidence`) runs the tests that facts name, and writes docs/evidence.md.

mod comparison;
mod expected;
mod ledger;
mod page;
mod run;
mod seen;
mod table;

pub use comparison::Comparison;
pub use expected::{Expectations, Expected, Judgement};
pub use ledger::{Area, Fact, Ledger, Quality, Stance};
pub use page::page;
pub use run::{Outcome, Test, run};
pub use seen::{Answer, Bed, Device, Link, Seen, System, Unanswered, Unit, Values, Why};
pub use table::{Row, Table};

use std::path::PathBuf;

/// Returns the folder of the ledger.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
