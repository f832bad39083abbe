//! Reliable connection: requester and responder of one queue pair.
//!
//! `requester` turns WQEs into request packets, and `answer` takes the answers and completes the
//! WQEs. `responder` executes a peer's requests, `reply` sends its answers, and `delayed` has refusals
//! that come later. They share only [`Rc`], which holds both sides' state. `migration` moves both to
//! another path.

mod answer;
mod credits;
mod delayed;
mod dynamic;
mod masked;
mod migration;
mod packets;
mod rendezvous;
mod reply;
mod requester;
mod responder;

use mlx5_sys::ifc::{qpc, query_q_counter_out as counter};

use super::receive::flushed;
use super::{Completion, Notes, Outcome, Packet, Parameters, Psn, Transport};
use crate::card::Card;
use crate::object::{Service, State};
use crate::queue::{HEADER, Opcode, Syndrome, TagEvent, Tagged};
use crate::wire::{DcEth, Header, NakCode};
use crate::work::Reason;
use delayed::Delayed;
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
    pub(super) notes: Notes,
    /// Settings; none before RTR.
    parameters: Option<Parameters>,
    /// Its entry among the port's timers.
    timer: Option<u64>,
    /// The time until which requests wait for the rate that congestion leaves.
    paced_until: Option<u64>,
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
            qpc::NEXT_SEND_PSN.set(context, requester.shown_psn().get().into());
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

    /// Whether nothing is in flight and no reply is due.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.requester.requests.is_empty() && self.responder.replies.is_empty()
    }

    /// Whether an answer is due by now.
    pub(super) fn is_late(&self, now: u64) -> bool {
        self.requester.is_late(now)
    }

    /// Sends up to a quantum of packets: first the responder's replies, then requests. Returns
    /// whether there may be more.
    pub(super) fn turn(&mut self, card: &mut Card, qp: u32) -> bool {
        let Some(own) = self.parameters else {
            // It failed before RTR.
            self.responder.outcomes().for_each(|outcome| card.port.hold(outcome));
            return false;
        };
        let mut budget = QUANTUM;
        let before = card.outbox.len();
        if let Err(refused) = self.responder.reply(card, &own, &mut budget) {
            self.fail_responder(card, qp, refused);
        }
        self.notes.congestion.echo(card, before);
        let state = card.objects.qps.get(&qp).map(|qp| qp.state);
        if self.requester.started && matches!(state, Some(State::Rts | State::Sqd)) {
            for rendezvous in self.responder.fetches.drain(..) {
                self.requester.fetch_message(&own, &rendezvous);
            }
            let toward = self.requester.toward(&own);
            if !self.may_request(card, &toward, &mut budget) {
                return budget == 0;
            }
            let fetch = state == Some(State::Rts);
            let before = card.outbox.len();
            if let Err(syndrome) = self.requester.request(card, &own, fetch, &mut budget) {
                self.fail_requester(card, qp, syndrome);
                return false;
            }
            self.notes.congestion.pay(card, &toward, before);
        }
        budget == 0
    }

    /// Returns whether congestion leaves room for a request. If not, the timer wakes the queue pair.
    fn may_request(&mut self, card: &mut Card, own: &Parameters, budget: &mut usize) -> bool {
        self.paced_until = self.notes.congestion.wait(card, own);
        if self.notes.congestion.is_limited() {
            *budget = (*budget).min(1);
        }
        self.paced_until.is_none()
    }

    /// Fails the oldest request: it completes with the reason, and its stream fails, or else the
    /// queue pair.
    fn fail_requester(&mut self, card: &mut Card, qp: u32, syndrome: Syndrome) {
        match syndrome {
            Syndrome::TransportRetriesExceeded => {
                card.explain(qp, &self.requester.silence());
            }
            Syndrome::RnrRetriesExceeded => {
                let allowed = self.parameters.map_or(0, |own| own.rnr_retries);
                card.explain(qp, &Reason::NotReady(allowed));
            }
            // The cause was told where it was met, or the peer knows it.
            _ => {}
        }
        let failed = self.requester.take_failed();
        let stream = failed.as_ref().and_then(|request| request.wqe.address);
        if let Some(fetched) = failed.as_ref().and_then(|request| request.fetched) {
            fetched.canceled(card, qp);
        } else if let Some(request) = failed {
            card.failed_send(qp, request.wqe.failed(syndrome));
        }
        if let (Some(own), Some(address)) = (self.parameters, stream) {
            if self.requester.fail_stream(card, &own, address.stream) {
                // The other streams go on.
                card.report_all_failed(qp);
                return self.wake(card, qp);
            }
        }
        self.fail(card, qp);
    }

    /// Refuses a request of the peer, at once, or later if its key was destroyed a moment ago.
    fn refuse(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        refused: responder::Refused,
    ) {
        let waits = own.service != Service::Dc;
        match self.responder.delayed_until(card, header, &refused).filter(|_| waits) {
            Some(until) => self.responder.delayed = Some(Delayed { until, refused }),
            None => self.fail_responder(card, own.number, refused),
        }
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
        if let Some(object) = card.objects.qps.get_mut(&qp) {
            object.note_failure(refused.codes());
        }
        self.responder.refuse(qp, refused);
        self.fail(card, qp);
        self.wake(card, qp);
    }

    /// Counts a request that was refused for a reason of this side, where no completion reports it.
    ///
    /// Refused keys, ranges and rights move neither `resp_remote_access_errors` nor
    /// `resp_remote_invalid_request`: 0 in 110 refusals by ConnectX-5 and -6 (evidence E061).
    fn count_refused(&self, card: &mut Card, qp: u32, refused: &responder::Refused) {
        if refused.code == NakCode::RemoteOperation && refused.receive.is_none() {
            card.count(qp, counter::RESP_LOCAL_QP_ERROR);
        }
    }

    /// Returns the settings with the path on which packets leave.
    pub(super) fn toward(&self) -> Option<Parameters> {
        self.parameters.map(|own| self.requester.toward(&own))
    }

    /// Returns whether the way to the peer is full.
    pub(super) fn is_congested(&self, card: &Card) -> bool {
        self.toward().is_some_and(|peer| card.port.is_congested(&peer.route, peer.remote))
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
            card.port.hold(Completion::received(own.number, Opcode::Send, wqe.taken(), aborted));
        }
    }

    /// Whether no message is on its way in and no reply is due.
    pub(super) fn is_between(&self) -> bool {
        self.responder.replies.is_empty() && matches!(self.responder.incoming, Incoming::Idle)
    }
}

impl Transport for Rc {
    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn reset(&mut self, card: &mut Card, _: u32) {
        self.leave(card);
        *self = Self::default();
    }

    /// Takes PSNs only when a side starts. Moves to the alternate path if software asks for that.
    fn configure(&mut self, card: &mut Card, qp: u32) {
        let Some(parameters) = card.parameters(qp) else { return };
        let sends = card.objects.qps.get(&qp).is_some_and(|qp| qp.state == State::Rts);
        let before = self.parameters.replace(parameters);
        if !self.responder.started {
            self.responder.start(&parameters);
        }
        if sends && !self.requester.started {
            self.requester.start(&parameters);
        }
        if before.is_some_and(|before| before.migration == Migration::Armed)
            && parameters.migration == Migration::Migrated
        {
            self.migrate(card, qp);
        }
        self.wake(card, qp);
    }

    fn receive(&mut self, card: &mut Card, _: u32, packet: &Packet<'_>) {
        let Packet { header, payload, .. } = *packet;
        let Some(own) = self.parameters else { return };
        if super::partition_matches(own.p_key, header.p_key) {
            self.follow(card, &own, header);
        }
        let own = self.requester.toward(&self.parameters.unwrap_or(own));
        if !super::partition_matches(own.p_key, header.p_key) {
            card.explain(own.number, &Reason::Partition { shown: header.p_key, own: own.p_key });
            return;
        }
        if !own.is_peer(&header.route) {
            return;
        }
        if self.notes.congestion.look_at(card, &own, header) {
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
                    Err(syndrome) => self.fail_requester(card, own.number, syndrome),
                }
            }
        } else if let Some(code) = self.refused {
            self.responder.repeat_refusal(code);
            self.wake(card, own.number);
        } else if self.responder.delayed.is_some() {
            // Later requests are not out of sequence: no counter moves, and no NAK is sent.
        } else if own.service == Service::Rc || own.is_target {
            match self.responder.request(card, &own, header, payload) {
                Ok(()) => self.wake(card, own.number),
                Err(refused) => self.refuse(card, &own, header, refused),
            }
        }
    }

    fn pump(&mut self, card: &mut Card, qp: u32) {
        let failed = card.objects.qps.get(&qp).is_some_and(|qp| qp.state == State::Error);
        if !failed && self.is_congested(card) {
            return card.port.park(qp);
        }
        self.notes.queued = false;
        if self.turn(card, qp) {
            self.wake(card, qp);
        }
    }

    fn flush_requests(&mut self, card: &mut Card, qp: u32) {
        self.requester.quiet();
        while let Some(request) = self.requester.take_failed() {
            match request.fetched {
                Some(fetched) => fetched.canceled(card, qp),
                None => card.failed_send(qp, request.wqe.failed(Syndrome::FLUSHED)),
            }
        }
        for rendezvous in self.responder.fetches.drain(..) {
            let message = rendezvous::Fetched::Message(rendezvous.tagged, rendezvous.domain);
            message.canceled(card, qp);
        }
        if let Some(wqe) = self.requester.initiator.take() {
            card.failed_send(qp, wqe.failed(Syndrome::FLUSHED));
        }
        self.leave(card);
    }

    fn flush_receive(&mut self, _: &mut Card, qp: u32) -> Option<Completion> {
        let refused = self.responder.delayed.take().and_then(|delayed| delayed.refused.receive);
        if let Some((taken, _)) = refused {
            return Some(flushed(qp, taken));
        }
        match std::mem::take(&mut self.responder.incoming) {
            Incoming::Send { tagged: Some(tagged), .. } if tagged.event.is_matched() => {
                let tagged = Tagged { event: TagEvent::Canceled, start: [0; HEADER], ..tagged };
                Some(Completion::tagged(qp, tagged))
            }
            Incoming::Send { wqe, .. } => Some(flushed(qp, wqe.taken())),
            _ => None,
        }
    }

    fn expire(&mut self, card: &mut Card, qp: u32) {
        self.timer = None;
        if self.paced_until.take_if(|until| *until <= card.clock.now()).is_some() {
            self.wake(card, qp);
        }
        let now = card.clock.now();
        if let Some(refused) = self.responder.take_delayed(now) {
            return self.fail_responder(card, qp, refused);
        }
        let sends =
            card.objects.qps.get(&qp).is_some_and(|qp| matches!(qp.state, State::Rts | State::Sqd));
        let (true, Some(own)) = (sends, self.parameters) else { return };
        match self.requester.expire(card, &own, now) {
            Ok(true) => self.wake(card, qp),
            Ok(false) => self.requester.rest(card, &own, now),
            Err(Syndrome::TransportRetriesExceeded) if self.may_migrate() => {
                self.migrate(card, qp);
                self.requester.rewind();
                self.wake(card, qp);
            }
            Err(syndrome) => self.fail_requester(card, qp, syndrome),
        }
    }

    /// Sets the timer. One that fires too early finds no work: moving it with every packet would
    /// cost more.
    fn conclude(&mut self, card: &mut Card, qp: u32) {
        let refusal = self.responder.delayed.as_ref().map(|delayed| delayed.until);
        let others = self.paced_until.into_iter().chain(refusal);
        if let Some(wanted) = self.requester.deadline().into_iter().chain(others).min() {
            if self.timer.is_none_or(|set| wanted < set) {
                card.port.set_timer(qp, wanted);
                self.timer = Some(wanted);
            }
        }
    }

    /// Reports after the replies before it. In Error, only those are sent.
    fn report(&mut self, card: &mut Card, qp: u32, outcome: Outcome) {
        self.responder.owe(outcome);
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
