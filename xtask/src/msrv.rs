//! `cargo xtask msrv`: libraries and programs of the workspace, checked with the oldest supported Rust.

use std::env;
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;
use crate::setup::{self, For};

/// `rust-version` of this package, which is the workspace's.
const VERSION: &str = env!("CARGO_PKG_RUST_VERSION");

/// `cargo xtask msrv`.
pub fn command() -> Result {
    setup::ready(For::Building)?;
    check()
}

/// Checks everything, in a folder of its own under the usual one.
///
/// # Errors
/// - There is no rustup, or it cannot install that version.
/// - Something does not compile; the messages are printed before.
pub fn check() -> Result {
    install()?;
    let target = build::target_directory()?.join("msrv");
    let mut check = Command::new("rustup");
    check.args(["run", VERSION, "cargo", "check", "--workspace", "--keep-going"]);
    check.arg("--manifest-path").arg(build::root().join("Cargo.toml"));
    check.arg("--target-dir").arg(target).stdin(Stdio::null());
    // These name the toolchain that runs xtask.
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
        check.env_remove(variable);
    }
    build::run(&format!("cargo check with Rust {VERSION}"), &mut check)
}

/// Installs that version where rustup does not have it.
///
/// # Errors
/// There is no rustup, or it cannot install that version.
pub fn install() -> Result {
    if installed()? {
        return Ok(());
    }
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", VERSION, "--profile", "minimal", "--no-self-update"]);
    build::run(&format!("installing Rust {VERSION} by rustup"), &mut install)
}

/// Whether rustup has that version; it is not updated then.
fn installed() -> Result<bool> {
    let cargo = Command::new("rustup")
        .args(["which", "--toolchain", VERSION, "cargo"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!(
                "Rust {VERSION} is needed, and rustup, which installs it, cannot be run ({error}): \
                 install rustup from https://rustup.rs"
            )
        })?;
    Ok(cargo.status.success())
}
