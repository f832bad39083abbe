//! `cargo xtask evidence`: the facts that others measured, answers of devices, and docs/evidence.md.

use std::process::Command;

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
    build::programs(&["--bin", "mlx5-evidence"])?;
    let mut program = Command::new(build::target_directory()?.join("debug/mlx5-evidence"));
    build::run("the evidence", program.args(arguments))
}
