//! `mlx5 perf`: measures message latency and throughput, and their CPU cost.
//!
//! The [`client`] decides what to measure. Its [`arguments`] make a [`plan`] per point, and a
//! [`session`] over TCP tells it to the [`server`]. A [`peer`] is this server or one of perftest.
//! Both sides make the same objects: a [`station`] per thread. A [`path`] to the HCA is made from it:
//! the direct path, the path through libmlx5, or either with time stamps. [`cm`] connects them by
//! rdma_cm. The [`loops`] run over any path and are compiled for each path and each kind of request;
//! all other code is compiled once ([`loops::Runner`]). [`compare`] measures both ways in turn.
//!
//! Ctrl-C is an [`interrupt`] of it. A measurement ends in a [`result::Run`], which has all the data
//! of the outputs. [`output`] makes tables and files from it, [`page`] the page with plots.

pub mod arguments;
pub mod client;
pub mod cm;
pub mod compare;
pub mod interrupt;
pub mod limit;
pub mod loops;
pub mod output;
pub mod page;
pub mod path;
pub mod peer;
mod perftest;
pub mod plan;
mod points;
mod progress;
pub mod result;
pub mod server;
pub mod session;
mod show;
pub mod station;
mod talk;
mod watch;

use clap::{Args, Subcommand};

use crate::machine::Machine;
use crate::outcome::Result;
use crate::output::Output;
use output::Outputs;
use result::Kind;

/// Measure latency, bandwidth and message rate
///
/// One side runs `mlx5 perf server`, the other `mlx5 perf lat HOST` (or bw, or rate) and decides what
/// is measured; with `--loopback` one process is both. Options that perftest has too have the same
/// letters: -s size, -n iterations, -D duration, -c transport, -q qps, -t depth, -l batch, -Q
/// signal-every, -I inline, -m mtu, -S sl, -x gid-index, -i ib-port, -p port, -b bidirectional, -e
/// events, -R rdma_cm, -T traffic-class.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Measure how long a message takes
    ///
    /// SEND, WRITE and WRITE with immediate go back and forth, and half of a round trip is reported, as
    /// perftest does; READ and atomics are timed from post to completion. With `--rate`, messages are
    /// sent by a schedule and timed from when they should have been sent: all of the way there and back.
    #[command(after_help = LAT_EXAMPLES)]
    Lat(Measurement),
    /// Measure how many bytes go through
    ///
    /// Each queue pair has as many requests outstanding as `--depth` says. Latencies are reported, too:
    /// of each request that has a completion (`--signal-every`), from its post to that.
    #[command(after_help = BW_EXAMPLES)]
    Bw(Measurement),
    /// Measure how many messages go through
    ///
    /// As bw, with what is usual for short messages: 8 bytes inline, 16 to a doorbell, a completion for
    /// every 64th.
    #[command(after_help = RATE_EXAMPLES)]
    Rate(Measurement),
    Server(server::Arguments),
    Show(show::Arguments),
}

const LAT_EXAMPLES: &str = "\
Examples:
  mlx5 perf lat HOST                                   # SENDs of 8 bytes, as ib_send_lat
  mlx5 perf lat HOST -o write -s 64 --cpu 3            # as ib_write_lat, on CPU 3
  mlx5 perf lat HOST -o read --sweep 8..64K            # READs of all powers of two
  mlx5 perf lat HOST -c raw --group 239.1.1.1          # UDP multicast, and answers to this host
  mlx5 perf lat HOST --rate 100k/s --arrivals poisson  # latency under load, stalls included
  mlx5 perf lat --loopback --percentiles 50,99,99.999 --raw-samples lat.csv";

const BW_EXAMPLES: &str = "\
Examples:
  mlx5 perf bw HOST -o write -D 10s                    # WRITEs of 64 KiB, for ten seconds
  mlx5 perf bw HOST -o write --sweep 2..8M --report bw.html
  mlx5 perf bw HOST -c ud -s 1024 -q 4 --threads 2     # datagrams, two threads of two queue pairs
  mlx5 perf bw HOST -b                                 # both directions at once
  mlx5 perf bw HOST -o write --memory dmabuf           # out of a dma-buf
  mlx5 perf bw HOST --validate                         # every byte is looked at";

const RATE_EXAMPLES: &str = "\
Examples:
  mlx5 perf rate HOST -o write                         # WRITEs of 8 bytes, 16 to a doorbell
  mlx5 perf rate HOST -l 1                             # a doorbell for each message
  mlx5 perf rate HOST --threads 4 --cpu 2-5            # four threads, each on a CPU";

/// Options of a measurement, and where its result goes.
#[derive(Args, Clone, Debug)]
struct Measurement {
    #[command(flatten)]
    arguments: arguments::Arguments,
    #[command(flatten)]
    outputs: Outputs,
}

impl Arguments {
    /// Runs the selected command.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        match &self.command {
            Command::Lat(measurement) => measurement.run(Kind::Lat, machine, output),
            Command::Bw(measurement) => measurement.run(Kind::Bw, machine, output),
            Command::Rate(measurement) => measurement.run(Kind::Rate, machine, output),
            Command::Server(arguments) => arguments.run(machine, output),
            Command::Show(arguments) => arguments.run(output),
        }
    }
}

impl Measurement {
    fn run(&self, kind: Kind, machine: &Machine, output: &Output) -> Result {
        self.outputs.check(output)?;
        let found = client::measure(kind, &self.arguments, machine, output)?;
        self.outputs.write(&format!("perf {kind}"), &found.run, output)?;
        Ok(found.outcome())
    }
}
