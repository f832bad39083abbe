//! What stands behind libibverbs: a card, or the model.

use mlx5::verbs::{self, Device};
// Linked in, it stands behind libibverbs where no card is found.
use mlx5_model as _;

/// Whether devices are the model's. Decides it, if nothing did yet.
#[must_use]
pub fn is_model() -> bool {
    mlx5_model::offered()
}

/// What devices are: `model` or `card`; none where there is no device.
#[must_use]
pub fn runs_on() -> Option<&'static str> {
    if is_model() {
        return Some("model");
    }
    verbs::devices().is_ok_and(|devices| devices.iter().any(Device::is_mlx5)).then_some("card")
}
