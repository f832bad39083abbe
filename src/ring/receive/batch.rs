//! Several receives, posted with one store to the doorbell record.

use core::fmt;
use core::hint::black_box;

use super::core::{Layout, ReceiveRing, Wqes};
use super::queue::ReceiveQueue;
use super::{AnyOrder, InOrder};
use crate::doorbell::Lent;
use crate::ring::{PostError, Srq};
use crate::wqe::SgeList;

/// A queue whose receives are posted in batches. Sealed.
pub trait PostReceives {
    /// How its WQEs lie in memory.
    type Layout: Layout;
}

impl PostReceives for ReceiveQueue {
    type Layout = InOrder;
}

impl PostReceives for Srq {
    type Layout = AnyOrder;
}

/// Receives that are written to a queue and not yet known to the HCA. Dropping the batch posts
/// nothing.
///
/// Made by [`ReceiveQueue::batch`], [`PacketRq::batch`](crate::ring::PacketRq::batch),
/// [`Srq::batch`] and [`TmSrq::batch`](crate::expert::TmSrq::batch). `Q` is [`ReceiveQueue`] or
/// [`Srq`].
///
/// See the example on [`ReceiveQueue`](super::ReceiveQueue).
#[must_use = "a batch posts nothing until it is rung"]
pub struct ReceiveBatch<'q, Q: PostReceives = ReceiveQueue> {
    ring: &'q mut ReceiveRing<Q::Layout>,
    /// The queue's, where the compiler sees that they stay the same.
    wqes: Wqes,
    head: <Q::Layout as Layout>::Head,
    ahead: <Q::Layout as Layout>::Ahead,
}

impl<'q, Q: PostReceives> ReceiveBatch<'q, Q> {
    #[inline]
    pub(in crate::ring) fn new(ring: &'q mut ReceiveRing<Q::Layout>) -> Self {
        let (wqes, head, ahead) = (ring.wqes, ring.layout.head(), ring.layout.ahead());
        Self { ring, wqes, head, ahead }
    }

    /// Writes a receive after those already in the batch, see [`ReceiveQueue::post`].
    ///
    /// # Errors
    /// [`PostError`]; the batch stays as it was, and can still be rung.
    #[inline]
    pub fn append<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        let Self { ring, wqes, head, ahead } = self;
        let parts = (&mut ring.layout, &*wqes, &mut ring.timing);
        // SAFETY: the parts of the queue, this batch's head, and what is ahead of it.
        if unsafe { !ReceiveRing::put_usual(parts, *head, ahead, id, &list) } {
            // `black_box` makes it another list for the compiler, so that only this path needs it
            // in memory.
            let rest = black_box(list);
            // SAFETY: this batch's head.
            *ahead = unsafe { ring.put_any(*head, id, &rest)? };
        }
        *head = Q::Layout::after(*head);
        Ok(())
    }

    /// Returns the number of receives in the batch.
    pub fn len(&self) -> u32 {
        self.ring.layout.len_to(self.head)
    }

    /// Returns whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the batch: one store to the doorbell record.
    ///
    /// # Safety
    /// The HCA may put a message into each receive from now on: until it is retired,
    /// [its memory](crate::ring#the-memory-of-receives) is the HCA's.
    #[inline]
    pub unsafe fn ring(self) {
        if !self.is_empty() {
            self.ring.timing.begin();
            // SAFETY: this function's contract. `append` wrote the receives before `head`.
            unsafe { self.ring.commit(Lent::promised(), self.head, self.ahead) }
        }
    }
}

impl<Q: PostReceives> fmt::Debug for ReceiveBatch<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}
