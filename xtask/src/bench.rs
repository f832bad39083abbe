//! `cargo xtask bench`: the benchmarks, or with `--quick` a run that only shows that they work, or
//! with `--instructions` only the one that counts instructions and holds them to limits.

use crate::Result;
use crate::build;
use crate::libclang::Decision;
use crate::setup::{self, For};

const USAGE: &str = "usage: cargo xtask bench [--quick | --instructions]";

/// Which benchmarks run, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All, long enough to be stable.
    Full,
    /// All, as short as can be.
    Quick,
    /// Instruction counts alone.
    Instructions,
}

/// `cargo xtask bench [--quick | --instructions]`.
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
        other => Err(format!("cannot take `{}`\n{USAGE}", other.join(" "))),
    }
}

/// Runs the chosen ones.
pub fn run(decision: &Decision, choice: Choice) -> Result {
    let mut command = build::cargo_with("bench", decision);
    // `--benches` would also run the library's own harness, which does not know `--quick`.
    let which = if choice == Choice::Instructions { "instructions" } else { "*" };
    command.args(["--package", "mlx5", "--bench", which]);
    if choice == Choice::Quick {
        command.args(["--", "--quick"]);
    }
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
        for text in ["--quick --instructions", "--slow", "quick"] {
            assert!(parse(text).unwrap_err().contains(text), "{text}");
        }
    }
}
