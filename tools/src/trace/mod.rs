//! `mlx5 trace`: shows how a program uses the HCA, as it happens.
//!
//! `run` starts the program, on the model or observed on a device, and collects the streams of its processes, `recording` reads
//! a stream and stores a copy. `story` turns events into
//! `line`s, with `command` for firmware commands and `packet` for packets. It remembers posted
//! requests, so that a completion can name its request. `filter` selects lines, `print` writes
//! them.

mod command;
mod filter;
pub(crate) mod line;
mod packet;
mod print;
pub(crate) mod recording;
pub(crate) mod refused;
pub(crate) mod run;
pub(crate) mod story;
mod wqe;

use std::ffi::OsString;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use mlx5_model::trace::{ReadError, Reader};

use crate::bed;
use crate::options::Subject;
use crate::outcome::Result;
use crate::output::{Form, Output};
use crate::program::{Program, Stdout};
use filter::Filter;

/// Run a program and show what it does with the device: strace for the device
///
/// The program runs unchanged on a device of this machine, or with --model on the model, a software
/// ConnectX. Each firmware command, doorbell, WQE and CQE is a line, in order, with the seconds since
/// the beginning. On the model, EQEs, packets and interrupts are lines too. A completion names the
/// request that it completes. Use it to find out why a request failed, what a library posts, in
/// which order a program makes its objects, or whether it rings more than it has to.
///
/// The trace goes to standard error, what the program prints stays its own, and so does its exit
/// status. Processes that it starts are traced as well.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    filter: Filter,
    /// Show all fields of commands, WQEs in several lines, and each store to a register
    #[arg(short, long)]
    verbose: bool,
    /// Write the trace to a file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep a recording, for --from and for `mlx5 replay`. Of further processes, FILE.PID
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Show a recording, on standard output, instead of running a program
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "program"])]
    from: Option<PathBuf>,
    /// Write the packets of the recording to a pcapng file, for Wireshark, instead of showing it
    #[arg(
        long,
        value_name = "FILE",
        requires = "from",
        conflicts_with_all = [
            "kind", "qp", "cq", "errors", "verbose", "output", "record", "program",
        ]
    )]
    pcap: Option<PathBuf>,
    /// The library to preload into the program: model and observer [default: this command's own]
    #[arg(long, value_name = "FILE", env = "MLX5_MODEL_LIBRARY")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "from")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 trace -- ibv_rc_pingpong &  mlx5 trace -- ibv_rc_pingpong localhost
  mlx5 trace --errors -- ./program       only what went wrong
  mlx5 trace --kind wqe,cqe --qp 0x12300 -o wqes.txt -- ./program
  mlx5 trace --json --record run.trace -- ./program 2> run.jsonl
  mlx5 trace --from run.trace --kind command -v
  mlx5 replay run.trace                  do the same again, and compare
  mlx5 trace --from run.trace --pcap run.pcapng

With --model, the model's variables choose what the program finds: MLX5_MODEL_LINK=roce gives it an Ethernet port.";

impl Arguments {
    /// What the command runs on.
    pub(crate) fn subject(&self) -> Subject {
        if self.program.is_empty() { Subject::Texts } else { Subject::Device }
    }

    /// Traces the program, or shows a recording.
    pub(crate) fn run(&self, output: &Output) -> Result {
        let style = line::Style { json: output.is_json(), verbose: self.verbose };
        let form = if output.is_json() { Form::Json } else { Form::Text };
        match (&self.from, &self.pcap) {
            (Some(file), Some(capture)) => recording::export(file, capture),
            (Some(file), None) => recording::show(
                file,
                &self.filter,
                style,
                print::Printer::open(&self.output, true, form)?,
            ),
            (None, _) => {
                let program = Program {
                    words: &self.program,
                    library: self.library.as_deref(),
                    bed: bed::of_programs()?,
                    stdout: Stdout::Own,
                };
                let traced = run::Traced { program, record: self.record.as_deref() };
                traced.trace(&self.filter, style, print::Printer::open(&self.output, false, form)?)
            }
        }
    }
}

/// Passes every line that `mlx5 trace --from --verbose` prints for a recording, as text or as JSON.
///
/// # Errors
/// Fails if the bytes are not a recording, or cannot be read on. The lines before were passed.
pub fn lines<R: Read>(
    recording: R,
    json: bool,
    mut line: impl FnMut(&str),
) -> Result<(), ReadError> {
    let style = line::Style { json, verbose: true };
    recording::tell(Reader::new(recording)?, &Filter::none(), style, |text| {
        line(text);
        ControlFlow::Continue(())
    })
}
