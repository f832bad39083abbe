//! CQ slots: how many completions each queue may have outstanding.
//!
//! A CQ that receives more CQEs than it has entries fails, and with it every queue that completes
//! on it. So CQ slots are reserved for a queue when it is taken over. Each queue counts its own
//! outstanding completions against its reservation, and posts need no shared counter. The slots of
//! a queue that is dropped with work outstanding stay reserved until its CQEs can no longer come.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::srq::UserIndex;
use crate::cqe::QueueKind;
use crate::error::QueueError;

/// The CQ slots that are reserved.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: u32,
    promises: Arc<Promises>,
}

#[derive(Debug, Default)]
struct Promises {
    total: AtomicU32,
    owed: Mutex<Vec<Owed>>,
    /// Queue pairs that a shared receive queue detached while receives were outstanding: from the
    /// queue pair's number to the id of the shared receive queue. CQEs with that number may still
    /// come, or be in the CQ, until a queue of another queue pair with that number is taken over,
    /// which drops them.
    strays: Mutex<HashMap<u32, SharedId>>,
}

/// CQ slots of a queue that was dropped with work outstanding, whose CQEs may still come.
#[derive(Debug)]
struct Owed {
    entries: u32,
    debtor: Debtor,
    /// Whether the queue is destroyed, so that no more CQEs come.
    destroyed: Arc<AtomicBool>,
}

/// The serial number of a shared receive queue's owner, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedId(u64);

impl SharedId {
    /// Returns the number of a new owner.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A dropped queue whose CQEs may still come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Debtor {
    /// A queue of the queue pair with this number.
    Queue(u32, QueueKind),
    /// A shared receive queue. Its CQEs name one of these queue pairs, or its user index.
    Shared(Vec<u32>, Option<UserIndex>),
}

/// A reservation of CQ slots, released when dropped. A leaked one stays reserved, which is safe.
#[derive(Debug)]
pub(super) struct Credit {
    entries: u32,
    promises: Arc<Promises>,
}

impl Promises {
    fn owed(&self) -> MutexGuard<'_, Vec<Owed>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strays(&self) -> MutexGuard<'_, HashMap<u32, SharedId>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    pub(super) fn new(entries: u32) -> Self {
        Self { entries, promises: Arc::default() }
    }

    /// Returns the number of reserved slots.
    pub(super) fn reserved(&self) -> u32 {
        self.promises.total.load(Ordering::Relaxed)
    }

    /// Returns whether no slot is reserved.
    pub(super) fn is_unpromised(&self) -> bool {
        self.reserved() == 0
    }

    /// Reserves up to `wanted` slots, at least one.
    pub(super) fn reserve(&self, wanted: u32) -> Result<Credit, QueueError> {
        let (total, order) = (&self.promises.total, Ordering::Relaxed);
        let mut before = total.load(order);
        loop {
            let given = wanted.min(self.entries - before);
            if given == 0 {
                return Err(QueueError::CqFull { cqes: self.entries });
            }
            match total.compare_exchange_weak(before, before + given, order, order) {
                Ok(_) => {
                    return Ok(Credit { entries: given, promises: Arc::clone(&self.promises) });
                }
                Err(changed) => before = changed,
            }
        }
    }

    /// Reserves all `entries` slots, or none.
    pub(super) fn withhold(&self, entries: u32) -> Result<Credit, QueueError> {
        let credit = self.reserve(entries)?;
        if credit.entries < entries {
            return Err(QueueError::CqFull { cqes: self.entries });
        }
        Ok(credit)
    }

    /// Returns whether that queue was dropped with work outstanding.
    pub(super) fn owes(&self, qpn: u32, queue: QueueKind) -> bool {
        self.promises.owed().iter().any(|owed| owed.debtor == Debtor::Queue(qpn, queue))
    }

    /// Finds a queue that was dropped with work outstanding and is now destroyed, or whose queue
    /// pair is. Returns it with its flag, which identifies the queue.
    pub(super) fn destroyed(&self) -> Option<(Debtor, Arc<AtomicBool>)> {
        let owed = self.promises.owed();
        let destroyed = owed.iter().find(|owed| {
            // A queue without a known name cannot be told from a later one.
            let nameless = matches!(
                owed.debtor,
                Debtor::Shared(_, Some(UserIndex::Alone | UserIndex::Tagged(_)))
            );
            !nameless && owed.destroyed.load(Ordering::Acquire)
        })?;
        Some((destroyed.debtor.clone(), Arc::clone(&destroyed.destroyed)))
    }

    /// Releases the slots of a destroyed shared receive queue. None of its CQEs is in the CQ. The
    /// flag `destroyed` identifies the queue.
    pub(super) fn settle_shared(&self, destroyed: &Arc<AtomicBool>) {
        self.retain(|owed| !Arc::ptr_eq(&owed.destroyed, destroyed));
    }

    /// Records that a shared receive queue detached a queue pair while receives were outstanding,
    /// whose CQEs may come later.
    pub(super) fn stray(&self, qpn: u32, of: SharedId) {
        self.promises.strays().insert(qpn, of);
    }

    /// Assigns receive CQEs with that number to a new queue pair from now on, instead of to queues
    /// that were dropped. The caller drops the ones that are in the CQ.
    pub(super) fn begin_receives(&self, qpn: u32) {
        self.promises.strays().remove(&qpn);
        for owed in self.promises.owed().iter_mut() {
            if let Debtor::Shared(qpns, _) = &mut owed.debtor {
                qpns.retain(|number| *number != qpn);
            }
        }
        self.settle(&Debtor::Queue(qpn, QueueKind::Receive));
    }

    /// Assigns CQEs with that user index to a new queue. Returns whether a queue that was dropped
    /// had the index.
    pub(super) fn begin_index(&self, index: u32) -> bool {
        let mut had = false;
        for owed in self.promises.owed().iter_mut() {
            if let Debtor::Shared(_, name @ Some(UserIndex::Known(_))) = &mut owed.debtor {
                if *name == Some(UserIndex::Known(index)) {
                    (*name, had) = (None, true);
                }
            }
        }
        had
    }

    /// Releases the slots of a dropped queue. None of its CQEs is in the CQ, and none comes.
    pub(super) fn settle(&self, debtor: &Debtor) {
        self.retain(|owed| owed.debtor != *debtor);
    }

    /// Releases the slots of all dropped queues for which the predicate returns false.
    fn retain(&self, owes: impl Fn(&Owed) -> bool) {
        self.promises.owed().retain(|owed| {
            let owes = owes(owed);
            if !owes {
                self.promises.total.fetch_sub(owed.entries, Ordering::Relaxed);
            }
            owes
        });
    }
}

impl Credit {
    /// Returns the number of completions that may be outstanding.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Keeps the slots of a queue reserved when it is dropped with work outstanding.
    /// [`Ledger::settle`] releases them.
    pub(super) fn owe(&mut self, qpn: u32, queue: QueueKind, destroyed: Arc<AtomicBool>) {
        let entries = std::mem::take(&mut self.entries);
        let debtor = Debtor::Queue(qpn, queue);
        self.promises.owed().push(Owed { entries, debtor, destroyed });
    }

    /// Keeps the slots of a shared receive queue that is dropped with work outstanding reserved.
    /// Its CQEs name `qpns`, the queue pairs that it [detached](Ledger::stray), or `index`.
    pub(super) fn owe_shared(
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
        let debtor = Debtor::Shared(qpns, index);
        self.promises.owed().push(Owed { entries, debtor, destroyed });
    }
}

impl Credit {
    /// Forgets the queue pairs that a shared receive queue detached, and returns their numbers.
    pub(super) fn take_strays(&self, of: SharedId) -> Vec<u32> {
        let mut strays = self.promises.strays();
        let its: Vec<u32> =
            strays.iter().filter(|stray| *stray.1 == of).map(|stray| *stray.0).collect();
        strays.retain(|_, stray| *stray != of);
        its
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.promises.total.fetch_sub(self.entries, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_promised_once_and_come_back() {
        let ledger = Ledger::new(8);
        let first = ledger.reserve(5).unwrap();
        let second = ledger.reserve(5).unwrap();
        assert_eq!((first.entries(), second.entries()), (5, 3));
        assert_eq!(ledger.reserve(1).unwrap_err(), QueueError::CqFull { cqes: 8 });
        drop(first);
        assert_eq!(ledger.reserve(9).unwrap().entries(), 5);
    }

    #[test]
    fn entries_of_a_queue_with_work_outstanding_stay_promised() {
        let ledger = Ledger::new(8);
        let destroyed = Arc::new(AtomicBool::new(false));
        let mut credit = ledger.reserve(8).unwrap();
        credit.owe(5, QueueKind::Send, Arc::clone(&destroyed));
        drop(credit);
        assert!(ledger.owes(5, QueueKind::Send) && !ledger.owes(5, QueueKind::Receive));
        assert!(ledger.reserve(1).is_err() && ledger.destroyed().is_none());
        destroyed.store(true, Ordering::Release);
        let debtor = ledger.destroyed().map(|(debtor, _)| debtor);
        assert_eq!(debtor, Some(Debtor::Queue(5, QueueKind::Send)));
        ledger.settle(&Debtor::Queue(5, QueueKind::Receive));
        assert!(ledger.reserve(1).is_err());
        ledger.settle(&Debtor::Queue(5, QueueKind::Send));
        assert!(ledger.is_unpromised() && !ledger.owes(5, QueueKind::Send));
    }
}
