//! What others measured on ConnectX devices: the ledger.
//!
//! A [`Fact`] is one statement about a device: how it was found, how good its source is, and whether
//! this project agrees. Facts are in `facts/AREA.toml`, and numbers in `tables/NAME.csv`. A test that
//! holds the project to a table reads it as a [`Table`], and can put the model's own values beside
//! the measured ones in a [`Comparison`].
//!
//! The command (`cargo xtask evidence`) runs the tests that facts name, and writes docs/evidence.md.

mod comparison;
mod ledger;
mod page;
mod run;
mod table;

pub use comparison::Comparison;
pub use ledger::{Area, Fact, Ledger, Quality, Stance};
pub use page::page;
pub use run::{Outcome, Test, run};
pub use table::{Row, Table};

use std::path::PathBuf;

/// Returns the folder of the ledger.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
