//! `cargo xtask install --check`: installs the command `mlx5`, and runs docs/tools.md with it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::Result;
use crate::build;
use crate::setup::{self, For};

const USAGE: &str = "usage: cargo xtask install --check [--release]; to install the command, use \
                     `cargo install --path tools --locked`";

/// How the command is built.
#[derive(Clone, Copy, PartialEq)]
enum Profile {
    /// As the tests are, which takes less time.
    Debug,
    /// As users do.
    Release,
}

/// `cargo xtask install --check [--release]`.
pub fn command(arguments: &[String]) -> Result {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let profile = match words[..] {
        ["--check"] => Profile::Debug,
        ["--check", "--release"] => Profile::Release,
        _ => return Err(USAGE.to_owned()),
    };
    setup::ready(For::Testing)?;
    run(profile)
}

/// The check of `.ci/run`.
pub fn check() -> Result {
    run(Profile::Debug)
}

/// Installs into an empty folder, and runs the page with what is there.
fn run(profile: Profile) -> Result {
    let folder = build::target_directory()?.join("install");
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)
            .map_err(|error| format!("cannot delete {}: {error}", root.display()))?;
    }
    let started = Instant::now();
    install(&root, &folder.join("build"), profile)?;
    let command = root.join("bin/mlx5");
    let bytes =
        fs::metadata(&command).map_err(|error| format!("{}: {error}", command.display()))?.len();
    println!("installed in {:.0?}: {bytes} bytes", started.elapsed());
    let mut test = build::cargo("test");
    test.args(["--workspace", "--test", "worked"]).env("MLX5_WORKED_COMMAND", command);
    build::run("the page docs/tools.md with the installed command", &mut test)
}

/// `cargo install`. It builds in a folder of its own: the model's library has no hash in its name, and
/// the one of the tests would have to be built again.
fn install(root: &Path, target: &Path, profile: Profile) -> Result {
    let mut install = Command::new(build::program());
    install.current_dir(build::root()).args(["install", "--locked", "--path", "tools", "--root"]);
    install.arg(root).env("CARGO_TARGET_DIR", target);
    if profile == Profile::Debug {
        install.arg("--debug");
    }
    build::run("cargo install", &mut install)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_check_it_says_how_to_install() {
        for arguments in
            [&[][..], &["--release".to_owned()], &["--check".to_owned(), "x".to_owned()]]
        {
            assert!(command(arguments).unwrap_err().contains("cargo install --path tools"));
        }
    }
}
