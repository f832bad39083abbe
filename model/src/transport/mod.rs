//! The InfiniBand transport services.
//!
//! The caller drives everything here: [`Card::send_ready`] after a doorbell or a state change,
//! [`Card::receive`] for a packet, [`Card::expire`] for the clock. None of these sends packets.
//! They only determine which queue pairs have packets to send. [`Card::pump`] then fills
//! [`Card::outbox`] up to the caller's limit. Completions wait until [`Card::settle`]: a program
//! that sees one may exit, so the acknowledge must have been carried away before. The order is
//! always: call `pump`, carry the outbox away, call `settle`. The caller repeats it until nothing
//! is left.

mod dynamic;
pub mod ethernet;
mod local;
mod parameters;
mod psn;
mod queue_pair;
pub mod rc;
#[cfg(test)]
pub(crate) mod test;
mod timing;
pub mod unreliable;

use std::collections::BTreeSet;

use mlx5_sys::ifc::{qpc, query_q_counter_out};

pub use parameters::Parameters;
pub use psn::Psn;
pub use queue_pair::QueuePair;

use crate::card::{Aftermath, Card, Held, Link, Outcome, TURN};
use crate::object::{Service, State};
use crate::queue::QpEvent;
use crate::trace::Call;
use crate::wire::{Frame, Header, MULTICAST, Route};
use crate::work::{Completion, CqFailure};
use ethernet::Ethernet;
use rc::Rc;
use unreliable::Unreliable;

/// Packets put into the outbox before the caller must take them away.
const OUTBOX: usize = 64;
/// Turns of queue pairs in one call of [`Card::pump`]: WQEs that send no packet do not fill the
/// outbox.
const TURNS: usize = 1024;

impl Card {
    /// Marks a send queue as having work. The next pump fetches and executes it as far as window
    /// and fences allow. If the queue pair is in Error, its send queue is flushed.
    pub fn send_ready(&mut self, qp: u32) {
        match self.objects.qps.get(&qp).map(|qp| (qp.service, qp.state)) {
            Some((service, State::Rts)) if service.is_reliable() => {
                self.connection(qp, |card, rc| rc.wake(card, qp));
            }
            Some((Service::Ethernet, State::Rts)) => {
                self.raw(qp, |card, state| state.wake(card, qp));
            }
            Some((_, State::Rts)) => {
                self.unreliable(qp, |card, state| state.wake(card, qp));
            }
            Some((_, State::SqError)) => {
                self.unreliable(qp, |card, state| state.flush_sends(card, qp));
            }
            Some((_, State::Error)) => self.flush(qp),
            _ => {}
        }
    }

    /// Handles a packet that has arrived at the port. A packet that is damaged, not for this
    /// device, or not from the peer of the named queue pair is dropped.
    pub fn receive(&mut self, frame: &Frame) {
        self.enter(|| Call::Receive((&frame.0).into()), |card| card.arrived(frame), |()| false);
    }

    fn arrived(&mut self, frame: &Frame) {
        if !self.passes(frame) {
            return;
        }
        let link = self.identity.link;
        if let Some(bytes) = crate::wire::ethernet::contents(link, frame) {
            if self.receive_ethernet(bytes) {
                self.count_received(frame);
            }
            return;
        }
        let (header, payload) = match Header::decode(link, &frame.0) {
            Ok((header, range)) => (header, &frame.0[range]),
            Err(malformed) => {
                tracing::debug!(%malformed, "packet dropped");
                return;
            }
        };
        if header.destination == MULTICAST {
            if header.route.group().is_some_and(|group| !self.objects.groups.of(group).is_empty()) {
                self.count_received(frame);
            }
            return self.receive_multicast(&header, payload, &frame.0);
        }
        if !self.is_for_port(&header.route) {
            return;
        }
        self.count_received(frame);
        let Some(qp) = self.objects.qps.get(&header.destination) else { return };
        // A send queue that stopped on an error does not stop the receive queue.
        let receives = matches!(qp.state, State::Rtr | State::Rts | State::Sqd | State::SqError);
        if qp.service != header.service || !receives {
            return;
        }
        match qp.service {
            Service::Dc if qp.target.is_some() => {
                self.receive_for_target(header.destination, &header, payload);
            }
            Service::Rc | Service::Xrc | Service::Dc => {
                self.connection(header.destination, |card, rc| rc.receive(card, &header, payload));
            }
            Service::Uc | Service::Ud => {
                self.unreliable(header.destination, |card, state| {
                    state.receive(card, &header, payload, &frame.0);
                });
            }
            // The transport has no packets for it.
            Service::Ethernet => {}
        }
    }

    fn is_for_port(&self, route: &Route) -> bool {
        match route {
            Route::InfiniBand { destination, global, .. } => {
                // A GRH has to name the port as well (IBA 1.3, 8.4.4 and 9.6.1.1).
                *destination == self.identity.lid
                    && global.as_ref().is_none_or(|global| self.has_gid(&global.destination))
            }
            Route::Ethernet { global, .. } => self.has_gid(&global.destination),
        }
    }

    /// Returns whether a GID is one of the port's. An empty entry of the table is none.
    fn has_gid(&self, gid: &[u8; 16]) -> bool {
        *gid != [0; 16] && self.identity.gids.contains(gid)
    }

    /// Fires due timers, only some of them if there are many. The caller repeats the call until
    /// none is due.
    pub fn expire(&mut self) {
        self.enter(|| Call::Expire, Self::fire, |()| false);
    }

    /// Returns the prefixes of the peers whose answers are due, for as many timers as the next
    /// [`Card::expire`] fires.
    pub fn late_peers(&self, now: u64) -> BTreeSet<u16> {
        let late = self.port.next_due(now).filter_map(|qp| {
            let rc = &QueuePair::of(self.objects.qps.get(&qp)?)?.rc;
            rc.is_late(now).then(|| rc.remote())?
        });
        late.map(|remote| (remote >> 8) as u16).collect()
    }

    fn fire(&mut self) {
        self.expire_moderation();
        let now = self.clock.now();
        for _ in 0..TURN {
            let Some(qp) = self.port.due(now) else { break };
            let rts = self
                .objects
                .qps
                .get(&qp)
                .is_some_and(|qp| matches!(qp.state, State::Rts | State::Sqd));
            self.connection(qp, |card, rc| {
                rc.timer = None;
                if rts {
                    rc.expire(card, qp, now);
                }
            });
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
        self.port.deadline().into_iter().chain(self.moderation_deadline()).min()
    }

    /// Handles a queue pair's state change by command, or a command's change of its context. To
    /// Error: everything posted is flushed. To Reset: transport state is dropped. To Rtr, Rts:
    /// PSNs, timers and limits are taken from the context.
    pub fn state_changed(&mut self, qp: u32) {
        let Some(object) = self.objects.qps.get(&qp) else { return };
        let (service, state) = (object.service, object.state);
        let parameters = Parameters::of(object, &self.identity);
        match state {
            State::Reset => {
                self.connection(qp, |card, rc| {
                    rc.leave(card);
                    *rc = Rc::default();
                });
                self.unreliable(qp, |_, state| *state = Unreliable::default());
                self.raw(qp, |_, state| *state = Ethernet::default());
                self.port.forget(qp);
            }
            State::Init => {}
            State::Rtr | State::Rts | State::Sqd | State::SqError
                if service == Service::Ethernet =>
            {
                if state == State::Rts {
                    self.raw(qp, |card, queue| queue.wake(card, qp));
                }
            }
            State::Rtr | State::Rts | State::Sqd | State::SqError if !service.is_reliable() => {
                self.unreliable(qp, |card, unreliable| {
                    unreliable.configure(parameters, service, state);
                    unreliable.wake(card, qp);
                });
            }
            State::Rtr | State::Rts | State::Sqd | State::SqError => {
                self.connection(qp, |card, rc| {
                    if rc.configure(parameters, state) {
                        rc.migrate(card, qp);
                    }
                    rc.wake(card, qp);
                });
            }
            State::Error => self.fail(qp),
        }
    }

    /// Moves a queue pair to Error after an error on it, and flushes it. Failed requests report
    /// their cause in their own completion. For other causes, the caller reports the event.
    pub fn fail(&mut self, qp: u32) {
        let Some(object) = self.objects.qps.get(&qp) else { return };
        let parameters = Parameters::of(object, &self.identity);
        match object.service {
            Service::Rc | Service::Xrc | Service::Dc => self.connection(qp, |card, rc| {
                rc.know(parameters);
                rc.fail(card, qp);
            }),
            Service::Uc | Service::Ud => self.unreliable(qp, |card, state| {
                state.know(parameters);
                state.fail(card, qp);
            }),
            Service::Ethernet => self.raw(qp, |card, state| state.fail(card, qp)),
        };
    }

    /// Flushes the posted WQEs of a queue pair that is already in Error.
    fn flush(&mut self, qp: u32) {
        match self.objects.qps.get(&qp).map(|qp| qp.service) {
            Some(Service::Rc | Service::Xrc | Service::Dc) => {
                self.connection(qp, |card, rc| rc.flush(card, qp))
            }
            Some(Service::Uc | Service::Ud) => {
                self.unreliable(qp, |card, state| state.flush(card, qp))
            }
            Some(Service::Ethernet) => self.raw(qp, |card, state| state.flush(card, qp)),
            None => None,
        };
    }

    /// Flushes receives posted since a queue pair went to Error. Returns whether there were any.
    fn flush_posted(&mut self, qp: u32) -> bool {
        let object = self.objects.qps.get(&qp).filter(|qp| qp.state == State::Error);
        let Some(object) = object.filter(|qp| qp.rq.wqes > 0) else {
            self.port.unwatch(qp);
            return false;
        };
        let mut word = [0; 4];
        let told = self.memory.read(object.record(), &mut word);
        if told.is_err() || u32::from_be_bytes(word) as u16 == object.rq.taken {
            return false;
        }
        let before = self.port.held_len();
        self.flush(qp);
        self.port.held_len() != before
    }

    /// Starts polling for receives that are posted to a queue pair after it went to Error.
    fn watch(&mut self, qp: u32) {
        if self.objects.qps.get(&qp).is_some_and(|qp| qp.rq.wqes > 0) {
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
        for _ in 0..TURNS {
            if self.outbox.len() >= OUTBOX {
                break;
            }
            let Some(qp) = self.port.next_ready() else { break };
            any = true;
            let Some(object) = self.objects.qps.get(&qp) else { continue };
            if object.service == Service::Ethernet {
                if self.raw(qp, |card, state| state.pump(card, qp)) == Some(true) {
                    self.port.ready(qp);
                }
                continue;
            }
            if !object.service.is_reliable() {
                if self.unreliable(qp, |card, state| state.pump(card, qp)) == Some(true) {
                    self.port.ready(qp);
                }
                continue;
            }
            let failed = object.state == State::Error;
            let is_target = object.target.is_some();
            if is_target && self.pump_target(qp) {
                self.port.ready(qp);
            }
            let more = self.connection(qp, |card, rc| {
                let remote = rc.remote();
                if !failed && remote.is_some_and(|remote| card.port.is_congested(remote)) {
                    card.port.park(qp);
                    return false;
                }
                let more = rc.pump(card, qp);
                rc.queued = more;
                more
            });
            if more == Some(true) {
                self.port.ready(qp);
            }
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
                Outcome::Completion(held) => self.complete(&held.completion()),
                Outcome::Event(qp, event) => self.qp_event(qp, event),
            }
        }
        any
    }

    /// Writes the CQE of a completion to the queue's CQ, and the event that the CQ is armed for. On
    /// an overrun, the CQ and its queue pairs fail with an async event, as on a real device.
    pub fn complete(&mut self, completion: &Completion<'_>) {
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
        for qp in users {
            if failure == CqFailure::Overrun {
                self.count(qp, query_q_counter_out::CQ_OVERFLOW);
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
        self.enter(
            // Pages have 4 KiB.
            || Call::Store { uar, offset: offset as u16, bytes: bytes.into() },
            |card| {
                card.software_came_by();
                if let Some(qp) = card.stored(uar, offset, bytes) {
                    card.send_ready(qp);
                }
            },
            |()| false,
        );
    }

    /// Checks every queue pair whose doorbells are on UAR page `uar`, as if each had been rung, and
    /// the arm words of its CQs. For front ends that notice that a store happened, but not each
    /// store.
    pub fn ring_all(&mut self, uar: u32) {
        self.enter(|| Call::RingAll(uar), |card| card.look_at_all(uar), |()| false);
    }

    fn look_at_all(&mut self, uar: u32) {
        self.software_came_by();
        for qp in self.send_queues_on(uar) {
            if self.has_news(qp) {
                self.send_ready(qp);
            }
        }
        self.look_at_arms(uar);
    }

    /// Calls `work` with the transport state of an Ethernet queue and the rest of the device.
    fn raw<R>(&mut self, qp: u32, work: impl FnOnce(&mut Card, &mut Ethernet) -> R) -> Option<R> {
        let mut state =
            std::mem::take(&mut QueuePair::of_mut(self.objects.qps.get_mut(&qp)?)?.ethernet);
        let result = work(self, &mut state);
        if let Some(kept) = self.objects.qps.get_mut(&qp).and_then(QueuePair::of_mut) {
            kept.ethernet = state;
        }
        Some(result)
    }

    /// Calls `work` with the transport state of an unreliable queue pair and the rest of the
    /// device.
    fn unreliable<R>(
        &mut self,
        qp: u32,
        work: impl FnOnce(&mut Card, &mut Unreliable) -> R,
    ) -> Option<R> {
        let mut state =
            std::mem::take(&mut QueuePair::of_mut(self.objects.qps.get_mut(&qp)?)?.unreliable);
        let result = work(self, &mut state);
        if let Some(kept) = self.objects.qps.get_mut(&qp).and_then(QueuePair::of_mut) {
            kept.unreliable = state;
        }
        Some(result)
    }

    /// Calls `work` with the transport state of a reliable connection and the rest of the device.
    fn connection<R>(&mut self, qp: u32, work: impl FnOnce(&mut Card, &mut Rc) -> R) -> Option<R> {
        let mut rc = std::mem::take(&mut QueuePair::of_mut(self.objects.qps.get_mut(&qp)?)?.rc);
        let result = work(self, &mut rc);
        // A timer that fires too early finds no work. Moving it with every packet would cost more.
        if let Some(wanted) = rc.deadline() {
            if rc.timer.is_none_or(|set| wanted < set) {
                self.port.set_timer(qp, wanted);
                rc.timer = Some(wanted);
            }
        }
        if let Some(kept) = self.objects.qps.get_mut(&qp).and_then(QueuePair::of_mut) {
            kept.rc = rc;
        }
        Some(result)
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
