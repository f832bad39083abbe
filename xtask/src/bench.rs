//! `cargo xtask bench`: the benchmarks, or some of them.

use std::ffi::OsStr;
use std::process::Command;

use crate::Result;
use crate::build;
use crate::record;
use crate::setup::{self, For};
use crate::test::FEATURES;

const USAGE: &str = "usage: cargo xtask bench [--quick | --limits | --bounds | --instructions | --cycles | --stores | --phases | --record]";

/// The one of phases, and the feature that it needs.
const PHASES: [&str; 4] = ["--bench", "phases", "--features", "timing"];

/// Which benchmarks run, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All, long enough to be stable.
    Full,
    /// All, as short as can be.
    Quick,
    /// Instruction counts of this crate alone, held to the limits of the rows.
    Limits,
    /// Cycles of this crate alone, held to those of floors and to the recorded ones.
    Bounds,
    /// Instruction counts alone, held to their limits and to the recorded ones.
    Instructions,
    /// Cycles alone, held to be three times fewer than libmlx5's.
    Cycles,
    /// Stores to registers and records, and fences, alone.
    Stores,
    /// The time per phase of posts and polls, by a build with the feature `timing`.
    Phases,
    /// Those that are recorded, into `docs/benchmarks`, and tables of these into the page on them.
    Record,
}

/// `cargo xtask bench`, with at most one choice.
pub fn command(arguments: &[String]) -> Result {
    let choice = parse(arguments)?;
    setup::ready(For::Testing)?;
    run(choice)
}

fn parse(arguments: &[String]) -> Result<Choice> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => Ok(Choice::Full),
        ["--quick"] => Ok(Choice::Quick),
        ["--limits"] => Ok(Choice::Limits),
        ["--bounds"] => Ok(Choice::Bounds),
        ["--instructions"] => Ok(Choice::Instructions),
        ["--cycles"] => Ok(Choice::Cycles),
        ["--stores"] => Ok(Choice::Stores),
        ["--phases"] => Ok(Choice::Phases),
        ["--record"] => Ok(Choice::Record),
        other => Err(format!("cannot take `{}`\n{USAGE}", other.join(" "))),
    }
}

/// Runs the chosen ones.
pub fn run(choice: Choice) -> Result {
    // Those that need a feature are not among `--benches`.
    match choice {
        Choice::Full => {
            calls(&[])?;
            calls(&["--cycles".as_ref()])?;
            bench(&["--benches"], &[])
        }
        Choice::Quick => {
            calls(&["--quick".as_ref()])?;
            calls(&["--cycles".as_ref(), "--quick".as_ref()])?;
            bench(&["--benches"], &["--quick".as_ref()])
        }
        Choice::Limits => calls(&["--limits".as_ref()]),
        Choice::Bounds => calls(&["--bounds".as_ref()]),
        Choice::Instructions => calls(&[]),
        Choice::Cycles => calls(&["--cycles".as_ref(), "--check".as_ref()]),
        Choice::Stores => bench(&["--bench", "stores"], &[]),
        Choice::Phases => bench(&PHASES, &[]),
        Choice::Record => {
            let folder = build::root().join("docs/benchmarks");
            let record: [&OsStr; 2] = ["--record".as_ref(), folder.as_ref()];
            calls(&record)?;
            for kind in ["--cycles", "--bounds"] {
                calls(&[kind.as_ref(), record[0], record[1]])?;
            }
            bench(&["--bench", "stores"], &record)?;
            record::output("shared", &mut package(&["--bench", "shared"], &[]))?;
            record::output("phases", &mut package(&PHASES, &[]))?;
            // Beside the counts that were just recorded.
            let feature = ["--features", "mlx5/flight-recorder"];
            calls_of(&feature, &["--recorder".as_ref(), folder.as_ref()])?;
            record::page()
        }
    }
}

/// Runs all, as short as can be.
///
/// # Errors
/// One fails; its messages are printed before.
pub fn check() -> Result {
    run(Choice::Quick)
}

/// Holds instruction counts to their limits, and cycles to their bounds.
///
/// # Errors
/// One is passed; the messages are printed before.
pub fn check_limits() -> Result {
    run(Choice::Limits)?;
    run(Choice::Bounds)
}

/// The program of posts and polls: it counts their instructions, and measures their cycles.
fn calls(arguments: &[&OsStr]) -> Result {
    calls_of(&[], arguments)
}

/// The same of a build that cargo's arguments choose.
fn calls_of(chosen: &[&str], arguments: &[&OsStr]) -> Result {
    let mut command = build::cargo("bench");
    // Without the driver's package, and so without what its tests need.
    command.args(["--profile", "limits", "--package", "mlx5-instructions"]);
    build::run("cargo bench", command.args(chosen).arg("--").args(arguments))
}

/// `cargo bench` of the driver's package, of what cargo's own arguments choose.
fn bench(chosen: &[&str], arguments: &[&OsStr]) -> Result {
    build::run("cargo bench", &mut package(chosen, arguments))
}

fn package(chosen: &[&str], arguments: &[&OsStr]) -> Command {
    let mut command = build::cargo("bench");
    command.args(["--package", "mlx5"]);
    command.args(chosen).arg("--").args(arguments);
    command
}

/// Runs the checks that need the feature `timing`: it compiles without a warning, its tests pass,
/// stamps allocate nothing, and the benchmark of phases runs. Uses debug builds.
pub fn check_timing() -> Result {
    let feature = ["--package", "mlx5", "--features", "timing"];
    let mut clippy = build::cargo_into(FEATURES, "clippy")?;
    clippy.args(feature).args(["--all-targets", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut clippy)?;
    let mut test = build::cargo_into(FEATURES, "test")?;
    test.args(feature).args(["--lib", "--test", "timing", "--test", "no_alloc"]);
    build::run("cargo test", &mut test)?;
    let mut bench = build::cargo_into(FEATURES, "bench")?;
    bench.args(feature).args(["--profile", "dev", "--bench", "phases", "--", "--quick"]);
    build::run("cargo bench", &mut bench)
}

/// Runs the check that needs the command's feature `phases`: a result has phases.
pub fn check_phases() -> Result {
    let feature = ["--package", "mlx5-tools", "--features", "phases"];
    let mut clippy = build::cargo_into("phases", "clippy")?;
    clippy.args(feature).args(["--all-targets", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut clippy)?;
    let mut test = build::cargo_into("phases", "test")?;
    test.args(feature).args(["--test", "perf_phases"]);
    build::run("cargo test", &mut test)
}

/// Runs the check that needs an optimized build: `mlx5 perf --compare` agrees with the benchmarks
/// on the direct way and on libmlx5.
pub fn check_compare() -> Result {
    let mut test = build::cargo("test");
    // Of the whole workspace, so that the libraries are those of the benchmarks.
    test.args(["--release", "--workspace", "--test", "perf_compare"]);
    build::run("cargo test", &mut test)
}

/// Runs the checks that need the feature `flight-recorder`. It compiles without a warning, also
/// together with `timing`. Every queue records. Every error's record has the failed WQE. Nothing is
/// allocated meanwhile. Uses debug builds.
pub fn check_flight() -> Result {
    let feature = ["--package", "mlx5", "--features", "flight-recorder"];
    let mut both = build::cargo_into(FEATURES, "check")?;
    both.args(["--package", "mlx5", "--features", "flight-recorder,timing"]);
    build::run("cargo check", &mut both)?;
    let mut clippy = build::cargo_into(FEATURES, "clippy")?;
    clippy.args(feature).args(["--all-targets", "--", "-D", "warnings"]);
    build::run("cargo clippy", &mut clippy)?;
    // Only a test of everything builds the examples that it runs.
    let mut example = build::cargo_into(FEATURES, "build")?;
    example.args(feature).args(["--examples"]);
    build::run("cargo build", &mut example)?;
    let mut test = build::cargo_into(FEATURES, "test")?;
    test.args(feature).args(["--lib", "--test", "flight", "--test", "no_alloc"]);
    test.args(["--test", "rc_errors", "--test", "examples"]);
    build::run("cargo test", &mut test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_choice_is_taken() {
        let parse = |text: &str| {
            let arguments: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            parse(&arguments)
        };
        assert_eq!(parse("").unwrap(), Choice::Full);
        assert_eq!(parse("--quick").unwrap(), Choice::Quick);
        assert_eq!(parse("--limits").unwrap(), Choice::Limits);
        assert_eq!(parse("--bounds").unwrap(), Choice::Bounds);
        assert_eq!(parse("--instructions").unwrap(), Choice::Instructions);
        assert_eq!(parse("--cycles").unwrap(), Choice::Cycles);
        assert_eq!(parse("--stores").unwrap(), Choice::Stores);
        assert_eq!(parse("--phases").unwrap(), Choice::Phases);
        assert_eq!(parse("--record").unwrap(), Choice::Record);
        for text in ["--quick --instructions", "--slow", "quick"] {
            assert!(parse(text).unwrap_err().contains(text), "{text}");
        }
    }
}
