//! `cargo xtask bindings`: the bindings of mlx5-sys, compared with the installed headers.

use std::process::Command;

use crate::Result;
use crate::build;
use crate::setup::{self, For};

/// The features of the comparison: bindings of the installed headers, also of librdmacm's.
const FEATURES: [&str; 4] = ["--package", "mlx5-sys", "--features", "bindgen,cm"];

/// The folder for builds whose bindings are others than those of the tests.
const FOLDER: &str = "bindings";

/// `cargo xtask bindings [--write]`.
pub fn command(arguments: &[String]) -> Result {
    let work = match arguments {
        [] => compare,
        [argument] if argument == "--write" => write,
        _ => return Err("usage: cargo xtask bindings [--write]".to_owned()),
    };
    setup::ready(For::Testing)?;
    work()
}

/// Compares the bindings with the installed headers, and builds and runs what links the libraries.
///
/// # Errors
/// A header has something otherwise, or a build or test fails. The messages are printed before.
pub fn check() -> Result {
    compare()?;
    for features in ["bindgen,cm", "link,cm"] {
        let mut clippy = build::cargo_into(FOLDER, "clippy")?;
        clippy.args(["--package", "mlx5-sys", "--package", "mlx5", "--all-targets"]);
        clippy.args(["--features", &format!("mlx5/{}", features.replace(',', ",mlx5/"))]);
        build::run("cargo clippy", clippy.args(["--", "-D", "warnings"]))?;
    }
    let mut linked = build::cargo_into(FOLDER, "test")?;
    linked.args(["--package", "mlx5", "--features", "link"]);
    linked.args(["--test", "rc_traffic", "--test", "build_environment"]);
    build::run("cargo test", &mut linked)
}

/// Compares the bindings with the installed headers.
fn compare() -> Result {
    let mut test = test()?;
    test.args(["--lib", "--test", "bindings", "--test", "verbs_shape"]);
    build::run("cargo test", &mut test).map_err(|error| {
        format!(
            "{error}; if the bindings are to change, run `cargo xtask bindings --write` on Debian 12 and \
             commit mlx5-sys/src/bindings"
        )
    })
}

/// Writes the bindings from the installed headers.
fn write() -> Result {
    let mut test = test()?;
    test.args(["--test", "bindings"]).env("MLX5_SYS_BINDINGS", "write");
    build::run("cargo test", &mut test)
}

fn test() -> Result<Command> {
    let mut command = build::cargo_into(FOLDER, "test")?;
    command.args(FEATURES);
    Ok(command)
}
