//! `cargo xtask torture`: random operations between the driver and libibverbs.

use std::process::Command;

use crate::Result;
use crate::build;
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
    setup::ready(For::Building)?;
    run(lint, &rest)
}

/// How long a check takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// 5,000 operations of one seed, for the gate.
    Short,
    /// 20,000 operations over four seeds, one of them on RoCE.
    Long,
}

/// The runs of `ci`.
pub fn check(lint: Lint, length: Length) -> Result {
    let seeds = match length {
        Length::Short => "1",
        Length::Long => "4",
    };
    run(lint, &["--seed", "101", "--seeds", seeds, "--operations", "5000"])
}

fn run(lint: Lint, arguments: &[&str]) -> Result {
    let target = build::target_directory()?;
    let built = match lint {
        Lint::Off => {
            build::programs(&["--bin", "mlx5-torture"])?;
            target
        }
        Lint::On => {
            let mut cargo = build::cargo_into("torture", "build")?;
            cargo.args(["--quiet", "--package", "mlx5-torture", "--features", "lint"]);
            build::run("building mlx5-torture", &mut cargo)?;
            target.join("torture")
        }
    };
    let mut program = Command::new(built.join("debug/mlx5-torture"));
    build::run("mlx5-torture", program.args(arguments))
}
