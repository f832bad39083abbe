//! The slots of a queue: which are posted, lent, kept or spare.

use std::fmt;
use std::sync::Arc;

use super::super::slots::Slots;
use super::PacketError;
use super::ring::Ring;
use crate::error::{Error, Result};

/// A queue with its slots. Each slot is that of a WQE, or is in one of the lists.
///
/// All WQEs are posted but those that are used up since the last refill. So the next refill posts
/// the same WQEs again, in the same places. Only if the program keeps packets of a slot, its WQE gets
/// another one.
pub(super) struct Supply {
    pub(super) ring: Ring,
    pub(super) slots: Arc<Slots>,
    pub(super) polled: Polled,
    /// Slots without a WQE, of which the program keeps packets.
    kept: Vec<u32>,
    /// Slots without a WQE that are free.
    spare: Vec<u32>,
}

/// What polls leave.
#[derive(Debug, Default)]
pub(super) struct Polled {
    /// WQEs that are used up since the last refill.
    pub(super) used_up: u32,
    /// Packets that polls have returned.
    pub(super) packets: u64,
    /// Why no packet comes any more.
    pub(super) failed: Option<PacketError>,
}

impl Supply {
    /// Takes a queue to which nothing is posted, with a slot for each of its WQEs and spare ones, and
    /// posts them.
    pub(super) fn new(ring: Ring, slots: Slots) -> Result<Supply> {
        let wqes = ring.wqes().filter(|&wqes| wqes <= slots.count()).ok_or_else(|| {
            let rule = "the CQ that the device granted does not hold the completions of all slots";
            Error::attribute("slots", slots.count(), rule)
        })?;
        let list = || Vec::with_capacity(slots.count() as usize);
        let (kept, mut spare) = (list(), list());
        spare.extend(wqes..slots.count());
        let slots = Arc::new(slots);
        let mut supply = Supply { ring, slots, polled: Polled::default(), kept, spare };
        for slot in 0..wqes {
            supply.ring.write(slot, slot, supply.slots.sge(slot))?;
        }
        // SAFETY: all WQEs can be posted, and were written, with slots of their own that are new.
        unsafe { supply.ring.post_written(wqes) };
        Ok(supply)
    }

    /// Posts the WQEs that are used up again. Spare slots replace those of which packets are kept.
    ///
    /// # Safety
    /// No packet that was lent exists.
    #[inline(always)]
    pub(super) unsafe fn refill(&mut self) {
        let mut count = self.polled.used_up;
        if count == 0 {
            return;
        }
        if !self.kept.is_empty() || !self.slots.are_free() {
            count = self.replace_kept(count);
        }
        self.polled.used_up -= count;
        // SAFETY: these WQEs are used up, and nothing was posted since. With all others, they were the
        // whole ring: they are in the next places, and were written. No packet of their slots exists:
        // those that were lent are gone, by this function's contract, and none is kept.
        unsafe { self.ring.post_written(count) };
    }

    /// Gives each of the next `count` WQEs of whose slot packets are kept another slot. Returns how many
    /// can be posted.
    #[cold]
    fn replace_kept(&mut self, count: u32) -> u32 {
        let Self { ring, slots, kept, spare, .. } = self;
        kept.retain(|slot| {
            let free = slots.is_free(*slot);
            if free {
                spare.push(*slot);
            }
            !free
        });
        for ahead in 0..count {
            let slot = ring.written(ahead);
            if slots.is_free(slot) {
                continue;
            }
            // There is one: packets are kept of no more slots than there are beside those of WQEs.
            let Some(other) = spare.pop() else { return ahead };
            if ring.write(ahead, other, slots.sge(other)).is_err() {
                spare.push(other);
                return ahead;
            }
            kept.push(slot);
        }
        count
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
            .field("polled", &self.polled)
            .field("kept", &self.kept.len())
            .finish_non_exhaustive()
    }
}
