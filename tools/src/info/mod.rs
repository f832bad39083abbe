//! `mlx5 info`: the devices of this machine, their links, and their capabilities.
//!
//! `device` and `port` query, `capabilities` selects capabilities, and `text` formats the report
//! for people. A value that library, kernel and HCA do not provide is `null` in JSON. The text says
//! so where a reader may look for it.

mod capabilities;
mod device;
mod physical;
mod port;
mod text;

use clap::Args;
use serde::Serialize;

use crate::machine::Machine;
use crate::outcome::{Error, Outcome, Result};
use crate::output::Output;

use device::Device;

/// Show the devices, how they are linked, and what they can do
///
/// The first thing to look at on a machine: which devices there are, whether their ports are up, which
/// GID index is which kind of RoCE, whether the PCI link is what device and slot can do, which NUMA node
/// and processors are near, whether firmware commands (DevX) are open, and which kinds of doorbell
/// registers can be mapped. --json has everything that -v has.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Show limits and flags too, and all of a port's tables
    #[arg(short, long)]
    verbose: bool,
    /// Show capabilities of the device by name, of a group (`roce_cap`, `general`), or whose names contain
    /// WORD; without it all that are not zero
    #[arg(short, long, value_name = "WORD", num_args = 0..=1, default_missing_value = "")]
    capabilities: Option<String>,
    /// Show counters of the ports
    #[arg(long)]
    counters: bool,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 info                         the devices, short
  mlx5 info -v -d mlx5_0            all of one device
  mlx5 info -c roce                 the capabilities about RoCE: now, and at most
  mlx5 info -c log_max_qp           those whose name has that in it
  mlx5 info --json | jq '.report.devices[].ports[].gids'";

/// The output of the command.
#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Device>,
    /// Devices of other vendors, which the command does not query.
    others: Vec<String>,
    #[serde(skip)]
    verbose: bool,
}

impl Arguments {
    /// Prints the report.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        let mut report = Report { devices: Vec::new(), others: Vec::new(), verbose: self.verbose };
        let listed = machine.devices()?;
        if machine.device().is_some() || !listed.iter().any(|device| device.is_mlx5()) {
            // Opening fails with the reason if no device can be used.
            report.devices.push(Device::of(&machine.open()?, self)?);
        } else {
            let (mut failed, mut opened) = (None, false);
            for device in listed {
                if !device.is_mlx5() {
                    report.others.push(device.name());
                    continue;
                }
                match device.open() {
                    Ok(context) => match Device::of(&context, self) {
                        Ok(queried) => {
                            opened = true;
                            report.devices.push(queried);
                        }
                        // What one device refuses is no reason to hide the others.
                        Err(Error::Driver(error)) => {
                            report.devices.push(Device::closed(&device, &error));
                            failed = Some(error);
                        }
                        Err(error) => return Err(error),
                    },
                    Err(error) => {
                        report.devices.push(Device::closed(&device, &error));
                        failed = Some(error);
                    }
                }
            }
            if let (Some(error), false) = (failed, opened) {
                return Err(error.into());
            }
        }
        output.begin()?;
        output.report("info", &report)?;
        Ok(Outcome::Good)
    }
}
