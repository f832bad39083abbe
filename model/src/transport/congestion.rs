//! Notification of congestion: the packets of a peer that were marked on the way are answered by a
//! CNP, and the CNPs of peers are kept for the network, which lowers the rate of what it sends to
//! them.

use mlx5_sys::ifc::qpc;

use crate::card::{Card, Notified};
use crate::wire::{Frame, Header, Route, cnp};

/// Nanoseconds between the CNPs of a queue pair.
const INTERVAL: u64 = 50_000;
/// The mark of a router that is congested (RFC 3168).
const CONGESTED: u8 = 3;

impl Card {
    /// Answers a packet that a router has marked, unless that was done just now.
    pub(super) fn answer_mark(&mut self, header: &Header) {
        let Route::Ethernet { global, .. } = &header.route else { return };
        if global.traffic_class & CONGESTED != CONGESTED {
            return;
        }
        let Some(qp) = self.objects.qps.get(&header.destination) else { return };
        // A datagram's queue pair has no single sender.
        let peer = qp.get(qpc::REMOTE_QPN);
        if header.datagram.is_some() || peer == 0 {
            return;
        }
        let now = self.clock.now();
        if self.port.may_notify(header.destination, now, INTERVAL) {
            self.outbox.push_back(cnp::encode(header.route.reverse(), header.p_key, peer));
        }
    }

    /// Takes in a CNP. Returns whether the frame was one.
    pub(super) fn hear_notification(&mut self, frame: &Frame) -> bool {
        let Some((Route::Ethernet { global, .. }, number)) = cnp::decode(&frame.0) else {
            return false;
        };
        let known = self.objects.qps.get(&number).filter(|_| self.has_gid(&global.destination));
        if let Some(qp) = known {
            let remote = qp.get(qpc::REMOTE_QPN);
            self.port.notified(Notified { gid: global.source, remote });
        }
        true
    }
}
