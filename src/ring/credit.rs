//! Who may have how many CQEs outstanding.
//!
//! A CQ that receives more CQEs than it has room for is lost, and with it every queue that
//! completes on it. Its entries are therefore promised to queues when these are taken over, and
//! each queue counts its own outstanding completions against its promise: no shared counter on the
//! way of a post.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::QueueError;

/// What of a CQ's entries is promised.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: u32,
    promised: Arc<AtomicU32>,
}

/// A promise of CQ entries; given back when dropped. One that is leaked stays promised, which is
/// safe.
#[derive(Debug)]
pub(super) struct Credit {
    entries: u32,
    promised: Arc<AtomicU32>,
}

impl Ledger {
    pub(super) fn new(entries: u32) -> Self {
        Self { entries, promised: Arc::default() }
    }

    /// Whether nothing is promised.
    pub(super) fn is_unpromised(&self) -> bool {
        self.promised.load(Ordering::Relaxed) == 0
    }

    /// Promises up to `wanted` entries, at least one.
    pub(super) fn promise(&self, wanted: u32) -> Result<Credit, QueueError> {
        let mut before = self.promised.load(Ordering::Relaxed);
        loop {
            let given = wanted.min(self.entries - before);
            if given == 0 {
                return Err(QueueError::CqFull { cqes: self.entries });
            }
            let (now, order) = (before + given, Ordering::Relaxed);
            match self.promised.compare_exchange_weak(before, now, order, order) {
                Ok(_) => {
                    return Ok(Credit { entries: given, promised: Arc::clone(&self.promised) });
                }
                Err(changed) => before = changed,
            }
        }
    }
}

impl Credit {
    /// Completions that may be outstanding.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.promised.fetch_sub(self.entries, Ordering::Relaxed);
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
}
