//! `mlx5 perf`: how fast messages go, and what of that the CPU has to do.
//!
//! A measurement ends in a [`result::Run`], which is all that outputs know: it says on what it was
//! measured ([`environment`]) and how, and has a [`distribution`] of times per point. [`output`]
//! makes tables and files of it, [`page`] the page with plots.

pub mod distribution;
pub mod environment;
pub mod output;
pub mod page;
pub mod result;
mod show;

use clap::{Args, Subcommand};

use crate::outcome::Result;
use crate::output::Output;

/// Measure latency, bandwidth and message rate
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    Show(show::Arguments),
}

impl Arguments {
    /// Does what the command line says.
    pub(crate) fn run(&self, output: &Output) -> Result {
        match &self.command {
            Command::Show(arguments) => arguments.run(output),
        }
    }
}
