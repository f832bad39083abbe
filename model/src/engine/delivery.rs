//! The way of a frame from a device to the next one.

use super::device::Inside;
use super::shared::{owner, reached};
use crate::fabric::local;
use crate::management::mad;
use crate::wire::{Frame, Header, Link, LinkAddress};

impl Inside<'_> {
    /// Passes a frame to the port of its address: to the local device that has the destination's QP
    /// number there, or to the network. Multicast and raw Ethernet frames go to the listeners.
    pub(super) fn carry(&mut self, frame: Frame) {
        if !self.seat.card.passes(&frame) {
            return;
        }
        let link = self.seat.card.identity.link;
        self.seat.unsent |= self.engine.is_on_network();
        let Some(frame) = self.engine.send_outside(frame) else { return };
        let Some(to) = LinkAddress::of(link, &frame.0) else { return };
        if to.is_group() || !frame.is_transport(link) {
            return self.carry_to_all(frame);
        }
        let Some((_, number)) = Header::destination(link, &frame.0) else { return };
        if number == mad::QP && self.carry_management(to, &frame) {
            return;
        }
        self.carry_to(to, number, frame);
    }

    /// Passes a frame to the device or the process that has a QP number at an address.
    pub(super) fn carry_to(&mut self, to: LinkAddress, number: u32, frame: Frame) {
        if let Some(index) = owner(&self.seat.ports, to, number) {
            self.put(index, frame);
        } else if let Some(network) = &mut self.engine.outside().network {
            network.send(local::way(to, number), frame);
            self.seat.unsent = true;
        }
    }

    /// Passes a frame to the listeners, and to the devices of this process that it arrives at.
    fn carry_to_all(&mut self, frame: Frame) {
        let from = self.seat.card.identity.own_address();
        let mut outside = self.engine.outside();
        let reached = reached(&self.seat.ports, from, &frame, |to| {
            outside.network.as_mut().is_some_and(|network| network.is_attached(to))
        });
        if let Some(network) = &mut outside.network {
            network.send_to_all(from, &frame);
            self.seat.unsent = true;
        }
        drop(outside);
        for index in reached {
            self.put(index, frame.clone());
        }
    }

    /// Puts a frame in at the port of a device of this process.
    pub(super) fn put(&mut self, index: usize, mut frame: Frame) {
        if index != self.index {
            // Transport domains are those of one device.
            frame.1 = None;
        }
        if self.engine.is_virtual {
            self.put_in_order(index, frame);
        } else if index == self.index {
            self.seat.loopback.push_back(frame);
        } else {
            self.has_left = true;
            if let Some(spent) = self.engine.exchange(index, frame) {
                self.seat.card.recycle(spent);
            }
        }
    }

    /// Passes a management datagram from outside the machine to the process or the queue pair that it
    /// is for.
    pub(super) fn pass_on(&mut self, frame: &Frame) {
        let Some(to) = LinkAddress::of(Link::Roce, &frame.0) else { return };
        if !self.carry_management(to, frame) {
            self.seat.card.receive(frame);
        }
    }
}
