//! Work that waits for devices, which a thread attends to after it has left a device.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::device::{Budget, Inside, Own, Worker};
use super::{Engine, STORE};

/// How often a thread meets other threads at work before it stops all devices.
const MEETINGS: usize = 8;

impl Engine {
    /// Does what waits for devices, until nothing does or the budget is used up. The thread is in no
    /// device.
    ///
    /// If another thread is in a device with work, a thread of the program waits for the device while
    /// work of its own entry may be there. Otherwise it leaves the work to the other thread.
    pub(super) fn attend(&self, budget: &mut Budget) {
        let mut meetings = 0;
        loop {
            let notes = self.notes.load(Ordering::Acquire);
            let mut any = false;
            for (index, device) in self.devices.iter().enumerate() {
                // Each thread looks here after it has left the device. Either it finds what this
                // thread has left for the device, or this thread finds the device free.
                fence(Ordering::SeqCst);
                if !device.work.is_there() {
                    continue;
                }
                if budget.frames == 0 {
                    return self.wake_at(self.times.now());
                }
                let mut inside = match self.inside_unattended(index, budget.worker) {
                    Some(inside) => inside,
                    None if !budget.must_wait() => continue,
                    None => {
                        meetings += 1;
                        self.inside(index)
                    }
                };
                inside.attend(budget);
                any = true;
            }
            if !any {
                // Work may have moved on to a device that this thread had looked at before.
                if !budget.must_wait() || self.notes.load(Ordering::Acquire) == notes {
                    return;
                }
                meetings += 1;
            }
            if meetings > MEETINGS && budget.must_wait() {
                self.attend_stopped(budget);
            }
        }
    }

    /// Does what waits for all devices, while no other thread is in any. Other threads cannot take
    /// work over or add any, so the work of this thread's entry is complete after it, or left to the
    /// engine's thread.
    pub(super) fn attend_stopped(&self, budget: &mut Budget) {
        let stopped = self.stop();
        let seats = stopped.seats.into_iter().enumerate();
        // The order is kept by `stopped`.
        let mut all: Vec<Inside<'_>> =
            seats.map(|(index, seat)| self.arrive(index, seat, None)).collect();
        let mut any = true;
        while any && budget.frames > 0 {
            any = false;
            for inside in &mut all {
                if inside.device().work.is_there() {
                    inside.attend(budget);
                    any = true;
                }
            }
        }
        budget.own = Own::Complete;
    }

    /// Enters a device with work, unless another thread is in it. The engine's thread waits for a
    /// device with a crowded inbox.
    fn inside_unattended(&self, index: usize, worker: Worker) -> Option<Inside<'_>> {
        let crowded = self.devices[index].work.inbox.is_crowded();
        let limit = if worker == Worker::Engine && crowded { STORE } else { Duration::ZERO };
        self.inside_within(index, limit)
    }
}
