//! One direction of a port: frames that wait for their time, or to be overtaken.

use std::collections::{BTreeMap, VecDeque};

use super::{Flight, OVERTAKEN, QUEUED};
use crate::wire::Frame;

/// Frames on their way in one direction.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Frames by the time at which they come through, and by their order.
    waiting: BTreeMap<(u64, u64), Frame>,
    held: Vec<Held>,
    /// Frames that have come through.
    ready: VecDeque<Frame>,
    /// Frames so far.
    sequence: u64,
}

/// A frame that others overtake.
#[derive(Debug)]
struct Held {
    frame: Frame,
    /// Frames that are still to overtake it.
    behind: u32,
    /// The time at which it comes through at the earliest.
    due: u64,
    /// The time up to which it waits for them.
    until: u64,
}

impl Lane {
    /// Puts a frame on its way. It is lost if too many are.
    pub fn put(&mut self, flight: Flight, now: u64) {
        let Flight { frame, due, behind } = flight;
        if self.is_full() {
            return;
        }
        if behind > 0 {
            let until = due.max(now) + OVERTAKEN;
            self.held.push(Held { frame, behind, due, until });
        } else {
            self.waiting.insert((due, self.sequence), frame);
            self.sequence += 1;
        }
    }

    /// Returns whether no further frame finds room.
    pub fn is_full(&self) -> bool {
        (self.waiting.len() + self.held.len()) as u64 >= QUEUED
    }

    /// Lets frames through whose time has come.
    pub fn release(&mut self, now: u64) {
        while let Some(frame) = self.next(now) {
            self.ready.push_back(frame);
        }
    }

    fn next(&mut self, now: u64) -> Option<Frame> {
        let overtaken = |held: &Held| held.behind == 0 && held.due <= now || held.until <= now;
        if let Some(index) = self.held.iter().position(overtaken) {
            return Some(self.held.remove(index).frame);
        }
        let first = self.waiting.first_entry().filter(|entry| entry.key().0 <= now)?;
        for held in &mut self.held {
            held.behind = held.behind.saturating_sub(1);
        }
        Some(first.remove())
    }

    pub fn take(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    pub fn has_frame(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty() && self.ready.is_empty()
    }

    /// Returns the time at which the next frame comes through, of those that have not.
    pub fn deadline(&self) -> Option<u64> {
        let waiting = self.waiting.first_key_value().map(|((due, _), _)| *due);
        let held =
            self.held.iter().map(|held| if held.behind == 0 { held.due } else { held.until });
        held.chain(waiting).min()
    }
}
