//! Unreliable connection and unreliable datagram: sender and receiver of one queue pair.
//!
//! Nothing is acknowledged, so no state is kept for packets that have left. `sender` turns WQEs of
//! both services into packets, `connection` reassembles a peer's messages, and `datagram` receives
//! from any sender. Packets lost or refused on the way are not reported. Only errors in a queue
//! pair's own requests are reported, in their completions.

mod connection;
mod datagram;
mod multicast;
mod sender;

use mlx5_sys::ifc::{qpc, query_q_counter_out};

use super::{Held, Outcome, Parameters};
use crate::card::Card;
use crate::object::{Service, State};
use crate::queue::{Fetch, Opcode, Origin, QpEvent, Syndrome};
use crate::wire::{Header, Route};
use connection::Receiver;
pub(super) use datagram::route;
use sender::{Progress, Sender};

/// Transport state of a queue pair: PSNs, the request on its way out, the message on its way in.
#[derive(Debug, Default)]
pub struct Unreliable {
    /// Settings; none before RTR.
    parameters: Option<Parameters>,
    /// Whether it is in the port's queue of queue pairs with something to send, or parked.
    queued: bool,
    /// Whether software got the event that no further receive comes from the SRQ.
    last_told: bool,
    sender: Sender,
    /// The receiving side of a connection.
    receiver: Receiver,
}

/// Why nothing more can be received.
#[derive(Debug)]
enum Failure {
    /// A receive cannot take what came for it.
    Receive(u16, Syndrome),
    /// The receive queue cannot be read.
    Queue,
}

impl Unreliable {
    /// Puts the next send and receive PSN into a context that QUERY_QP is about to return.
    pub fn describe(&self, context: &mut [u8; qpc::SIZE]) {
        if self.sender.started {
            qpc::NEXT_SEND_PSN.set(context, self.sender.next.get().into());
        }
        if self.receiver.started {
            qpc::NEXT_RCV_PSN.set(context, self.receiver.expected.get().into());
        }
    }

    /// Takes settings from the context; PSNs only when a side starts.
    pub(super) fn configure(&mut self, parameters: Parameters, service: Service, state: State) {
        self.parameters = Some(parameters);
        if service == Service::Uc && !self.receiver.started {
            self.receiver.start(&parameters);
        }
        if state == State::Rts && !self.sender.started {
            self.sender.start(&parameters);
        }
    }

    /// Takes settings from the context of a queue pair that may never have been in RTR.
    pub(super) fn know(&mut self, parameters: Parameters) {
        self.parameters.get_or_insert(parameters);
    }

    /// Asks for a turn at the port.
    pub(super) fn wake(&mut self, card: &mut Card, qp: u32) {
        if !self.queued {
            self.queued = true;
            card.port.ready(qp);
        }
    }

    /// Sends up to a quantum of packets. Says whether there may be more.
    pub(super) fn pump(&mut self, card: &mut Card, qp: u32) -> bool {
        self.queued = false;
        let Some(own) = self.parameters else { return false };
        let Some(object) = card.objects.qps.get(&qp) else { return false };
        let service = object.service;
        if !self.sender.started || !matches!(object.state, State::Rts | State::Sqd) {
            return false;
        }
        match self.sender.pump(card, &own, service) {
            Ok(Progress::Idle) => false,
            Ok(Progress::More) => {
                self.queued = true;
                true
            }
            Ok(Progress::Congested) => {
                self.queued = true;
                card.port.park(qp);
                false
            }
            Err(syndrome) => {
                self.fail_sender(card, qp, syndrome);
                false
            }
        }
    }

    /// A packet of this queue pair's service; `packet` is all of it.
    pub(super) fn receive(
        &mut self,
        card: &mut Card,
        header: &Header,
        payload: &[u8],
        packet: &[u8],
    ) {
        let Some(own) = self.parameters else { return };
        if !super::partition_matches(own.p_key, header.p_key) {
            return;
        }
        let received = match header.service {
            Service::Ud => datagram::receive(card, &own, header, payload, packet),
            Service::Uc if own.is_peer(&header.route) => {
                self.receiver.receive(card, &own, header, payload)
            }
            Service::Uc | Service::Rc | Service::Xrc | Service::Dc | Service::Ethernet => Ok(()),
        };
        match received {
            Ok(()) => {}
            Err(Failure::Receive(index, syndrome)) => {
                let origin = Origin::Responder(Opcode::Send);
                let held = Held::new(own.number, origin, index, Err(syndrome));
                card.port.hold(Outcome::Completion(held));
                self.fail(card, own.number);
            }
            Err(Failure::Queue) => {
                card.count(own.number, query_q_counter_out::RESP_LOCAL_QP_ERROR);
                card.port.hold(Outcome::Event(own.number, QpEvent::Catastrophic));
                self.fail(card, own.number);
            }
        }
    }

    /// The oldest request failed: it says why, and the send queue stops. The receive queue goes on
    /// (IBA 1.3, 10.3.1, state SQEr).
    fn fail_sender(&mut self, card: &mut Card, qp: u32, syndrome: Syndrome) {
        if let Some((index, opcode)) = self.sender.take() {
            let held = Held::new(qp, Origin::Requester { opcode }, index, Err(syndrome));
            card.port.hold(Outcome::Completion(held));
        }
        if let Some(object) = card.objects.qps.get_mut(&qp) {
            object.state = State::SqError;
        }
        self.flush_sends(card, qp);
    }

    /// Goes to Error and flushes.
    pub(super) fn fail(&mut self, card: &mut Card, qp: u32) {
        if let Some(object) = card.objects.qps.get_mut(&qp) {
            object.state = State::Error;
        }
        card.watch(qp);
        self.flush(card, qp);
        if self.parameters.is_some_and(|own| own.shared_receive) && !self.last_told {
            self.last_told = true;
            card.port.hold(Outcome::Event(qp, QpEvent::LastWqeReached));
        }
    }

    /// Completes as flushed, in order, as many WQEs as the rings hold.
    pub(super) fn flush(&mut self, card: &mut Card, qp: u32) {
        self.flush_sends(card, qp);
        let flushed = |index| {
            let origin = Origin::Responder(Opcode::Send);
            Outcome::Completion(Held::new(qp, origin, index, Err(Syndrome::Flushed)))
        };
        if let Some(index) = self.receiver.take() {
            card.port.hold(flushed(index));
        }
        if !self.parameters.is_some_and(|own| own.shared_receive) {
            let receives = card.objects.qps.get(&qp).map_or(0, |qp| qp.rq.wqes);
            for _ in 0..receives {
                let Ok(Some(wqe)) = card.take_receive(qp) else { break };
                card.port.hold(flushed(wqe.index));
            }
        }
    }

    /// Completes as flushed as many WQEs of the send queue as its ring holds.
    pub(super) fn flush_sends(&mut self, card: &mut Card, qp: u32) {
        let flushed = |index, opcode| {
            let origin = Origin::Requester { opcode };
            Outcome::Completion(Held::new(qp, origin, index, Err(Syndrome::Flushed)))
        };
        if let Some((index, opcode)) = self.sender.take() {
            card.port.hold(flushed(index, opcode));
        }
        // A doorbell record may claim any number of WQEs, and change while it is read.
        let blocks = card.objects.qps.get(&qp).map_or(0, |qp| qp.sq.blocks);
        for _ in 0..blocks {
            match card.fetch_send(qp) {
                Fetch::Empty => break,
                Fetch::Wqe(wqe) => card.port.hold(flushed(wqe.index, wqe.opcode)),
                Fetch::Malformed { index, opcode, .. } => card.port.hold(flushed(index, opcode)),
            }
        }
    }
}

/// The completion of a receive.
fn received(own: &Parameters, header: &Header, kind: Opcode, index: u16, length: u32) -> Held {
    let mut held = Held::new(own.number, Origin::Responder(kind), index, Ok(()));
    held.length = length;
    held.immediate = header.immediate.unwrap_or_default();
    held.solicited = header.solicited;
    if let Route::InfiniBand { level, source, .. } = header.route {
        held.source = (source, level);
    }
    held
}

/// Returns the opcode of a SEND's receive completion.
fn kind(header: &Header) -> Opcode {
    if header.immediate.is_some() { Opcode::SendImmediate } else { Opcode::Send }
}
