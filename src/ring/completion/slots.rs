//! CQ slots: how many WQEs each queue may have outstanding.
//!
//! A CQ that receives more CQEs than it has entries fails, and with it every queue that completes
//! on it. So CQ slots are reserved for a queue when it is taken over. Each queue counts its
//! outstanding WQEs against its reservation, and posts need no shared counter. Unsignaled WQEs
//! count, too: a queue pair that fails writes a CQE for each WQE. The slots of a queue that is
//! dropped with work outstanding stay reserved until its CQEs can no longer come.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cqe::QueueKind;
use crate::error::QueueError;
use crate::ring::source::UserIndex;

/// The number of CQ slots that a queue asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) struct Demand {
    /// With fewer slots, the queue is refused.
    least: u32,
    most: u32,
    /// Slots to leave for another queue, but never more than half of the free ones.
    leave: u32,
}

impl Demand {
    /// Asks for exactly so many slots.
    pub(super) fn exactly(slots: u32) -> Self {
        Self { least: slots, most: slots, leave: 0 }
    }

    /// Asks for up to so many slots.
    pub(in crate::ring) fn up_to(slots: u32) -> Self {
        Self { least: 1, most: slots, leave: 0 }
    }

    /// Asks for what the configuration of a queue states. If it states nothing (`u32::MAX`): for
    /// the size of the queue, or fewer, and leaves `partner` slots to the other queue of its pair.
    pub(in crate::ring) fn of(stated: u32, size: u32, partner: u32) -> Self {
        match stated {
            u32::MAX => Self { leave: partner, ..Self::up_to(size) },
            stated => Self::exactly(stated.min(size).max(1)),
        }
    }

    /// Returns the number of slots to reserve out of `free`, if they are enough.
    fn out_of(self, free: u32) -> Option<u32> {
        let given = self.most.min(free - self.leave.min(free / 2));
        (given >= self.least).then_some(given)
    }
}

/// The slots of a CQ.
#[derive(Debug)]
pub(in crate::ring) struct CqSlots {
    entries: u32,
    reserved: Arc<Reserved>,
}

/// Which slots of a CQ are reserved.
#[derive(Debug, Default)]
struct Reserved {
    /// Number of reserved slots.
    total: AtomicU32,
    /// Reservations of queues that were dropped with work outstanding.
    dropped: Mutex<Vec<Dropped>>,
    /// Queue pairs that a shared receive queue detached while receives were outstanding: from the
    /// queue pair's number to the id of the shared receive queue. CQEs with that number may still
    /// come, or be in the CQ, until a queue of another queue pair with that number is taken over,
    /// which drops them.
    strays: Mutex<HashMap<u32, SharedId>>,
}

/// CQ slots of a queue that was dropped with work outstanding, whose CQEs may still come.
#[derive(Debug)]
struct Dropped {
    entries: u32,
    queue: DroppedQueue,
    /// Whether the queue is destroyed, so that no more CQEs come.
    destroyed: Arc<AtomicBool>,
}

/// The serial number of a shared receive queue's owner, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) struct SharedId(u64);

impl SharedId {
    /// Returns the number of a new owner.
    pub(in crate::ring) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A dropped queue whose CQEs may still come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DroppedQueue {
    /// A queue of the queue pair with this number.
    Queue(u32, QueueKind),
    /// A shared receive queue. Its CQEs name one of these queue pairs, or its user index.
    Shared(Vec<u32>, Option<UserIndex>),
}

/// A reservation of CQ slots, released when dropped. A leaked one stays reserved, which is safe.
#[derive(Debug)]
pub(in crate::ring) struct Reservation {
    entries: u32,
    reserved: Arc<Reserved>,
}

impl Reserved {
    fn dropped(&self) -> MutexGuard<'_, Vec<Dropped>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strays(&self) -> MutexGuard<'_, HashMap<u32, SharedId>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CqSlots {
    pub(in crate::ring) fn new(entries: u32) -> Self {
        Self { entries, reserved: Arc::default() }
    }

    /// Returns the number of reserved slots.
    pub(in crate::ring) fn reserved(&self) -> u32 {
        self.reserved.total.load(Ordering::Relaxed)
    }

    /// Returns whether no slot is reserved.
    pub(in crate::ring) fn is_unreserved(&self) -> bool {
        self.reserved() == 0
    }

    /// Reserves slots, if enough are free.
    pub(in crate::ring) fn reserve(&self, demand: Demand) -> Result<Reservation, QueueError> {
        let (total, order) = (&self.reserved.total, Ordering::Relaxed);
        let mut before = total.load(order);
        loop {
            let free = self.entries - before;
            let Some(given) = demand.out_of(free) else {
                return Err(QueueError::CqFull { cqes: self.entries, free, needed: demand.most });
            };
            match total.compare_exchange_weak(before, before + given, order, order) {
                Ok(_) => {
                    return Ok(Reservation {
                        entries: given,
                        reserved: Arc::clone(&self.reserved),
                    });
                }
                Err(changed) => before = changed,
            }
        }
    }

    /// Returns whether that queue was dropped with work outstanding.
    pub(in crate::ring) fn has_dropped(&self, qpn: u32, queue: QueueKind) -> bool {
        self.reserved
            .dropped()
            .iter()
            .any(|dropped| dropped.queue == DroppedQueue::Queue(qpn, queue))
    }

    /// Finds a queue that was dropped with work outstanding and is now destroyed, or whose queue
    /// pair is. Returns it with its flag, which identifies the queue.
    pub(super) fn find_destroyed(&self) -> Option<(DroppedQueue, Arc<AtomicBool>)> {
        let all = self.reserved.dropped();
        let found = all.iter().find(|dropped| {
            // A queue without a known name cannot be told from a later one.
            let nameless = matches!(
                dropped.queue,
                DroppedQueue::Shared(_, Some(UserIndex::Alone | UserIndex::Tagged(_)))
            );
            !nameless && dropped.destroyed.load(Ordering::Acquire)
        })?;
        Some((found.queue.clone(), Arc::clone(&found.destroyed)))
    }

    /// Releases the slots of a destroyed shared receive queue. None of its CQEs is in the CQ. The
    /// flag `destroyed` identifies the queue.
    pub(super) fn release_destroyed(&self, destroyed: &Arc<AtomicBool>) {
        self.release_if(|dropped| Arc::ptr_eq(&dropped.destroyed, destroyed));
    }

    /// Records that a shared receive queue detached a queue pair while receives were outstanding,
    /// whose CQEs may come later.
    pub(in crate::ring) fn stray(&self, qpn: u32, of: SharedId) {
        self.reserved.strays().insert(qpn, of);
    }

    /// Assigns receive CQEs with that number to a new queue pair from now on, instead of to queues
    /// that were dropped. The caller drops the ones that are in the CQ.
    pub(super) fn begin_receives(&self, qpn: u32) {
        self.reserved.strays().remove(&qpn);
        for dropped in self.reserved.dropped().iter_mut() {
            if let DroppedQueue::Shared(qpns, _) = &mut dropped.queue {
                qpns.retain(|number| *number != qpn);
            }
        }
        self.release(&DroppedQueue::Queue(qpn, QueueKind::Receive));
    }

    /// Assigns CQEs with that user index to a new queue. Returns whether a queue that was dropped
    /// had the index.
    pub(in crate::ring) fn begin_index(&self, index: u32) -> bool {
        let mut had = false;
        for dropped in self.reserved.dropped().iter_mut() {
            if let DroppedQueue::Shared(_, name @ Some(UserIndex::Known(_))) = &mut dropped.queue {
                if *name == Some(UserIndex::Known(index)) {
                    (*name, had) = (None, true);
                }
            }
        }
        had
    }

    /// Releases the slots of a dropped queue. None of its CQEs is in the CQ, and none comes.
    pub(super) fn release(&self, queue: &DroppedQueue) {
        self.release_if(|dropped| dropped.queue == *queue);
    }

    /// Releases the slots of the dropped queues for which the predicate returns true.
    fn release_if(&self, is_over: impl Fn(&Dropped) -> bool) {
        self.reserved.dropped().retain(|dropped| {
            let over = is_over(dropped);
            if over {
                self.reserved.total.fetch_sub(dropped.entries, Ordering::Relaxed);
            }
            !over
        });
    }
}

impl Reservation {
    /// Returns the number of WQEs that may be outstanding.
    pub(in crate::ring) fn entries(&self) -> u32 {
        self.entries
    }

    /// Keeps the slots of a queue reserved when it is dropped with work outstanding.
    /// [`CqSlots::release`] releases them.
    pub(in crate::ring) fn keep(&mut self, qpn: u32, queue: QueueKind, destroyed: Arc<AtomicBool>) {
        let entries = std::mem::take(&mut self.entries);
        let queue = DroppedQueue::Queue(qpn, queue);
        self.reserved.dropped().push(Dropped { entries, queue, destroyed });
    }

    /// Keeps the slots of a shared receive queue that is dropped with work outstanding reserved.
    /// Its CQEs name `qpns`, the queue pairs that it [detached](CqSlots::stray), or `index`.
    pub(in crate::ring) fn keep_shared(
        &mut self,
        mut qpns: Vec<u32>,
        of: Option<SharedId>,
        index: Option<UserIndex>,
        destroyed: Arc<AtomicBool>,
    ) {
        let entries = std::mem::take(&mut self.entries);
        if let Some(of) = of {
            qpns.extend(self.take_strays(of));
        }
        let queue = DroppedQueue::Shared(qpns, index);
        self.reserved.dropped().push(Dropped { entries, queue, destroyed });
    }

    /// Forgets the queue pairs that a shared receive queue detached, and returns their numbers.
    pub(in crate::ring) fn take_strays(&self, of: SharedId) -> Vec<u32> {
        let mut strays = self.reserved.strays();
        let its: Vec<u32> =
            strays.iter().filter(|stray| *stray.1 == of).map(|stray| *stray.0).collect();
        strays.retain(|_, stray| *stray != of);
        its
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.total.fetch_sub(self.entries, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
