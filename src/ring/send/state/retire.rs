//! What polls do to the state of a send queue: they retire requests.

use super::SendState;
use crate::ib::Counter;
use crate::ring::send::own::Place;
use crate::ring::send::shadow::{Entry, Key};
use crate::ring::source::CompletionOrder;

impl SendState {
    /// Retires the oldest request, if it is the plain one that a CQE with these last eight bytes
    /// reports.
    #[inline(always)]
    pub(in crate::ring::send) fn retire_oldest(&mut self, end: u64) -> Option<Entry> {
        let entry = self.shadow.retire_oldest(end)?;
        // By invariant 4, the shadow expects only what is posted, so the queue is not empty.
        self.cursor.retire_known(self.tail().plus(1));
        Some(entry)
    }

    /// Retires the plain request that a CQE with these last eight bytes reports, and all before it.
    /// It is not the oldest.
    #[inline(always)]
    pub(in crate::ring::send) fn retire_other(&mut self, end: u64) -> Option<Entry> {
        let tail = self.tail().plus(self.shadow.stride());
        // If they are equal, no outstanding WQE has silent blocks.
        if self.silent == self.silent_retired && self.head().reaches(tail) {
            if let Some(entry) = self.shadow.retire_stride(end) {
                self.cursor.retire_known(tail);
                return Some(entry);
            }
        }
        self.retire_later(Key::reported(end)).copied()
    }

    /// Returns the place of the request that [`retire_oldest`](Self::retire_oldest) has just retired.
    #[inline(always)]
    pub(crate) fn retired(&self) -> Place {
        Place(self.shadow.retired())
    }

    /// Handles [`retire_other`](Self::retire_other) for a WQE that does not end a stride like the
    /// last one, or begins a lap. A separate call, so that the other cases need no registers for it.
    #[inline(never)]
    fn retire_later(&mut self, reported: Key) -> Option<&Entry> {
        // It retires those before it, too.
        if self.order == CompletionOrder::Any {
            return None;
        }
        let counter = self.cursor.outstanding(reported.index())?;
        if self.shadow.get(counter).key != reported {
            return None;
        }
        // If a queue posts other WQEs than plain ones, one is often just before the signaled one.
        match self.shadow.get(counter.before()).key.silent() {
            _ if counter == self.tail() => {}
            Some(silent) => self.silent_retired = silent,
            None => return self.retire_to(counter),
        }
        self.shadow.set_stride(counter.plus(1).since(self.tail()));
        self.cursor.retire_known(counter.plus(1));
        self.shadow.set_tail(self.tail());
        Some(self.shadow.entry(counter))
    }

    /// Retires everything up to the end of the outstanding WQE that begins at `counter`. `None`,
    /// and nothing changes, if no WQE begins there.
    #[cold]
    #[inline(never)]
    fn retire_to(&mut self, counter: Counter) -> Option<&Entry> {
        // Every posted WQE wrote the entries of all its blocks, and a batch that was dropped wrote
        // only those behind the head. So a WQE that begins here was posted, as a whole.
        let blocks = self.shadow.get(counter).key.blocks()?;
        let tail = self.tail();
        for ahead in (0..=counter.since(tail)).rev() {
            // Entries of plain WQEs do not hold the number, and do not add to it.
            if let Some(silent) = self.shadow.get(tail.plus(ahead)).key.silent() {
                self.silent_retired = silent;
                break;
            }
        }
        self.cursor.retire_known(counter.plus(blocks));
        self.shadow.set_tail(self.tail());
        Some(self.shadow.entry(counter))
    }

    /// Retires the outstanding WQE that a CQE names, and all before it if requests complete in the
    /// order of posting.
    pub(in crate::ring) fn retire(&mut self, named: u16) -> Option<Counter> {
        let counter = self.cursor.outstanding(named)?;
        match self.order {
            CompletionOrder::Posting => drop(self.retire_to(counter)?),
            CompletionOrder::Any => self.retire_alone(counter)?,
        }
        Some(counter)
    }

    /// Retires the outstanding WQE that begins at `counter`, and no other. `None`, and nothing
    /// changes, if no WQE begins there, or it has completed before.
    ///
    /// Blocks become free only up to the oldest WQE that has not completed: the HCA may still fetch
    /// that one, for the first time or to send it again, whatever completed behind it.
    #[cold]
    fn retire_alone(&mut self, counter: Counter) -> Option<()> {
        let Entry { id, key } = self.shadow.get(counter);
        key.blocks().filter(|_| !key.is_completed())?;
        self.shadow.set(counter, Entry { id, key: key.completed() });
        self.last = counter;
        let mut tail = self.tail();
        while tail != self.head() {
            let key = self.shadow.get(tail).key;
            let Some(blocks) = key.blocks().filter(|_| key.is_completed()) else { break };
            if let Some(silent) = key.silent() {
                self.silent_retired = silent;
            }
            tail = tail.plus(blocks);
        }
        self.cursor.retire_known(tail);
        Some(())
    }

    /// Returns the counter behind the request that was just retired, whose entry this is.
    #[inline(always)]
    pub(in crate::ring::send) fn retired_up_to(&self, entry: &Entry) -> Counter {
        match self.order {
            CompletionOrder::Posting => self.tail(),
            CompletionOrder::Any => self.last.plus(entry.key.blocks().unwrap_or(1)),
        }
    }
}
