//! `cargo xtask torture`: random operations between the driver and libibverbs.

use std::process::Command;

use crate::Result;
use crate::build;
use crate::libclang::Decision;
use crate::setup::{self, For};

/// Whether the driver checks WQEs before it rings them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lint {
    Off,
    On,
}

/// `cargo xtask torture [--lint] [ARGUMENTS]`.
pub fn command(arguments: &[String]) -> Result {
    let lint =
        if arguments.iter().any(|argument| argument == "--lint") { Lint::On } else { Lint::Off };
    let rest: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| *argument != "--lint").collect();
    let decision = setup::ready(For::Building)?;
    run(&decision, lint, &rest)
}

/// The short run of `ci`: 20,000 operations over four seeds, one of them on RoCE.
pub fn check(decision: &Decision, lint: Lint) -> Result {
    run(decision, lint, &["--seed", "1", "--seeds", "4", "--operations", "5000"])
}

fn run(decision: &Decision, lint: Lint, arguments: &[&str]) -> Result {
    let mut cargo = build::cargo_with("build", decision);
    cargo.args(["--quiet", "--package", "mlx5-torture"]);
    // Apart, so that neither build undoes the other.
    let mut target = build::target_directory()?;
    if lint == Lint::On {
        target.push("lint");
        cargo.args(["--features", "lint"]).arg("--target-dir").arg(&target);
    }
    build::run("building mlx5-torture", &mut cargo)?;
    let mut program = Command::new(target.join("debug/mlx5-torture"));
    build::run("mlx5-torture", program.args(arguments))
}
