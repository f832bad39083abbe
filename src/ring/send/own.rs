//! Where a post finds the memory and the limits of its ring, and where it put a WQE.

use super::ring::SendRing;
use super::shadow::Entry;
use super::wqes::Wqes;
use crate::wqe::Limits;

/// The memory and limits of a ring, as a post finds them.
pub(in crate::ring) trait Own: Copy {
    fn wqes(self, ring: &SendRing) -> Wqes;
    fn limits(self, ring: &SendRing) -> Limits;
}

/// In the ring's structure, loaded where they are needed: a post of one block has no registers for them.
#[derive(Clone, Copy)]
pub(super) struct InRing;

impl Own for InRing {
    #[inline(always)]
    fn wqes(self, ring: &SendRing) -> Wqes {
        ring.wqes()
    }

    #[inline(always)]
    fn limits(self, ring: &SendRing) -> Limits {
        ring.limits
    }
}

/// At hand, where the compiler sees that they stay the same.
#[derive(Clone, Copy)]
pub(super) struct Held(pub(super) Wqes, pub(in crate::ring) Limits);

impl Held {
    #[inline(always)]
    pub(in crate::ring) fn of(ring: &SendRing) -> Self {
        Self(ring.wqes(), ring.limits)
    }
}

impl Own for Held {
    #[inline(always)]
    fn wqes(self, _: &SendRing) -> Wqes {
        self.0
    }

    #[inline(always)]
    fn limits(self, _: &SendRing) -> Limits {
        self.1
    }
}

/// The place of a WQE in its ring: the offset of its first block's entry in the shadow.
#[derive(Clone, Copy, Default)]
pub struct Place(pub(in crate::ring) usize);

impl Place {
    /// Returns the address of the item for the WQE among items of 32 bytes, one for each block of
    /// the ring, of which `first` is the first.
    ///
    /// # Safety
    /// There are as many items as the ring has blocks.
    #[inline(always)]
    pub(crate) unsafe fn among<I>(self, first: *mut I) -> *mut I {
        // One address operation can compute it from the entry's offset.
        const { assert!(size_of::<I>() == 2 * size_of::<Entry>()) };
        // SAFETY: the offset is that of one of the ring's blocks, and there is an item for each.
        unsafe { first.byte_add(2 * self.0) }
    }
}
