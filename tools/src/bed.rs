//! Tells whether libibverbs runs on a real device or on the model.

use mlx5::verbs::{self, Device};
// Linked in, the model serves libibverbs where no real device is found.
use mlx5_model as _;

use crate::outcome::{Error, Result};

/// The device or the model that a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bed {
    /// The model.
    Model,
    /// The devices of this machine.
    Device,
}

/// Returns what a program runs on: the model, or the devices of this machine if it has any.
///
/// # Errors
/// [`Error::NoDevice`] if there is neither.
pub fn of_programs() -> Result<Bed> {
    match runs_on() {
        Some(MODEL) => Ok(Bed::Model),
        Some(_) => Ok(Bed::Device),
        None => Err(missing(
            "no mlx5 device found: `lspci -d 15b3:` lists this machine's ConnectX functions, and \
             their driver is mlx5_ib"
                .to_owned(),
        )),
    }
}

/// Returns the error of a machine without a device. Where the model was asked for and is withheld, the
/// error says why instead.
pub fn missing(text: String) -> Error {
    match withheld() {
        Some(reason) => Error::Told(reason),
        None => Error::NoDevice(text),
    }
}

/// Returns why the model, although asked for, offers no device: the variable that is wrong.
#[must_use]
pub fn withheld() -> Option<String> {
    mlx5_model::refusal().map(|reason| format!("the model offers no device: {reason}"))
}

/// The name of the model as a kind of devices.
const MODEL: &str = "model";

/// Returns whether devices are the model's. The first call decides it, if nothing did before.
#[must_use]
pub fn is_model() -> bool {
    mlx5_model::offered()
}

/// Returns the profile of the model and where its values are from, where devices are the model's: what
/// reports say of it. The first call decides it, if nothing did before.
#[must_use]
pub fn profile() -> Option<&'static str> {
    mlx5_model::profile()
}

/// Returns the name of the model with its profile, where devices are the model's.
#[must_use]
pub fn model() -> Option<String> {
    profile().map(|profile| format!("the model, a software ConnectX ({profile})"))
}

/// Returns the kind of devices: `model` or `device`; `None` where there is no device.
#[must_use]
pub fn runs_on() -> Option<&'static str> {
    if is_model() {
        return Some(MODEL);
    }
    verbs::devices().is_ok_and(|devices| devices.iter().any(Device::is_mlx5)).then_some("device")
}
