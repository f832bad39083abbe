//! `cargo xtask evidence`: the facts that others measured, answers of devices, and docs/evidence.md.

use crate::Result;
use crate::build;
use crate::setup::{self, For};

/// `cargo xtask evidence [--write | --merge FILE SOURCE]`.
pub fn command(arguments: &[String]) -> Result {
    setup::ready(For::Building)?;
    run(arguments)
}

/// Runs the tests that facts name, and compares the page.
///
/// # Errors
/// A test failed, or the page says something else.
pub fn check() -> Result {
    run(&[])
}

fn run(arguments: &[String]) -> Result {
    let mut cargo = build::cargo("run");
    cargo.args(["--quiet", "--package", "mlx5-evidence", "--"]).args(arguments);
    build::run("the evidence", &mut cargo)
}
