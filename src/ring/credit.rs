//! Who may have how many CQEs outstanding.
//!
//! A CQ that receives more CQEs than it has room for is lost, and with it every queue that
//! completes on it. Its entries are therefore promised to queues when these are taken over, and
//! each queue counts its own outstanding completions against its promise: no shared counter on the
//! way of a post. What was promised to a queue that is dropped before its work is done is owed until
//! its CQEs can no longer come.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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
    /// Queue pairs that a shared receive queue has let go of while receives were outstanding: from the
    /// queue pair's number to that of the shared receive queue. CQEs with that number may still come,
    /// or be in the CQ, until a queue is taken over for another queue pair of that number, which drops
    /// them.
    strays: Mutex<HashMap<u32, SharedId>>,
}

/// Entries of a queue that was dropped with work outstanding, whose CQEs may still come.
#[derive(Debug)]
struct Owed {
    entries: u32,
    debtor: Debtor,
    /// Whether it is destroyed, so that none comes any more.
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

    fn strays(&self) -> MutexGuard<'_, HashMap<u32, SharedId>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A queue that was dropped with work outstanding, and is destroyed by now, or its queue pair is;
    /// with the flag that says so, which tells it from others.
    pub(super) fn destroyed(&self) -> Option<(Debtor, Arc<AtomicBool>)> {
        let owed = self.promises.owed();
        let destroyed = owed.iter().find(|owed| {
            // What has no name cannot be told from what comes later.
            let nameless = matches!(
                owed.debtor,
                Debtor::Shared(_, Some(UserIndex::Alone | UserIndex::Tagged(_)))
            );
            !nameless && owed.destroyed.load(Ordering::Acquire)
        })?;
        Some((destroyed.debtor.clone(), Arc::clone(&destroyed.destroyed)))
    }

    /// No CQE of a shared receive queue that is destroyed, as that flag says, is in the CQ.
    pub(super) fn settle_shared(&self, destroyed: &Arc<AtomicBool>) {
        self.retain(|owed| !Arc::ptr_eq(&owed.destroyed, destroyed));
    }

    /// A shared receive queue lets go of a queue pair while receives are outstanding, whose CQEs may
    /// come later.
    pub(super) fn stray(&self, qpn: u32, of: SharedId) {
        self.promises.strays().insert(qpn, of);
    }

    /// From now on, CQEs of receives with that number are of another queue pair: they are not those of
    /// queues that were dropped. Those that are in the CQ are dropped by the caller.
    pub(super) fn begin_receives(&self, qpn: u32) {
        self.promises.strays().remove(&qpn);
        for owed in self.promises.owed().iter_mut() {
            if let Debtor::Shared(qpns, _) = &mut owed.debtor {
                qpns.retain(|number| *number != qpn);
            }
        }
        self.settle(&Debtor::Queue(qpn, QueueKind::Receive));
    }

    /// The same of CQEs with that user index. Returns whether a queue that was dropped had it.
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

    /// No CQE of that queue's former lives is in the CQ, and none comes.
    pub(super) fn settle(&self, debtor: &Debtor) {
        self.retain(|owed| owed.debtor != *debtor);
    }

    /// Takes the entries back of those that `owes` does not say so of.
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

    /// The same of a shared receive queue, whose receives these queue pairs took and those that it
    /// [let go of](Ledger::stray), or which CQEs name themselves.
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
    /// Forgets the queue pairs that a shared receive queue has let go of, and returns their numbers.
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
        let debtor = ledger.destroyed().map(|(debtor, _)| debtor);
        assert_eq!(debtor, Some(Debtor::Queue(5, QueueKind::Send)));
        ledger.settle(&Debtor::Queue(5, QueueKind::Receive));
        assert!(ledger.promise(1).is_err());
        ledger.settle(&Debtor::Queue(5, QueueKind::Send));
        assert!(ledger.is_unpromised() && !ledger.owes(5, QueueKind::Send));
    }
}
