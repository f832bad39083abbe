//! Virtual time: the order in which frames arrive and timers fire.
//!
//! A frame arrives only when the devices have done all that came before it. Timers that are due
//! earlier, or by the program's time, fire first. A later timer would fire although the program
//! might still prevent it, for example by posting a receive. So it waits in the machine's time as
//! well, and the time of the device then jumps to it.

use super::{State, agent};
use crate::card::{Card, recycle};
use crate::wire::Frame;

/// A frame on its way to a device of this process.
pub(super) struct Parcel {
    /// The device's index.
    to: usize,
    /// The virtual time of its arrival in nanoseconds; 0 without virtual time.
    at: u64,
    frame: Frame,
}

impl State {
    /// Returns whether the devices keep virtual time. All do, or none.
    pub(super) fn is_virtual(&self) -> bool {
        self.cards.first().is_some_and(Card::keeps_virtual_time)
    }

    /// Moves the program's time by the CQEs that it has taken.
    pub(super) fn look_at_taken(&self) {
        self.cards.iter().for_each(|card| card.look_at_taken());
    }

    /// Puts the frame that was taken last from a device into the inbox, in the order of arrival.
    pub(super) fn put(&mut self, from: usize, to: usize, frame: Frame) {
        let at = self.cards[from].port.pace.arrival();
        let behind = self.inbox.iter().rev().take_while(|parcel| parcel.at > at).count();
        self.inbox.insert(self.inbox.len() - behind, Parcel { to, at, frame });
    }

    /// Delivers all frames of the inbox. Returns whether there were any.
    pub(super) fn empty_inbox(&mut self) -> bool {
        let any = !self.inbox.is_empty();
        while let Some(Parcel { to, frame, .. }) = self.inbox.pop_front() {
            agent::deliver(self.agent.as_ref(), &mut self.cards[to], &frame, None);
            recycle(&mut self.cards, frame);
        }
        any
    }

    /// Fires the next timer, if it is due before the next frame arrives, or delivers that frame.
    /// Returns whether there was either.
    pub(super) fn next_event(&mut self) -> bool {
        let host = self.cards.first().map_or(0, |card| card.port.pace.host());
        let limit = self.inbox.front().map_or(host, |parcel| parcel.at);
        if self.fire_by(limit) {
            return true;
        }
        let Some(Parcel { to, at, frame }) = self.inbox.pop_front() else { return false };
        agent::deliver(self.agent.as_ref(), &mut self.cards[to], &frame, Some(at));
        true
    }

    /// The device with the earliest timer, and its time.
    fn next_timer(&self) -> Option<(u64, usize)> {
        let deadline = |(index, card): (usize, &Card)| Some((card.deadline()?, index));
        self.cards.iter().enumerate().filter_map(deadline).min()
    }

    /// Fires the earliest timer if it is due by a time. Returns whether it was.
    fn fire_by(&mut self, limit: u64) -> bool {
        let Some((at, index)) = self.next_timer().filter(|(at, _)| *at <= limit) else {
            return false;
        };
        self.cards[index].port.pace.timer(at);
        self.expire(index, at);
        true
    }

    /// Fires the earliest timer if it has waited long enough in the machine's time.
    pub(super) fn jump(&mut self) -> bool {
        let due = self.jump.filter(|(_, latest)| *latest <= self.now());
        self.jump = self.jump.filter(|_| due.is_none());
        due.is_some_and(|(at, _)| self.fire_by(at))
    }

    /// Returns the machine's time until the next [`jump`](Self::jump), in nanoseconds.
    pub(super) fn next_jump(&mut self) -> Option<u64> {
        let (at, index) = self.next_timer().filter(|_| self.is_virtual())?;
        let now = self.now();
        if self.jump.is_none_or(|(known, _)| known != at) {
            let pace = &self.cards[index].port.pace;
            let reached = pace.host().max(self.cards[index].clock.now());
            self.jump = Some((at, now + at.saturating_sub(reached)));
        }
        self.jump.map(|(_, latest)| latest.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests;
