//! Ethernet frames, built by software: no queue pair at the other end, no answer.
//!
//! `sender` turns WQEs into frames, and `segments` cuts a long send into several. Both offloads
//! fill in checksums and VLAN tags. A frame goes to every device on the link. `steering` finds, by
//! each device's flow tables, the receive queues for it, and `receiver` writes it there.

mod receiver;
mod segments;
mod sender;
mod steering;
#[cfg(test)]
mod test;

use super::{Held, Outcome};
use crate::card::Card;
use crate::object::{NIC_RX, SNIFFER_RX, State};
use crate::queue::{Fetch, Opcode, Origin, Syndrome};
use crate::wire::ethernet::{HEADER, Headers, TAG};

/// Bytes of the longest frame's payload: what Ethernet ports of the model are set to.
pub const MTU: usize = 1500;

/// log2 of the longest packet that is cut into segments.
pub const LOG_MAX_LSO: u32 = 18;

/// Whether a frame is no longer than the port lets through. A tag does not count.
fn fits(frame: &[u8]) -> bool {
    let tag = match Headers::of(frame) {
        Some(Headers { vlan: Some(_), .. }) => TAG,
        _ => 0,
    };
    frame.len() <= HEADER + tag + MTU
}

/// The transport's state of an Ethernet queue.
#[derive(Clone, Debug, Default)]
pub struct Ethernet {
    /// Whether it is in the port's queue of queue pairs with something to send, or parked.
    queued: bool,
}

impl Ethernet {
    /// Asks for a turn at the port.
    pub(super) fn wake(&mut self, card: &mut Card, qp: u32) {
        if !self.queued {
            self.queued = true;
            card.port.ready(qp);
        }
    }

    /// Goes to Error and flushes.
    pub(super) fn fail(&mut self, card: &mut Card, qp: u32) {
        if let Some(object) = card.objects.qps.get_mut(&qp) {
            object.state = State::Error;
        }
        card.watch(qp);
        self.flush(card, qp);
    }

    /// Completes as flushed, in order, as many WQEs as the rings hold.
    pub(super) fn flush(&mut self, card: &mut Card, qp: u32) {
        let flushed = |origin, index| {
            Outcome::Completion(Held::new(qp, origin, index, Err(Syndrome::Flushed)))
        };
        // A doorbell record may claim any number of WQEs, and change while it is read.
        let (blocks, receives) =
            card.objects.qps.get(&qp).map_or((0, 0), |qp| (qp.sq.blocks, qp.rq.wqes));
        for _ in 0..blocks {
            let (index, opcode) = match card.fetch_send(qp) {
                Fetch::Empty => break,
                Fetch::Wqe(wqe) => (wqe.index, wqe.opcode),
                Fetch::Malformed { index, opcode, .. } => (index, opcode),
            };
            card.port.hold(flushed(Origin::Requester { opcode }, index));
        }
        // A WQE that packets share is reported once, however much of it was used.
        if let Some(wqe) = receiver::give_up(card, qp) {
            card.port.hold(flushed(Origin::Responder(Opcode::Send), wqe));
        }
        for _ in 0..receives {
            let Ok(Some(wqe)) = card.take_receive(qp) else { break };
            card.port.hold(flushed(Origin::Responder(Opcode::Send), wqe.index));
        }
    }
}

impl Card {
    /// Whether anything in it receives what goes to all.
    pub fn listens_to_all(&self) -> bool {
        !self.objects.steering.is_empty() || !self.objects.groups.is_empty()
    }

    /// A frame of Ethernet has arrived at the port.
    pub(super) fn receive_ethernet(&mut self, frame: &[u8]) -> bool {
        let wanted = self.steer(NIC_RX, frame);
        self.steer(SNIFFER_RX, frame) || wanted
    }
}
