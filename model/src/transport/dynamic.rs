//! DCTs, the targets of dynamic connections: admission, and a responder for each initiator.
//!
//! A target has no packet sequence of its own. An initiator opens a connection, which must carry
//! the target's key. From then on a responder like that of a reliable connection serves it, until
//! the initiator closes the connection or opens another one. A refused request ends its connection,
//! not the target. A wrong key opens nothing and ends nothing. A connection whose initiator has
//! sent nothing for [`EXPIRY`] ends when another initiator connects.

use std::collections::{HashMap, VecDeque};

use mlx5_sys::ifc::query_q_counter_out;

use super::rc::{self, Rc};
use super::{Parameters, QueuePair};
use crate::card::Card;
use crate::object::{Drain, State, Target};
use crate::queue::TargetEvent;
use crate::wire::{DcEth, Header, Opcode, Route};

/// Most connections of a target.
const CONNECTIONS: usize = 1 << 16;
/// Nanoseconds after its last packet until a connection's initiator counts as gone: many times the
/// time that an idle initiator stays connected ([`rc::IDLE`]).
const EXPIRY: u64 = 30 * rc::IDLE;
/// Nanoseconds between searches for such connections. A search visits every connection.
const SWEEP: u64 = rc::IDLE;

/// An initiator's identity at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Peer {
    /// Address of its port: the LID, or on Ethernet the GID.
    port: [u8; 16],
    /// Number of its queue pair.
    number: u32,
}

impl Peer {
    /// Returns the identity of the queue pair of this number whose packets come by this route.
    fn of(route: &Route, number: u32) -> Self {
        let port = match route {
            Route::InfiniBand { source, .. } => u128::from(*source).to_be_bytes(),
            Route::Ethernet { global, .. } => global.source,
        };
        Self { port, number }
    }
}

/// A connection opened by an initiator.
#[derive(Debug)]
struct Connection {
    /// The initiator's number for it.
    pub(super) id: u32,
    /// Its responder.
    rc: Rc,
    /// Whether it is in the list of connections with packets to send.
    listed: bool,
    /// Time of its initiator's last packet, by the device's clock.
    used: u64,
}

/// The connections of a target.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// Connections by initiator; each has one at most.
    open: HashMap<Peer, Connection>,
    /// Connections with packets to send.
    ready: VecDeque<Peer>,
    /// Time of the last search for connections whose initiators are gone.
    swept: u64,
}

impl Card {
    /// Handles a packet for a target.
    pub(super) fn receive_for_target(&mut self, number: u32, header: &Header, payload: &[u8]) {
        let Some(dynamic) = header.dynamic else { return };
        if header.opcode.is_response() {
            return;
        }
        self.target(number, |card, target, connections, own| {
            if target.drain == Drain::Drained {
                return;
            }
            let peer = Peer::of(&header.route, dynamic.source);
            let own = Parameters {
                remote: dynamic.source,
                route: header.route.reverse(),
                receive_psn: (header.psn + 1) & 0xff_ffff,
                dynamic: Some(DcEth { key: 0, source: number, connection: dynamic.connection }),
                ..own
            };
            let known = connections.open.get(&peer);
            match (header.opcode, known.is_some_and(|open| open.id == dynamic.connection)) {
                (Opcode::Disconnect, true) => connections.close(card, &peer),
                (_, true) => {}
                (Opcode::Connect, false) => connections.open(card, target, &own, header, peer),
                // The connection that it belongs to is gone.
                (_, false) => return,
            }
            let Some(open) = connections.open.get_mut(&peer) else { return };
            open.used = card.clock.now();
            open.rc.receive(card, header, payload);
            connections.list(peer);
        });
    }

    /// Sends a target's replies, some packets of each connection. Returns whether there may be
    /// more.
    pub(super) fn pump_target(&mut self, number: u32) -> bool {
        let more = self.target(number, |card, _, connections, _| {
            let mut more = false;
            for _ in 0..connections.ready.len() {
                let Some(peer) = connections.ready.pop_front() else { break };
                let Some(open) = connections.open.get_mut(&peer) else { continue };
                if card.port.is_congested(peer.number) {
                    card.port.park(number);
                    connections.ready.push_back(peer);
                    continue;
                }
                if open.rc.pump(card, number) {
                    connections.ready.push_back(peer);
                    more = true;
                } else {
                    open.rc.queued = false;
                    open.listed = false;
                }
            }
            more
        });
        more.unwrap_or(false)
    }

    /// Stops accepting connections to a target. Open ones may end.
    pub fn drain_target(&mut self, number: u32) {
        self.target(number, |_, target, _, _| {
            if target.drain == Drain::Active {
                target.drain = Drain::Draining;
            }
        });
    }

    /// Calls `work` with a target and the rest of the device.
    fn target<R>(
        &mut self,
        number: u32,
        work: impl FnOnce(&mut Card, &mut Target, &mut Connections, Parameters) -> R,
    ) -> Option<R> {
        let qp = self.objects.qps.get_mut(&number)?;
        let own = Parameters::of(qp, &self.identity);
        let mut target = qp.target.take()?;
        let mut connections = std::mem::take(&mut QueuePair::of_mut(qp)?.connections);
        let result = work(self, &mut target, &mut connections, own);
        if target.drain == Drain::Draining && connections.open.values().all(|c| c.rc.is_between()) {
            target.drain = Drain::Drained;
            self.target_event(number, TargetEvent::Drained);
        }
        if let Some(qp) = self.objects.qps.get_mut(&number) {
            qp.target = Some(target);
            if let Some(kept) = QueuePair::of_mut(qp) {
                kept.connections = connections;
            }
        }
        Some(result)
    }

    /// Ends all connections of a target that is about to be destroyed.
    pub fn abandon_target(&mut self, number: u32) {
        self.target(number, |card, _, connections, _| {
            let mut peers: Vec<Peer> = connections.open.keys().copied().collect();
            peers.sort_unstable();
            peers.iter().for_each(|peer| connections.close(card, peer));
        });
        self.port.forget(number);
    }
}

impl Connections {
    /// Returns the initiators' numbers for their connections.
    #[cfg(test)]
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.open.values().map(|open| open.id)
    }

    /// Opens a connection, ending the initiator's earlier one, or tells the initiator that its key
    /// is wrong.
    fn open(
        &mut self,
        card: &mut Card,
        target: &mut Target,
        own: &Parameters,
        header: &Header,
        peer: Peer,
    ) {
        let Some(shown) = header.dynamic else { return };
        let lets_in = target.drain == Drain::Active
            && card.objects.qps.get(&own.number).is_some_and(|qp| qp.state == State::Rtr);
        if !lets_in {
            return;
        }
        if shown.key != target.key() {
            tracing::debug!(target = own.number, from = peer.number, "the access key is wrong");
            target.violations = target.violations.saturating_add(1);
            if std::mem::take(&mut target.armed) {
                card.target_event(own.number, TargetEvent::KeyViolation);
            }
            rc::refuse_connect(card, own, header.psn);
            return;
        }
        self.sweep(card);
        if self.open.len() >= CONNECTIONS && !self.open.contains_key(&peer) {
            tracing::warn!(target = own.number, "no room for another connection");
            return;
        }
        self.close(card, &peer);
        let mut rc = Rc::default();
        rc.open(*own);
        card.count(own.number, query_q_counter_out::RX_DCT_CONNECT);
        let used = card.clock.now();
        let open = Connection { id: shown.connection, rc, listed: false, used };
        self.open.insert(peer, open);
    }

    /// Closes connections whose initiators are gone.
    fn sweep(&mut self, card: &mut Card) {
        let now = card.clock.now();
        if now < self.swept.saturating_add(SWEEP) {
            return;
        }
        self.swept = now;
        let gone = |open: &Connection| !open.listed && open.used.saturating_add(EXPIRY) <= now;
        let mut peers: Vec<Peer> =
            self.open.iter().filter(|(_, open)| gone(open)).map(|(peer, _)| *peer).collect();
        peers.sort_unstable();
        peers.iter().for_each(|peer| self.close(card, peer));
    }

    /// Closes a connection. Reports each receive that it has taken and not completed.
    fn close(&mut self, card: &mut Card, peer: &Peer) {
        if let Some(mut open) = self.open.remove(peer) {
            open.rc.close(card);
            self.ready.retain(|other| other != peer);
        }
    }

    /// Adds a connection to the list if it has packets to send.
    fn list(&mut self, peer: Peer) {
        let Some(open) = self.open.get_mut(&peer) else { return };
        if open.rc.queued && !open.listed {
            open.listed = true;
            self.ready.push_back(peer);
        }
    }
}
