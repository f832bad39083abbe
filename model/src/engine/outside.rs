//! Packets to and from ports that are not on this machine.

use super::Engine;
use super::inbox::Note;
use super::shared::{Outside, owner};
use crate::card::Link;
use crate::fabric::Devices;
use crate::fabric::local::{self, Network};
use crate::identity::Identity;
use crate::management::mad;
use crate::wire::{Frame, Header, LinkAddress, MULTICAST, Route};

impl Engine {
    /// Sends a frame that is for a port outside this machine, or for a multicast group. Returns the
    /// frames that ports of this machine receive: those to groups as well.
    pub(super) fn send_outside(&self, frame: Frame) -> Option<Frame> {
        // Ethernet frames that are not of RoCE stay on the machine.
        if !self.is_on_network() || !frame.is_transport(Link::Roce) {
            return Some(frame);
        }
        let Ok(route) = Route::decode(Link::Roce, &frame.0) else { return Some(frame) };
        // RoCE v1 is not IP, and the kernel's sockets add no VLAN tag.
        let Route::Ethernet { global, tag: None, port: Some(port), .. } = route else {
            return Some(frame);
        };
        let mut outside = self.outside();
        let Some(udp) = &mut outside.udp else { return Some(frame) };
        if udp.is_here(&global.destination) {
            return Some(frame);
        }
        let copy = route.group().is_some().then(|| frame.clone());
        udp.send(&global, port, frame);
        copy
    }

    /// Takes in packets from outside this machine, without waiting.
    pub(super) fn take_in_from_outside(&self, outside: &mut Outside) {
        let Outside { network: Some(network), udp: Some(udp) } = outside else { return };
        let ports = self.directory.ports();
        udp.receive(self, &mut |frame, group| match group {
            Some(card) if card < ports.len() => self.deliver(card, frame),
            Some(_) => {}
            None if is_management(frame) => self.manage_datagram(&ports, frame),
            None => self.arrived(&ports, network, frame),
        });
        network.flush(self);
    }

    /// Leaves a management datagram to the device at its address.
    fn manage_datagram(&self, ports: &[Identity], frame: &Frame) {
        let Some(to) = LinkAddress::of(Link::Roce, &frame.0) else { return };
        if let Some(index) = ports.iter().position(|port| port.has_address(to)) {
            self.note(index, Note::Datagram(frame.clone()));
        }
    }

    /// Passes a packet to the device or the process that has the destination's number.
    fn arrived(&self, ports: &[Identity], network: &mut Network, frame: &Frame) {
        let Some(to) = LinkAddress::of(Link::Roce, &frame.0) else { return };
        let Some((_, number)) = Header::destination(Link::Roce, &frame.0) else { return };
        if let Some(index) = owner(ports, to, number) {
            return self.deliver(index, frame);
        }
        // Anyone may have sent it: only packets that are whole cost another process time.
        if number != MULTICAST && is_whole(frame) {
            network.send(local::way(to, number), frame.clone());
        }
    }
}

/// Whether a frame is for the management queue pair of a port, and whole.
fn is_management(frame: &Frame) -> bool {
    let number = Header::destination(Link::Roce, &frame.0).map(|(_, number)| number);
    number == Some(mad::QP) && is_whole(frame)
}

fn is_whole(frame: &Frame) -> bool {
    Header::decode(Link::Roce, &frame.0).is_ok()
}
