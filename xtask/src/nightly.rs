//! The nightly toolchain, which Miri and the address sanitizer require.

use std::env;
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;

/// The target that is built for. Named, so that build scripts are not sanitized.
pub const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// Installs nightly and its components by rustup, where they are missing.
///
/// # Errors
/// - There is no rustup, as with a compiler of a distribution.
/// - rustup cannot install, for example without network or where a nightly lacks a component.
pub fn ready(components: &[&str]) -> Result {
    let listed = Command::new("rustup")
        .args(["component", "list", "--toolchain", "nightly", "--installed"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!(
                "nightly Rust is needed, and rustup, which installs it, cannot be run ({error}): \
                 install rustup from https://rustup.rs"
            )
        })?;
    let installed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let has = |name: &str| installed.lines().any(|line| line.starts_with(name));
    if listed.status.success() && components.iter().all(|name| has(name)) {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    if listed.status.success() {
        // Nightly is there; it stays the one that it is.
        rustup.args(["component", "add", "--toolchain", "nightly"]).args(components);
    } else {
        rustup.args(["toolchain", "install", "nightly", "--profile", "minimal"]);
        for component in components {
            rustup.args(["--component", component]);
        }
    }
    build::run("installing nightly Rust by rustup", &mut rustup).map_err(|error| {
        let components = components.join(", ");
        format!("{error}; it needs static.rust-lang.org, and a nightly that has {components}")
    })
}

/// `cargo +nightly SUBCOMMAND`, building into a folder of its own under the usual one.
///
/// # Errors
/// Fails if cargo does not name its target directory.
pub fn cargo(subcommand: &[&str], folder: &str) -> Result<Command> {
    let target = build::target_directory()?.join(folder);
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(subcommand);
    command.arg("--manifest-path").arg(build::root().join("Cargo.toml"));
    command.arg("--target-dir").arg(target).stdin(Stdio::null());
    // These name the toolchain that runs xtask.
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
        command.env_remove(variable);
    }
    Ok(command)
}

/// The flags that the user's environment has in `variable`, with these behind.
pub fn flags(variable: &str, more: &str) -> String {
    let given = env::var(variable).unwrap_or_default();
    format!("{given} {more}").trim().to_owned()
}
