//! `mlx5 monitor`: observes a program, names its first failures, and writes metrics.
//!
//! The library of `mlx5-monitor` is preloaded into the program, and leaves what it sees on a board in shared
//! memory. `queue` copies a cell of it, `failure` explains what failed, `metrics` writes OpenMetrics
//! text, and `follow` reads the board while the program runs.

mod failure;
mod follow;
mod metrics;
mod queue;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use mlx5_monitor::board::{Board, VARIABLE};

use crate::bed;
use crate::outcome::{Error, Result};
use crate::output::{Form, Output, say, stderr};
use crate::program::{Folder, Program, Stdout, outcome, wait};
use follow::Follower;

/// Run a program, explain its first failures, and write metrics: cheap enough to leave on
///
/// The program runs unchanged, on a device of this machine, or with --model on the model. A library
/// that is preloaded into it notes each post and each completion, with at most 60 instructions a post and
/// 40 a poll. At the first completion with an error of each queue pair, one paragraph on standard error
/// says which request failed, to which peer, why, and since when the peer was silent. The program keeps
/// its input and output, and this command ends with its exit status.
///
/// Programs that write to the device's queues themselves (UCX, DPDK, programs with the crate mlx5) are
/// left alone, and named.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Write metrics as OpenMetrics text to a file, at intervals and at the end
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Seconds between two writes of the metrics
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=86400)
    )]
    interval: u64,
    /// With --model, the model to put the program on [default: this command's own]
    #[arg(long, value_name = "FILE", env = "MLX5_MODEL_LIBRARY")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true)]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 monitor -- ib_write_bw peer
  mlx5 monitor --metrics /run/metrics/server.prom -- ./server
  mlx5 monitor --json -- ./program 2> failures.jsonl";

/// The longest time between two looks at the board: cells of destroyed queue pairs are freed then.
const SELDOM: Duration = Duration::from_secs(10);

impl Arguments {
    /// Runs the program to its end.
    pub(crate) fn run(&self, output: &Output) -> Result {
        let board = Board::create().map_err(|error| Error::File {
            what: "cannot make the memory that the program's processes report to".to_owned(),
            error,
        })?;
        if let Some(file) = &self.metrics {
            metrics::write(file, &[])?;
        }
        let folder = Folder::new()?;
        let path = board.path();
        let program = Program {
            words: &self.program,
            library: self.library.as_deref(),
            bed: bed::of_programs()?,
            stdout: Stdout::Own,
        };
        let mut follower = Follower::new(output.is_json());
        let mut child = program.start_monitored(&folder, &[(VARIABLE, OsStr::new(&path))])?;
        let is_over = AtomicBool::new(false);
        let interval = Duration::from_secs(self.interval);
        let status = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let status = wait(&mut child);
                is_over.store(true, Ordering::Release);
                board.wake();
                status
            });
            self.follow(&mut follower, &board, &is_over, interval);
            waiting.join().expect("waiting does not panic")
        });
        follower.conclude();
        Ok(outcome(status))
    }

    /// Reads the board until the program is over. Metrics that cannot be written do not end the program.
    fn follow(
        &self,
        follower: &mut Follower,
        board: &Board,
        is_over: &AtomicBool,
        interval: Duration,
    ) {
        let form = if follower.is_json() { Form::Json } else { Form::Text };
        let mut written = Instant::now();
        loop {
            let seen = board.wakes();
            // Before the last look, so that the look sees everything.
            let was_over = is_over.load(Ordering::Acquire);
            let text = follower.look(board);
            // Nobody is left to tell if it cannot be printed.
            let _ = stderr(form).write_all(text.as_bytes());
            if let Some(file) = &self.metrics {
                if was_over || written.elapsed() >= interval {
                    written = Instant::now();
                    if let Err(error) = metrics::write(file, &follower.queues()) {
                        say!("{error}");
                    }
                }
            }
            if was_over {
                return;
            }
            let left = interval.saturating_sub(written.elapsed());
            let time = if self.metrics.is_some() { left.min(SELDOM) } else { SELDOM };
            board.wait(seen, time);
        }
    }
}
