//! Instruments of the data path, enabled by features: stamps of phases ([`timing`]), the flight
//! recorder ([`flight`]), and the lint before each doorbell ([`lint`]). Without the features each
//! is a type without size whose methods are empty.

pub mod flight;
pub(crate) mod lint;
pub mod timing;
