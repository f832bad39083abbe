//! Virtual time: the order in which frames arrive and timers fire.
//!
//! A frame arrives only when the devices have done all that came before it. That holds for frames of
//! other processes, too, which have no time of their own: they arrive when nothing is at hand. Timers that are due
//! earlier, or by the program's time, fire first. A later timer would fire although the program
//! might still prevent it, for example by posting a receive. So it waits in the machine's time as
//! well, and the time of the device then jumps to it.
//!
//! That order is one for all devices of the process. So the thread that has the order goes from
//! device to device, until none has anything to do.

use std::collections::VecDeque;

use super::device::{Budget, Inside};
use crate::wire::Frame;

/// A frame on its way to a device of this process.
struct Parcel {
    /// The device's index.
    to: usize,
    /// The virtual time of its arrival in nanoseconds.
    at: u64,
    frame: Frame,
}

/// The order of what happens in all devices, which one thread at a time has.
#[derive(Default)]
pub(super) struct Order {
    /// Frames for devices, in the order of arrival. Empty without virtual time.
    parcels: VecDeque<Parcel>,
    /// The next timer in virtual time: its time, and the engine time at which it fires at the latest.
    jump: Option<(u64, u64)>,
}

impl Order {
    /// Returns whether frames are on their way.
    pub(super) fn has_parcels(&self) -> bool {
        !self.parcels.is_empty()
    }
}

impl Inside<'_> {
    /// Leaves the device for another one. The thread has the order, so no other thread is in a device.
    fn go_to(&mut self, index: usize) {
        if index != self.index {
            self.seat = self.engine.devices[index].lock.lock();
            self.index = index;
            self.seat.refresh(&self.engine.directory);
        }
    }

    /// Works in some devices, and comes back.
    pub(super) fn abroad<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let home = self.index;
        let result = work(self);
        self.go_to(home);
        result
    }

    /// Does the same in each device, by index. Comes back.
    pub(super) fn visit(&mut self, mut work: impl FnMut(&mut Self)) {
        self.abroad(|inside| {
            for index in 0..inside.engine.devices.len() {
                inside.go_to(index);
                work(inside);
            }
        });
    }

    /// Moves the program's time by the CQEs that it has taken from all devices.
    pub(super) fn look_at_taken(&mut self) {
        self.visit(|inside| inside.seat.card.look_at_taken());
    }

    /// Has the frame that was taken last from the device wait for its arrival at a device.
    pub(super) fn put_in_order(&mut self, to: usize, frame: Frame) {
        let at = self.seat.card.port.pace.arrival();
        let Some(Order { parcels, .. }) = self.order.as_deref_mut() else { return };
        let behind = parcels.iter().rev().take_while(|parcel| parcel.at > at).count();
        parcels.insert(parcels.len() - behind, Parcel { to, at, frame });
    }

    /// Executes the oldest store that waits for a device. Returns whether there was one.
    pub(super) fn next_store(&mut self) -> bool {
        let mut any = false;
        self.visit(|inside| any = any || inside.execute_store());
        any
    }

    /// Runs all devices until nothing is left to do. What a store starts is done before the next one,
    /// and before a frame of another process is looked at, however much it is: the work at hand has
    /// one time.
    pub(super) fn run_in_order(&mut self, budget: &mut Budget) {
        loop {
            self.engine.send_management();
            let mut busy = false;
            self.visit(|inside| busy |= inside.step(budget).0);
            busy = busy || self.abroad(Self::next_event);
            if !busy {
                // Only now is it certain that no further CQE can join a compressed block.
                self.visit(|inside| busy |= inside.seat.card.release_cqes());
            }
            busy = busy || self.next_store();
            if !busy {
                self.visit(|inside| busy |= inside.read_notes());
            }
            if !busy {
                return self.visit(|inside| inside.device().work.set_unfinished(false));
            }
        }
    }

    /// Fires the next timer, if it is due before the next frame arrives, or delivers that frame.
    /// Returns whether there was either. The thread may be in another device then.
    fn next_event(&mut self) -> bool {
        let host = self.seat.card.port.pace.host();
        let first = self.order.as_deref().and_then(|order| order.parcels.front());
        let limit = first.map_or(host, |parcel| parcel.at);
        if self.fire_by(limit) {
            return true;
        }
        let parcel = self.order.as_deref_mut().and_then(|order| order.parcels.pop_front());
        let Some(Parcel { to, at, frame }) = parcel else { return false };
        self.go_to(to);
        self.receive(frame, Some(at));
        true
    }

    /// The device with the earliest timer, and its time.
    fn next_timer(&mut self) -> Option<(u64, usize)> {
        let mut first = None;
        self.visit(|inside| {
            let own = inside.seat.card.deadline().map(|at| (at, inside.index));
            first = first.into_iter().chain(own).min();
        });
        first
    }

    /// Fires the earliest timer if it is due by a time. Returns whether it was. The thread may be in
    /// another device then.
    fn fire_by(&mut self, limit: u64) -> bool {
        let Some((at, index)) = self.next_timer().filter(|(at, _)| *at <= limit) else {
            return false;
        };
        self.go_to(index);
        self.seat.card.port.pace.timer(at);
        self.expire(at);
        true
    }

    /// Fires the earliest timer if it has waited long enough in the machine's time.
    pub(super) fn jump(&mut self) -> bool {
        let now = self.engine.times.now();
        let Some(order) = self.order.as_deref_mut() else { return false };
        let Some((at, _)) = order.jump.take_if(|(_, latest)| *latest <= now) else { return false };
        self.abroad(|inside| inside.fire_by(at))
    }

    /// Returns the engine's time of the next [`jump`](Self::jump).
    pub(super) fn next_jump(&mut self) -> Option<u64> {
        let (at, index) = self.next_timer()?;
        let reached = self.abroad(|inside| {
            inside.go_to(index);
            let card = &inside.seat.card;
            card.port.pace.host().max(card.clock.now())
        });
        let now = self.engine.times.now();
        let order = self.order.as_deref_mut()?;
        if order.jump.is_none_or(|(known, _)| known != at) {
            order.jump = Some((at, now + at.saturating_sub(reached)));
        }
        order.jump.map(|(_, latest)| latest)
    }
}

#[cfg(test)]
mod tests;
