//! The prepared WQEs of a send queue that may be fired without further checks.

use core::ptr::NonNull;

use mlx5_sys::wqe::WQEBB_SIZE;

/// The prepared WQEs that need no further checks, from the head on. In the queue's state, so that
/// an error completion can end them.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Ready {
    /// Their number.
    left: u32,
    /// Where the next one begins.
    wqe: NonNull<u8>,
    /// The doorbell record's value after the next one, in memory order.
    record: u32,
}

impl Ready {
    /// No WQE.
    pub(in crate::ring) const NONE: Self = Self { left: 0, wqe: NonNull::dangling(), record: 0 };

    /// Creates `left` ready WQEs, of which the first is at `wqe`. The record is `record` after it.
    pub(in crate::ring) fn new(left: u32, wqe: NonNull<u8>, record: u16) -> Self {
        Self { left, wqe, record: u32::from(record).to_be() }
    }

    /// Takes the next one: returns its place, and the record's value after it, in memory order. If
    /// there is none, returns `None`; then the caller [ends](Self::end) them or makes others ready.
    #[inline(always)]
    pub(in crate::ring) fn take(&mut self) -> Option<(NonNull<u8>, u32)> {
        // Counted first, and checked then: one instruction does both.
        let (left, none) = self.left.overflowing_sub(1);
        self.left = left;
        if none { None } else { Some((self.wqe, self.record)) }
    }

    /// Puts back the one that was taken.
    #[inline(always)]
    pub(super) fn put_back(&mut self) {
        self.left += 1;
    }

    /// Moves on by the one that was taken, of so many blocks.
    ///
    /// # Safety
    /// [`take`](Self::take) returned it, and it was not put back.
    #[inline(always)]
    pub(in crate::ring) unsafe fn pass(&mut self, blocks: u32) {
        // Each is one instruction, if the compiler does not keep the value in a register.
        // SAFETY: at most the ring's end, since the WQE lies in the ring.
        self.wqe = unsafe { self.wqe.add(blocks as usize * WQEBB_SIZE) };
        self.record = self.record.wrapping_add(blocks.to_be());
    }

    /// Makes none ready.
    #[inline(always)]
    pub(in crate::ring) fn end(&mut self) {
        self.left = 0;
    }

    /// Returns their number.
    #[cfg(test)]
    pub(in crate::ring) fn left(&self) -> u32 {
        self.left
    }
}
