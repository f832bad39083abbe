//! Options that every command takes.

use clap::Args;

/// Options that every command takes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Run on the model, also where there is a device
    #[arg(long, global = true)]
    pub model: bool,
    /// The device, as ibv_devices lists it [default: the first]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub device: Option<String>,
}
