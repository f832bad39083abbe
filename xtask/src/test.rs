//! `cargo xtask test`: everything that can be tested on this machine.

use crate::Result;
use crate::build;
use crate::libclang::Decision;
use crate::setup::{self, For};
use crate::steps::Steps;

/// `cargo xtask test [ARGUMENTS]`.
pub fn command(arguments: &[String]) -> Result {
    let decision = setup::ready(For::Testing)?;
    let mut steps = Steps::default();
    add_steps(&mut steps, &decision, arguments);
    steps.finish("cargo xtask test")
}

/// The tests, as steps of this task or of `ci`.
pub fn add_steps(steps: &mut Steps, decision: &Decision, arguments: &[String]) {
    steps.step("cargo test", || {
        let mut command = build::cargo_with("test", decision);
        if !names_packages(arguments) {
            command.arg("--workspace");
        }
        build::run("cargo test", command.arg("--no-fail-fast").args(arguments))
    });
    if arguments.is_empty() && !matches!(decision, Decision::OwnBindings { .. }) {
        // What users with a newer libclang get has to be as right as the default.
        steps.step("cargo test -p mlx5-sys --no-default-features", || {
            let mut command = build::cargo_with("test", decision);
            command.args(["--package", "mlx5-sys", "--no-default-features"]);
            build::run("cargo test --no-default-features", &mut command)
        });
    }
}

fn names_packages(arguments: &[String]) -> bool {
    arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument.starts_with("-p") || argument.starts_with("--package"))
}
