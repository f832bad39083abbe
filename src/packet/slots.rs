//! The memory of a receiver: slots of equal size, and how many packets of each a program keeps.

use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::ib::Access;
use crate::verbs::{HugePageSize, MemoryRegion, Pages, ProtectionDomain};
use crate::wqe::Sge;

/// The placement of the memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Placed {
    pub(super) huge: Option<HugePageSize>,
    pub(super) node: Option<u32>,
}

/// Registered memory in slots. A slot is the memory of a WQE.
pub(super) struct Slots {
    region: MemoryRegion,
    lkey: u32,
    size: u32,
    /// How many packets of each slot a program keeps.
    kept: Box<[AtomicU32]>,
    /// Of how many slots a program keeps packets.
    slots_kept: AtomicU32,
    /// Of how many it may.
    most_kept: u32,
    /// Held while the numbers change, and not while they are read.
    changing: Mutex<()>,
}

impl Slots {
    /// Allocates and registers `count` slots of `size` bytes. Of at most `spare` slots may a program keep
    /// packets at a time.
    pub(super) fn new(
        pd: &ProtectionDomain,
        (count, size): (u32, u32),
        spare: u32,
        placed: Placed,
    ) -> Result<Slots> {
        let length = count as usize * size as usize;
        if length == 0 {
            return Err(Error::attribute(
                "slots",
                count,
                "a receiver has at least one, of one byte",
            ));
        }
        let pages = match placed.huge {
            Some(huge) => Pages::huge(length, huge)?,
            None => Pages::new(length)?,
        };
        if let Some(node) = placed.node {
            pages.bind(node)?;
        }
        let region = pd.register(pages, Access::LOCAL_WRITE)?;
        let kept = (0..count).map(|_| AtomicU32::new(0)).collect();
        let (slots_kept, changing) = (AtomicU32::new(0), Mutex::new(()));
        let lkey = region.lkey();
        Ok(Slots { region, lkey, size, kept, slots_kept, most_kept: spare, changing })
    }

    /// Number of slots.
    pub(super) fn count(&self) -> u32 {
        self.kept.len() as u32
    }

    /// Returns the memory of a slot, for a WQE.
    pub(super) fn sge(&self, slot: u32) -> Sge {
        let offset = u64::from(slot) * u64::from(self.size);
        Sge::new(self.region.address() + offset, self.size, self.lkey)
    }

    /// Returns whether a packet with this length at this offset lies in its slot.
    #[inline(always)]
    pub(super) fn fits(&self, offset: u32, length: u32) -> bool {
        u64::from(offset) + u64::from(length) <= u64::from(self.size)
    }

    /// Lends the bytes of a packet, which lies in its slot.
    ///
    /// # Safety
    /// - The slot is one of these, and the packet [fits](Self::fits).
    /// - As long as the result exists, nothing writes them: the HCA has reported the packet, and its slot
    ///   is not posted again.
    #[inline(always)]
    pub(super) unsafe fn bytes(&self, slot: u32, offset: u32, length: u32) -> &[u8] {
        let at = slot as usize * self.size as usize + offset as usize;
        // SAFETY: the bytes lie in the region, which `self` keeps. They are initialized: zero, or what
        // the HCA wrote. By this function's contract, nothing writes them.
        unsafe { slice::from_raw_parts(self.region.as_ptr().as_ptr().add(at), length as usize) }
    }

    /// Returns whether a program keeps no packet of a slot. What it did with the packets happened before.
    #[inline(always)]
    pub(super) fn is_free(&self, slot: u32) -> bool {
        self.kept[slot as usize].load(Ordering::Acquire) == 0
    }

    /// Returns whether all slots [are free](Self::is_free).
    #[inline(always)]
    pub(super) fn are_free(&self) -> bool {
        self.slots_kept.load(Ordering::Acquire) == 0
    }

    /// Notes that a packet of a slot is kept. Returns false, and notes nothing, if packets of as many
    /// slots are kept as may be.
    ///
    /// The caller holds a packet of the slot, so that the receiver does not look at it meanwhile.
    pub(super) fn keep(&self, slot: u32) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, slots_kept) = (&self.kept[slot as usize], &self.slots_kept);
        if kept.load(Ordering::Relaxed) == 0 {
            if slots_kept.load(Ordering::Relaxed) == self.most_kept {
                return false;
            }
            slots_kept.fetch_add(1, Ordering::Relaxed);
        }
        kept.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Notes that a packet of a slot is kept no more.
    pub(super) fn release(&self, slot: u32) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.kept[slot as usize].fetch_sub(1, Ordering::Release) == 1 {
            self.slots_kept.fetch_sub(1, Ordering::Release);
        }
    }
}
