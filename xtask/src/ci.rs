//! `cargo xtask ci`: the checks of the gate, or of the deep tier.

use std::env;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::arm64;
use crate::build;
use crate::checks::{self, Check};
use crate::deep;
use crate::executables;
use crate::msrv;
use crate::nightly;
use crate::setup::{self, For};
use crate::steps::{Done, Steps};

/// The argument before the name of one check.
const CHECK: &str = "--check";

/// The argument that chooses the deep tier.
const DEEP: &str = "--deep";

/// `cargo xtask ci [--check NAME | --deep [ARGUMENTS]]`.
pub fn command(arguments: &[String]) -> Result {
    match arguments {
        [] => gate(),
        [flag, name] if flag == CHECK => {
            let check = checks::by_name(name)?;
            setup::ready(For::Testing)?;
            check.run()
        }
        [flag, rest @ ..] if flag == DEEP => deep::command(rest),
        _ => Err("usage: cargo xtask ci [--check NAME | --deep [ARGUMENTS]]".to_owned()),
    }
}

fn gate() -> Result {
    let mut steps = Steps::default();
    if prepare(&mut steps, || nightly::ready(&["rustc"])) {
        let checks: Vec<_> = checks::GATE.iter().collect();
        side_by_side(&checks, |_, done| {
            steps.add(done);
            Ok(())
        })?;
    }
    steps.finish("cargo xtask ci")
}

/// Installs what checks need, and the toolchains for which `toolchains` asks: two of them at once
/// would get in each other's way. Returns whether checks can run.
pub fn prepare(steps: &mut Steps, toolchains: fn() -> Result) -> bool {
    let mut ready = true;
    for (name, work) in
        [("set-up", (|| setup::ready(For::Testing)) as fn() -> Result), ("toolchains", toolchains)]
    {
        steps.step(name, || {
            let outcome = work();
            ready &= outcome.is_ok();
            outcome
        });
    }
    ready
}

/// Installs the toolchains of the deep tier.
pub fn toolchains() -> Result {
    nightly::ready(&["miri", "rust-src"])?;
    arm64::install()?;
    msrv::install()
}

/// Runs checks side by side, one for each processor, and calls `each` when one is done.
///
/// # Errors
/// A check cannot be started, or `each` fails. A check that fails is no error here.
pub fn side_by_side(
    checks: &[&'static Check],
    mut each: impl FnMut(&'static Check, Done) -> Result + Send,
) -> Result {
    println!("\n== {} checks, side by side; each prints when it is done", checks.len());
    let mut outcome = Ok(());
    executables::side_by_side(checks, executables::processors(), alone, |(check, done)| {
        if outcome.is_ok() {
            outcome = each(check, done);
        }
    })?;
    outcome
}

/// Runs a check in a process of its own, which writes all its output to a file.
pub fn alone(check: &&'static Check) -> Result<(&'static Check, Done)> {
    let name = check.name;
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
    Ok((*check, Done { name: name.to_owned(), elapsed: started.elapsed(), outcome, output }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_arguments_are_refused_with_the_usage() {
        for arguments in [&["miri"][..], &[CHECK], &[CHECK, "miri", "asan"]] {
            let arguments: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
            assert!(command(&arguments).unwrap_err().starts_with("usage"), "{arguments:?}");
        }
    }
}
