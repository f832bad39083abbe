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
use super::{Completion, Notes, Outcome, Packet, Parameters, Transport};
use crate::card::Card;
use crate::object::{Drain, Qp, State};
use crate::queue::TargetEvent;
use crate::wire::{DcEth, Ecn, Header, Opcode, Route};
use crate::work::Reason;

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
pub struct Connections {
    notes: Notes,
    /// Connections by initiator; each has one at most.
    open: HashMap<Peer, Connection>,
    /// Connections with packets to send.
    ready: VecDeque<Peer>,
    /// Results that software gets after the completions of connections.
    last: Vec<Outcome>,
    /// Time of the last search for connections whose initiators are gone.
    swept: u64,
}

impl Transport for Connections {
    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    /// Ends all connections.
    fn reset(&mut self, card: &mut Card, _: u32) {
        let mut peers: Vec<Peer> = self.open.keys().copied().collect();
        peers.sort_unstable();
        peers.iter().for_each(|peer| self.close(card, peer));
    }

    /// Does nothing: a target's settings are those of its creation.
    fn configure(&mut self, _: &mut Card, _: u32) {}

    fn receive(&mut self, card: &mut Card, number: u32, packet: &Packet<'_>) {
        let header = packet.header;
        let (Some(dynamic), Some(own)) = (header.dynamic, card.parameters(number)) else { return };
        if header.opcode.is_response() || drain(card, number) == Some(Drain::Drained) {
            return;
        }
        let peer = Peer::of(&header.route, dynamic.source);
        let own = Parameters {
            remote: dynamic.source,
            route: header.route.reverse().with_ecn(Ecn::Capable),
            receive_psn: (header.psn + 1) & 0xff_ffff,
            dynamic: Some(DcEth { key: 0, source: number, connection: dynamic.connection }),
            ..own
        };
        let known = self.open.get(&peer);
        match (header.opcode, known.is_some_and(|open| open.id == dynamic.connection)) {
            (Opcode::Disconnect, true) => self.close(card, &peer),
            (_, true) => {}
            (Opcode::Connect, false) => self.open(card, &own, header, peer),
            // The connection that it belongs to is gone.
            (_, false) => return,
        }
        let Some(open) = self.open.get_mut(&peer) else { return };
        open.used = card.clock.now();
        open.rc.receive(card, number, packet);
        self.list(peer);
    }

    /// Sends replies, some packets of each connection.
    fn pump(&mut self, card: &mut Card, number: u32) {
        self.notes.queued = false;
        let mut more = false;
        for _ in 0..self.ready.len() {
            let Some(peer) = self.ready.pop_front() else { break };
            let Some(open) = self.open.get_mut(&peer) else { continue };
            if open.rc.is_congested(card) {
                card.port.park(number);
                self.ready.push_back(peer);
                continue;
            }
            // A refused request wakes it as well.
            open.rc.notes.queued = false;
            open.listed = open.rc.turn(card, number) || open.rc.notes.queued;
            open.rc.notes.queued = open.listed;
            if open.listed {
                self.ready.push_back(peer);
                more = true;
            }
        }
        self.last.drain(..).for_each(|outcome| card.port.hold(outcome));
        if more {
            self.wake(card, number);
        }
    }

    /// Does nothing: a target has no send queue.
    fn flush_requests(&mut self, _: &mut Card, _: u32) {}

    /// Returns `None`: connections complete their receives when they end.
    fn flush_receive(&mut self, _: &mut Card, _: u32) -> Option<Completion> {
        None
    }

    /// Reports after what the connections have to report.
    fn report(&mut self, card: &mut Card, number: u32, outcome: Outcome) {
        self.last.push(outcome);
        self.wake(card, number);
    }

    /// Notes that a draining target is drained: no message is under way any more.
    fn conclude(&mut self, card: &mut Card, number: u32) {
        if drain(card, number) == Some(Drain::Draining)
            && self.open.values().all(|open| open.rc.is_between())
        {
            set_drain(card, number, Drain::Drained);
            card.target_event(number, TargetEvent::Drained);
        }
    }
}

/// Returns whether a target accepts connections.
fn drain(card: &Card, number: u32) -> Option<Drain> {
    card.objects.qps.get(&number)?.target().map(|target| target.drain)
}

fn set_drain(card: &mut Card, number: u32, drain: Drain) {
    if let Some(target) = card.objects.qps.get_mut(&number).and_then(Qp::target_mut) {
        target.drain = drain;
    }
}

impl Card {
    /// Stops accepting connections to a target. Open ones may end.
    pub fn drain_target(&mut self, number: u32) {
        if drain(self, number) == Some(Drain::Active) {
            set_drain(self, number, Drain::Draining);
            // Without a message under way, it is drained at once.
            self.transport(number, |_, _| ());
        }
    }

    /// Ends all connections of a target that is about to be destroyed.
    pub fn abandon_target(&mut self, number: u32) {
        self.transport(number, |card, target| target.reset(card, number));
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
    fn open(&mut self, card: &mut Card, own: &Parameters, header: &Header, peer: Peer) {
        let Some(shown) = header.dynamic else { return };
        let qp = card.objects.qps.get_mut(&own.number).filter(|qp| qp.state == State::Rtr);
        let Some(target) = qp.and_then(Qp::target_mut) else { return };
        if target.drain != Drain::Active {
            return;
        }
        if shown.key != target.key() {
            target.violations = target.violations.saturating_add(1);
            if std::mem::take(&mut target.armed) {
                card.target_event(own.number, TargetEvent::KeyViolation);
            }
            card.explain(own.number, &Reason::DcKey);
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
        if open.rc.notes.queued && !open.listed {
            open.listed = true;
            self.ready.push_back(peer);
        }
    }
}
