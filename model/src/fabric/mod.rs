//! The fabric: what carries frames between ports.
//!
//! - [`local`] connects the processes of one machine.
//! - [`udp`] connects machines and network namespaces: RoCEv2 over UDP.

pub(crate) mod local;
pub(crate) mod udp;
mod wake;

use crate::wire::{Frame, LinkAddress, Way};

/// The carrier of packets between ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The fabric of this machine.
    Machine,
    /// UDP, also to other machines.
    Udp,
}

/// The devices of this process, as the fabric reaches them. No call waits for a device: each
/// leaves the device a note, which is read later.
pub(crate) trait Devices {
    /// Gives a frame that has arrived at its port to a device.
    fn deliver(&self, card: usize, frame: &Frame);
    /// Gives a frame that the port `from` sent to the devices that it arrives at, by its address.
    /// `is_attached` says whether a port of the machine has an address.
    fn spread(
        &self,
        from: LinkAddress,
        frame: &Frame,
        is_attached: &mut dyn FnMut(LinkAddress) -> bool,
    );
    /// Tells all devices whether a way is full.
    fn set_congested(&self, way: Way, full: bool);
}

/// No device.
#[cfg(test)]
impl Devices for () {
    fn deliver(&self, _: usize, _: &Frame) {}

    fn spread(&self, _: LinkAddress, _: &Frame, _: &mut dyn FnMut(LinkAddress) -> bool) {}

    fn set_congested(&self, _: Way, _: bool) {}
}
