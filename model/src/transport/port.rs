//! What the transport keeps for the whole port: who has something to send, timers, and what waits
//! to be reported.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use super::Outcome;

/// Nanoseconds between looks at the receive queues of queue pairs in Error, to flush what was
/// posted since: posting a receive tells the card nothing. At first and at most.
const WATCH: (u64, u64) = (500_000, 16_000_000);

/// State of the port.
#[derive(Debug, Default)]
pub struct Port {
    ready: VecDeque<u32>,
    parked: Vec<u32>,
    congested: HashSet<u32>,
    held: VecDeque<Outcome>,
    timers: BTreeSet<(u64, u32)>,
    failed: BTreeSet<u32>,
    /// Queue pairs that wait for completions, by CQ.
    waiting: BTreeMap<u32, BTreeSet<u32>>,
    watch: Option<(u64, u64)>,
}

impl Port {
    /// A queue pair has something to send.
    pub(super) fn ready(&mut self, qp: u32) {
        self.ready.push_back(qp);
    }

    pub(super) fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// A queue pair has something to send, but the way is congested.
    pub(super) fn park(&mut self, qp: u32) {
        self.parked.push(qp);
    }

    pub(super) fn is_congested(&self, remote: u32) -> bool {
        !self.congested.is_empty() && self.congested.contains(&(remote >> 8))
    }

    /// Whether any way has no room: what goes to all has to wait for every one.
    pub(super) fn is_congested_anywhere(&self) -> bool {
        !self.congested.is_empty()
    }

    /// Whether a way to another process has no room: a prefix of QP numbers, or a greater number
    /// that stands for one who listens to what goes to all. Queue pairs with peers there send
    /// nothing until it has.
    pub fn set_congested(&mut self, way: impl Into<u32>, congested: bool) {
        let way = way.into();
        if congested {
            self.congested.insert(way);
        } else if self.congested.remove(&way) {
            self.ready.extend(self.parked.drain(..));
        }
    }

    /// A queue pair waits for completions of a CQ.
    pub(super) fn wait_for(&mut self, cq: u32, qp: u32) {
        self.waiting.entry(cq).or_default().insert(qp);
    }

    /// Who waits for completions of a CQ; they wait no longer.
    pub(super) fn waiting_for(&mut self, cq: u32) -> BTreeSet<u32> {
        self.waiting.remove(&cq).unwrap_or_default()
    }

    /// Holds a completion or event until the packets before it have left.
    pub(super) fn hold(&mut self, outcome: Outcome) {
        self.held.push_back(outcome);
    }

    pub(super) fn release(&mut self) -> Option<Outcome> {
        self.held.pop_front()
    }

    pub(super) fn held_len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn set_timer(&mut self, qp: u32, old: Option<u64>, new: u64) {
        if let Some(old) = old {
            self.timers.remove(&(old, qp));
        }
        self.timers.insert((new, qp));
    }

    /// Takes a timer that is due.
    pub(super) fn due(&mut self, now: u64) -> Option<u32> {
        let first = *self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&first);
        Some(first.1)
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let watch = self.watch.map(|(at, _)| at);
        timer.into_iter().chain(watch).min()
    }

    /// A queue pair went to Error; its receive queue has to be watched.
    pub(super) fn watch(&mut self, qp: u32, now: u64) {
        self.failed.insert(qp);
        self.watch = Some((now + WATCH.0, WATCH.0));
    }

    pub(super) fn unwatch(&mut self, qp: u32) {
        self.failed.remove(&qp);
    }

    pub(super) fn failed(&self) -> Vec<u32> {
        self.failed.iter().copied().collect()
    }

    pub(super) fn watch_due(&self, now: u64) -> bool {
        self.watch.is_some_and(|(at, _)| at <= now)
    }

    pub(super) fn watch_again(&mut self, now: u64, found: bool) {
        self.watch = self.watch.filter(|_| !self.failed.is_empty()).map(|(_, interval)| {
            let interval = if found { WATCH.0 } else { (interval * 2).min(WATCH.1) };
            (now + interval, interval)
        });
    }

    /// A queue pair was reset or is gone.
    pub(super) fn forget(&mut self, qp: u32) {
        self.failed.remove(&qp);
        self.ready.retain(|other| *other != qp);
        self.parked.retain(|other| *other != qp);
        self.timers.retain(|(_, other)| *other != qp);
    }
}
