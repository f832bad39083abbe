//! The changes of a tag list that are under way.
//!
//! Each change is a WQE of one block, and software's record of it is kept by its block's slot. The
//! HCA makes changes in the order in which they were posted. It reports a change only if the WQE
//! asks for a report. So a report is of the oldest such change, and shows that the HCA has made all
//! changes before it.

use crate::ib::{Counter, Shape};

/// The effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Append(u16),
    Remove(u16),
    Sync,
}

/// The reason for reporting a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Nobody,
    /// This crate asked, so that the queue does not run full.
    Own,
    Program,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) what: What,
    pub(super) report: Report,
    pub(super) id: u64,
    /// Number of messages for no entry that the HCA was told of, by this change or before.
    pub(super) known: u16,
}

pub(super) struct Changes {
    shape: Shape,
    /// Number of changes that may be under way.
    limit: u32,
    ring: Box<[Change]>,
    /// The oldest change under way, and the position of the next one.
    tail: Counter,
    head: Counter,
    /// Number of changes under way that are to be reported.
    reports: u32,
    /// Number of changes posted since the last one to be reported.
    silent: u32,
}

impl Changes {
    /// Creates an empty record for a send queue whose next WQE is at `head`. Up to `limit` changes
    /// may be under way.
    pub(super) fn new(shape: Shape, limit: u32, head: Counter) -> Self {
        let none = Change { what: What::Sync, report: Report::Nobody, id: 0, known: 0 };
        Self {
            shape,
            limit,
            ring: vec![none; shape.entries() as usize].into(),
            tail: head,
            head,
            reports: 0,
            silent: 0,
        }
    }

    /// Returns whether the next change must be reported, so that unreported ones do not fill the
    /// queue.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.silent >= self.limit / 4
    }

    /// Returns the number of changes under way that are to be reported.
    #[inline(always)]
    pub(super) fn reports(&self) -> u32 {
        self.reports
    }

    /// Records a posted change. The send queue had a free block for it.
    #[inline(always)]
    pub(super) fn post(&mut self, change: Change) {
        let slot = self.shape.slot(self.head);
        // SAFETY: a slot is less than the number of entries, which is the ring's length.
        unsafe { *self.ring.get_unchecked_mut(slot) = change };
        self.head = self.head.plus(1);
        match change.report {
            Report::Nobody => self.silent += 1,
            _ => (self.reports, self.silent) = (self.reports + 1, 0),
        }
    }

    fn at(&self, counter: Counter) -> Option<Change> {
        self.ring.get(self.shape.slot(counter)).copied()
    }

    /// Returns the oldest change that is to be reported, if any.
    #[inline(always)]
    fn reported(&self) -> Option<(Counter, Change)> {
        if self.reports == 0 {
            return None;
        }
        let mut counter = self.tail;
        while counter != self.head {
            let change = self.at(counter)?;
            if change.report != Report::Nobody {
                return Some((counter, change));
            }
            counter = counter.plus(1);
        }
        None
    }

    /// Handles the HCA's report of a change that matches `is`. Returns the change and its position.
    /// `None`, and nothing changes, if the oldest change that it was to report does not match.
    #[inline(always)]
    pub(super) fn report(&mut self, is: impl FnOnce(What) -> bool) -> Option<(Counter, Change)> {
        let (counter, change) = self.reported()?;
        if !is(change.what) {
            return None;
        }
        self.tail = counter.plus(1);
        self.reports -= 1;
        Some((counter, change))
    }

    /// Handles the failure of the change whose position has these low bits. It and those before it
    /// are no longer under way. Passes each to `each`, with whether it was made. Does nothing if
    /// the change is not under way.
    #[cold]
    pub(super) fn fail(&mut self, low: u16, mut each: impl FnMut(Change, bool)) {
        let failed = self.tail.next_with_low16(low);
        if failed.since(self.tail) >= self.head.since(self.tail) {
            return;
        }
        while self.tail != failed.plus(1) {
            if let Some(change) = self.at(self.tail) {
                self.reports -= u32::from(change.report != Report::Nobody);
                each(change, self.tail != failed);
            }
            self.tail = self.tail.plus(1);
        }
    }
}

#[cfg(test)]
mod tests;
