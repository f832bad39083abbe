//! `mlx5 info`: the devices of this machine, their links, and their capabilities.
//!
//! `device` and `port` query, `capabilities` selects capabilities, and `text` formats the report
//! for people. Where no device can be used, the report has doctor's checks that say why. A value that library, kernel and HCA do not provide is `null` in JSON. The text says
//! so where a reader may look for it.

mod capabilities;
mod device;
mod physical;
mod port;
mod text;

use clap::Args;
use mlx5::verbs;
use serde::Serialize;

use crate::doctor::Obstacles;
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
///
/// It ends with status 3 if no device can be used. Then it shows what there is and what hinders:
/// function, driver, modules, device node, permission, libraries.
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
    /// The obstacles, if no device can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacles: Option<Obstacles>,
    #[serde(skip)]
    verbose: bool,
}

impl Arguments {
    /// Prints the report.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        let mut report = Report {
            devices: Vec::new(),
            others: Vec::new(),
            obstacles: None,
            verbose: self.verbose,
        };
        let unusable = self.query(machine, &mut report)?;
        output.begin()?;
        let Some(error) = unusable else {
            output.report("info", &report)?;
            return Ok(Outcome::Good);
        };
        let obstacles = report.obstacles.insert(Obstacles::find(machine));
        let mut page = obstacles.page();
        if !report.others.is_empty() {
            page.put(format!("\n{}", text::others(&report.others)));
        }
        output.unable("info", &report, &page, &error)?;
        Ok(Outcome::Unable)
    }

    /// Queries the requested device, or all. Returns why no device can be used, if none can.
    ///
    /// # Errors
    /// Wrong requests: a device that is not there beside others, an unknown word of capabilities.
    fn query(&self, machine: &Machine, report: &mut Report) -> Result<Option<Error>> {
        let listed = match machine.devices() {
            Ok(listed) => listed,
            Err(error) => return Ok(Some(error)),
        };
        let (ours, others): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .filter(|device| machine.device().is_none_or(|name| device.name() == name))
            .partition(verbs::Device::is_mlx5);
        report.others = others.iter().map(verbs::Device::name).collect();
        if ours.is_empty() {
            // Opening fails with the reason.
            return match machine.open() {
                Err(error) if machine.device().is_none() => Ok(Some(error)),
                Err(error) => Err(error),
                Ok(context) => {
                    report.devices.push(Device::of(&context, self)?);
                    Ok(None)
                }
            };
        }
        let mut failed = None;
        for device in &ours {
            // What one device refuses is no reason to hide the others.
            match device.open().map_err(Error::from).and_then(|opened| Device::of(&opened, self)) {
                Ok(queried) => report.devices.push(queried),
                Err(Error::Driver(error)) => {
                    report.devices.push(Device::closed(device, &error));
                    failed = Some(error.into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(failed.filter(|_| report.devices.iter().all(|device| device.open.is_none())))
    }
}
