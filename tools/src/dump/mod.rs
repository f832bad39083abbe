//! `mlx5 dump`: the HCA's contexts of the queues of running programs.
//!
//! `process` queries the devices that a process has open, `look` finds its objects, `report` defines the output, `watch` compares repeated
//! looks.

mod look;
mod process;
mod report;
mod watch;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::machine::Machine;
use crate::outcome::{Error, Outcome, Result};
use crate::output::{Output, say};

/// Show what the device knows of the queues of a running program
///
/// For a program that hangs: is its queue pair in RTS, does it send to the right peer, how far are its
/// PSNs and counters, did its CQ overrun? Contexts of queue pairs, CQs and shared receive queues come
/// from the device (QUERY_QP and the like), by the names of mlx5_ifc.h, and the keys of memory regions
/// from the kernel. The program is not stopped and does not notice: its open device is only asked.
///
/// Without --pid, the programs that have devices open are listed. It takes the permission to trace
/// the process: the same user, or root.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The process
    #[arg(short, long)]
    pid: Option<u32>,
    /// Show only objects of these kinds
    #[arg(short, long, value_enum, value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Show only objects of these numbers. Queues that were made by firmware command, DCTs, and CQs and
    /// shared receive queues that no queue pair uses are found by them alone, as the kernel does not
    /// tell of those
    #[arg(short, long, value_parser = number, value_delimiter = ',')]
    number: Vec<u32>,
    /// Show fields that are zero, too
    #[arg(short, long)]
    verbose: bool,
    /// Look again every so many seconds, and show what changed
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = seconds)]
    watch: Option<Duration>,
    /// With --watch: end after so many looks [default: when the process ends]
    #[arg(long, requires = "watch")]
    count: Option<u64>,
    /// How many handles are looked at: each object of a program takes one
    #[arg(long, default_value_t = 1024)]
    handles: u32,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 dump                                  who has devices open
  mlx5 dump --pid 4711                       everything of one program
  mlx5 dump -p $(pidof ib_write_bw) -k qp    its queue pairs
  mlx5 dump -p 4711 -n 0x1a2b -w 0.5         one queue pair, and what moves in it

Exit status: 3 if no object has a number of --number.";

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Queue pairs
    Qp,
    /// Targets of dynamic connections
    Dct,
    /// Completion queues
    Cq,
    /// Shared receive queues
    Srq,
    /// Memory regions
    Mr,
    /// Protection domains
    Pd,
}

/// Parses a decimal or hexadecimal number, as programs print queue pair numbers.
fn number(text: &str) -> std::result::Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number such as 4711 or 0x1267".to_owned())
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let wanted = "a number of seconds such as 1 or 0.2";
    let seconds: f64 = text.parse().map_err(|_| wanted.to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wanted.to_owned())
}

impl Arguments {
    /// Prints one report, or reports in sequence.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        machine.devices()?;
        output.begin()?;
        let Some(pid) = self.pid else {
            output.report("dump", &look::everybody()?)?;
            return Ok(Outcome::Good);
        };
        let process = process::process(pid)?;
        if process.devices.is_empty() {
            return Err(Error::Told(format!(
                "{} (process {pid}) has no RDMA device open; `mlx5 dump` lists those that have",
                process.name
            )));
        }
        let target = look::Target::open(process, self)?;
        let first = target.look()?;
        let missing = first.missing(&self.number);
        if !missing.is_empty() && first.objects().next().is_none() {
            return Err(Error::Told(missing));
        }
        output.report("dump", &first)?;
        if let Some(every) = self.watch {
            watch::run(&target, first, every, self.count, output)?;
        }
        if !missing.is_empty() {
            say!("{missing}");
            return Ok(Outcome::Unable);
        }
        Ok(Outcome::Good)
    }

    /// Returns whether all queues of some kind are to be shown.
    fn wants_queues(&self) -> bool {
        let queue = |kind: &Kind| matches!(kind, Kind::Qp | Kind::Dct | Kind::Cq | Kind::Srq);
        self.number.is_empty() && (self.kind.is_empty() || self.kind.iter().any(queue))
    }

    fn wants(&self, kind: process::ProcessObjectKind, number: Option<u32>) -> bool {
        let kinds = self.kind.is_empty()
            || self.kind.iter().any(|wanted| {
                let wanted = wanted.to_possible_value();
                wanted.is_some_and(|wanted| wanted.get_name() == kind.name())
            });
        let numbers =
            self.number.is_empty() || number.is_some_and(|number| self.number.contains(&number));
        kinds && numbers
    }
}
