//! Dynamic connections, the initiator's side: one requester, connected to one target at a time.
//!
//! A request for another target, or of another stream, waits until everything before it is
//! answered. Then the initiator closes the old connection with a packet that has no answer. It
//! opens the new one with a connect request, which has a PSN and is acknowledged and repeated like
//! any other request. Requests for the target follow at once, without waiting for the connect
//! request's acknowledge. Within a connection everything works as in a reliable connection.
//!
//! Errors stay within their stream: the other streams continue, until so many streams have failed
//! that the queue pair fails. Devices work on several streams at the same time; in the model the
//! streams take turns.

use std::collections::BTreeSet;

use super::super::{Parameters, Psn, unreliable};
use super::requester::{Kind, Request, Requester};
use super::to_peer;
use crate::card::Card;
use crate::queue::{Address, SendWqe, Signal, Syndrome};
use crate::wire::{Acknowledge, Aeth, DcEth, NakCode, Opcode, Route};

/// Nanoseconds after which an initiator with nothing to send closes its connection.
pub(in super::super) const IDLE: u64 = 1_000_000_000;

/// The requester's current connection.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// The target's address, from the WQEs.
    address: Address,
    route: Route,
    /// Number of the connection, chosen by the initiator.
    id: u32,
}

/// The initiator's state beside its requester.
#[derive(Debug, Default)]
pub(super) struct Initiator {
    connection: Option<Connection>,
    /// Time at which it closes the connection if it has nothing to send until then.
    idle_until: Option<u64>,
    /// A fetched request for another target, or of a stream that has failed.
    waiting: Option<Box<(SendWqe, Kind)>>,
    /// Streams that have failed and have not been reset since.
    pub(super) failed: BTreeSet<u16>,
}

impl Initiator {
    /// Returns the settings with the path to the target.
    pub(super) fn toward(&self, own: &Parameters) -> Parameters {
        let Some(connection) = self.connection else { return *own };
        let dynamic = DcEth {
            key: connection.address.access_key,
            source: own.number,
            connection: connection.id,
        };
        Parameters {
            route: connection.route,
            remote: connection.address.destination,
            dynamic: Some(dynamic),
            ..*own
        }
    }

    /// Returns whether a request may directly follow those before it.
    pub(super) fn goes_on(&self, wqe: &SendWqe, kind: Kind) -> bool {
        let Some(address) = wqe.address else { return true };
        let connected = self.connection.is_some_and(|connection| connection.address == address);
        !self.failed.contains(&address.stream) && (connected || matches!(kind, Kind::Failed(_)))
    }

    /// Keeps a request until its turn comes.
    pub(super) fn wait(&mut self, wqe: SendWqe, kind: Kind) {
        self.waiting = Some(Box::new((wqe, kind)));
    }

    /// Returns whether a request is kept.
    pub(super) fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// Takes the kept request.
    pub(super) fn take(&mut self) -> Option<SendWqe> {
        self.waiting.take().map(|waiting| waiting.0)
    }

    /// Resets a failed stream, so that it continues. Returns `false` if it has not failed.
    pub(super) fn reset_stream(&mut self, stream: u16) -> bool {
        self.failed.remove(&stream)
    }
}

impl Requester {
    /// Connects to a waiting request's target once all requests before it are answered.
    pub(super) fn turn(&mut self, card: &mut Card, own: &Parameters) -> bool {
        if !self.requests.is_empty() {
            return false;
        }
        let Some(waiting) = self.initiator.waiting.take() else { return false };
        let (wqe, kind) = *waiting;
        let Some(address) = wqe.address else { return false };
        if self.initiator.failed.contains(&address.stream) {
            card.flushed_send(own.number, wqe.index, wqe.opcode);
            return true;
        }
        self.disconnect(card, own);
        let route = match unreliable::route(&card.identity, &address) {
            Ok(route) => route,
            Err(syndrome) => {
                self.enqueue(card, own, wqe, Kind::Failed(syndrome));
                return true;
            }
        };
        // Must never equal the number of a connection that an earlier process may have left open.
        let id = (card.random.draw() ^ card.clock.now()) as u32;
        self.initiator.connection = Some(Connection { address, route, id });
        self.start_again(own);
        self.rnr_retries = own.rnr_retries;
        // No WQE requests it, so it has no completion.
        self.enqueue(card, own, SendWqe::bare(0, 0, Signal::OnError), Kind::Connect);
        self.enqueue(card, own, wqe, kind);
        true
    }

    /// Returns the time at which to close the connection, if all requests are answered.
    pub(super) fn idle_deadline(&self) -> Option<u64> {
        self.initiator.idle_until.filter(|_| self.requests.is_empty())
    }

    /// Starts the idle time of the connection: all requests are answered.
    pub(super) fn start_idle(&mut self, now: u64) {
        self.initiator.idle_until = self.initiator.connection.map(|_| now + IDLE);
    }

    /// Closes a connection that was idle for too long.
    pub(super) fn rest(&mut self, card: &mut Card, own: &Parameters, now: u64) {
        if self.idle_deadline().is_some_and(|until| until <= now) {
            self.disconnect(card, own);
        }
    }

    /// Tells the target, if there is one, that no more requests follow.
    pub(super) fn disconnect(&mut self, card: &mut Card, own: &Parameters) {
        let toward = self.toward(own);
        self.initiator.idle_until = None;
        if self.initiator.connection.take().is_some() {
            card.send(to_peer(&toward, Opcode::Disconnect, self.next).bare());
        }
    }

    /// Takes the oldest request that came from a WQE. If opening the connection failed, that is the
    /// request that the connection was opened for.
    pub(super) fn take_failed(&mut self) -> Option<Request> {
        std::iter::from_fn(|| self.requests.pop_front())
            .find(|request| request.kind != Kind::Connect)
    }

    /// Fails a stream after a failed request, with all requests in flight. Returns `false` if too
    /// many streams have failed, or if the queue pair has no streams.
    pub(super) fn fail_stream(&mut self, card: &mut Card, own: &Parameters, stream: u16) -> bool {
        let Some(most) = own.streams else { return false };
        self.initiator.failed.insert(stream);
        if self.initiator.failed.len() >= most {
            return false;
        }
        self.quiet();
        while let Some(request) = self.take_failed() {
            card.failed_send(own.number, request.wqe.failed(Syndrome::FLUSHED));
        }
        self.disconnect(card, own);
        (self.unacknowledged, self.high) = (self.next, self.next);
        true
    }
}

/// Tells an initiator that its key is wrong. No state is kept: if this packet is lost, the
/// initiator asks again.
pub(in super::super) fn refuse_connect(card: &mut Card, own: &Parameters, psn: u32) {
    let mut header = to_peer(own, Opcode::Acknowledge, Psn::new(psn));
    let syndrome = Acknowledge::Nak(NakCode::InvalidRequest);
    header.aeth = Some(Aeth { syndrome, msn: 0 });
    card.send(header.bare());
}
