//! The `mlx5` command.

use std::process::ExitCode;

use clap::Parser as _;
use mlx5_tools::cli::Cli;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(answer) => Cli::answer(&answer),
    }
}
