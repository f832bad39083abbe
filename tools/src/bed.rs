//! Tells whether libibverbs runs on a real device or on the model.

use mlx5::verbs::{self, Device};
// Linked in, the model serves libibverbs where no real device is found.
use mlx5_model as _;

/// Returns whether devices are the model's. The first call decides it, if nothing did before.
#[must_use]
pub fn is_model() -> bool {
    mlx5_model::offered()
}

/// The line that reports on the model begin with.
pub const ON_THE_MODEL: &str = "the model, a software ConnectX; this is no device of this machine";

/// Returns the kind of devices: `model` or `device`; `None` where there is no device.
#[must_use]
pub fn runs_on() -> Option<&'static str> {
    if is_model() {
        return Some("model");
    }
    verbs::devices().is_ok_and(|devices| devices.iter().any(Device::is_mlx5)).then_some("device")
}
