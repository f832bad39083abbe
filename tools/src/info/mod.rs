//! `mlx5 info`: the devices of this machine, and what they can do.

use std::fmt;

use clap::Args;
use mlx5::verbs::Context;
use serde::Serialize;

use crate::machine::Machine;
use crate::outcome::{Outcome, Result};
use crate::output::Output;

/// Show the devices, their ports and what they can do
#[derive(Args, Clone, Debug)]
pub struct Arguments {}

/// What the command tells.
#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
struct Device {
    name: String,
    product: &'static str,
    board_id: Option<String>,
}

impl Arguments {
    /// Prints the report.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        let context = machine.open()?;
        output.report("info", &Report { devices: vec![Device::of(&context)?] })?;
        Ok(Outcome::Good)
    }
}

impl Device {
    fn of(context: &Context) -> Result<Device> {
        Ok(Device {
            name: context.name(),
            product: context.attributes()?.product(),
            board_id: context.board_id(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for device in &self.devices {
            write!(f, "{}: {}", device.name, device.product)?;
        }
        Ok(())
    }
}
