//! The entries of a tag list, as software knows them.
//!
//! To append an entry, software must tell the HCA the index of the entry that will be appended
//! after it. So the free indices form a queue, and the last of them is never used. An index is free
//! again when nothing more will be reported of its entry: neither of the message that took it, nor
//! of the changes that name it.

use crate::wqe::Sge;

/// A handle of an entry of a tag list. After the entry is gone, the handle names no entry, even if
/// the index is used again.
///
/// See the example on [`TmSrq`](super::TmSrq).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagHandle {
    pub(super) index: u16,
    /// Number of entries appended before it.
    pub(super) position: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no entry.
    Free,
    /// In the list, as far as software knows.
    Listed,
    /// In the list, and asked to be removed.
    Leaving,
    /// Taken by a message that has not arrived yet.
    Taken,
    /// No entry any more, but a change that names it is under way.
    Gone,
}

#[derive(Clone, Copy)]
struct Entry {
    state: State,
    /// Number of changes that name it and are still to be reported.
    changes: u8,
    position: u64,
    id: u64,
    /// Its memory.
    address: u64,
    length: u32,
}

/// The data of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) id: u64,
    pub(super) handle: TagHandle,
    /// Its memory.
    pub(super) address: u64,
    pub(super) length: u32,
}

impl Entry {
    /// Returns the data of the entry, which has this index.
    #[inline(always)]
    fn told(&self, index: u16) -> Told {
        let &Self { id, position, address, length, .. } = self;
        Told { id, handle: TagHandle { index, position }, address, length }
    }
}

pub(super) struct List {
    entries: Box<[Entry]>,
    /// Indices in the order in which they are used, as a ring whose length is a power of two. Those
    /// from `position` to `end` are free.
    order: Box<[u16]>,
    /// The length of `order`, less one.
    mask: u64,
    /// Number of entries that were appended, and their number if all free indices were used.
    position: u64,
    end: u64,
    /// The position at which no entry may be appended, for lack of indices: some are always free.
    limit: u64,
}

impl List {
    /// Creates an empty list. `order` names each free index once, in the order of use. `None` if it
    /// names one twice, or none. At most `most` entries may exist at a time.
    pub(super) fn new(order: Vec<u16>, most: usize) -> Option<Self> {
        let mut seen = vec![false; order.len()];
        for &index in &order {
            if std::mem::replace(seen.get_mut(usize::from(index))?, true) {
                return None;
            }
        }
        let none =
            Entry { state: State::Free, changes: 0, position: 0, id: 0, address: 0, length: 0 };
        let reserve = order.len().checked_sub(most)?.max(1);
        let limit = order.len().checked_sub(reserve)?;
        let mut ring = order.clone();
        ring.resize(order.len().next_power_of_two(), 0);
        Some(Self {
            entries: vec![none; order.len()].into(),
            mask: ring.len() as u64 - 1,
            order: ring.into(),
            position: 0,
            end: order.len() as u64,
            limit: limit as u64,
        })
    }

    /// Returns the maximum number of entries.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len() - (self.end - self.limit) as usize
    }

    /// Returns the number of indices in use.
    pub(super) fn used(&self) -> usize {
        self.entries.len() - (self.end - self.position) as usize
    }

    /// Returns the order of the free indices, if all are free.
    pub(super) fn order(&self) -> Option<Vec<u16>> {
        (self.used() == 0).then(|| (self.position..self.end).map(|at| self.at(at)).collect())
    }

    /// Returns the index at a position of the ring.
    #[inline(always)]
    fn at(&self, position: u64) -> u16 {
        // SAFETY: the length is a power of two, so what is masked is less.
        unsafe { *self.order.get_unchecked((position & self.mask) as usize) }
    }

    /// Returns the index of the next entry and of the one after it. `None` if the list is full.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<(u16, u16)> {
        if self.position == self.limit {
            return None;
        }
        Some((self.at(self.position), self.at(self.position + 1)))
    }

    /// Records that the next entry, with the index that [`next`](Self::next) returned, was appended
    /// by a change that is `reported`.
    #[inline(always)]
    pub(super) fn append(&mut self, index: u16, id: u64, into: Sge, reported: bool) -> TagHandle {
        let position = self.position;
        if let Some(entry) = self.entries.get_mut(usize::from(index)) {
            self.position += 1;
            let Sge { addr: address, length, .. } = into;
            let (state, changes) = (State::Listed, reported.into());
            *entry = Entry { state, changes, position, id, address, length };
        }
        TagHandle { index, position }
    }

    fn named(&self, handle: TagHandle) -> Option<&Entry> {
        let entry = self.entries.get(usize::from(handle.index))?;
        let is = entry.position == handle.position && entry.state != State::Free;
        is.then_some(entry)
    }

    /// Returns whether the handle names an entry that no message was reported to have taken, and
    /// whose removal was not requested.
    pub(super) fn holds(&self, handle: TagHandle) -> bool {
        self.named(handle).is_some_and(|entry| entry.state == State::Listed)
    }

    /// Records that a change that removes the entry is under way.
    pub(super) fn leave(&mut self, handle: TagHandle) -> Option<Told> {
        let told = self.told(handle.index)?;
        if !self.holds(handle) {
            return None;
        }
        let entry = self.entries.get_mut(usize::from(handle.index))?;
        (entry.state, entry.changes) = (State::Leaving, entry.changes + 1);
        Some(told)
    }

    /// Returns the data of the entry at an index, if there is one.
    fn told(&self, index: u16) -> Option<Told> {
        let entry = self.entries.get(usize::from(index))?;
        let there = matches!(entry.state, State::Listed | State::Leaving | State::Taken);
        there.then(|| entry.told(index))
    }

    /// Records that a message has taken the entry and is still to arrive. `None`, and nothing
    /// changes, if there is no entry.
    #[inline(always)]
    pub(super) fn take(&mut self, index: u16) -> Option<Told> {
        let told = self.told(index)?;
        let entry = self.entries.get_mut(usize::from(index))?;
        if entry.state == State::Taken {
            return None;
        }
        entry.state = State::Taken;
        Some(told)
    }

    /// Records that the entry no longer exists. `None`, and nothing changes, if there is no entry.
    #[inline(always)]
    pub(super) fn end(&mut self, index: u16) -> Option<Told> {
        let entry = self.entries.get_mut(usize::from(index))?;
        if !matches!(entry.state, State::Listed | State::Leaving | State::Taken) {
            return None;
        }
        let told = entry.told(index);
        entry.state = State::Gone;
        self.release(index);
        Some(told)
    }

    /// Records the report of a change that names the entry. Returns its id and handle.
    #[inline(always)]
    pub(super) fn changed(&mut self, index: u16) -> Option<(u64, TagHandle)> {
        let entry = self.entries.get_mut(usize::from(index))?;
        entry.changes = entry.changes.checked_sub(1)?;
        let told = (entry.id, TagHandle { index, position: entry.position });
        self.release(index);
        Some(told)
    }

    #[inline(always)]
    fn release(&mut self, index: u16) {
        let Some(entry) = self.entries.get_mut(usize::from(index)) else { return };
        if (entry.state, entry.changes) == (State::Gone, 0) {
            entry.state = State::Free;
            let at = self.end as usize & (self.order.len() - 1);
            // The ring has a free position for it: it is in use, and was not returned twice.
            if let Some(place) = self.order.get_mut(at) {
                *place = index;
            }
            (self.end, self.limit) = (self.end + 1, self.limit + 1);
        }
    }
}

#[cfg(test)]
mod tests;
