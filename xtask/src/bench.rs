//! `cargo xtask bench`: the benchmarks, or with `--quick` a run that only shows that they work.

use crate::Result;
use crate::build;
use crate::libclang::Decision;
use crate::setup::{self, For};

/// `cargo xtask bench [--quick]`.
pub fn command(arguments: &[String]) -> Result {
    let quick = match arguments {
        [] => false,
        [argument] if argument == "--quick" => true,
        [argument, ..] => {
            return Err(format!(
                "unknown argument `{argument}`\nusage: cargo xtask bench [--quick]"
            ));
        }
    };
    let decision = setup::ready(For::Testing)?;
    run(&decision, quick)
}

/// Runs them all.
pub fn run(decision: &Decision, quick: bool) -> Result {
    let mut command = build::cargo_with("bench", decision);
    // `--benches` would also run the library's own harness, which does not know `--quick`.
    command.args(["--package", "mlx5", "--bench", "*"]);
    if quick {
        command.args(["--", "--quick"]);
    }
    build::run("cargo bench", &mut command)
}
