//! The transport's state of a queue pair, and what every transport does with it.

use std::any::Any;

use mlx5_sys::ifc::qpc;

use super::congestion::Congestion;
use super::dynamic::Connections;
use super::ethernet::Ethernet;
use super::rc::Rc;
use super::receive::flushed;
use super::unreliable::Unreliable;
use super::{Completion, Outcome, Parameters};
use crate::card::Card;
use crate::object::{Qp, Service, State, TransportState};
use crate::queue::{FailedWqe, Fetch, Flush, QpEvent, Syndrome};
use crate::wire::{Header, LinkAddress};

/// State of a queue pair: that of its own transport alone.
#[derive(Debug)]
pub enum QueuePair {
    /// Requester and responder of RC or XRC, or of an initiator of dynamic connections.
    Reliable(Rc),
    /// Sender and receiver of UC or UD.
    Unreliable(Unreliable),
    /// An Ethernet queue.
    Ethernet(Ethernet),
    /// The connections of a target of dynamic connections.
    Target(Connections),
}

impl QueuePair {
    /// Creates the state of a queue pair in Reset.
    pub fn boxed(service: Service) -> Box<dyn TransportState> {
        Box::new(match service {
            Service::Rc | Service::Xrc | Service::Dc => Self::Reliable(Rc::default()),
            Service::Uc | Service::Ud => Self::Unreliable(Unreliable::default()),
            Service::Ethernet => Self::Ethernet(Ethernet::default()),
        })
    }

    /// Creates the state of a target of dynamic connections.
    pub fn target() -> Box<dyn TransportState> {
        Box::new(Self::Target(Connections::default()))
    }

    /// Lets a failed stream of an initiator go on. Returns `false` if it has not failed.
    pub fn reset_stream(qp: &mut Qp, stream: u16) -> bool {
        Self::reliable_mut(qp).is_some_and(|rc| rc.reset_stream(stream))
    }

    /// Makes a stream of an initiator fail, for tests of the behavior after that.
    #[cfg(test)]
    pub(crate) fn fail_stream(qp: &mut Qp, stream: u16) {
        if let Some(rc) = Self::reliable_mut(qp) {
            rc.fail_stream(stream);
        }
    }

    /// Returns the state of a queue pair; `None` while the transport works with it.
    pub(super) fn of(qp: &Qp) -> Option<&Self> {
        qp.transport.as_ref()?.as_any().downcast_ref()
    }

    fn reliable_mut(qp: &mut Qp) -> Option<&mut Rc> {
        match Self::from_mut(&mut **qp.transport.as_mut()?)? {
            Self::Reliable(rc) => Some(rc),
            _ => None,
        }
    }

    fn from_mut(state: &mut dyn TransportState) -> Option<&mut Self> {
        state.as_any_mut().downcast_mut()
    }

    /// Returns the peer from which an answer is overdue.
    pub(super) fn late_peer(&self, now: u64) -> Option<(LinkAddress, u32)> {
        match self {
            Self::Reliable(rc) if rc.is_late(now) => {
                rc.toward().map(|peer| (peer.route.to(), peer.remote))
            }
            _ => None,
        }
    }

    /// Returns whether no request is in flight and no reply is due.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        !matches!(self, Self::Reliable(rc) if !rc.is_idle())
    }

    /// Returns the connections of a target.
    #[cfg(test)]
    pub(super) fn connections(&self) -> &Connections {
        match self {
            Self::Target(connections) => connections,
            _ => panic!("a queue pair that is not a target: {self:?}"),
        }
    }

    fn transport(&mut self) -> &mut dyn Transport {
        match self {
            Self::Reliable(rc) => rc,
            Self::Unreliable(unreliable) => unreliable,
            Self::Ethernet(ethernet) => ethernet,
            Self::Target(connections) => connections,
        }
    }
}

impl TransportState for QueuePair {
    fn describe(&self, context: &mut [u8; qpc::SIZE]) {
        match self {
            Self::Reliable(rc) => rc.describe(context),
            Self::Unreliable(unreliable) => unreliable.describe(context),
            Self::Ethernet(_) | Self::Target(_) => {}
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A packet that has arrived at the port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    /// Its headers.
    pub header: &'a Header,
    /// Its payload.
    pub payload: &'a [u8],
    /// All of its bytes.
    pub bytes: &'a [u8],
}

/// Notes that every transport keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// Whether it is in the port's queue of queue pairs with something to send, or parked.
    pub queued: bool,
    /// Whether software got the event that no further receive comes from the SRQ.
    pub last_told: bool,
    /// Its reaction to congestion.
    pub congestion: Congestion,
}

/// The work of a transport for a queue pair. Each method gets the rest of the device and the number
/// of the queue pair, which has no transport state meanwhile.
pub(super) trait Transport {
    /// Returns the notes that every transport keeps.
    fn notes(&mut self) -> &mut Notes;

    /// Forgets everything: the queue pair goes to Reset.
    fn reset(&mut self, card: &mut Card, qp: u32);

    /// Takes settings from the context, after a command moved the queue pair to a state from Rtr to
    /// SqError, or changed its context.
    fn configure(&mut self, card: &mut Card, qp: u32);

    /// Handles a packet for the queue pair, of its service.
    fn receive(&mut self, card: &mut Card, qp: u32, packet: &Packet<'_>);

    /// Sends up to a quantum of packets. Asks for another turn if there may be more.
    fn pump(&mut self, card: &mut Card, qp: u32);

    /// Gives up the requests in execution, by [`Card::failed_send`].
    fn flush_requests(&mut self, card: &mut Card, qp: u32);

    /// Gives up the receive in use, if any. Returns its completion.
    fn flush_receive(&mut self, card: &mut Card, qp: u32) -> Option<Completion>;

    /// Handles a timer that is due.
    fn expire(&mut self, _card: &mut Card, _qp: u32) {}

    /// Does what follows from the work of any other method: called after each.
    fn conclude(&mut self, _card: &mut Card, _qp: u32) {}

    /// Reports a completion or event of the receive queue to software.
    fn report(&mut self, card: &mut Card, _qp: u32, outcome: Outcome) {
        card.port.hold(outcome);
    }

    /// Asks for a turn at the port.
    fn wake(&mut self, card: &mut Card, qp: u32) {
        if !std::mem::replace(&mut self.notes().queued, true) {
            card.port.ready(qp);
        }
    }

    /// Moves the queue pair to Error after an error on it, and flushes it.
    fn fail(&mut self, card: &mut Card, qp: u32) {
        if let Some(object) = card.objects.qps.get_mut(&qp) {
            object.state = State::Error;
        }
        card.watch(qp);
        // A congested way no longer matters.
        card.port.unpark(qp);
        self.flush(card, qp);
        let shares = card.objects.qps.get(&qp).is_some_and(|qp| qp.shared_receive().is_some());
        if shares && !std::mem::replace(&mut self.notes().last_told, true) {
            self.report(card, qp, Outcome::Event(qp, QpEvent::LastWqeReached));
        }
    }

    /// Completes everything posted as flushed, in order.
    fn flush(&mut self, card: &mut Card, qp: u32) {
        self.flush_sends(card, qp);
        if let Some(completion) = self.flush_receive(card, qp) {
            self.report(card, qp, completion.into());
        }
        let receives = card.objects.qps.get(&qp).map_or(0, |qp| qp.rq.wqes);
        for _ in 0..receives {
            let Ok(Some(wqe)) = card.take_receive(qp) else { break };
            self.report(card, qp, flushed(qp, wqe.taken()).into());
        }
    }

    /// Completes the failed WQEs that the doorbell record covers: those that were in execution, then
    /// those in the ring (measured on ConnectX-6, evidence E003, E004). Takes as many from the ring
    /// as it holds: a record may claim any number of WQEs. The rest is flushed when the record is
    /// read again.
    fn flush_sends(&mut self, card: &mut Card, qp: u32) {
        self.flush_requests(card, qp);
        card.load_record(qp);
        while let Some(failed) = card.objects.qps.get_mut(&qp).and_then(|qp| qp.sq.take_covered()) {
            card.report_failed(qp, failed);
        }
        let blocks = card.objects.qps.get(&qp).map_or(0, |qp| qp.sq.blocks);
        for _ in 0..blocks {
            match card.fetch_send(qp) {
                Fetch::Empty => break,
                Fetch::Wqe(wqe) => card.flushed_send(qp, wqe.index, wqe.opcode),
                Fetch::Malformed { index, opcode, .. } => card.flushed_send(qp, index, opcode),
            }
        }
    }
}

impl Card {
    /// Calls `work` with the transport of a queue pair and the rest of the device. Returns `None`
    /// if the queue pair does not exist, or if such a call for it is under way.
    pub(super) fn transport<R>(
        &mut self,
        qp: u32,
        work: impl FnOnce(&mut Self, &mut dyn Transport) -> R,
    ) -> Option<R> {
        let mut state = self.objects.qps.get_mut(&qp)?.transport.take()?;
        let result = QueuePair::from_mut(&mut *state).map(|state| {
            let transport = state.transport();
            let result = work(self, transport);
            transport.conclude(self, qp);
            result
        });
        if let Some(object) = self.objects.qps.get_mut(&qp) {
            object.transport = Some(state);
        }
        result
    }

    /// Returns a queue pair's settings.
    pub(super) fn parameters(&self, qp: u32) -> Option<Parameters> {
        self.objects.qps.get(&qp).map(|object| Parameters::of(object, &self.identity))
    }

    /// Reports a send WQE as flushed.
    pub(super) fn flushed_send(&mut self, qp: u32, index: u16, opcode: u8) {
        self.report_failed(qp, FailedWqe { index, opcode, syndrome: Syndrome::FLUSHED });
    }

    /// Adds a send WQE that failed in execution. It is reported when the queue is flushed, and only
    /// if the doorbell record covers it.
    pub(super) fn failed_send(&mut self, qp: u32, failed: FailedWqe) {
        let Some(object) = self.objects.qps.get_mut(&qp) else { return };
        // After an answer that refuses it, the device is back at the WQE. Without an answer, it is
        // where it was (evidence E007).
        let goes_on =
            matches!(failed.syndrome, Syndrome::Flushed(_) | Syndrome::TransportRetriesExceeded);
        if !goes_on {
            object.sq.executed = failed.index;
        }
        object.sq.failed.push_back(failed);
    }

    /// Reports the send WQEs that failed on a queue pair that goes on.
    pub(super) fn report_all_failed(&mut self, qp: u32) {
        let Some(object) = self.objects.qps.get_mut(&qp) else { return };
        object.sq.executed = object.sq.fetched;
        for failed in std::mem::take(&mut object.sq.failed) {
            self.report_failed(qp, failed);
        }
    }

    /// Writes the CQE of a send WQE that failed. The first one that is flushed after the program itself
    /// moved the queue pair to Error has a code of its own.
    fn report_failed(&mut self, qp: u32, failed: FailedWqe) {
        let FailedWqe { index, opcode, mut syndrome } = failed;
        if let (Syndrome::Flushed(flush), Some(object)) =
            (&mut syndrome, self.objects.qps.get_mut(&qp))
        {
            if std::mem::take(&mut object.sq.told_to_flush) {
                *flush = Flush::First;
            }
        }
        self.port.hold(Completion::sent(qp, opcode, index, Err(syndrome)));
    }
}
