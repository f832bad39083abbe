//! `cargo xtask ci`: the order of modules, the tests, then checks that keep the tree tidy.

use std::env;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::api;
use crate::arm64;
use crate::asan;
use crate::bench::{self, Choice};
use crate::build;
use crate::conform;
use crate::executables;
use crate::guest;
use crate::install;
use crate::layers;
use crate::libclang;
use crate::miri;
use crate::msrv;
use crate::nightly;
use crate::rdma_sys;
use crate::release;
use crate::setup::{self, For};
use crate::sideway;
use crate::steps::{Done, Steps};
use crate::test;
use crate::torture::{self, Lint};

/// A check that is run beside others: its name, and what it does.
type Check = (&'static str, fn() -> Result);

/// The checks after the tests, in the order in which they are started. Neighbors build into
/// different folders, so that neither waits for the other's lock. `cm` is the last of those that
/// build where the tests do: with it, all libraries are others, the model's in the same file.
const CHECKS: &[Check] = &[
    ("cargo clippy", clippy),
    ("cargo xtask miri", miri::check),
    ("cargo doc", doc),
    ("the feature `lint`", test::check_lint),
    ("cargo xtask bench --quick", || bench::run(Choice::Quick)),
    ("the feature `timing`", bench::check_timing),
    ("the feature `phases`", bench::check_phases),
    (RDMA_SYS, rdma_sys::check),
    ("the feature `flight-recorder`", bench::check_flight),
    ("cargo xtask msrv", msrv::check),
    ("the feature `unproven`", test::check_unproven),
    ("cargo xtask asan", asan::check),
    ("cargo xtask conform", conform::check),
    ("cargo xtask arm64 --check", arm64::check),
    ("cargo xtask torture", || torture::check(Lint::Off)),
    ("cargo xtask api", api::check),
    ("cargo xtask torture --lint", || torture::check(Lint::On)),
    ("mlx5 perf --compare", bench::check_compare),
    ("cargo xtask guest", guest::check),
    ("cargo xtask install", install::check),
    ("the feature `cm`", test::check_cm),
    ("cargo xtask sideway", sideway::check),
    ("packages", release::check),
];

/// The check that needs an old libclang, which not every distribution has.
const RDMA_SYS: &str = "the feature `rdma-sys`";

/// The argument before the name of one check.
const CHECK: &str = "--check";

/// `cargo xtask ci [--check NAME]`.
pub fn command(arguments: &[String]) -> Result {
    match arguments {
        [] => whole(),
        [flag, name] if flag == CHECK => {
            let (_, check) = CHECKS.iter().find(|(known, _)| known == name).ok_or_else(|| {
                let names: Vec<_> = CHECKS.iter().map(|(name, _)| format!("`{name}`")).collect();
                format!("there is no check `{name}`; there are {}", names.join(", "))
            })?;
            setup::ready(For::Testing)?;
            check()
        }
        _ => Err("usage: cargo xtask ci [--check NAME]".to_owned()),
    }
}

fn whole() -> Result {
    let mut steps = Steps::default();
    let mut ready = false;
    steps.step("set-up", || {
        setup::ready(For::Testing)?;
        ready = true;
        Ok(())
    });
    if !ready {
        return steps.finish("cargo xtask ci");
    }

    steps.step("cargo xtask layers", layers::check);
    steps.step("cargo fmt --check", || {
        build::run("cargo fmt", build::cargo("fmt").args(["--all", "--check"]))
    });
    test::add_steps(&mut steps, &[]);
    steps.step("toolchains", toolchains);
    let mut checks = CHECKS.to_vec();
    if libclang::for_rdma_sys().is_none() {
        println!("\n== without {RDMA_SYS}: no libclang 15 or older is installed");
        checks.retain(|(name, _)| *name != RDMA_SYS);
    }
    println!("\n== {} checks, side by side; each prints when it is done", checks.len());
    executables::side_by_side(&checks, executables::processors(), alone, |done| steps.add(done))?;
    steps.finish("cargo xtask ci")
}

/// Runs a check in a process of its own, which writes all its output to a file.
fn alone(&(name, _): &Check) -> Result<Done> {
    let started = Instant::now();
    let xtask = env::current_exe().map_err(|error| format!("cannot find xtask: {error}"))?;
    let folder = build::target_directory()?.join("ci");
    let file = folder.join(name.replace(|c: char| !c.is_ascii_alphanumeric(), "-") + ".log");
    let in_file = |error| format!("cannot use {}: {error}", file.display());
    fs::create_dir_all(&folder).map_err(in_file)?;
    let output = File::create(&file).map_err(in_file)?;
    let status = Command::new(xtask)
        .args(["ci", CHECK, name])
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(in_file)?)
        .stderr(output)
        .status()
        .map_err(|error| format!("cannot run xtask: {error}"))?;
    let output = fs::read(&file).map_err(in_file)?;
    let outcome = if status.success() { Ok(()) } else { Err(status.to_string()) };
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Done { name: name.to_owned(), elapsed: started.elapsed(), outcome, output })
}

/// Installs the toolchains that the checks use: two of them at once would get in each other's way.
fn toolchains() -> Result {
    nightly::ready(&["miri", "rust-src"])?;
    arm64::install()?;
    msrv::install()
}

fn clippy() -> Result {
    let mut command = build::cargo("clippy");
    command.args(["--workspace", "--all-targets", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut command)
}

/// With the features that docs.rs shows.
fn doc() -> Result {
    let mut command = build::cargo("doc");
    command.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    command
        .args(["--features", "mlx5/cm,mlx5/flight-recorder,mlx5/lint,mlx5/timing,mlx5/unproven"])
        .args(["--features", "mlx5-tools/cm"]);
    build::run("cargo doc", &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_check_is_an_error_that_lists_the_known_ones() {
        let error = command(&[CHECK.to_owned(), "none".to_owned()]).unwrap_err();
        assert!(error.contains("`none`") && error.contains("`cargo xtask miri`"), "{error}");
        assert!(command(&["miri".to_owned()]).unwrap_err().starts_with("usage"));
    }
}
