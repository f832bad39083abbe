//! Ethernet frames, built by software: no queue pair at the other end, no answer.
//!
//! `sender` turns WQEs into frames, and `segments` cuts a long send into several. Both offloads
//! fill in checksums and VLAN tags. `until` has requests that wait for a time. A frame goes to every device on the link. `steering` finds, by
//! each device's flow tables, the receive queues for it, and `receiver` writes it there.

mod receiver;
mod segments;
mod sender;
mod steering;
#[cfg(test)]
mod test;
mod until;

use super::receive::flushed;
use super::{Completion, Notes, Packet, Transport};
use crate::card::Card;
use crate::object::{NIC_RX, SNIFFER_RX, State};
use crate::queue::{FailedWqe, SendWqe, Syndrome};
use crate::wire::Frame;
use crate::wire::ethernet::Headers;

/// log2 of the longest packet that is cut into segments.
pub const LOG_MAX_LSO: u32 = 18;

/// The transport's state of an Ethernet queue.
#[derive(Clone, Debug, Default)]
pub struct Ethernet {
    notes: Notes,
    /// The request that waits for its time.
    waiting: Option<SendWqe>,
}

impl Transport for Ethernet {
    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn reset(&mut self, _: &mut Card, _: u32) {
        *self = Self::default();
    }

    fn configure(&mut self, card: &mut Card, qp: u32) {
        if card.objects.qps.get(&qp).is_some_and(|qp| qp.state == State::Rts) {
            self.wake(card, qp);
        }
    }

    /// Does nothing: no packet of the transport is for such a queue.
    fn receive(&mut self, _: &mut Card, _: u32, _: &Packet<'_>) {}

    fn pump(&mut self, card: &mut Card, qp: u32) {
        self.notes.queued = false;
        self.send(card, qp);
    }

    fn expire(&mut self, card: &mut Card, qp: u32) {
        self.wake(card, qp);
    }

    fn flush_requests(&mut self, card: &mut Card, qp: u32) {
        if let Some(SendWqe { index, opcode, .. }) = self.waiting.take() {
            card.failed_send(qp, FailedWqe { index, opcode, syndrome: Syndrome::FLUSHED });
        }
    }

    /// A WQE that packets share is reported once, however much of it was used.
    fn flush_receive(&mut self, card: &mut Card, qp: u32) -> Option<Completion> {
        receiver::take_current(card, qp).map(|(wqe, _)| flushed(qp, wqe.taken()))
    }
}

impl Card {
    /// Whether anything in it receives what goes to all.
    pub fn listens_to_all(&self) -> bool {
        self.objects.steering.receives() || !self.objects.groups.is_empty()
    }

    /// Returns whether the virtual port's settings and the table of addresses let an Ethernet frame
    /// through. They do for all frames until the driver has set any of them.
    pub(super) fn admits(&self, frame: &[u8]) -> bool {
        let (vport, table) = (&self.function.vport, &self.objects.l2_table);
        if !vport.filters() && table.is_empty() {
            return true;
        }
        let (Some(to), Some(headers)) = (frame.first_chunk(), Headers::of(frame)) else {
            return false;
        };
        let vlan = headers.vlan.map(|(_, tag)| tag & 0xfff);
        vport.wants(*to) || table.values().any(|entry| entry.covers(*to, vlan))
    }

    /// A frame of Ethernet has arrived at the port. Returns whether anything here receives it.
    pub(super) fn receive_ethernet(&mut self, frame: &Frame) -> bool {
        let Frame(bytes, domain) = frame;
        let wanted = self.steer(NIC_RX, bytes, *domain);
        self.steer(SNIFFER_RX, bytes, *domain) || wanted
    }
}
