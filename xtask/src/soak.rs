//! `cargo xtask soak`: runs the tests of the gate many times, also beside programs that load the
//! processors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::Result;
use crate::executables::{self, Executable, Outcome};
use crate::setup::{self, For};
use crate::test;

const USAGE: &str = "usage: cargo xtask soak [--runs N] [--load] [-- ARGUMENTS]";

/// The load beside the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Threads that compute, one for each processor.
    Load,
}

/// `cargo xtask soak [--runs N] [--load] [-- ARGUMENTS]`.
pub fn command(arguments: &[String]) -> Result {
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (runs, beside) = parse(&arguments[..end])?;
    setup::ready(For::Testing)?;
    let chosen = arguments.get(end + 1..).unwrap_or_default();
    let executables = test::gate(chosen)?;
    rounds(&executables, runs, beside)
}

/// One round of the tests of the gate beside busy threads, as the deep tier counts them.
///
/// # Errors
/// A test failed; its output is printed before.
pub fn round() -> Result {
    rounds(&test::gate(&[])?, 1, Beside::Load)
}

fn rounds(executables: &[Executable], runs: u32, beside: Beside) -> Result {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result {
        if beside == Beside::Load {
            for _ in 0..executables::processors() {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
        }
        let outcome = (1..=runs).try_for_each(|run| {
            let mut failed = 0;
            let result = test::run_suite(executables, |outcome: Outcome| {
                if outcome.passed {
                    return;
                }
                failed += 1;
                println!("{}", outcome.output);
                let names = executables::failed_tests(&outcome.output);
                for name in &names {
                    *counts.entry(format!("{} {name}", outcome.name)).or_default() += 1;
                }
                if names.is_empty() {
                    // It died, and did not say in which test.
                    *counts.entry(format!("{} (the process died)", outcome.name)).or_default() += 1;
                }
            });
            println!("run {run} of {runs}: {failed} executables failed");
            result
        });
        stop.store(true, Ordering::Relaxed);
        outcome
    })?;
    println!("\n{runs} runs of {} executables", executables.len());
    for (name, count) in &counts {
        println!("  failed {count} of {runs} times: {name}");
    }
    if counts.is_empty() { Ok(()) } else { Err(format!("{} tests failed", counts.len())) }
}

fn parse(arguments: &[String]) -> Result<(u32, Beside)> {
    let (mut runs, mut beside) = (10, Beside::Nothing);
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "--load" => beside = Beside::Load,
            "--runs" => {
                let count = arguments.next().and_then(|count| count.parse().ok());
                runs = count
                    .filter(|&runs| runs > 0)
                    .ok_or_else(|| format!("--runs takes a number from 1\n{USAGE}"))?;
            }
            other => return Err(format!("cannot take `{other}`\n{USAGE}")),
        }
    }
    Ok((runs, beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_load_are_read() {
        let parse =
            |text: &str| parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("").unwrap(), (10, Beside::Nothing));
        assert_eq!(parse("--runs 3 --load").unwrap(), (3, Beside::Load));
        for text in ["--runs", "--runs 0", "--runs x", "3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
