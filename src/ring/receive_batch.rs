//! Writing receives into the ring.
//!
//! The slots that a post may write without a look at anything else are known as a range of
//! addresses. Where the range ends, apart from the hot path, the next one is found: it ends with
//! the ring at the latest, so nothing wraps in between.

use core::hint::black_box;
use core::ptr::null_mut;

use mlx5_sys::wqe::SEGMENT_SIZE;

use super::PostError;
use super::receive::{Place, ReceiveQueue};
use crate::ib::Counter;
use crate::watch::timing::Phase;
use crate::wqe::{Limits, Linear, Segments, SgeList, TERMINATOR};

/// Slots from a head on that can be written without a look at anything else: they are free, there
/// are CQEs for them, and the ring does not end before them. Often fewer than there are: retiring
/// does not add to them, the next post that has used them up does.
///
/// At most one of the two ends is not null. The head's slot is at `next` as long as that is below
/// it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) next: *mut u8,
    /// Their end, of a queue with a stride of one segment.
    narrow: *mut u8,
    /// Their end, of a queue with a larger stride.
    wide: *mut u8,
}

impl Ahead {
    /// None are known.
    pub(super) const NOTHING: Self =
        Self { next: null_mut(), narrow: null_mut(), wide: null_mut() };
}

impl ReceiveQueue {
    /// Writes a receive of one entry that is not empty to the head's slot. Returns what is next
    /// then; `None`, and nothing is written, if it is not such a one, or that slot
    /// is not known.
    ///
    /// # Safety
    /// `ahead` is of `head`.
    #[inline(always)]
    pub(super) unsafe fn put_usual<L: SgeList>(
        &mut self,
        head: Counter,
        ahead: Ahead,
        id: u64,
        list: &L,
    ) -> Option<*mut u8> {
        const { assert!(size_of::<Place>() == SEGMENT_SIZE) };
        self.timing.begin();
        let limits = Limits { max_sge: self.max_sge, max_inline: 0 };
        // A queue takes one entry at least: its stride is not 0.
        if L::USUAL_DS != 1 || !list.is_usual(&limits) {
            return None;
        }
        let shadow = self.shadow.as_mut_ptr();
        if ahead.next < ahead.narrow {
            // The same slot: both rings have entries of one segment.
            let place = shadow.with_addr(ahead.next.addr().wrapping_add(self.to_shadow));
            // In each of the ways, so that this one's address is part of the store.
            // SAFETY: the shadow has a place for each slot.
            unsafe { (*place).id = id };
        } else if ahead.next < ahead.wide {
            // SAFETY: the slot is free, since `ahead` covers it, and has a second segment. A slot
            // is less than the number of entries, which is the shadow's length.
            unsafe {
                Linear::new(ahead.next.add(SEGMENT_SIZE)).put(TERMINATOR);
                let place = shadow.add(self.cursor.shape().slot(head));
                (*place).id = id;
            }
        } else {
            return None;
        }
        self.timing.stamp(Phase::Reserve);
        // SAFETY: the slot is free, since `ahead` covers it, and the HCA does not read it before
        // the record covers it. The next slot is at most the end of the ring.
        unsafe {
            list.put_usual(&mut Linear::new(ahead.next));
            self.timing.stamp(Phase::Encode);
            Some(ahead.next.add(self.stride))
        }
    }

    /// Writes any receive, and returns what is ahead then. A `head` that is not the queue's own is
    /// a batch's.
    #[inline(never)]
    pub(super) fn put_any<L: SgeList>(
        &mut self,
        head: Counter,
        id: u64,
        list: &L,
    ) -> Result<Ahead, PostError> {
        list.check(&Limits { max_sge: self.max_sge, max_inline: 0 })?;
        let free = self.cursor.free_from(head);
        if free == 0 {
            return Err(PostError::QueueFull);
        }
        let credit = self.credit.entries().saturating_sub(head.since(self.cursor.tail()));
        if credit == 0 {
            return Err(PostError::CqFull);
        }
        let (slot, entries) = (self.cursor.shape().slot(head), self.capacity());
        let wqe = self.wqe(slot);
        self.timing.stamp(Phase::Reserve);
        // SAFETY: `free` is not 0, so the head's slot is free. The list is no longer than the
        // stride, and the terminator is only added to a shorter one.
        unsafe {
            let mut writer = Linear::new(wqe);
            list.put(&mut writer);
            if list.ds() < self.max_sge {
                writer.put(TERMINATOR);
            }
        }
        self.shadow[slot].id = id;
        self.timing.stamp(Phase::Encode);
        let count = free.min(credit).min(entries - slot as u32) as usize;
        // SAFETY: slots up to the ring's end.
        let (next, end) = unsafe { (wqe.add(self.stride), wqe.add(count * self.stride)) };
        let (narrow, wide) =
            if self.stride == SEGMENT_SIZE { (end, null_mut()) } else { (null_mut(), end) };
        Ok(Ahead { next, narrow, wide })
    }

    /// Posts any receive.
    ///
    /// # Safety
    /// Until the receive is retired, the memory that it names stays registered for local write, and
    /// nothing else uses it.
    #[inline(never)]
    pub(crate) unsafe fn post_any<L: SgeList>(
        &mut self,
        id: u64,
        list: &L,
    ) -> Result<(), PostError> {
        let head = self.cursor.head();
        self.ahead = self.put_any(head, id, list)?;
        // SAFETY: `put_any` wrote the receive at the head. Its memory meets this function's
        // contract.
        unsafe { self.commit(head.plus(1)) };
        Ok(())
    }
}

/// Receives that are written to the ring and not yet known to the HCA. Dropping the batch posts
/// nothing.
#[must_use = "a batch posts nothing until it is rung"]
#[derive(Debug)]
pub struct ReceiveBatch<'q> {
    queue: &'q mut ReceiveQueue,
    head: Counter,
    ahead: Ahead,
}

impl<'q> ReceiveBatch<'q> {
    #[inline]
    pub(super) fn new(queue: &'q mut ReceiveQueue) -> Self {
        let (head, ahead) = (queue.cursor.head(), queue.ahead);
        Self { queue, head, ahead }
    }

    /// Writes a receive after those already in the batch, as [`ReceiveQueue::post`].
    ///
    /// # Errors
    /// [`PostError`]; the batch stays as it was, and can still be rung.
    #[inline]
    pub fn append<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: `self.ahead` is always of the batch's own head.
        let put = unsafe { self.queue.put_usual(self.head, self.ahead, id, &list) };
        if let Some(next) = put {
            self.ahead.next = next;
        } else {
            // Another one as far as the compiler knows, so that only this path needs it in memory.
            let rest = black_box(list);
            self.ahead = self.queue.put_any(self.head, id, &rest)?;
        }
        self.head = self.head.plus(1);
        Ok(())
    }

    /// Receives in the batch.
    pub fn len(&self) -> u32 {
        self.head.since(self.queue.cursor.head())
    }

    /// Returns whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch: one store to the doorbell record.
    ///
    /// # Safety
    /// The HCA may put a message into each receive from now on. For each, until a poll returns its
    /// completion, or the QP has been moved to RESET or destroyed:
    /// - The memory of its entries stays allocated, and registered for local write under the `lkey`
    ///   given.
    /// - Nothing reads, writes or holds a reference to that memory.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code do), the memory is mapped, writable, in
    ///   this process at the address in each entry.
    #[inline]
    pub unsafe fn ring(self) {
        if !self.is_empty() {
            self.queue.timing.begin();
            self.queue.ahead = self.ahead;
            // SAFETY: `append` wrote the receives before `head`. Their memory meets this function's
            // contract.
            unsafe { self.queue.commit(self.head) }
        }
    }
}
