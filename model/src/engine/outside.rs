//! Packets to and from ports that are not on this machine.

use super::{State, owner};
use crate::card::{Card, Link};
use crate::fabric::local::{self, Network};
use crate::management::mad;
use crate::wire::{Frame, Header, LinkAddress, MULTICAST, Route};

impl State {
    /// Sends a frame that is for a port outside this machine, or for a multicast group. Returns the
    /// frames that ports of this machine receive: those to groups as well.
    pub(super) fn send_outside(&mut self, frame: Frame) -> Option<Frame> {
        let Some(udp) = &mut self.udp else { return Some(frame) };
        // Ethernet frames that are not of RoCE stay on the machine.
        if !frame.is_transport(Link::Roce) {
            return Some(frame);
        }
        let Ok(route) = Route::decode(Link::Roce, &frame.0) else { return Some(frame) };
        let Route::Ethernet { global, port, .. } = route else { return Some(frame) };
        if udp.is_here(&global.destination) {
            return Some(frame);
        }
        let copy = route.group().is_some().then(|| frame.clone());
        udp.send(&global, port, frame);
        copy
    }

    /// Takes in packets from outside this machine, without waiting.
    pub(super) fn take_in_from_outside(&mut self) {
        let Self { cards, network, udp, .. } = self;
        let (Some(network), Some(udp)) = (network, udp) else { return };
        let mut managed = Vec::new();
        udp.receive(
            cards,
            &mut |cards, frame, group| match group.map(|card| cards.get_mut(card)) {
                Some(Some(card)) => card.receive(frame),
                Some(None) => {}
                None if is_management(frame) => managed.push(frame.clone()),
                None => arrived(cards, network, frame),
            },
        );
        managed.into_iter().for_each(|frame| self.manage(frame));
    }

    /// Passes a datagram to the process or the queue pair that it is for.
    fn manage(&mut self, frame: Frame) {
        let Some(to) = LinkAddress::of(Link::Roce, &frame.0) else { return };
        let Some(index) = self.cards.iter().position(|card| card.identity.has_address(to)) else {
            return;
        };
        if !self.carry_management(index, to, &frame) {
            self.cards[index].receive(&frame);
        }
    }
}

/// Passes a packet to the device or the process that has the destination's number.
fn arrived(cards: &mut [Card], network: &mut Network, frame: &Frame) {
    let Some(to) = LinkAddress::of(Link::Roce, &frame.0) else { return };
    let Some((_, number)) = Header::destination(Link::Roce, &frame.0) else { return };
    if let Some(index) = owner(cards, to, number) {
        return cards[index].receive(frame);
    }
    // Anyone may have sent it: only packets that are whole cost another process time.
    if number != MULTICAST && is_whole(frame) {
        network.send(local::way(to, number), frame.clone());
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
