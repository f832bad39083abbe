//! `mlx5 run`: runs a program on the model.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::bed::Bed;
use crate::outcome::Result;
use crate::program::{Folder, Program, Stdout, outcome, wait};

/// Run a program on the model, a software ConnectX
///
/// The program runs unchanged: the model is preloaded into it and into the processes that it starts.
/// Use it to try a verbs program on a machine without a device. The program keeps its input and
/// output, and this command ends with its exit status. What the program leaves running after its end
/// cannot start further processes on the model.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The model to put the program on [default: this command's own]
    #[arg(long, value_name = "FILE", env = "MLX5_MODEL_LIBRARY")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true)]
    program: Vec<OsString>,
}

/// The model's variable for reasons of refusals and failures. One that the caller has set stays.
const REASONS: &str = "MLX5_MODEL_REASONS";

const EXAMPLES: &str = "\
Examples:
  mlx5 run -- ibv_devinfo -v
  mlx5 run -- ibv_rc_pingpong &  mlx5 run -- ibv_rc_pingpong localhost
  MLX5_MODEL_LINK=roce mlx5 run -- ./program

The model's variables choose what the program finds: MLX5_MODEL_LINK=roce gives it an Ethernet port.";

impl Arguments {
    /// Runs the program to its end.
    pub(crate) fn run(&self) -> Result {
        let folder = Folder::new()?;
        let library = self.library.as_deref();
        let reasons = env::var_os(REASONS).unwrap_or_else(|| "stderr".into());
        let (bed, stdout) = (Bed::Model, Stdout::Own);
        let program = Program { words: &self.program, library, bed, stdout };
        let mut child = program.start(&folder, &[(REASONS, &reasons)])?;
        Ok(outcome(wait(&mut child)))
    }
}
