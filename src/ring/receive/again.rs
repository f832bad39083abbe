//! Posting WQEs again as they are.
//!
//! In a ring of which all WQEs are outstanding, the one that is retired leaves its place to the next
//! one to be posted. A queue that gets the same memory back in the same order needs no new WQEs:
//! the doorbell record alone posts those that are there.

use super::core::ReceiveRing;
use super::in_order::{Ahead, InOrder};
use crate::doorbell::Lent;
use crate::ring::PostError;
use crate::wqe::SgeList;

impl ReceiveRing<InOrder> {
    /// Returns the id that was last written in the place `ahead` of the next post.
    #[inline(always)]
    pub(crate) fn written(&self, ahead: u32) -> u64 {
        self.layout.id(self.layout.shape().slot(self.layout.head().plus(ahead)))
    }

    /// Writes a receive in the place `ahead` of the next post, and does not post it.
    ///
    /// # Errors
    /// [`PostError`]; nothing is written then.
    pub(super) fn write<P: SgeList>(
        &mut self,
        ahead: u32,
        id: u64,
        list: &P,
    ) -> Result<(), PostError> {
        let head = self.layout.head().plus(ahead);
        // SAFETY: the head of a batch of so many receives. It is looked at whether it is full.
        unsafe { self.put_any(head, id, list).map(drop) }
    }

    /// Posts the next `count` WQEs as they are in the ring. One store to the doorbell record.
    ///
    /// # Safety
    /// `count` receives can be posted, and each of their places was written. The memory is the HCA's
    /// from now on.
    #[inline(always)]
    pub(super) unsafe fn post_written(&mut self, lent: Lent, count: u32) {
        let head = self.layout.head().plus(count);
        // SAFETY: by this function's contract, the receives before the head were written. The next
        // post finds what is ahead of it.
        unsafe { self.commit(lent, head, Ahead::NOTHING) }
    }
}
