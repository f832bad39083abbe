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

/// Connections that a target has at most.
const CONNECTIONS: usize = 1 << 16;
/// Nanoseconds after its last packet until a connection's initiator counts as gone: many times what
/// an initiator that has nothing to send stays connected ([`rc::IDLE`]).
const EXPIRY: u64 = 30 * rc::IDLE;
/// Nanoseconds between searches for such connections: each looks at all of them.
const SWEEP: u64 = rc::IDLE;

/// An initiator as its target knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Peer {
    /// Where its port is: the LID, or on Ethernet the GID.
    port: [u8; 16],
    /// Number of its queue pair.
    number: u32,
}

impl Peer {
    /// The queue pair of this number from which packets come by this way.
    fn of(route: &Route, number: u32) -> Self {
        let port = match route {
            Route::InfiniBand { source, .. } => u128::from(*source).to_be_bytes(),
            Route::Ethernet { global, .. } => global.source,
        };
        Self { port, number }
    }
}

/// A connection that an initiator has opened.
#[derive(Debug)]
struct Connection {
    /// What the initiator calls it.
    pub(super) id: u32,
    /// Its responder.
    rc: Rc,
    /// Whether it is among those that have something to send.
    listed: bool,
    /// When its initiator's last packet came, by the card's clock.
    used: u64,
}

/// Connections of a target.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// By initiator, which has one at most.
    open: HashMap<Peer, Connection>,
    /// Those that have something to send.
    ready: VecDeque<Peer>,
    /// When connections whose initiators are gone were last looked for.
    swept: u64,
}

impl Card {
    /// A packet for a target.
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
                // Whatever it belongs to has gone.
                (_, false) => return,
            }
            let Some(open) = connections.open.get_mut(&peer) else { return };
            open.used = card.clock.now();
            open.rc.receive(card, header, payload);
            connections.list(peer);
        });
    }

    /// Sends what a target owes, some packets of each connection. Says whether there may be more.
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

    /// No connection is let in any more; what has begun may end.
    pub fn drain_target(&mut self, number: u32) {
        self.target(number, |_, target, _, _| {
            if target.drain == Drain::Active {
                target.drain = Drain::Draining;
            }
        });
    }

    /// Works on a target with the rest of the card at hand.
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

    /// A target is about to go.
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
    /// What their initiators call them.
    #[cfg(test)]
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.open.values().map(|open| open.id)
    }

    /// Lets an initiator in, which ends another connection of its, or tells it that its key is wrong.
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

    /// Ends connections whose initiators are gone.
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

    /// Ends a connection. What it has taken a receive for and not brought to its end is reported.
    fn close(&mut self, card: &mut Card, peer: &Peer) {
        if let Some(mut open) = self.open.remove(peer) {
            open.rc.close(card);
            self.ready.retain(|other| other != peer);
        }
    }

    /// Enters a connection among those that have something to send, if it has.
    fn list(&mut self, peer: Peer) {
        let Some(open) = self.open.get_mut(&peer) else { return };
        if open.rc.queued && !open.listed {
            open.listed = true;
            self.ready.push_back(peer);
        }
    }
}
