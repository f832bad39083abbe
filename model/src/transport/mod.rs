//! The InfiniBand transport services.
//!
//! The caller drives everything here: [`Card::send_ready`] after a doorbell or a state change,
//! [`Card::receive`] for a packet, [`Card::expire`] for the clock. None of these sends packets.
//! They only determine which queue pairs have packets to send. [`Card::pump`] then fills
//! [`Card::outbox`] up to the caller's limit. Completions wait until [`Card::settle`]: a program
//! that sees one may exit, so the acknowledge must have been carried away before. The order is
//! always: call `pump`, carry the outbox away, call `settle`. The caller repeats it until nothing
//! is left.

mod congestion;
mod dynamic;
pub mod ethernet;
mod faults;
mod local;
mod parameters;
mod psn;
mod queue_pair;
pub mod rc;
mod receive;
#[cfg(test)]
pub(crate) mod test;
mod timing;
pub mod unreliable;

use std::collections::BTreeSet;
use std::fmt;

use mlx5_sys::ifc::{qpc, query_q_counter_out};

pub(crate) use faults::Unanswered;
pub use parameters::Parameters;
pub use psn::Psn;
pub use queue_pair::QueuePair;
use queue_pair::{Notes, Packet, Transport};

use crate::card::{Aftermath, Card, Link, TURN};
use crate::cost::Store;
use crate::management::Mad;
use crate::object::{Qp, State};
use crate::queue::QpEvent;
use crate::trace::Call;
use crate::wire::{Direction, Frame, Header, LinkAddress, MULTICAST, Malformed, Opcode, Route};
use crate::work::{CQ_FAILED, Completion, CqFailure, Outcome, Reason};

/// Packets put into the outbox before the caller must take them away.
const OUTBOX: usize = 64;
/// Work in one call of [`Card::pump`], in frames as `Port::charge` counts: WQEs that send no packet
/// do not fill the outbox.
const TURNS: usize = 1024;

/// The reason for which a port dropped a packet before a transport saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dropped {
    #[error("the port is down, the firmware has stopped, or it exceeds the MTU")]
    Port,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the virtual port's addresses leave it out")]
    Filtered,
    #[error("not for this port")]
    Destination,
    #[error("no queue pair of this number and service receives here")]
    QueuePair,
}

/// What receives a packet at the port that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// Queue pairs.
    Queues,
    /// The port's management agent.
    Agent,
}

/// Returns whether a packet has the LID of a port that has none yet, or whose LID the sender does not
/// know. Only packets to QP0 do.
fn is_permissive(header: &Header) -> bool {
    matches!(header.route, Route::InfiniBand { destination: 0xffff, global: None, .. })
        && header.destination == 0
}

impl Card {
    /// Marks a send queue as having work. The next pump fetches and executes it as far as window
    /// and fences allow. If the queue pair is in Error, its send queue is flushed.
    pub fn send_ready(&mut self, qp: u32) {
        let Some(state) = self.objects.qps.get(&qp).map(|qp| qp.state) else { return };
        self.transport(qp, |card, transport| match state {
            State::Rts => transport.wake(card, qp),
            State::SqError => transport.flush_sends(card, qp),
            State::Error => transport.flush(card, qp),
            State::Reset | State::Init | State::Rtr | State::Sqd => {}
        });
    }

    /// Handles a packet that has arrived at the port. A packet that is damaged, not for this
    /// device, or not from the peer of the named queue pair is dropped.
    pub fn receive(&mut self, frame: &Frame) {
        if self.impairment.is_none() {
            return self.deliver(frame);
        }
        let now = self.clock.now();
        if let Some(impairment) = &mut self.impairment {
            impairment.put(Direction::Inbound, frame.clone(), now);
        }
        self.deliver_released();
    }

    /// Handles a packet after all faults of its way.
    fn deliver(&mut self, frame: &Frame) {
        let is_managed = self.managed.is_some() && Mad::is_in(self.identity.link, frame);
        let recipient = if is_managed { Recipient::Agent } else { Recipient::Queues };
        let arrived = self.arrive(frame, recipient);
        if let Err(reason) = &arrived {
            tracing::debug!(%reason, "packet dropped");
        } else if let (Recipient::Agent, Some(managed)) = (recipient, &mut self.managed) {
            managed.push_back(frame.clone());
        }
        let dropped = arrived.as_ref().err().map(|reason| reason as &dyn fmt::Display);
        self.captured(Direction::Inbound, frame, dropped);
    }

    /// Receives a packet at the port. The caller gives it to the agent.
    pub(crate) fn arrive(&mut self, frame: &Frame, recipient: Recipient) -> Result<(), Dropped> {
        let call = || match recipient {
            Recipient::Queues => match frame.1 {
                Some(domain) => Call::ReceiveOwn { domain, frame: (&frame.0).into() },
                None => Call::Receive((&frame.0).into()),
            },
            Recipient::Agent => Call::ReceiveManagement((&frame.0).into()),
        };
        self.enter(call, |card| card.arrived(frame, recipient), |_| false)
    }

    fn arrived(&mut self, frame: &Frame, recipient: Recipient) -> Result<(), Dropped> {
        if !self.passes(frame) {
            return Err(Dropped::Port);
        }
        let link = self.identity.link;
        if !frame.is_transport(link) {
            if !self.admits(&frame.0) {
                return Err(Dropped::Filtered);
            }
            if !self.receive_ethernet(frame) {
                return Err(Dropped::Destination);
            }
            self.count_received(frame);
            return Ok(());
        }
        let decoded = Header::decode(link, &frame.0);
        let (header, range) = decoded.inspect_err(|_| self.count_wrong(frame))?;
        let packet = Packet { header: &header, payload: &frame.0[range], bytes: &frame.0 };
        let to = header.route.to();
        if header.destination == MULTICAST && (to.is_group() || self.identity.has_address(to)) {
            if header.route.group().is_none_or(|group| self.objects.groups.of(group).is_empty())
                || !self.identity.is_in_vlan_of(&header.route)
            {
                return Err(Dropped::Destination);
            }
            self.count_received(frame);
            self.receive_multicast(&packet);
            return Ok(());
        }
        if !self.identity.is_for_port(&header.route) && !is_permissive(&header) {
            return Err(Dropped::Destination);
        }
        self.count_received(frame);
        if recipient == Recipient::Agent {
            return Ok(());
        }
        let handled = self.congestion.handled;
        let number = self.objects.at_wire_number(header.destination).ok_or(Dropped::QueuePair);
        let taken = number.and_then(|number| self.receive_for(number, &packet));
        if header.opcode == Opcode::CongestionNotification && self.congestion.handled == handled {
            self.congestion.ignored += 1;
        }
        taken
    }

    /// Gives a packet to a queue pair of its service, if that receives.
    fn receive_for(&mut self, number: u32, packet: &Packet<'_>) -> Result<(), Dropped> {
        let qp = self.objects.qps.get(&number).ok_or(Dropped::QueuePair)?;
        // A send queue that stopped on an error does not stop the receive queue.
        let receives = matches!(qp.state, State::Rtr | State::Rts | State::Sqd | State::SqError);
        let header = packet.header;
        let is_notification = header.opcode == Opcode::CongestionNotification;
        let reached = header.destination == MULTICAST || qp.is_reached_by(header.destination);
        if qp.service != header.service && !is_notification {
            self.explain(number, &Reason::Transport);
            return Err(Dropped::QueuePair);
        }
        if !receives || !reached {
            if matches!(qp.state, State::Reset | State::Init | State::Error) {
                self.explain(number, &Reason::State(qp.state.name()));
            }
            return Err(Dropped::QueuePair);
        }
        self.transport(number, |card, transport| transport.receive(card, number, packet));
        Ok(())
    }

    /// Fires due timers, only some of them if there are many. The caller repeats the call until
    /// none is due.
    pub fn expire(&mut self) {
        if self.impairment.is_some() {
            self.expire_faults();
        }
        self.enter(|| Call::Expire, Self::fire, |()| false);
    }

    /// Returns the peers whose answers are due, for as many timers as the next [`Card::expire`]
    /// fires: address of the port, and number of the queue pair.
    pub fn late_peers(&self, now: u64) -> BTreeSet<(LinkAddress, u32)> {
        let due = self.port.next_due(now);
        due.filter_map(|qp| QueuePair::of(self.objects.qps.get(&qp)?)?.late_peer(now)).collect()
    }

    fn fire(&mut self) {
        self.expire_moderation();
        let now = self.clock.now();
        for qp in self.place_due(now) {
            self.transport(qp, |card, transport| transport.wake(card, qp));
        }
        for _ in 0..TURN {
            let Some(qp) = self.port.due(now) else { break };
            self.transport(qp, |card, transport| transport.expire(card, qp));
        }
        if self.port.watch_due(now) {
            let mut found = false;
            for qp in self.port.failed() {
                found |= self.flush_posted(qp);
            }
            self.port.watch_again(now, found);
        }
    }

    /// Returns the time of the next timer, in nanoseconds of the device's clock.
    pub fn deadline(&self) -> Option<u64> {
        let faults = self.impairment.as_ref().and_then(|impairment| impairment.deadline());
        let others = [self.moderation_deadline(), self.placement_deadline(), faults];
        self.port.deadline().into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Handles a queue pair's state change by command, or a command's change of its context. To
    /// Error: everything posted is flushed. To Reset: transport state is dropped. To Rtr, Rts:
    /// PSNs, timers and limits are taken from the context.
    pub fn state_changed(&mut self, qp: u32) {
        let Some(state) = self.objects.qps.get(&qp).map(|qp| qp.state) else { return };
        self.transport(qp, |card, transport| match state {
            State::Reset => transport.reset(card, qp),
            State::Init => {}
            State::Rtr | State::Rts | State::Sqd | State::SqError => transport.configure(card, qp),
            State::Error => transport.fail(card, qp),
        });
        if state == State::Reset {
            self.forget_reasons(qp);
            self.port.forget(qp);
        }
    }

    /// Moves a queue pair to Error after an error on it, and flushes it. Failed requests report
    /// their cause in their own completion. For other causes, the caller reports the event.
    pub fn fail(&mut self, qp: u32) {
        self.transport(qp, |card, transport| transport.fail(card, qp));
    }

    /// Flushes what was posted since a queue pair failed: receives, and sends that its doorbell
    /// record did not cover. Returns whether there was anything.
    fn flush_posted(&mut self, qp: u32) -> bool {
        let Some(object) = self.objects.qps.get(&qp).filter(|qp| qp.is_watched()) else {
            self.port.unwatch(qp);
            return false;
        };
        let mut words = [0; 8];
        if self.memory.read(object.record(), &mut words).is_err() || !object.has_news(words) {
            return false;
        }
        let before = self.port.held_len();
        self.send_ready(qp);
        self.port.held_len() != before
    }

    /// Starts polling the doorbell record of a queue pair that failed.
    fn watch(&mut self, qp: u32) {
        if self.objects.qps.get(&qp).is_some_and(Qp::is_watched) {
            let now = self.clock.now();
            self.port.watch(qp, now);
        }
    }

    /// Fills the outbox, to a limit, from the queue pairs with packets to send. Returns whether
    /// there was any work; then the caller takes the outbox away and calls again.
    pub fn pump(&mut self) -> bool {
        self.enter(|| Call::Pump, Self::fill_outbox, |any| !any)
    }

    fn fill_outbox(&mut self) -> bool {
        let mut any = false;
        self.port.take_charge();
        while self.outbox.len() < OUTBOX && self.port.charged() < TURNS {
            let Some(qp) = self.port.next_ready() else { break };
            any = true;
            self.port.charge(1);
            self.port.pace.turn(qp);
            self.transport(qp, |card, transport| transport.pump(card, qp));
        }
        any
    }

    /// Writes the completions and events held back until the packets before them have left. Returns
    /// whether there were any.
    pub fn settle(&mut self) -> bool {
        self.enter(|| Call::Settle, Self::report_held, |any| !any)
    }

    fn report_held(&mut self) -> bool {
        let mut any = false;
        while let Some(outcome) = self.port.release() {
            any = true;
            match outcome {
                Outcome::Completion(completion) => {
                    self.place(completion.qp);
                    self.complete(&completion);
                }
                Outcome::Event(qp, event) => self.qp_event(qp, event),
            }
        }
        any
    }

    /// Writes the CQE of a completion to the queue's CQ, and the event that the CQ is armed for. On
    /// an overrun, the CQ and its queue pairs fail with an async event, as on a real device.
    pub fn complete(&mut self, completion: &Completion) {
        self.write_completion(completion);
        self.follow_up();
    }

    /// Writes all CQEs that are held back. Returns whether there were any: events may follow.
    pub fn release_cqes(&mut self) -> bool {
        self.enter(
            || Call::Release,
            |card| {
                let any = card.release_blocks();
                card.follow_up();
                any
            },
            |any| !any,
        )
    }

    /// Applies the CQEs written since the last call to queue pairs: queue pairs that wait for a
    /// completion continue, and the queue pairs of a failed CQ fail.
    pub(crate) fn follow_up(&mut self) {
        while let Some(aftermath) = self.port.next_aftermath() {
            match aftermath {
                Aftermath::Completed(cq) => self.completed_on(cq),
                Aftermath::Failed(cq, failure) => self.fail_users_of(cq, failure),
            }
        }
    }

    fn fail_users_of(&mut self, cqn: u32, failure: CqFailure) {
        let mut users: Vec<u32> = self
            .objects
            .qps
            .values()
            .filter(|qp| !matches!(qp.state, State::Reset | State::Error))
            .filter(|qp| qp.get(qpc::CQN_SND) == cqn || qp.get(qpc::CQN_RCV) == cqn)
            .map(|qp| qp.number)
            .collect();
        users.sort_unstable();
        let reason = match failure {
            CqFailure::Overrun => {
                let cqes = self.objects.cqs.get(cqn).map_or(0, |cq| cq.entries);
                Reason::Overrun { cq: cqn, cqes }
            }
            CqFailure::Access => Reason::LostCq(cqn),
        };
        for qp in users {
            if failure == CqFailure::Overrun {
                self.count(qp, query_q_counter_out::CQ_OVERFLOW);
            }
            self.explain(qp, &reason);
            if let Some(object) = self.objects.qps.get_mut(&qp) {
                object.note_failure(CQ_FAILED);
            }
            self.qp_event(qp, QpEvent::Catastrophic);
            self.fail(qp);
        }
    }

    /// Executes a store to a register, `offset` bytes into UAR page `uar`, in the order the bus saw
    /// the stores. A BlueFlame copy arrives as one store of its full length or as several. The
    /// first eight bytes at either half of a BlueFlame register are the doorbell. Eight bytes may
    /// arrive as two stores of four, the upper ones first.
    pub fn store(&mut self, uar: u32, offset: usize, bytes: &[u8]) {
        self.port.pace.stored(|| self.cost_of_store(offset, bytes));
        if self.loses_store(uar, offset, bytes) {
            return;
        }
        self.enter(
            // Pages have 4 KiB.
            || Call::Store { uar, offset: offset as u16, bytes: bytes.into() },
            |card| {
                if card.stopped {
                    return;
                }
                card.software_came_by();
                if let Some(qp) = card.stored(uar, offset, bytes) {
                    card.send_ready(qp);
                }
            },
            |()| false,
        );
    }

    /// Rings every queue pair whose doorbells are on UAR page `uar` with what its doorbell record
    /// says, and checks the arm words of its CQs. For front ends that notice that a store happened,
    /// but not each store.
    pub fn ring_all(&mut self, uar: u32) {
        self.port.pace.stored(|| Store::Word);
        self.enter(|| Call::RingAll(uar), |card| card.look_at_all(uar), |()| false);
    }

    fn look_at_all(&mut self, uar: u32) {
        if self.stopped {
            return;
        }
        self.software_came_by();
        for qp in self.send_queues_on(uar) {
            if self.ring_by_record(qp) {
                self.send_ready(qp);
            }
        }
        self.look_at_arms(uar);
    }
}

/// Returns whether two partition keys are of one partition, and at least one is a full member's.
fn partition_matches(one: u16, other: u16) -> bool {
    (one ^ other) & 0x7fff == 0 && (one | other) & 0x8000 != 0
}

/// Partition keys at the start of an InfiniBand port's table: the default partition's, that of a
/// full membership, and that of a limited membership, whose limited members do not reach each
/// other.
const PARTITIONS: [u16; 3] = [0xffff, 0x8001, 0x0002];

/// Returns the partition key at an index of the port's table, if there is one. Ethernet has only
/// the default partition.
pub fn p_key(link: Link, index: u32) -> Option<u16> {
    let known = match link {
        Link::InfiniBand => &PARTITIONS[..],
        Link::Roce => &PARTITIONS[..1],
    };
    known.get(index as usize).copied()
}
