//! `cargo xtask sideway`: a program with the crates sideway and mlx5, built and run.

use std::process::Command;

use crate::Result;
use crate::build;
use crate::setup::{self, For};

/// `cargo xtask sideway`.
pub fn command() -> Result {
    setup::ready(For::Testing)?;
    check()
}

/// Builds `interop/sideway` in a folder of its own under the usual one, and runs it on the model.
///
/// # Errors
/// It does not build or link, or a message is wrong; the messages are printed before.
pub fn check() -> Result {
    let target = build::target_directory()?.join("sideway");
    let mut cargo = build::cargo_of("build", "interop/sideway/Cargo.toml");
    cargo.arg("--target-dir").arg(&target);
    build::run("building interop/sideway", &mut cargo)?;
    build::run("mlx5-sideway", &mut Command::new(target.join("debug/mlx5-sideway")))
}
