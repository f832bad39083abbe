//! A batch of requests for a send queue.

use core::fmt;
use core::hint::black_box;

use super::own::Held;
use super::state::Point;
use super::wqes::Last;
use crate::doorbell::Lent;
use crate::ib::{Counter, Rc, Transport};
use crate::ring::{PostError, SendQueue};
use crate::watch::lint::Refusal;
use crate::wqe::PostOn;

/// Requests that are written to the ring and not yet known to the HCA.
///
/// ```no_run
/// # use mlx5::ring::{PostError, SendQueue};
/// # use mlx5::wqe::{Inline, Remote, Sge, RdmaWrite};
/// # fn example(queue: &mut SendQueue, sge: Sge, remote: Remote) -> Result<(), PostError> {
/// let mut batch = queue.batch();
/// batch.append(1, RdmaWrite::new(sge, remote))?;
/// batch.append(2, RdmaWrite::new(Inline(b"done"), remote.offset(4096)).signaled())?;
/// // SAFETY: the memory of `sge` stays registered, and is not written, until a poll returns the
/// // completion of request 2.
/// unsafe { batch.ring() };
/// # Ok(())
/// # }
/// ```
///
/// One doorbell rings them all. Dropping or leaking the batch posts nothing: the next post
/// overwrites its WQEs.
#[doc(alias = "ibv_wr_abort")]
#[must_use = "a batch posts nothing until it is rung"]
pub struct Batch<'q, T: Transport = Rc> {
    pub(in crate::ring) queue: &'q mut SendQueue<T>,
    /// The queue's memory and limits.
    pub(super) own: Held,
    /// The point behind the last request.
    pub(in crate::ring) end: Point,
    pub(in crate::ring) clear: Counter,
    last: Last,
    count: u32,
}

// SAFETY: the addresses in `own` are those of the queue that the batch borrows uniquely, and which
// may be sent.
unsafe impl<T: Transport> Send for Batch<'_, T> {}

impl<'q, T: Transport> Batch<'q, T> {
    #[inline]
    pub(in crate::ring) fn new(queue: &'q mut SendQueue<T>) -> Self {
        let ring = &mut queue.ring;
        // A batch that is not rung leaves it open.
        ring.state.open();
        let (own, end, clear) = (Held::of(ring), ring.end(), ring.state.clear());
        Self { queue, own, end, clear, last: Last::default(), count: 0 }
    }

    /// Writes a request after those already in the batch. `id` comes back with its completion.
    ///
    /// # Errors
    /// [`PostError`]; the batch stays as it was, and can still be rung.
    #[inline]
    pub fn append<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        if self.append_ready(id, &operation) {
            return Ok(());
        }
        // Another one as far as the compiler knows, so that only this path needs it in memory.
        let rest = black_box(operation);
        let silent = self.end.silent;
        self.append_any(id, &rest)?;
        if O::USUAL_DS != 0 && !O::GROWS {
            // A WQE whose usual form has one block has no more in any form. Said to the compiler, so
            // that a loop of these has one register more.
            debug_assert_eq!(self.end.silent, silent);
            self.end.silent = silent;
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn append_ref<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        if self.append_ready(id, operation) {
            return Ok(());
        }
        self.append_any(id, operation)
    }

    /// Appends a request on its fast path, if it fits before the clear head. Returns whether it
    /// did.
    #[inline(always)]
    pub(crate) fn append_ready<O: PostOn<T>>(&mut self, id: u64, operation: &O) -> bool {
        self.queue.ring.doorbell.timing.begin();
        if O::USUAL_DS != 0 && self.is_clear() {
            let ring = &mut self.queue.ring;
            // SAFETY: these are the ring's own.
            let encoded = unsafe { ring.encode_block::<T, O>(self.own, self.end, id, operation) };
            if let Some((last, _)) = encoded {
                self.one_more(self.end.behind(1), last);
                return true;
            }
        }
        if O::LONG_DS != 0 {
            return self.append_long(id, operation);
        }
        O::USUAL_DS == 0 && self.append_sized(id, operation)
    }

    /// Appends a request whose size is not known at compile time, if it fits before the clear head.
    /// Returns whether it did.
    #[inline(always)]
    fn append_sized<O: PostOn<T>>(&mut self, id: u64, operation: &O) -> bool {
        if !self.is_clear() {
            return false;
        }
        let (end, clear) = (self.end, self.clear);
        let encoded = self.queue.ring.encode_sized::<T, O>(end, clear, id, operation);
        let Some((end, last)) = encoded else { return false };
        self.one_more(end, last);
        true
    }

    /// Appends any request.
    #[inline(always)]
    pub(crate) fn append_any<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        let ring = &mut self.queue.ring;
        let (end, last, clear) = ring.encode_any::<T, O>(self.end, id, operation)?;
        self.clear = clear;
        self.one_more(end, last);
        Ok(())
    }

    /// Returns whether one more usual WQE can be written without further checks.
    #[inline(always)]
    fn is_clear(&self) -> bool {
        self.end.at != self.clear
    }

    #[inline(always)]
    pub(super) fn one_more(&mut self, end: Point, last: Last) {
        self.end = end;
        self.last = last;
        self.count += 1;
        self.queue.ring.doorbell.timing.end();
    }

    /// Returns the counter of the next request to append.
    #[inline(always)]
    pub(crate) fn head(&self) -> Counter {
        self.end.at
    }

    /// Returns the counters of blocks that were written and not posted.
    #[inline(always)]
    pub(crate) fn unposted(&self) -> impl Iterator<Item = Counter> + use<T> {
        let head = self.queue.ring.head();
        (0..self.head().since(head)).map(move |ahead| head.plus(ahead))
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.queue.qpn()
    }

    /// Requests in the batch.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Posts the batch: the doorbell record, then the register (`docs/ordering.md`). An empty batch
    /// rings nothing. A batch of one short WQE goes by BlueFlame where the register allows it.
    ///
    /// With the feature `lint`, a batch with a defect is not posted: the defect is printed on
    /// standard error, and the queue's next call that can fail returns it.
    /// [`try_ring`](Self::try_ring) returns it at once.
    ///
    /// # Safety
    /// The HCA works on the requests from now on: until each is retired,
    /// [its memory](crate::ring#the-memory-of-requests) is the HCA's.
    #[doc(alias = "ibv_wr_complete")]
    #[inline]
    pub unsafe fn ring(mut self) {
        // SAFETY: this function's contract.
        if let Err(refusal) = self.commit(unsafe { Lent::promised() }) {
            self.keep(refusal);
        }
    }

    /// Posts the batch like [`ring`](Self::ring), and returns the defect of a request, if any.
    ///
    /// # Errors
    /// `PostError::Refused`, with the feature `lint`. Nothing is posted then, and the requests are
    /// forgotten. Without the feature, no error.
    ///
    /// # Safety
    /// The HCA works on the requests from now on: until each is retired,
    /// [its memory](crate::ring#the-memory-of-requests) is the HCA's.
    #[doc(alias = "ibv_wr_complete")]
    #[inline]
    pub unsafe fn try_ring(mut self) -> Result<(), PostError> {
        // SAFETY: this function's contract.
        Ok(self.commit(unsafe { Lent::promised() })?)
    }

    /// Keeps the reason why nothing was rung for the queue's next call that can fail.
    #[inline(always)]
    pub(crate) fn keep(&mut self, refusal: Refusal) {
        self.queue.ring.guard.keep(refusal);
    }

    /// Rings the batch, or returns why not. Afterwards the batch can only be dropped.
    #[inline(always)]
    pub(crate) fn commit(&mut self, lent: Lent) -> Result<(), Refusal> {
        if self.count != 0 {
            self.queue.ring.doorbell.timing.begin();
            let single = self.count == 1;
            // SAFETY: `append` wrote the WQEs before `end`, and `last` is the last.
            unsafe { self.queue.ring.commit(lent, self.end, &self.last, single)? }
            self.queue.ring.grant(self.clear);
        }
        self.queue.ring.state.close();
        Ok(())
    }
}

impl<T: Transport> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.count).field("queue", self.queue).finish()
    }
}
