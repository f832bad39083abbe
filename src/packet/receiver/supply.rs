//! The slots of a queue: which are posted, lent, kept or spare.

use std::fmt;
use std::sync::Arc;

use super::super::slots::Slots;
use super::ring::Ring;

/// A queue with its slots. Each slot is posted, or is in one of the lists.
pub(super) struct Supply {
    pub(super) ring: Ring,
    pub(super) slots: Arc<Slots>,
    /// Slots that are used up, whose packets the last poll has lent.
    pub(super) lent: Vec<u32>,
    /// Slots that are used up, of which the program keeps packets.
    kept: Vec<u32>,
    /// Slots that are free.
    spare: Vec<u32>,
}

impl Supply {
    /// Takes a queue to which nothing is posted, and posts the first `posted` slots.
    pub(super) fn new(mut ring: Ring, slots: Slots, posted: u32) -> Supply {
        let count = slots.count();
        let list = || Vec::with_capacity(count as usize);
        let (lent, kept, mut spare) = (list(), list(), list());
        spare.extend(posted..count);
        // SAFETY: the slots are those of the queue, and new.
        unsafe { ring.post(&slots, 0..posted) };
        Supply { ring, slots: Arc::new(slots), lent, kept, spare }
    }

    /// Posts the slots of lent packets again. Spare slots replace those of which packets are kept.
    ///
    /// # Safety
    /// No packet that was lent exists.
    #[inline(always)]
    pub(super) unsafe fn refill(&mut self) {
        if !self.lent.is_empty() {
            // SAFETY: this function's contract.
            unsafe { self.post_lent() };
        }
    }

    /// # Safety
    /// That of [`refill`](Self::refill).
    unsafe fn post_lent(&mut self) {
        let Self { ring, slots, lent, kept, spare } = self;
        kept.retain(|slot| {
            let free = slots.is_free(*slot);
            if free {
                spare.push(*slot);
            }
            !free
        });
        let free = lent.drain(..).filter_map(|slot| {
            if slots.is_free(slot) {
                return Some(slot);
            }
            kept.push(slot);
            // There is one: packets are kept of no more slots than there are beside the posted ones.
            spare.pop()
        });
        // SAFETY: the slots are those of the queue. None of them is posted. No packet of them exists:
        // those that were lent are gone, by this function's contract, and none is kept.
        unsafe { ring.post(slots, free) };
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        // The HCA may put packets into posted slots as long as the queue exists.
        self.ring.retain(Arc::clone(&self.slots));
    }
}

impl fmt::Debug for Supply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supply")
            .field("ring", &self.ring)
            .field("lent", &self.lent.len())
            .field("kept", &self.kept.len())
            .finish_non_exhaustive()
    }
}
