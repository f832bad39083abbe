//! `cargo xtask conform`: the conformance suite on the model, and the table in docs/status.md.

use std::fs;
use std::process::{Command, Stdio};

use crate::Result;
use crate::build;
use crate::setup::{self, For};

/// The links of the model's port that the suite runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// One, for the gate. The page's table needs both, so it is not compared.
    InfiniBand,
    Both,
}

impl Links {
    /// As the model's variable names them; the report's file has the name.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::InfiniBand => &["infiniband"],
            Self::Both => &["infiniband", "roce"],
        }
    }
}

/// The use of the reports in docs/conformance.
#[derive(Clone, Copy)]
enum Purpose {
    Compare,
    Write,
}

/// `cargo xtask conform [--write]`.
pub fn command(arguments: &[String]) -> Result {
    let purpose = match arguments {
        [] => Purpose::Compare,
        [argument] if argument == "--write" => Purpose::Write,
        _ => return Err("usage: cargo xtask conform [--write]".to_owned()),
    };
    setup::ready(For::Building)?;
    run(Links::Both, purpose)
}

/// Runs the suite, and with both links compares its results with those in docs.
///
/// # Errors
/// A case failed, or the pages have other results.
pub fn check(links: Links) -> Result {
    run(links, Purpose::Compare)
}

fn run(links: Links, purpose: Purpose) -> Result {
    build::programs(&["--bin", "mlx5", "--example", "status"])?;

    let target = build::target_directory()?;
    let folder = target.join("conform");
    // Reports of an earlier run do not count.
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", folder.display()));
        }
        _ => {}
    }
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    for link in links.names() {
        let mut suite = Command::new(target.join("debug/mlx5"));
        suite
            .args(["conform", "--model", "--report"])
            .arg(folder.join(format!("model-{link}.json")));
        // Its text is in the reports; what fails is on standard error.
        // As on a device: without CAP_NET_RAW, cases with raw packets are not applicable.
        suite.env("MLX5_MODEL_LINK", link).env("MLX5_MODEL_PRIVILEGE", "checked");
        suite.stdin(Stdio::null()).stdout(Stdio::null());
        build::run(&format!("mlx5 conform --model, with MLX5_MODEL_LINK={link},"), &mut suite)?;
    }
    if links != Links::Both {
        return Ok(());
    }
    let mut status = Command::new(target.join("debug/examples/status"));
    if let Purpose::Write = purpose {
        status.arg("--write");
    }
    build::run("the comparison with docs", status.arg(&folder))
}
