//! Posting WQEs that were written: the last look at them, the state, and the doorbell.

use core::ptr::NonNull;

use super::ring::{BlockImage, SendRing};
use super::state::Point;
use super::wqes::Last;
use super::written::Written;
use crate::doorbell::Blocks;
use crate::doorbell::Lent;
use crate::ib::Counter;
use crate::watch::lint::Refusal;

impl SendRing {
    /// Checks the WQEs that were written up to `next`, before they are rung. On an error, the
    /// caller rings nothing, and leaves the queue as it was.
    #[inline(always)]
    pub(super) fn inspect(&mut self, next: Counter) -> Result<(), Refusal> {
        let head = self.head().low16();
        let blocks = self.shape().entries();
        let written = Written { buffer: self.buffer, blocks, state: &self.state };
        let looked = self.guard.inspect(&written, head, next.low16());
        if looked.is_err() {
            self.state.leave_open();
        }
        looked
    }

    /// Tells timing and flight recorder that the HCA was just told of the WQEs before `head`.
    #[inline(always)]
    pub(in crate::ring) fn rang(&mut self, head: Counter) {
        self.doorbell.timing.rang(head);
        // SAFETY: the queue's ring, which only its owner writes.
        unsafe { self.doorbell.flight.posted(self.buffer, self.shape(), head) }
    }

    /// Posts the single WQE of [`encode_block`](Self::encode_block) at the cursor's head by
    /// BlueFlame. `head` is the one after the WQE.
    ///
    /// # Safety
    /// `image` is what `encode_block` returned for the WQE at the cursor's head, which was before
    /// `clear_single`.
    #[inline(always)]
    pub(super) unsafe fn commit_block(
        &mut self,
        lent: Lent,
        head: Counter,
        image: BlockImage,
    ) -> Result<(), Refusal> {
        // SAFETY: the WQE was just written to a block of the ring; usual WQEs have more than one
        // unit, and `clear_single` was ahead of the head, so the register takes a block.
        unsafe { self.commit_words(lent, head, image.words, image.block) }
    }

    /// Posts the single WQE at the cursor's head, which lies in `block`, by BlueFlame. `head` is the
    /// one after the WQE, and `words` has those of its words that are known.
    ///
    /// # Safety
    /// The WQE was written there, and has one block. The register takes WQEs word by word.
    #[inline(always)]
    pub(super) unsafe fn commit_words(
        &mut self,
        lent: Lent,
        head: Counter,
        words: [Option<u64>; 8],
        block: NonNull<u64>,
    ) -> Result<(), Refusal> {
        self.inspect(head)?;
        self.state.posted_block(head);
        // SAFETY: this function's contract.
        unsafe { self.doorbell.ring_block(lent, head.low16(), words, block) }
        self.rang(head);
        Ok(())
    }

    /// Posts a single WQE by a [plain doorbell](crate::doorbell::SendDoorbell::ring_plain). `head` is the one after
    /// the WQE.
    ///
    /// # Safety
    /// - The WQE before `head` was written, and `last` is it.
    /// - The doorbell [rings that way](crate::doorbell::SendDoorbell::rings_plain).
    #[cold]
    #[inline(always)]
    pub(super) unsafe fn commit_plain(
        &mut self,
        lent: Lent,
        head: Counter,
        last: Last,
    ) -> Result<(), Refusal> {
        self.inspect(head)?;
        self.state.posted_block(head);
        // SAFETY: `last` is the last WQE before `head`.
        unsafe { self.doorbell.ring_plain(lent, head.low16(), last.doorbell) }
        self.rang(head);
        Ok(())
    }

    /// Posts a single WQE to a register that takes no WQEs word by word, and that is not rung by a
    /// plain doorbell. `head` is the one after the WQE.
    ///
    /// Kept out of line, and cold for the compiler: inlined, or weighed, beside the other paths it
    /// would cost these registers.
    ///
    /// # Safety
    /// The WQE before `head` was written, and `last` is it.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn commit_other(
        &mut self,
        lent: Lent,
        head: Counter,
        last: Last,
    ) -> Result<(), Refusal> {
        self.inspect(head)?;
        self.state.posted_block(head);
        let ring = self.blocks();
        // SAFETY: `last` is the last WQE before `head`; its blocks lie in this ring.
        unsafe { self.doorbell.ring_single(lent, head.low16(), last.doorbell, ring) }
        self.rang(head);
        Ok(())
    }

    /// Publishes all WQEs before `end` to the HCA, and rings.
    ///
    /// # Safety
    /// The WQEs before `end` were written, and `last` is the last of them.
    #[inline(always)]
    pub(in crate::ring) unsafe fn commit(
        &mut self,
        lent: Lent,
        end: Point,
        last: &Last,
        single: bool,
    ) -> Result<(), Refusal> {
        self.inspect(end.at)?;
        self.state.posted(end);
        let ring = self.blocks();
        // SAFETY: `last` is the last WQE before `end`; its blocks lie in this ring.
        unsafe { self.doorbell.ring(lent, end.at.low16(), last.doorbell, single, ring) }
        self.rang(end.at);
        Ok(())
    }

    /// Posts a single WQE of one block by copying it to the register, whatever its size.
    ///
    /// # Safety
    /// The WQE before `end` was written and `last` is it. It has one block, and the register takes
    /// one.
    pub(in crate::ring) unsafe fn commit_copied(&mut self, lent: Lent, end: Point, last: &Last) {
        self.state.posted(end);
        let ring = self.blocks();
        // The program does not count this as a post of its own.
        self.doorbell.timing.end();
        // SAFETY: `last` is the WQE before `end`, of one block in this ring, which the register
        // takes.
        unsafe { self.doorbell.ring_copied(lent, end.at.low16(), last.doorbell, ring) }
        // SAFETY: the queue's ring, which only its owner writes.
        unsafe { self.doorbell.flight.posted(self.buffer, self.shape(), end.at) }
    }

    /// Returns the ring, for copying from it to the register.
    #[inline(always)]
    fn blocks(&self) -> Blocks {
        Blocks { start: self.buffer.cast(), count: self.shape().entries() }
    }
}
