//! Who may have how many CQEs outstanding.
//!
//! A CQ that receives more CQEs than it has room for is lost, and with it every queue that
//! completes on it. Its entries are therefore promised to queues when these are taken over, and
//! each queue counts its own outstanding completions against its promise: no shared counter on the
//! way of a post. What was promised to a queue that is dropped before its work is done is owed until
//! its CQEs can no longer come.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::QueueError;
use super::srq::UserIndex;
use crate::cqe::QueueKind;

/// What of a CQ's entries is promised.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: u32,
    promises: Arc<Promises>,
}

#[derive(Debug, Default)]
struct Promises {
    total: AtomicU32,
    owed: Mutex<Vec<Owed>>,
}

/// Entries of a queue that was dropped with work outstanding, whose CQEs may still come.
#[derive(Debug)]
struct Owed {
    entries: u32,
    debtor: Debtor,
    /// Whether it is destroyed, so that none comes any more.
    destroyed: Arc<AtomicBool>,
}

/// Whose CQEs may still come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Debtor {
    /// Those of a queue of that queue pair.
    Queue(u32, QueueKind),
    /// Those of a shared receive queue, from these queue pairs, or by its user index.
    Shared(Vec<u32>, Option<UserIndex>),
}

/// A promise of CQ entries; given back when dropped. One that is leaked stays promised, which is
/// safe.
#[derive(Debug)]
pub(super) struct Credit {
    entries: u32,
    promises: Arc<Promises>,
}

impl Promises {
    fn owed(&self) -> MutexGuard<'_, Vec<Owed>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    pub(super) fn new(entries: u32) -> Self {
        Self { entries, promises: Arc::default() }
    }

    /// Entries that are promised.
    pub(super) fn promised(&self) -> u32 {
        self.promises.total.load(Ordering::Relaxed)
    }

    /// Whether nothing is promised.
    pub(super) fn is_unpromised(&self) -> bool {
        self.promised() == 0
    }

    /// Promises up to `wanted` entries, at least one.
    pub(super) fn promise(&self, wanted: u32) -> Result<Credit, QueueError> {
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

    /// As [`promise`](Self::promise), all of them or none.
    pub(super) fn withhold(&self, entries: u32) -> Result<Credit, QueueError> {
        let credit = self.promise(entries)?;
        if credit.entries < entries {
            return Err(QueueError::CqFull { cqes: self.entries });
        }
        Ok(credit)
    }

    /// Whether that queue was dropped with work outstanding.
    pub(super) fn owes(&self, qpn: u32, queue: QueueKind) -> bool {
        self.promises.owed().iter().any(|owed| owed.debtor == Debtor::Queue(qpn, queue))
    }

    /// A queue that was dropped with work outstanding, and is destroyed by now, or its queue pair is.
    pub(super) fn destroyed(&self) -> Option<Debtor> {
        let owed = self.promises.owed();
        let destroyed = owed.iter().find(|owed| {
            // What has no name cannot be told from what comes later.
            let nameless = matches!(
                owed.debtor,
                Debtor::Shared(_, Some(UserIndex::Alone | UserIndex::Tagged(_)))
            );
            !nameless && owed.destroyed.load(Ordering::Acquire)
        })?;
        Some(destroyed.debtor.clone())
    }

    /// No CQE of that queue's former lives is in the CQ, and none comes.
    pub(super) fn settle(&self, debtor: &Debtor) {
        self.promises.owed().retain(|owed| {
            let other = owed.debtor != *debtor;
            if !other {
                self.promises.total.fetch_sub(owed.entries, Ordering::Relaxed);
            }
            other
        });
    }
}

impl Credit {
    /// Completions that may be outstanding.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// The queue is dropped with work outstanding: its entries stay promised until it is
    /// [settled](Ledger::settle).
    pub(super) fn owe(&mut self, qpn: u32, queue: QueueKind, destroyed: Arc<AtomicBool>) {
        let entries = std::mem::take(&mut self.entries);
        let debtor = Debtor::Queue(qpn, queue);
        self.promises.owed().push(Owed { entries, debtor, destroyed });
    }

    /// The same of a shared receive queue, whose receives these queue pairs took, or which CQEs name
    /// themselves.
    pub(super) fn owe_shared(
        &mut self,
        qpns: Vec<u32>,
        index: Option<UserIndex>,
        destroyed: Arc<AtomicBool>,
    ) {
        let entries = std::mem::take(&mut self.entries);
        let debtor = Debtor::Shared(qpns, index);
        self.promises.owed().push(Owed { entries, debtor, destroyed });
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
        let first = ledger.promise(5).unwrap();
        let second = ledger.promise(5).unwrap();
        assert_eq!((first.entries(), second.entries()), (5, 3));
        assert_eq!(ledger.promise(1).unwrap_err(), QueueError::CqFull { cqes: 8 });
        drop(first);
        assert_eq!(ledger.promise(9).unwrap().entries(), 5);
    }

    #[test]
    fn entries_of_a_queue_with_work_outstanding_stay_promised() {
        let ledger = Ledger::new(8);
        let destroyed = Arc::new(AtomicBool::new(false));
        let mut credit = ledger.promise(8).unwrap();
        credit.owe(5, QueueKind::Send, Arc::clone(&destroyed));
        drop(credit);
        assert!(ledger.owes(5, QueueKind::Send) && !ledger.owes(5, QueueKind::Receive));
        assert!(ledger.promise(1).is_err() && ledger.destroyed().is_none());
        destroyed.store(true, Ordering::Release);
        assert_eq!(ledger.destroyed(), Some(Debtor::Queue(5, QueueKind::Send)));
        ledger.settle(&Debtor::Queue(5, QueueKind::Receive));
        assert!(ledger.promise(1).is_err());
        ledger.settle(&Debtor::Queue(5, QueueKind::Send));
        assert!(ledger.is_unpromised() && !ledger.owes(5, QueueKind::Send));
    }
}
