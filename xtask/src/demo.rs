//! `cargo xtask demo`: messages between two processes, on WQEs that the crate wrote itself.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::build;
use crate::pair;
use crate::setup::{self, For};

/// The default modes.
const MODES: [&str; 3] = ["send", "write", "read"];

/// How long one run of the example may take; on two cores it takes well under a second.
const LIMIT: Duration = Duration::from_secs(60);

/// `cargo xtask demo [-- ARGUMENTS]`.
pub fn command(arguments: &[String]) -> Result {
    let arguments = match arguments.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => arguments,
    };
    setup::ready(For::Building)?;
    let mut cargo = build::cargo("build");
    cargo.args(["--release", "--package", "mlx5", "--example", "rc_pingpong"]);
    build::run("building examples/rc_pingpong", &mut cargo)?;
    let program = build::target_directory()?.join("release/examples/rc_pingpong");

    converse(|| Command::new(&program), arguments)
}

/// Runs both sides of the example, which `program` starts: with these arguments, or once in each of
/// the default modes.
///
/// # Errors
/// A side fails, or takes too long.
pub fn converse(program: impl Fn() -> Command, arguments: &[String]) -> Result {
    let runs: Vec<Vec<String>> = if arguments.is_empty() {
        MODES.iter().map(|mode| vec!["--mode".to_owned(), (*mode).to_owned()]).collect()
    } else {
        vec![arguments.to_vec()]
    };
    let started = Instant::now();
    for run in &runs {
        println!("\n$ rc_pingpong --listen 127.0.0.1:0 {}", run.join(" "));
        let side = |option: &str, address: &str| {
            let mut command = program();
            command.args([option, address]).args(run);
            command
        };
        pair::converse(
            side("--listen", "127.0.0.1:0"),
            |address| {
                println!("$ rc_pingpong --connect {address} {}", run.join(" "));
                side("--connect", address)
            },
            LIMIT,
        )?;
    }
    println!("\nBoth sides succeeded, {} times, in {:.1?}.", runs.len(), started.elapsed());
    Ok(())
}
