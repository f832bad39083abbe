//! `mlx5 doctor`: finds faults that prevent traffic, and names the cure of each.
//!
//! [`situation`] finds the objects to examine: an opened device, and the machine's files, which
//! [`tree`] reads from `/` or from a folder. Each family of checks has a file ([`pci`],
//! [`kernel`], [`access`], [`libraries`], [`device`], [`memory`], [`port`] with [`gid`] and
//! [`vlan`], [`fabric`], [`flow`] and [`congestion`], [`counters`], [`sharing`], [`physical`], [`devlink`], [`direct`],
//! [`log`], [`registers`], [`processor`], [`placement`], [`traffic`]) with a function that returns the
//! results ([`check`]). [`report`] sorts the results and gives the verdict, as [`text`] too.
//! [`obstacles`] are the checks that decide whether a device can be opened. [`peer`] compares the
//! machine with another.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::machine::Machine;
use crate::outcome::{Error, Outcome, Result};
use crate::output::Output;

mod access;
mod check;
mod congestion;
mod counters;
mod dcb;
mod debugfs;
mod device;
mod devlink;
mod direct;
mod ethtool;
mod fabric;
mod flow;
mod gid;
mod kernel;
mod libraries;
mod log;
mod memory;
mod obstacles;
mod pci;
mod peer;
mod physical;
mod placement;
mod port;
mod processor;
mod registers;
mod report;
mod sharing;
mod situation;
mod text;
mod traffic;
mod tree;
mod vlan;

use check::{Check, Verdict};
pub(crate) use device::devx_cure;
pub(crate) use flow::flow_control;
pub(crate) use obstacles::Obstacles;
use report::Report;
use situation::Situation;

/// The TCP port of `mlx5 doctor --listen`.
const TCP_PORT: u16 = 18518;

/// Find what keeps messages from being sent, with its cure
///
/// Looks at everything that has to be right before the first message: the device on the PCI bus,
/// modules of the kernel, device nodes and permissions, libraries, limits of memory, ports and their
/// addresses, doorbell registers, and what makes latencies irregular (frequency, idle states, NUMA).
/// Last it sends a message from each active port to itself.
///
/// It examines all devices of this machine, or the one of --device: first the verdict on each, then
/// the details. It does not fall back to the model, which would hide that there is
/// no device: --model asks for it, and the first line of the output says so.
///
/// Each check is ok, a WARNING (traffic is possible, but slower or less regular), BROKEN (no traffic is
/// possible), or a question mark, where it could not be found out. The exit status is 1 if anything is
/// broken.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Say of every check why it matters and where it was looked
    #[arg(short, long)]
    verbose: bool,
    /// Only this port [default: all]
    #[arg(short, long, value_name = "PORT")]
    port: Option<u8>,
    /// The GID index that a program uses: is it the right one?
    #[arg(short, long, value_name = "INDEX")]
    gid_index: Option<u32>,
    /// The RoCE version that the peer speaks
    #[arg(long, value_name = "VERSION")]
    roce: Option<RoceVersion>,
    /// The peer's active MTU in bytes, as its ibv_devinfo says: does it fit?
    #[arg(long, value_name = "BYTES", value_parser = peer_mtu)]
    peer_mtu: Option<usize>,
    /// Send no message
    #[arg(long)]
    no_traffic: bool,
    /// Compare this machine with the one at the other end, where `mlx5 doctor --listen` runs, and send
    /// messages of each transport between them
    #[arg(value_name = "HOST", conflicts_with_all = ["root", "peer_mtu", "no_traffic"])]
    host: Option<String>,
    /// Be the other end for `mlx5 doctor HOST`, one host after the other
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "",
          conflicts_with_all = ["host", "root", "peer_mtu", "no_traffic"])]
    listen: Option<String>,
    /// End after one host
    #[arg(long, requires = "listen")]
    once: bool,
    /// TCP port of the other end
    #[arg(long, value_name = "PORT", default_value_t = TCP_PORT)]
    tcp_port: u16,
    /// Seconds that the connection to the other end, and each step on it, may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    limit: u64,
    /// Examine a copy of a machine's /sys, /proc, /dev and /etc in this folder; opens no device
    #[arg(long, value_name = "FOLDER", conflicts_with = "model")]
    root: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 doctor                        what is wrong with this machine's devices?
  mlx5 doctor -v                     and why would that matter?
  mlx5 doctor --gid-index 3 --roce 2 --peer-mtu 4096
                                     will this connection work?
  mlx5 doctor --listen               on one host; then, on the other:
  mlx5 doctor HOST                   do both ends fit? does a message arrive?
  mlx5 doctor --root /tmp/sosreport  what was wrong with that machine?
  mlx5 doctor --json | jq '.report.checks[] | select(.verdict == \"broken\")'
  mlx5 doctor --model                the same on the model";

/// Version 1 is an Ethernet type of its own, 2 goes over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoceVersion {
    /// An Ethernet type of its own, not routed
    #[value(name = "1")]
    V1,
    /// Over UDP and IP
    #[value(name = "2")]
    V2,
}

impl fmt::Display for RoceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RoceVersion::V1 => "RoCE v1",
            RoceVersion::V2 => "RoCE v2",
        })
    }
}

fn peer_mtu(text: &str) -> std::result::Result<usize, String> {
    let bytes = text.parse().map_err(|_| "not a number".to_owned())?;
    mlx5::verbs::attr::Mtu::from_bytes(bytes)
        .map(|mtu| mtu.bytes())
        .map_err(|error| error.to_string())
}

impl Arguments {
    /// Runs all checks and prints what is wrong.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        if let Some(root) = self.root.as_ref().filter(|root| !root.is_dir()) {
            return Err(Error::Told(format!(
                "{} is no folder: name one that holds a machine's sys, proc and dev",
                root.display()
            )));
        }
        let situations = Situation::find(machine, self);
        if let Some(address) = &self.listen {
            machine.say_model();
            return peer::listen(self, address, &situations);
        }
        if let Some(host) = &self.host {
            return peer::examine(self, host, &situations, output);
        }
        let examined = match &self.root {
            Some(root) => format!("by the files in {}", root.display()),
            None if situations.iter().any(|situation| situation.model) => "on the model".to_owned(),
            None => "on this machine".to_owned(),
        };
        let devices = situations.iter().map(|situation| {
            (situation.device.as_ref().map(|device| device.name.clone()), of_device(situation))
        });
        let devices = devices.collect();
        // The machine is the same in all situations.
        let common = situations.first().map(of_machine).unwrap_or_default();
        let report = Report::new(examined, devices, common, self.verbose);
        output.begin()?;
        output.page("doctor", &report, &report.page())?;
        Ok(if report.counts.broken > 0 { Outcome::Bad } else { Outcome::Good })
    }
}

/// A function that makes related checks.
type Family = fn(&Situation) -> Vec<Check>;

/// Runs the checks of a device, in order.
fn of_device(situation: &Situation) -> Vec<Check> {
    const FAMILIES: [Family; 16] = [
        pci::look,
        direct::look,
        log::look,
        kernel::of_device,
        access::look,
        device::look,
        devlink::look,
        physical::heat,
        memory::look,
        port::look,
        counters::look,
        sharing::look,
        physical::look,
        registers::look,
        placement::look,
        traffic::look,
    ];
    grouped(&FAMILIES, situation)
}

/// Runs the checks of the machine, in order.
fn of_machine(situation: &Situation) -> Vec<Check> {
    const FAMILIES: [Family; 6] = [
        kernel::look,
        direct::common,
        access::common,
        libraries::look,
        memory::common,
        processor::look,
    ];
    grouped(&FAMILIES, situation)
}

/// Runs checks, and brings those of a group together.
fn grouped(families: &[Family], situation: &Situation) -> Vec<Check> {
    let mut checks: Vec<Check> = families.iter().flat_map(|family| family(situation)).collect();
    checks.sort_by_key(|check| check.group);
    checks
}
