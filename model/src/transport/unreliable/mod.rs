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

use super::receive::flushed;
use super::{Completion, Notes, Outcome, Packet, Parameters, Transport};
use crate::card::Card;
use crate::object::{Service, State};
use crate::queue::{FailedWqe, Opcode, QpEvent, Syndrome, Taken};
use crate::work::Reason;
use connection::Receiver;
pub(super) use datagram::route;
use sender::{Progress, Sender};

/// Packets one queue pair sends before the next has its turn.
const QUANTUM: usize = 16;

/// Transport state of a queue pair: PSNs, the request on its way out, the message on its way in.
#[derive(Debug, Default)]
pub struct Unreliable {
    notes: Notes,
    /// Settings; none before RTR.
    parameters: Option<Parameters>,
    sender: Sender,
    /// The receiving side of a connection.
    receiver: Receiver,
}

/// Why nothing more can be received.
#[derive(Debug)]
enum Failure {
    /// A receive cannot take what came for it.
    Receive(Taken, Syndrome),
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

    /// The oldest request failed: it says why, and the send queue stops. The receive queue goes on
    /// (IBA 1.3, 10.3.1, state SQEr).
    fn fail_sender(&mut self, card: &mut Card, qp: u32, syndrome: Syndrome) {
        if let Some((index, opcode)) = self.sender.take() {
            card.failed_send(qp, FailedWqe { index, opcode, syndrome });
        }
        if let Some(object) = card.objects.qps.get_mut(&qp) {
            object.state = State::SqError;
        }
        card.watch(qp);
        self.flush_sends(card, qp);
    }
}

impl Transport for Unreliable {
    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn reset(&mut self, _: &mut Card, _: u32) {
        *self = Self::default();
    }

    /// Takes PSNs only when a side starts.
    fn configure(&mut self, card: &mut Card, qp: u32) {
        let Some(parameters) = card.parameters(qp) else { return };
        let sends = card.objects.qps.get(&qp).is_some_and(|qp| qp.state == State::Rts);
        self.parameters = Some(parameters);
        if let Some(object) = card.objects.qps.get_mut(&qp).filter(|_| sends) {
            // Not measured: what the record did not cover in SQE is not reported any more.
            object.sq.failed.clear();
        }
        if parameters.service == Service::Uc && !self.receiver.started {
            self.receiver.start(&parameters);
        }
        if sends && !self.sender.started {
            self.sender.start(&parameters);
        }
        self.wake(card, qp);
    }

    fn receive(&mut self, card: &mut Card, qp: u32, packet: &Packet<'_>) {
        let Some(own) = self.parameters else { return };
        let header = packet.header;
        if !datagram::accepts_partition(card, &own, header.p_key) {
            card.explain(qp, &Reason::Partition { shown: header.p_key, own: own.p_key });
            return;
        }
        let is_accepted = match own.service {
            Service::Uc => own.is_peer(&header.route),
            Service::Ud => true,
            Service::Rc | Service::Xrc | Service::Dc | Service::Ethernet => false,
        };
        if !is_accepted || self.notes.congestion.look_at(card, &own, header) {
            return;
        }
        let received = match header.service {
            Service::Ud => datagram::receive(card, &own, packet),
            Service::Uc => self.receiver.receive(card, &own, header, packet.payload),
            Service::Rc | Service::Xrc | Service::Dc | Service::Ethernet => Ok(()),
        };
        let Err(failure) = received else { return };
        let outcome = match failure {
            Failure::Receive(taken, syndrome) => {
                Completion::received(qp, Opcode::Send, taken, Err(syndrome)).into()
            }
            Failure::Queue => {
                card.count(qp, query_q_counter_out::RESP_LOCAL_QP_ERROR);
                Outcome::Event(qp, QpEvent::Catastrophic)
            }
        };
        card.port.hold(outcome);
        self.fail(card, qp);
    }

    fn pump(&mut self, card: &mut Card, qp: u32) {
        self.notes.queued = false;
        let Some(own) = self.parameters else { return };
        let sends =
            card.objects.qps.get(&qp).is_some_and(|qp| matches!(qp.state, State::Rts | State::Sqd));
        if !self.sender.started || !sends {
            return;
        }
        if let Some(until) = self.notes.congestion.wait(card, &own) {
            return card.port.set_timer(qp, until);
        }
        let most = if self.notes.congestion.is_limited() { 1 } else { QUANTUM };
        let before = card.outbox.len();
        let progress = self.sender.pump(card, &own, most);
        self.notes.congestion.pay(card, &own, before);
        match progress {
            Ok(Progress::Idle) => {}
            Ok(Progress::More) => self.wake(card, qp),
            Ok(Progress::Congested) => {
                self.notes.queued = true;
                card.port.park(qp);
            }
            Err(syndrome) => self.fail_sender(card, qp, syndrome),
        }
    }

    /// The rate that congestion leaves allows another packet.
    fn expire(&mut self, card: &mut Card, qp: u32) {
        self.wake(card, qp);
    }

    fn flush_requests(&mut self, card: &mut Card, qp: u32) {
        if let Some((index, opcode)) = self.sender.take() {
            card.failed_send(qp, FailedWqe { index, opcode, syndrome: Syndrome::FLUSHED });
        }
    }

    fn flush_receive(&mut self, _: &mut Card, qp: u32) -> Option<Completion> {
        self.receiver.take().map(|taken| flushed(qp, taken))
    }
}
