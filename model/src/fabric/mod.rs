//! The fabric: what carries frames between ports.
//!
//! - [`local`] connects the processes of one machine.
//! - [`udp`] connects machines and network namespaces: RoCEv2 over UDP.

pub(crate) mod local;
pub(crate) mod udp;

use crate::wire::{Frame, Way};

/// The devices of this process, as the fabric reaches them. No call waits for a device: each
/// leaves the device a note, which is read later.
pub(crate) trait Devices {
    /// Returns the number of devices.
    fn count(&self) -> usize;
    /// Gives a frame that has arrived at its port to a device.
    fn deliver(&self, card: usize, frame: &Frame);
    /// Tells all devices whether a way is full.
    fn set_congested(&self, way: Way, full: bool);
}

/// No device.
#[cfg(test)]
impl Devices for () {
    fn count(&self) -> usize {
        0
    }

    fn deliver(&self, _: usize, _: &Frame) {}

    fn set_congested(&self, _: Way, _: bool) {}
}
