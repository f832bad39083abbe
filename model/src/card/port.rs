//! The transport's state for the whole port: queue pairs with packets to send, timers, and
//! completions and events to report.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem::take;

use super::Card;
use crate::cost::Pace;
use crate::wire::{Route, Way};
use crate::work::{CqFailure, Outcome};

/// Times at which the device polls the doorbell records of receive queues whose queue pairs are in
/// Error. Software posts a receive without a register store, and may wait for it to be flushed.
///
/// The first poll comes soon after an event: a queue pair failed, a poll found a receive, software
/// stored to a register or gave a command. Each poll that finds nothing doubles the time to the
/// next one, up to a limit. Both times grow with the number of queues, so that polling takes a
/// small fixed share of a processor for any number of queues.
mod look {
    /// Nanoseconds to the first poll: the minimum, and the share of each queue.
    pub const FIRST: (u64, u64) = (500_000, 10_000);
    /// Longest time between polls, in nanoseconds: the minimum, and the share of each queue.
    pub const LAST: (u64, u64) = (256_000_000, 1_000_000);

    /// Returns one of the two times above for this number of queues.
    pub fn interval((least, each): (u64, u64), queues: usize) -> u64 {
        least.max(each * queues as u64)
    }
}

/// Most destroyed keys that are remembered. Older ones are refused at once.
const REMEMBERED: usize = 64;

/// Timers that fire before other work is done.
pub(crate) const TURN: usize = 32;

/// The transport's state of the port.
#[derive(Debug, Default)]
pub struct Port {
    /// The device's virtual time.
    pub(crate) pace: Pace,
    ready: VecDeque<u32>,
    parked: BTreeSet<u32>,
    congested: BTreeSet<Way>,
    slow: BTreeSet<Way>,
    /// Completions and events, each with the virtual time that it belongs to.
    held: VecDeque<(u64, Outcome)>,
    timers: BTreeSet<(u64, u32)>,
    /// The time at which each queue pair's timer is due.
    due: HashMap<u32, u64>,
    failed: BTreeSet<u32>,
    /// Queue pairs that wait for completions, by CQ.
    waiting: BTreeMap<u32, BTreeSet<u32>>,
    watch: Option<(u64, u64)>,
    aftermath: VecDeque<Aftermath>,
    /// Keys that were destroyed a moment ago, oldest first, each with the time at which responders
    /// refuse it.
    destroyed: VecDeque<(u32, u64)>,
    /// Work of queue pairs that was charged and not taken.
    charged: usize,
}

/// A change of a CQ that affects queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aftermath {
    /// A CQ has one more completion. Queue pairs may wait for it.
    Completed(u32),
    /// A CQ failed, and its queue pairs fail with it.
    Failed(u32, CqFailure),
}

impl Port {
    /// Marks a queue pair as having packets to send.
    pub(crate) fn ready(&mut self, qp: u32) {
        self.ready.push_back(qp);
    }

    /// Charges work that takes as long as sending so many frames, whether or not any is sent.
    pub(crate) fn charge(&mut self, frames: usize) {
        self.charged = self.charged.saturating_add(frames);
    }

    /// Charges work on so many bytes, as [`Port::charge`] does.
    pub(crate) fn charge_bytes(&mut self, bytes: usize) {
        /// Bytes of the largest frame's payload.
        const PAYLOAD: usize = 4096;
        self.charge(bytes / PAYLOAD);
    }

    pub(crate) fn charged(&self) -> usize {
        self.charged
    }

    /// Returns the work charged since the last call.
    pub(crate) fn take_charge(&mut self) -> usize {
        take(&mut self.charged)
    }

    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// Marks a queue pair as having packets to send on a congested connection.
    pub(crate) fn park(&mut self, qp: u32) {
        self.parked.insert(qp);
    }

    /// Marks a queue pair that waits for a congested connection as ready at once.
    pub(crate) fn unpark(&mut self, qp: u32) {
        if self.parked.remove(&qp) {
            self.ready(qp);
        }
    }

    /// Returns whether the way of a route to a queue pair is full.
    pub(crate) fn is_congested(&self, route: &Route, number: u32) -> bool {
        self.congested.iter().any(|way| way.leads_to(route, number))
    }

    /// Sets whether a way is full. Queue pairs with peers there send nothing while it is.
    pub fn set_congested(&mut self, way: Way, congested: bool) {
        if congested {
            self.congested.insert(way);
        } else if self.congested.remove(&way) {
            self.ready.extend(std::mem::take(&mut self.parked));
        }
    }

    /// Sets whether packets on a way are still under way although the peer runs. Meanwhile time-outs
    /// of queue pairs with peers there do not count.
    pub fn set_slow(&mut self, way: Way, slow: bool) {
        if slow {
            self.slow.insert(way);
        } else {
            self.slow.remove(&way);
        }
    }

    /// Returns whether [`Port::set_slow`] last marked a way as slow.
    pub fn is_way_slow(&self, way: &Way) -> bool {
        self.slow.contains(way)
    }

    /// Returns whether the way of a route to a queue pair is slow.
    pub(crate) fn is_slow(&self, route: &Route, number: u32) -> bool {
        self.slow.iter().any(|way| way.leads_to(route, number))
    }

    /// Registers a queue pair as waiting for completions of a CQ.
    pub(crate) fn wait_for(&mut self, cq: u32, qp: u32) {
        self.waiting.entry(cq).or_default().insert(qp);
    }

    /// Takes the queue pairs that wait for completions of a CQ. They wait no longer.
    pub(crate) fn waiting_for(&mut self, cq: u32) -> BTreeSet<u32> {
        self.waiting.remove(&cq).unwrap_or_default()
    }

    /// Adds a change of a CQ, to be handled for its queue pairs.
    pub(crate) fn note(&mut self, aftermath: Aftermath) {
        self.aftermath.push_back(aftermath);
    }

    /// Takes the oldest change.
    pub(crate) fn next_aftermath(&mut self) -> Option<Aftermath> {
        self.aftermath.pop_front()
    }

    /// Holds a completion or event until the packets before it have left.
    pub(crate) fn hold(&mut self, outcome: impl Into<Outcome>) {
        self.held.push_back((self.pace.stamp(), outcome.into()));
    }

    pub(crate) fn release(&mut self) -> Option<Outcome> {
        let (stamp, outcome) = self.held.pop_front()?;
        self.pace.resume(stamp);
        Some(outcome)
    }

    pub(crate) fn held_len(&self) -> usize {
        self.held.len()
    }

    /// Notes that responders refuse a destroyed key only at a time, `until`.
    pub(crate) fn delay_refusal(&mut self, key: u32, now: u64, until: u64) {
        while self.destroyed.len() >= REMEMBERED
            || self.destroyed.front().is_some_and(|(_, until)| *until <= now)
        {
            self.destroyed.pop_front();
        }
        self.destroyed.push_back((key, until));
    }

    /// Returns the time at which responders refuse a key, if it was destroyed a moment ago.
    pub(crate) fn delayed_until(&self, key: u32) -> Option<u64> {
        self.destroyed.iter().rev().find(|(other, _)| *other == key).map(|(_, until)| *until)
    }

    /// Sets a queue pair's timer, replacing its earlier one.
    pub(crate) fn set_timer(&mut self, qp: u32, at: u64) {
        if let Some(old) = self.due.insert(qp, at) {
            self.timers.remove(&(old, qp));
        }
        self.timers.insert((at, qp));
    }

    /// Returns the queue pairs whose timers fire in the next turn.
    pub(crate) fn next_due(&self, now: u64) -> impl Iterator<Item = u32> {
        let due = self.timers.iter().take_while(move |(at, _)| *at <= now);
        due.take(TURN).map(|(_, qp)| *qp)
    }

    /// Takes a timer that is due.
    pub(crate) fn due(&mut self, now: u64) -> Option<u32> {
        let first = *self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&first);
        self.due.remove(&first.1);
        Some(first.1)
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let watch = self.watch.map(|(at, _)| at);
        timer.into_iter().chain(watch).min()
    }

    /// Starts polling the receive queue of a queue pair that went to Error.
    pub(crate) fn watch(&mut self, qp: u32, now: u64) {
        self.failed.insert(qp);
        let first = look::interval(look::FIRST, self.failed.len());
        self.watch = Some((now + first, first));
    }

    /// Returns whether any queue pair in Error may still get posted receives.
    pub(crate) fn is_watching(&self) -> bool {
        self.watch.is_some()
    }

    /// Moves the next poll to soon, after an action of software.
    pub(crate) fn look_soon(&mut self, now: u64) {
        let first = look::interval(look::FIRST, self.failed.len());
        self.watch = self.watch.map(|(at, _)| (at.min(now + first), first));
    }

    pub(crate) fn unwatch(&mut self, qp: u32) {
        self.failed.remove(&qp);
        if self.failed.is_empty() {
            self.watch = None;
        }
    }

    pub(crate) fn failed(&self) -> Vec<u32> {
        self.failed.iter().copied().collect()
    }

    pub(crate) fn watch_due(&self, now: u64) -> bool {
        self.watch.is_some_and(|(at, _)| at <= now)
    }

    /// Schedules the next poll, after one that has found receives or none.
    pub(crate) fn watch_again(&mut self, now: u64, found: bool) {
        let queues = self.failed.len();
        self.watch = self.watch.filter(|_| queues > 0).map(|(_, before)| {
            let first = look::interval(look::FIRST, queues);
            let last = look::interval(look::LAST, queues);
            let interval = if found { first } else { (before * 2).clamp(first, last) };
            (now + interval, interval)
        });
    }

    /// Forgets all queue pairs and CQs. The state of the fabric and the virtual time stay.
    pub(crate) fn clear(&mut self) {
        let (congested, slow, pace) =
            (take(&mut self.congested), take(&mut self.slow), take(&mut self.pace));
        *self = Self { congested, slow, pace, ..Self::default() };
    }

    /// Removes a queue pair that was reset or destroyed. The time does not depend on the number of
    /// other queue pairs: the ready ones have been served before software gives a command.
    pub(crate) fn forget(&mut self, qp: u32) {
        self.unwatch(qp);
        self.ready.retain(|other| *other != qp);
        self.parked.remove(&qp);
        if let Some(at) = self.due.remove(&qp) {
            self.timers.remove(&(at, qp));
        }
    }
}

impl Card {
    /// Notes that software stored to a register or gave a command: it may have posted receives as
    /// well.
    pub(crate) fn software_came_by(&mut self) {
        if self.port.is_watching() {
            let now = self.clock.now();
            self.port.look_soon(now);
        }
    }
}
