//! Writing receives into the list.

use core::hint::black_box;

use mlx5_sys::wqe::SEGMENT_SIZE;

use super::SharedReceives;
use crate::ring::PostError;
use crate::watch::timing::Phase;
use crate::wqe::{Limits, Linear, Segments, SgeList, TERMINATOR};

/// Offset of the index of the successor (`mlx5dv.h`, `mlx5_wqe_srq_next_seg`).
const NEXT: usize = core::mem::offset_of!(mlx5_sys::wqe::SrqNextSeg, next_wqe_index);

impl SharedReceives {
    fn limits(&self) -> Limits {
        Limits { max_sge: self.max_sge, max_inline: 0 }
    }

    /// Writes a receive of one entry that is not empty at `head`. `false`, and nothing is written,
    /// if it is not such a one, or the list is full there.
    ///
    /// # Safety
    /// `head` is the list's own, or a batch's.
    #[inline(always)]
    pub(super) unsafe fn put_usual<L: SgeList>(&mut self, head: u64, id: u64, list: &L) -> bool {
        self.timing.begin();
        // A queue takes one entry at least.
        if L::USUAL_DS != 1 || !list.is_usual(&self.limits()) || self.list.is_full_at(head) {
            return false;
        }
        let (slot, next) = self.list.at(head);
        self.timing.stamp(Phase::Reserve);
        let wqe = self.wqe(slot);
        // SAFETY: the WQE is free: the HCA does not read it before the record covers it, but for
        // its successor's index, which it does not use before. With more entries than one there is
        // place for the terminator.
        unsafe {
            wqe.add(NEXT).cast::<u16>().write_volatile(next.to_be());
            let mut writer = Linear::new(wqe.add(SEGMENT_SIZE));
            list.put_usual(&mut writer);
            if self.max_sge != 1 {
                writer.put(TERMINATOR);
            }
        }
        self.list.remember(slot, head, id);
        self.timing.stamp(Phase::Encode);
        true
    }

    /// Writes any receive at `head`.
    #[inline(never)]
    fn put_any<L: SgeList>(&mut self, head: u64, id: u64, list: &L) -> Result<(), PostError> {
        list.check(&self.limits())?;
        if self.list.is_full_at(head) {
            let all = self.list.most() == self.list.capacity();
            return Err(if all { PostError::QueueFull } else { PostError::CqFull });
        }
        let (slot, next) = self.list.at(head);
        self.timing.stamp(Phase::Reserve);
        let wqe = self.wqe(slot);
        // SAFETY: the WQE is free: `head` is before the limit, and the HCA does not read the WQE
        // before the record covers it, but for its successor's index, which it does not use before.
        // The list fits the WQE, and the terminator is only added to a shorter one.
        unsafe {
            wqe.add(NEXT).cast::<u16>().write_volatile(next.to_be());
            let mut writer = Linear::new(wqe.add(SEGMENT_SIZE));
            list.put(&mut writer);
            if list.ds() < self.max_sge {
                writer.put(TERMINATOR);
            }
        }
        self.list.remember(slot, head, id);
        self.timing.stamp(Phase::Encode);
        Ok(())
    }

    /// Posts any receive.
    ///
    /// # Safety
    /// Until a poll returns the receive's completion, or the queue is destroyed: the memory that
    /// `list` names stays allocated, and registered for local write under the `lkey` given, and
    /// nothing reads, writes or holds a reference to it.
    #[inline(never)]
    pub(super) unsafe fn post_any<L: SgeList>(
        &mut self,
        id: u64,
        list: &L,
    ) -> Result<(), PostError> {
        let head = self.list.head();
        self.put_any(head, id, list)?;
        // SAFETY: `put_any` wrote the receive; the caller keeps its memory registered and untouched
        // until it completes.
        unsafe { self.commit(head + 1) };
        Ok(())
    }
}

/// Receives that are written to a shared receive queue and not yet known to the HCA. Dropping the
/// batch posts nothing.
#[must_use = "a batch posts nothing until it is rung"]
#[derive(Debug)]
pub struct SharedReceiveBatch<'q> {
    queue: &'q mut SharedReceives,
    head: u64,
}

impl<'q> SharedReceiveBatch<'q> {
    #[inline]
    pub(super) fn new(queue: &'q mut SharedReceives) -> Self {
        let head = queue.list.head();
        Self { queue, head }
    }

    /// Writes a receive after those already in the batch, as [`SharedReceives::post`].
    ///
    /// # Errors
    /// [`PostError`]; the batch stays as it was, and can still be rung.
    #[inline]
    pub fn append<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: this batch's head.
        if !unsafe { self.queue.put_usual(self.head, id, &list) } {
            // Another one as far as the compiler knows, so that only this path needs it in memory.
            let rest = black_box(list);
            self.queue.put_any(self.head, id, &rest)?;
        }
        self.head += 1;
        Ok(())
    }

    /// Receives in the batch.
    pub fn len(&self) -> u32 {
        (self.head - self.queue.list.head()) as u32
    }

    /// Returns whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch: one store to the doorbell record.
    ///
    /// # Safety
    /// The HCA may put a message into each receive from now on. For each, until a poll returns its
    /// completion, or the shared receive queue is destroyed:
    /// - The memory of its entries stays allocated, and registered for local write under the `lkey`
    ///   given.
    /// - Nothing reads, writes or holds a reference to that memory.
    /// - If any QP that takes from the queue may put payload into CQEs
    ///   ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by default, but QPs that libmlx5 made
    ///   for other code do), the memory is mapped, writable, in this process at the address in each
    ///   entry.
    #[inline]
    pub unsafe fn ring(self) {
        if !self.is_empty() {
            self.queue.timing.begin();
            // SAFETY: `append` wrote the receives before `head`; the caller keeps their memory
            // registered and untouched until they complete.
            unsafe { self.queue.commit(self.head) }
        }
    }
}
