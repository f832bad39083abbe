//! Reliable connection: requester and responder of one queue pair.
//!
//! `requester` turns WQEs into request packets, and `answer` takes the answers and completes the
//! WQEs. `responder` executes a peer's requests, and `reply` sends its answers. They share only
//! [`Rc`], which holds both sides' state. `migration` moves both to another path.

mod answer;
mod credits;
mod dynamic;
mod masked;
mod migration;
mod packets;
mod rendezvous;
mod reply;
mod requester;
mod responder;

use mlx5_sys::ifc::{qpc, query_q_counter_out as counter};

use super::{Held, Outcome, Parameters, Psn};
use crate::card::Card;
use crate::object::{Service, State};
use crate::queue::{Fetch, HEADER, Opcode, Origin, QpEvent, Syndrome, TagEvent, Tagged};
use crate::wire::{DcEth, Header, NakCode};
pub(super) use dynamic::{IDLE, refuse_connect};
pub use migration::Migration;
use requester::Requester;
pub use requester::WINDOW;
use responder::{Incoming, Responder};

/// Packets one queue pair sends before the next has its turn.
const QUANTUM: usize = 16;

/// Transport state of a queue pair: PSNs, requests in flight, timers.
#[derive(Debug, Default)]
pub struct Rc {
    /// Settings; none before RTR.
    pub(super) parameters: Option<Parameters>,
    /// Whether it is in the port's queue of queue pairs with something to send.
    pub(super) queued: bool,
    /// Whether software got the event that no further receive comes from the SRQ.
    pub(super) last_told: bool,
    /// Its entry among the port's timers.
    pub(super) timer: Option<u64>,
    requester: Requester,
    responder: Responder,
    /// Whether software got the event that the peer's migration cannot be followed.
    told_of_migration: bool,
    /// At the target of a dynamic connection: the reason why no further request is executed.
    refused: Option<NakCode>,
}

impl Rc {
    /// Fills in the fields that change by themselves, in a context that QUERY_QP is about to
    /// return: next send and receive PSN, last acknowledged PSN, SSN, current retry counts.
    pub fn describe(&self, context: &mut [u8; qpc::SIZE]) {
        let (requester, responder) = (&self.requester, &self.responder);
        if requester.started {
            qpc::NEXT_SEND_PSN.set(context, requester.next.get().into());
            qpc::LAST_ACKED_PSN.set(context, requester.unacknowledged.previous().get().into());
            qpc::SSN.set(context, requester.messages.into());
            qpc::CUR_RETRY_COUNT.set(context, (requester.retries & 7).into());
            qpc::CUR_RNR_RETRY.set(context, (requester.rnr_retries & 7).into());
        }
        if responder.started {
            qpc::NEXT_RCV_PSN.set(context, responder.expected.get().into());
            qpc::RMSN.set(context, responder.messages.into());
        }
    }

    /// Takes settings from the context; PSNs only when a side starts.
    /// Says whether software has asked to move to the alternate path.
    pub(super) fn configure(&mut self, parameters: Parameters, state: State) -> bool {
        let before = self.parameters.replace(parameters);
        if !self.responder.started {
            self.responder.start(&parameters);
        }
        if state == State::Rts && !self.requester.started {
            self.requester.start(&parameters);
        }
        before.is_some_and(|before| before.migration == Migration::Armed)
            && parameters.migration == Migration::Migrated
    }

    /// Whether nothing is in flight and no reply is due.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.requester.requests.is_empty() && self.responder.replies.is_empty()
    }

    /// Asks for a turn at the port.
    pub(super) fn wake(&mut self, card: &mut Card, qp: u32) {
        if !self.queued {
            self.queued = true;
            card.port.ready(qp);
        }
    }

    /// When it wants to be woken.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.requester.deadline()
    }

    /// Whether an answer is due by now.
    pub(super) fn is_late(&self, now: u64) -> bool {
        self.requester.is_late(now)
    }

    /// Sends up to a quantum of packets: first the responder's replies, then requests. Returns
    /// whether there may be more.
    pub(super) fn pump(&mut self, card: &mut Card, qp: u32) -> bool {
        let Some(own) = self.parameters else { return false };
        let mut budget = QUANTUM;
        if let Err(refused) = self.responder.reply(card, &own, &mut budget) {
            self.fail_responder(card, qp, refused);
        }
        let state = card.objects.qps.get(&qp).map(|qp| qp.state);
        if self.requester.started && matches!(state, Some(State::Rts | State::Sqd)) {
            for rendezvous in self.responder.fetches.drain(..) {
                self.requester.fetch_message(&own, &rendezvous);
            }
            let fetch = state == Some(State::Rts);
            if let Err(syndrome) = self.requester.request(card, &own, fetch, &mut budget) {
                // Other streams go on.
                return self.fail_requester(card, qp, syndrome);
            }
        }
        budget == 0
    }

    /// A packet of the right partition for this queue pair.
    pub(super) fn receive(&mut self, card: &mut Card, header: &Header, payload: &[u8]) {
        let Some(own) = self.parameters else { return };
        if super::partition_matches(own.p_key, header.p_key) {
            self.follow(card, &own, header);
        }
        let own = self.requester.toward(&self.parameters.unwrap_or(own));
        if !own.is_peer(&header.route) || !super::partition_matches(own.p_key, header.p_key) {
            return;
        }
        // Answers to a connection that was given up.
        let number = |dynamic: Option<DcEth>| dynamic.map(|dynamic| dynamic.connection);
        if number(header.dynamic) != number(own.dynamic) {
            return;
        }
        if header.opcode.is_response() {
            if self.requester.started {
                let now = card.clock.now();
                match self.requester.answer(card, &own, header, payload, now) {
                    Ok(()) => self.wake(card, own.number),
                    Err(syndrome) => {
                        self.fail_requester(card, own.number, syndrome);
                    }
                }
            }
        } else if let Some(code) = self.refused {
            self.responder.repeat_refusal(code);
            self.wake(card, own.number);
        } else if own.service == Service::Rc || own.is_target {
            match self.responder.request(card, &own, header, payload) {
                Ok(()) => self.wake(card, own.number),
                Err(refused) => self.fail_responder(card, own.number, refused),
            }
        }
    }

    /// A timer is due.
    pub(super) fn expire(&mut self, card: &mut Card, qp: u32, now: u64) {
        let Some(own) = self.parameters else { return };
        match self.requester.expire(card, &own, now) {
            Ok(true) => self.wake(card, qp),
            Ok(false) => self.requester.rest(card, &own, now),
            Err(Syndrome::TransportRetriesExceeded) if self.may_migrate() => {
                self.migrate(card, qp);
                self.requester.rewind();
                self.wake(card, qp);
            }
            Err(syndrome) => {
                self.fail_requester(card, qp, syndrome);
            }
        }
    }

    /// Fails the oldest request: it completes with the reason, and the queue pair goes to Error.
    /// Returns `true` if only its stream fails.
    fn fail_requester(&mut self, card: &mut Card, qp: u32, syndrome: Syndrome) -> bool {
        let failed = self.requester.take_failed();
        let stream = failed.as_ref().and_then(|request| request.wqe.address);
        if let Some(fetched) = failed.as_ref().and_then(|request| request.fetched) {
            fetched.canceled(card, qp);
        } else if let Some(request) = failed {
            let origin = Origin::Requester { opcode: request.wqe.opcode };
            let held = Held::new(qp, origin, request.wqe.index, Err(syndrome));
            card.port.hold(Outcome::Completion(held));
        }
        if let (Some(own), Some(address)) = (self.parameters, stream) {
            if self.requester.fail_stream(card, &own, address.stream) {
                self.wake(card, qp);
                return true;
            }
        }
        self.fail(card, qp);
        false
    }

    /// Fails the responder after it refused a request of the peer. The peer gets the reason, the
    /// receive in use, if any, completes with an error, and the queue pair goes to Error.
    fn fail_responder(&mut self, card: &mut Card, qp: u32, refused: responder::Refused) {
        self.count_refused(card, qp, &refused);
        if self.parameters.is_some_and(|own| own.service == Service::Dc) {
            // Other initiators are connected to the target: only this connection ends.
            self.refused = Some(refused.code);
            self.responder.refuse_connection(qp, refused);
            self.wake(card, qp);
            return;
        }
        self.responder.refuse(qp, refused);
        self.fail(card, qp);
        self.wake(card, qp);
    }

    /// Counts a refused request, where no completion reports it.
    fn count_refused(&self, card: &mut Card, qp: u32, refused: &responder::Refused) {
        let length = matches!(refused.receive, Some((_, Syndrome::LocalLength)));
        let cause = match refused.code {
            NakCode::InvalidRequest if !length => counter::RESP_REMOTE_INVALID_REQUEST,
            NakCode::RemoteAccess => counter::RESP_REMOTE_ACCESS_ERRORS,
            NakCode::RemoteOperation if refused.receive.is_none() => counter::RESP_LOCAL_QP_ERROR,
            _ => return,
        };
        card.count(qp, cause);
    }

    /// Takes settings from the context of a queue pair that may never have been in RTR.
    pub(super) fn know(&mut self, parameters: Parameters) {
        self.parameters.get_or_insert(parameters);
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
            self.responder.owe(Outcome::Event(qp, QpEvent::LastWqeReached));
        }
        // It may be parked on a congested way, which no longer matters.
        self.queued = true;
        card.port.ready(qp);
    }

    /// The peer that packets go to.
    pub(super) fn remote(&self) -> Option<u32> {
        self.parameters.map(|own| self.requester.toward(&own).remote)
    }

    /// Tells the target of a dynamic connection, if there is one, that nothing more comes.
    pub(super) fn leave(&mut self, card: &mut Card) {
        if let Some(own) = self.parameters {
            self.requester.disconnect(card, &own);
        }
    }

    /// Lets a stream go on that has failed; `false` if it has not.
    pub(super) fn reset_stream(&mut self, stream: u16) -> bool {
        self.requester.initiator.reset_stream(stream)
    }

    /// Makes a stream fail, for tests of the behavior after that.
    #[cfg(test)]
    pub(super) fn fail_stream(&mut self, stream: u16) {
        self.requester.initiator.failed.insert(stream);
    }

    /// Becomes the responder of a dynamic connection.
    pub(super) fn open(&mut self, own: Parameters) {
        self.parameters = Some(own);
        self.responder.open(&own);
    }

    /// Ends a dynamic connection. Reports the outcomes that are due to software, and that a message
    /// will never be whole.
    pub(super) fn close(&mut self, card: &mut Card) {
        let Some(own) = self.parameters else { return };
        for outcome in self.responder.outcomes() {
            card.port.hold(outcome);
        }
        if let Incoming::Send { wqe, .. } = std::mem::take(&mut self.responder.incoming) {
            let aborted = Err(Syndrome::RemoteAborted);
            let held = Held::received(own.number, Opcode::Send, wqe.taken(), aborted);
            card.port.hold(Outcome::Completion(held));
        }
    }

    /// Whether no message is on its way in and no reply is due.
    pub(super) fn is_between(&self) -> bool {
        self.responder.replies.is_empty() && matches!(self.responder.incoming, Incoming::Idle)
    }

    /// Completes everything posted as flushed, in order.
    pub(super) fn flush(&mut self, card: &mut Card, qp: u32) {
        self.requester.quiet();
        let flushed = |opcode, index| {
            let origin = Origin::Requester { opcode };
            Outcome::Completion(Held::new(qp, origin, index, Err(Syndrome::Flushed)))
        };
        while let Some(request) = self.requester.take_failed() {
            match request.fetched {
                Some(fetched) => fetched.canceled(card, qp),
                None => dynamic::flushed(card, qp, &request.wqe),
            }
        }
        for rendezvous in self.responder.fetches.drain(..) {
            let message = rendezvous::Fetched::Message(rendezvous.tagged, rendezvous.domain);
            message.canceled(card, qp);
        }
        if let Some(wqe) = self.requester.initiator.take() {
            dynamic::flushed(card, qp, &wqe);
        }
        self.leave(card);
        // No more than the rings hold: a doorbell record may claim anything. The rest is flushed
        // when the queues are read again.
        let (blocks, receives) =
            card.objects.qps.get(&qp).map_or((0, 0), |qp| (qp.sq.blocks, qp.rq.wqes));
        for _ in 0..blocks {
            match card.fetch_send(qp) {
                Fetch::Empty => break,
                Fetch::Wqe(wqe) => card.port.hold(flushed(wqe.opcode, wqe.index)),
                Fetch::Malformed { index, opcode, .. } => card.port.hold(flushed(opcode, index)),
            }
        }
        let flushed = |taken| {
            let flushed = Err(Syndrome::Flushed);
            Outcome::Completion(Held::received(qp, Opcode::Send, taken, flushed))
        };
        match std::mem::take(&mut self.responder.incoming) {
            Incoming::Send { tagged: Some(tagged), .. } if tagged.event.is_matched() => {
                let tagged = Tagged { event: TagEvent::Canceled, start: [0; HEADER], ..tagged };
                self.responder.owe(Outcome::Completion(Held::tagged(qp, tagged)));
            }
            Incoming::Send { wqe, .. } => self.responder.owe(flushed(wqe.taken())),
            _ => {}
        }
        let shared = self.parameters.is_some_and(|own| own.shared_receive);
        if !shared {
            for _ in 0..receives {
                let Ok(Some(wqe)) = card.take_receive(qp) else { break };
                self.responder.owe(flushed(wqe.taken()));
            }
        }
        // In Error only replies that were due before are sent.
        self.wake(card, qp);
    }
}

/// Builds a packet to the peer.
fn to_peer(own: &Parameters, opcode: crate::wire::Opcode, psn: Psn) -> Header {
    let (service, dynamic) = (own.service, own.dynamic);
    let migrated = own.migration == Migration::Migrated;
    Header {
        service,
        dynamic,
        migrated,
        ..Header::new(own.route, opcode, own.p_key, own.remote, psn.get())
    }
}
