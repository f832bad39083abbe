//! Options that every command takes.

use clap::Args;

/// What a command runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Devices of this machine. The model only on request, since it would hide a missing device.
    Device,
    /// A device, or the model where there is none.
    DeviceOrModel,
    /// The model alone.
    Model,
    /// Files and texts: neither a device nor the model.
    Texts,
}

/// Options that every command takes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Run on the model, a software ConnectX inside the process, and say so
    #[arg(long, global = true)]
    pub model: bool,
    /// The device, as ibv_devices lists it [default: the first]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub device: Option<String>,
}
