//! The recorder inside each queue.

use core::fmt;

use super::Phase;
use super::clock::{Clock, ticks};
use super::histogram::Histogram;
use super::report::Report;
use crate::ib::{Counter, Shape};

/// A moment, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Returns the present moment: everything before it has executed.
    #[inline(always)]
    pub(crate) fn now() -> Self {
        Self(ticks())
    }
}

/// The moment of an event of all WQEs before `head`.
#[derive(Clone, Copy, Default)]
struct Event {
    head: Counter,
    /// 0: no event.
    at: u64,
}

/// Doorbells and completions of outstanding WQEs.
struct Flights {
    shape: Shape,
    /// Doorbells whose WQEs are outstanding, by slot of the head.
    rung: Box<[Event]>,
    /// CQEs that were seen since the last call began, in their order. There are never more than
    /// the ring has entries, since a WQE completes once.
    seen: Box<[Event]>,
    count: usize,
}

impl Flights {
    fn new(shape: Shape) -> Self {
        let none = vec![Event::default(); shape.entries() as usize];
        Self { shape, rung: none.clone().into(), seen: none.into(), count: 0 }
    }

    /// Returns the durations of the flights that ended.
    fn ended(&self) -> impl Iterator<Item = u64> {
        self.seen[..self.count].iter().filter_map(|seen| {
            let rung = self.rung[self.shape.slot(seen.head)];
            let same = rung.at != 0 && rung.head == seen.head;
            same.then(|| seen.at.saturating_sub(rung.at))
        })
    }

    /// Clears the ended flights.
    fn settle(&mut self) {
        for seen in &self.seen[..self.count] {
            let rung = &mut self.rung[self.shape.slot(seen.head)];
            if rung.head == seen.head {
                rung.at = 0;
            }
        }
        self.count = 0;
    }
}

/// The durations of phases so far.
#[derive(Clone)]
struct Totals {
    /// In the last call that had the phase.
    last: [u64; Phase::COUNT],
    histograms: Box<[Histogram]>,
}

impl Totals {
    fn new() -> Self {
        let histograms = vec![Histogram::EMPTY; Phase::COUNT].into();
        Self { last: [0; Phase::COUNT], histograms }
    }

    /// Adds a call with these phases, by bit, and its ended flights.
    fn add(&mut self, mut stamped: u32, took: &[u64; Phase::COUNT], flights: Option<&Flights>) {
        while stamped != 0 {
            let phase = stamped.trailing_zeros() as usize;
            stamped &= stamped - 1;
            self.one(phase, took[phase]);
        }
        for flight in flights.into_iter().flat_map(Flights::ended) {
            self.one(Phase::Flight as usize, flight);
        }
    }

    fn one(&mut self, phase: usize, ticks: u64) {
        self.last[phase] = ticks;
        self.histograms[phase].add(ticks);
    }
}

/// Durations of one queue's calls. All memory is allocated when it is made.
///
/// Each stamp costs one reading of the clock and three stores. The histograms are updated when the
/// next call begins, or a report is requested: never while a phase is running.
pub(crate) struct Recorder {
    /// The last stamp; 0 outside of a call, and then nothing is recorded.
    last: u64,
    /// Phases that were stamped since the call began, by bit, and their durations; 0 for others.
    stamped: u32,
    current: [u64; Phase::COUNT],
    totals: Totals,
    flights: Option<Flights>,
}

impl Recorder {
    /// Creates a recorder for calls that ring no doorbell.
    pub(crate) fn new() -> Self {
        Self {
            last: 0,
            stamped: 0,
            current: [0; Phase::COUNT],
            totals: Totals::new(),
            flights: None,
        }
    }

    /// Creates a recorder that also measures the flight of WQEs of a ring.
    pub(crate) fn of_ring(shape: Shape) -> Self {
        Self { flights: Some(Flights::new(shape)), ..Self::new() }
    }

    /// Begins a call, or one part of it. The previous call's durations are added to the histograms
    /// before the clock is read.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        let landed = self.flights.as_ref().is_some_and(|flights| flights.count != 0);
        if self.stamped != 0 || landed {
            self.settle();
        }
        self.last = ticks();
    }

    /// Ends `phase`. The durations of a phase that ends twice in a call are added.
    #[inline(always)]
    pub(crate) fn stamp(&mut self, phase: Phase) {
        self.stamp_at(phase, Stamp::now());
    }

    /// Ends `phase` at that moment.
    #[inline(always)]
    pub(crate) fn stamp_at(&mut self, phase: Phase, at: Stamp) {
        if self.last != 0 {
            self.current[phase as usize] += at.0.saturating_sub(self.last);
            self.stamped |= 1 << phase as u32;
            self.last = at.0;
        }
    }

    /// Records a doorbell at the last stamp for the WQEs before `head`, and ends the call.
    #[inline(always)]
    pub(crate) fn rang(&mut self, head: Counter) {
        if let Some(flights) = &mut self.flights {
            flights.rung[flights.shape.slot(head)] = Event { head, at: self.last };
        }
        self.end();
    }

    /// Ends the call. Until the next one begins, stamps are not counted.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.last = 0;
    }

    /// Records that a CQE for the last WQE before `head` was seen at `at`. It only makes a note,
    /// because it runs inside a poll's phase.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, head: Counter, at: Stamp) {
        if let Some(flights) = &mut self.flights {
            if let Some(place) = flights.seen.get_mut(flights.count) {
                *place = Event { head, at: at.0 };
                flights.count += 1;
            }
        }
    }

    /// Adds the durations of the last call, and flights that ended since it began, to the totals.
    #[inline(never)]
    fn settle(&mut self) {
        self.totals.add(self.stamped, &self.current, self.flights.as_ref());
        self.stamped = 0;
        self.current = [0; Phase::COUNT];
        if let Some(flights) = &mut self.flights {
            flights.settle();
        }
    }

    /// Restarts with the ring. Earlier doorbells are not awaited any more.
    pub(crate) fn restart(&mut self) {
        self.settle();
        if let Some(flights) = &mut self.flights {
            flights.rung.fill(Event::default());
        }
    }

    /// Returns what was recorded so far.
    pub(crate) fn report(&self) -> Report {
        let mut totals = self.totals.clone();
        totals.add(self.stamped, &self.current, self.flights.as_ref());
        Report::new(Clock::get(), &totals.histograms, &totals.last)
    }

    /// Clears what was recorded so far.
    pub(crate) fn clear(&mut self) {
        self.settle();
        self.totals.histograms.fill(Histogram::EMPTY);
    }

    /// Measures an empty phase, in ticks: the stamp's own cost, and the recorder's cost between two
    /// stamps. It is the least median of several rounds, which excludes disturbed ones.
    pub(super) fn overhead() -> u64 {
        let mut recorder = Self::new();
        let mut least = u64::MAX;
        for _ in 0..8 {
            recorder.clear();
            for _ in 0..512 {
                recorder.begin();
                // As between two stores: what the recorder keeps is in memory.
                for phase in [Phase::Reserve, Phase::Encode, Phase::Fence, Phase::Record] {
                    core::hint::black_box(&mut recorder).stamp(phase);
                }
                recorder.settle();
            }
            // The first follows `begin` and no other stamp.
            for phase in [Phase::Encode, Phase::Fence, Phase::Record] {
                least = least.min(recorder.totals.histograms[phase as usize].quantile(1, 2));
            }
        }
        least
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("last", &self.totals.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
