//! `cargo xtask bench`: the benchmarks, or some of them.

use std::ffi::OsStr;

use crate::Result;
use crate::build;
use crate::libclang::Decision;
use crate::setup::{self, For};

const USAGE: &str = "usage: cargo xtask bench [--quick | --instructions | --cycles | --record]";

/// The ones whose results are in `docs/benchmarks`.
const RECORDED: &[&str] = &["instructions", "post_poll"];

/// Which benchmarks run, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All, long enough to be stable.
    Full,
    /// All, as short as can be.
    Quick,
    /// Instruction counts alone, held to their limits and to the recorded ones.
    Instructions,
    /// Cycles alone, held to be three times fewer than libmlx5's.
    Cycles,
    /// Those that are recorded, into `docs/benchmarks`.
    Record,
}

/// `cargo xtask bench [--quick | --instructions | --cycles | --record]`.
pub fn command(arguments: &[String]) -> Result {
    let choice = parse(arguments)?;
    let decision = setup::ready(For::Testing)?;
    run(&decision, choice)
}

fn parse(arguments: &[String]) -> Result<Choice> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => Ok(Choice::Full),
        ["--quick"] => Ok(Choice::Quick),
        ["--instructions"] => Ok(Choice::Instructions),
        ["--cycles"] => Ok(Choice::Cycles),
        ["--record"] => Ok(Choice::Record),
        other => Err(format!("cannot take `{}`\n{USAGE}", other.join(" "))),
    }
}

/// Runs the chosen ones.
pub fn run(decision: &Decision, choice: Choice) -> Result {
    // `--benches` would also run the library's own harness, which does not know `--quick`.
    match choice {
        Choice::Full => bench(decision, "*", &[]),
        Choice::Quick => bench(decision, "*", &["--quick".as_ref()]),
        Choice::Instructions => bench(decision, "instructions", &[]),
        Choice::Cycles => bench(decision, "post_poll", &["--check".as_ref()]),
        Choice::Record => {
            let folder = build::root().join("docs/benchmarks");
            RECORDED
                .iter()
                .try_for_each(|name| bench(decision, name, &["--record".as_ref(), folder.as_ref()]))
        }
    }
}

fn bench(decision: &Decision, name: &str, arguments: &[&OsStr]) -> Result {
    let mut command = build::cargo_with("bench", decision);
    command.args(["--package", "mlx5", "--bench", name, "--"]).args(arguments);
    build::run("cargo bench", &mut command)
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
        assert_eq!(parse("--instructions").unwrap(), Choice::Instructions);
        assert_eq!(parse("--cycles").unwrap(), Choice::Cycles);
        assert_eq!(parse("--record").unwrap(), Choice::Record);
        for text in ["--quick --instructions", "--slow", "quick"] {
            assert!(parse(text).unwrap_err().contains(text), "{text}");
        }
    }
}
