//! The receive queue.

use core::fmt;
use core::hint::black_box;
use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::doorbell::RECEIVE_WORD;
use mlx5_sys::verbs::ibv_qp;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::completion::CqReader;
use super::credit::Credit;
use super::cursor::Cursor;
use super::keep::QueueKeep;
use super::known::{Membership, Name};
use super::receive_batch::{Ahead, ReceiveBatch};
use super::source::{
    CqId, Foreign, ObjectId, POSTABLE, QpView, QueueOwner, ReceiveSource, ReceiveView, require,
};
use super::srq::SharedSide;
use super::{PostError, scatter};
use crate::cqe::{
    Completion, CqeRef, Failure, QueueKind, ReceiveDone, ReceiveKind, Status, UnexpectedCqe,
    UnexpectedCqeReason,
};
use crate::doorbell::Record;
use crate::error::QueueError;
use crate::ib::{Counter, Shape};
use crate::watch::flight::{self, DoorbellKind, Facts, Queue};
use crate::watch::timing::{Phase, Recorder};
use crate::wqe::SgeList;

/// Configuration of a [`ReceiveQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveConfig {
    /// CQ slots to reserve for this queue: the number of receives that may be outstanding. Default
    /// and maximum: the size of the queue. If the CQ has fewer slots left, fewer are reserved.
    pub receives: u32,
}

impl Default for ReceiveConfig {
    fn default() -> Self {
        Self { receives: u32::MAX }
    }
}

/// A receive queue. It writes WQEs to the ring directly, without libibverbs.
///
/// Created by [`new`](Self::new) or [`from_raw`](Self::from_raw) from a QP in INIT or later. To
/// post, fill a [`ReceiveBatch`] and hand it over, or call [`post`](Self::post), which does both
/// for one receive. A post stores the WQE and one word to the doorbell record. It rings no
/// register: the HCA reads the record when a message needs a receive.
pub struct ReceiveQueue {
    // Holds the queue pair, as `owner` does. The safe layer keeps the memory of receives in a field
    // behind this queue, so that it is dropped after the queue pair was released.
    keep: Option<QueueKeep>,
    pub(super) owner: Arc<dyn QueueOwner>,
    pub(crate) cursor: Cursor,
    pub(super) buffer: NonNull<u8>,
    pub(super) stride: usize,
    record: Record,
    qpn: u32,
    pub(super) max_sge: u32,
    pub(super) ahead: Ahead,
    /// Software's record of posted receives, by slot.
    pub(super) shadow: Box<[Place]>,
    /// Distance from the ring's address to the shadow's. If the stride is the size of a [`Place`],
    /// it is also the distance from each WQE to its place.
    pub(super) to_shadow: usize,
    pub(super) credit: Credit,
    cq: CqId,
    /// Registers the queue with the reader of that CQ.
    _member: Option<Membership>,
    pub(super) timing: Recorder,
    pub(super) flight: flight::Recorder,
}

/// Software's record of a posted receive, in memory that the HCA cannot reach. It has the size of a
/// WQE of one entry, so that one addition converts between their addresses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub(super) id: u64,
    _unused: u64,
}

/// Parts of a receive queue.
pub(super) struct ReceiveParts {
    pub(super) buffer: NonNull<u8>,
    pub(super) entries: u32,
    pub(super) stride: u32,
    pub(super) record: Record,
    pub(super) qpn: u32,
    pub(super) credit: Credit,
    pub(super) cq: CqId,
    pub(super) owner: Arc<dyn QueueOwner>,
}

// SAFETY: only the queue reaches ring and record (`from_raw`'s contract), through `&mut self`. The
// HCA accepts stores from any thread.
unsafe impl Send for ReceiveQueue {}

impl ReceiveQueue {
    /// Takes over the receive queue of a queue pair that completes on `completions`.
    ///
    /// The result keeps the pair alive. The pair cannot be reset until the result is dropped.
    /// Dropping the result with receives outstanding leaves the receive queue unusable until the
    /// pair is reset. Its CQ slots then stay reserved until the receive queue is taken over again
    /// or the pair is destroyed.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// QP has no receive queue of its own, it completes on another CQ, or the CQ has no free slot
    /// to reserve. Nothing is changed then.
    pub fn new<Q: ReceiveSource>(
        qp: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        // Before the claim: a QP without a receive queue of its own has none to claim.
        let view = qp.receives()?;
        let keep = QueueKeep::receive(qp.owner())?;
        let owner = Arc::clone(keep.owner());
        // SAFETY: the result holds the owner, which keeps QP and CQ alive, and the claim on the
        // receive queue, which keeps other writers away and forbids RESET.
        let mut queue = unsafe { Self::take_over(view, owner, completions, config)? };
        queue.keep = Some(keep);
        Ok(queue)
    }

    /// Takes over the receive queue of a QP in INIT or later that completes on `completions`.
    ///
    /// Its next WQE goes to the index in the doorbell record. So a QP that has received before can
    /// be taken over once no receive is outstanding. CQEs of the QP's receives that are still in
    /// the CQ are dropped: they are from before a RESET. Dropping the result with receives
    /// outstanding leaves its CQ slots reserved until the QP is taken over again.
    ///
    /// # Errors
    /// [`QueueError`]: the QP is not of libmlx5, is in RESET, has no receive queue of its own, or
    /// completes on another CQ, or the CQ has no free slot to reserve. Nothing is changed then.
    ///
    /// # Safety
    /// - `qp` stays alive as long as the result, and none of its receives is outstanding. It is not
    ///   a target of dynamic connections, and was not made with `MLX5DV_QP_CREATE_OOO_DP`: receives
    ///   complete in order.
    /// - Until the result is dropped, nothing else posts to the QP's receive queue
    ///   (`ibv_post_recv`, another `ReceiveQueue`), and the QP is not moved to RESET, except for
    ///   [`restart`](Self::restart).
    pub unsafe fn from_raw(
        qp: NonNull<ibv_qp>,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> Result<Self, QueueError> {
        // SAFETY: the caller keeps the QP alive as long as the result, which holds the owner.
        let (view, owner) = unsafe { (QpView::new(qp)?.receives()?, Foreign::owner(qp)) };
        // SAFETY: the view is of the caller's QP. By this function's contract, the QP has no
        // receive outstanding and nothing else posts to it.
        unsafe { Self::take_over(view, owner, completions, config) }
    }

    /// # Safety
    /// - `view` is of a QP in INIT or later that `owner` keeps alive, with no receive outstanding,
    ///   whose receives complete in order.
    /// - Until the result is dropped, nothing else posts to the receive queue, and the QP is not
    ///   moved to RESET, except for [`restart`](Self::restart).
    unsafe fn take_over(
        view: ReceiveView,
        owner: Arc<dyn QueueOwner>,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> Result<Self, QueueError> {
        if !completions.reads(view.cq) {
            return Err(QueueError::CqMismatch);
        }
        // SAFETY: the record of a live QP. Only this queue posts, so only it writes the receive
        // word.
        let record = unsafe { Record::new(view.record, RECEIVE_WORD) };
        let wanted = config.receives.min(view.entries);
        let parts = ReceiveParts {
            buffer: view.buffer,
            entries: view.entries,
            stride: view.stride,
            record,
            qpn: view.number,
            credit: completions.reserve(view.number, QueueKind::Receive, wanted)?,
            cq: completions.id(),
            owner,
        };
        // SAFETY: ring and record are the live QP's, and nothing else posts to it.
        let mut queue = unsafe { Self::from_parts(parts)? };
        queue.flight.completes_on(completions.cqn());
        queue._member = completions.admit(Name::Queue(queue.qpn, QueueKind::Receive));
        completions.discard(queue.qpn, QueueKind::Receive);
        Ok(queue)
    }

    /// # Safety
    /// - `buffer` is a ring of `entries` WQEs of `stride` bytes that only the result writes.
    /// - The record belongs to the result.
    /// - Ring and record live as long as the result.
    pub(super) unsafe fn from_parts(parts: ReceiveParts) -> Result<Self, QueueError> {
        let Some(shape) = Shape::new(parts.entries).filter(|shape| shape.entries() <= 1 << 15)
        else {
            return Err(QueueError::Geometry("the receive queue's size is not a power of two"));
        };
        let stride = parts.stride as usize;
        if stride == 0 || stride % SEGMENT_SIZE != 0 {
            return Err(QueueError::Geometry("the receive queue's stride is not segments"));
        }
        let start = Counter::new(parts.record.read() & 0xffff);
        let mut shadow: Box<[Place]> = vec![Place::default(); shape.entries() as usize].into();
        let facts = Facts {
            queue: Queue::Receive,
            number: parts.qpn,
            transport: "",
            cqn: 0,
            entries: parts.entries,
            stride: parts.stride,
        };
        let to_shadow = shadow.as_mut_ptr().addr().wrapping_sub(parts.buffer.addr().get());
        Ok(Self {
            cursor: Cursor::new(shape, start),
            buffer: parts.buffer,
            stride,
            record: parts.record,
            qpn: parts.qpn,
            max_sge: (stride / SEGMENT_SIZE) as u32,
            ahead: Ahead::NOTHING,
            shadow,
            to_shadow,
            credit: parts.credit,
            cq: parts.cq,
            owner: parts.owner,
            keep: None,
            _member: None,
            timing: Recorder::new(),
            flight: flight::Recorder::new(facts, start),
        })
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Returns whether it is the receive queue of the queue pair `qp`.
    pub(crate) fn is_of(&self, qp: ObjectId) -> bool {
        self.owner.id() == qp
    }

    /// Returns whether its CQEs arrive at the CQ of `completions`.
    pub(crate) fn completes_on(&self, completions: &CqReader) -> bool {
        self.cq == completions.id()
    }

    /// Returns the maximum number of entries of a receive.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Returns the number of receives that the ring holds.
    pub fn capacity(&self) -> u32 {
        self.cursor.shape().entries()
    }

    /// Returns the number of receives that can still be posted.
    pub fn free(&self) -> u32 {
        self.cursor.free_from(self.cursor.head()).min(self.credit.entries() - self.cursor.used())
    }

    /// Returns the number of outstanding receives.
    pub fn outstanding(&self) -> u32 {
        self.cursor.used()
    }

    /// Returns the ids of the outstanding receives, oldest first.
    pub(crate) fn outstanding_ids(&self) -> impl Iterator<Item = u64> {
        let id = |ahead| self.shadow[self.cursor.shape().slot(self.cursor.tail().plus(ahead))].id;
        (0..self.cursor.used()).map(id)
    }

    /// Starts a batch. Dropping it posts nothing.
    #[inline]
    pub fn batch(&mut self) -> ReceiveBatch<'_> {
        ReceiveBatch::new(self)
    }

    /// Posts one receive into the memory of `list` ([`Sge`](crate::wqe::Sge), an array or a slice
    /// of them); a message fills one entry after another. `id` comes back with the completion.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA may put a message into the receive from now on. Until a poll returns its completion,
    /// or the QP has been moved to RESET or destroyed:
    /// - The memory of its entries stays allocated, and registered for local write under the `lkey`
    ///   given.
    /// - Nothing reads, writes or holds a reference to that memory.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code do), the memory is mapped, writable, in
    ///   this process at the address in each entry.
    #[inline]
    pub unsafe fn post<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: the contract of this function covers the memory of the receive.
        if unsafe { self.post_usual(id, &list) } {
            return Ok(());
        }
        // `black_box` makes it another list for the compiler, so that only this path needs it in
        // memory.
        let rest = black_box(list);
        // SAFETY: the contract of this function covers the memory of the receive.
        unsafe { self.post_any(id, &rest) }
    }

    /// Posts a usual receive, if there is known to be room for it. Returns whether it did.
    ///
    /// # Safety
    /// Until the receive is retired, the memory that it names stays registered for local write, and
    /// nothing else uses it.
    #[inline(always)]
    pub(crate) unsafe fn post_usual<L: SgeList>(&mut self, id: u64, list: &L) -> bool {
        let head = self.cursor.head();
        // SAFETY: `self.ahead` is always of the queue's own head.
        let put = unsafe { self.put_usual(head, self.ahead, id, list) };
        let Some(next) = put else { return false };
        self.ahead.next = next;
        // SAFETY: `put_usual` wrote the receive at the head. The contract of this function covers
        // its memory.
        unsafe { self.commit(head.plus(1)) };
        true
    }

    /// Restarts the queue after the QP went through RESET to INIT or later. Indices start at zero.
    /// Outstanding receives are forgotten, and their CQEs that are still in the CQ are dropped.
    /// Call it before the peer sends again: otherwise CQEs of its first messages are dropped, too.
    ///
    /// # Errors
    /// [`QueueError::WrongState`] if the QP is in RESET, [`QueueError::NotReset`] if it was not
    /// reset since the last post, [`QueueError::CqMismatch`]; nothing is changed then.
    ///
    /// # Safety
    /// - All receives of the QP were posted by this queue: nothing else posts to its receive queue.
    /// - No receive was posted since the QP was reset.
    pub unsafe fn restart(&mut self, completions: &mut CqReader) -> Result<(), QueueError> {
        require(self.owner.state()?, &POSTABLE, "INIT or later")?;
        if completions.id() != self.cq {
            return Err(QueueError::CqMismatch);
        }
        // libmlx5 clears the record on the way through RESET.
        if self.record.read() != 0 {
            return Err(QueueError::NotReset);
        }
        self.cursor = Cursor::new(self.cursor.shape(), Counter::default());
        self.ahead = Ahead::NOTHING;
        self.flight.restart(self.cursor.head());
        completions.discard(self.qpn, QueueKind::Receive);
        Ok(())
    }

    /// Returns how long the phases of this queue's posts took so far.
    #[cfg(feature = "timing")]
    pub fn timing(&self) -> crate::watch::timing::Report {
        self.timing.report()
    }

    /// Clears the times recorded so far.
    #[cfg(feature = "timing")]
    pub fn clear_timing(&mut self) {
        self.timing.clear();
    }

    /// Returns the last events of this queue, up to its last failure, if there was one. See
    /// [`flight`](crate::watch::flight). Allocates. The first call in a process takes 10 ms.
    #[cfg(feature = "flight-recorder")]
    pub fn flight_record(&self) -> mlx5_diag::flight::Record {
        self.flight.record()
    }

    /// Clears the recorded events, and the failure.
    #[cfg(feature = "flight-recorder")]
    pub fn clear_flight(&mut self) {
        self.flight.clear();
    }

    /// Clears the recorded events, and applies `config` from now on. Allocates.
    #[cfg(feature = "flight-recorder")]
    pub fn set_flight(&mut self, config: crate::watch::flight::Config) {
        self.flight.configure(config);
    }

    /// Returns this queue's side for [`Queues`](super::Queues), with which a poll retires its
    /// receives.
    #[inline(always)]
    pub fn side(&mut self) -> ReceiveSide<'_> {
        ReceiveSide { of: Of::Own(self) }
    }

    /// Publishes the producer index `head` to the HCA.
    ///
    /// # Safety
    /// - Until each receive is retired, the memory that it names stays registered for local write,
    ///   and nothing else uses it.
    /// - The receives before `head` were written.
    #[inline(always)]
    pub(super) unsafe fn commit(&mut self, head: Counter) {
        let before = self.cursor.head();
        self.cursor.publish(head);
        self.record.publish(u32::from(head.low16()));
        self.timing.stamp(Phase::Record);
        if flight::Recorder::ON {
            self.record_flight(before, head);
        }
    }

    /// Records the receives from `before` to `head`, and the store to the doorbell record.
    #[cold]
    #[inline(never)]
    fn record_flight(&mut self, before: Counter, head: Counter) {
        for ahead in 0..head.since(before) {
            let at = before.plus(ahead);
            let wqe = self.wqe(self.cursor.shape().slot(at));
            // SAFETY: a WQE of the ring, of whole segments, which only this queue writes.
            unsafe { self.flight.receive(wqe, self.stride, at.low16()) }
        }
        self.flight.rang(DoorbellKind::RecordOnly, head.low16().into(), None);
    }

    #[inline(always)]
    pub(super) fn wqe(&self, slot: usize) -> *mut u8 {
        // SAFETY: the ring has `entries` WQEs of `stride` bytes, and callers give a slot of its
        // shape.
        unsafe { self.buffer.as_ptr().add(slot * self.stride) }
    }

    /// Copies a message that came in the CQE to the memory that the receive names.
    #[cold]
    fn scatter(&self, slot: usize, cqe: &CqeRef<'_>) -> bool {
        let Some(data) = cqe.inline_data(cqe.byte_count()) else { return false };
        let segments = (0..self.max_sge as usize).map(|unit| {
            // SAFETY: a segment of this WQE.
            unsafe { scatter::Segment::read(self.wqe(slot).add(unit * SEGMENT_SIZE)) }
        });
        // SAFETY: if the QP puts payload into CQEs, the contract of posting guarantees that the
        // entries' memory is mapped at their addresses and unused until this completion is
        // reported.
        unsafe { scatter::scatter(data.bytes(), segments) }
    }
}

impl Drop for ReceiveQueue {
    fn drop(&mut self) {
        let idle = self.cursor.used() == 0;
        if let Some(keep) = &mut self.keep {
            keep.idle = idle;
        }
        if !idle {
            let destroyed = QueueKeep::destroyed_of(self.keep.as_ref());
            self.credit.owe(self.qpn, QueueKind::Receive, destroyed);
        }
    }
}

impl fmt::Debug for ReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveQueue")
            .field("qpn", &self.qpn)
            .field("cursor", &self.cursor)
            .field("max_sge", &self.max_sge)
            .finish_non_exhaustive()
    }
}

/// A receive queue as a poll sees it, see [`Queues`](super::Queues): one of a queue pair's own, or
/// a [shared](super::SharedReceives) one.
pub struct ReceiveSide<'a> {
    of: Of<'a>,
}

enum Of<'a> {
    Own(&'a mut ReceiveQueue),
    Shared(SharedSide<'a>),
}

impl<'a> ReceiveSide<'a> {
    #[inline(always)]
    pub(super) fn shared(side: SharedSide<'a>) -> Self {
        Self { of: Of::Shared(side) }
    }

    /// Retires the receive that a CQE of the CQ `cq` and the queue pair `qpn` completes, and
    /// returns its id. The CQE reports success and holds no data.
    ///
    /// The receive must be the one that the CQE names. Unless the queue is shared, this is the
    /// oldest one. `None`, and nothing changes, if the CQE names another receive or another queue.
    #[inline(always)]
    pub(super) fn retire_plain(&mut self, cq: CqId, qpn: u32, cqe: &CqeRef<'_>) -> Option<u64> {
        let id = match &mut self.of {
            Of::Own(queue) => queue.retire_plain(cq, qpn, cqe),
            Of::Shared(side) => side.retire_plain(cq, qpn, cqe),
        }?;
        self.flight().cqe(cqe);
        Some(id)
    }

    /// Retires a receive like [`retire_plain`](Self::retire_plain), also if the CQE holds a message
    /// of up to 32 bytes. The message is copied to the receive's memory, which must be one entry
    /// that is long enough.
    #[inline(always)]
    pub(super) fn retire_short(&mut self, cq: CqId, qpn: u32, cqe: &CqeRef<'_>) -> Option<u64> {
        let id = match &mut self.of {
            Of::Own(queue) => queue.retire_short(cq, qpn, cqe),
            Of::Shared(side) => side.retire_short(cq, qpn, cqe),
        }?;
        self.flight().cqe(cqe);
        Some(id)
    }

    #[inline(always)]
    fn flight(&mut self) -> &mut flight::Recorder {
        match &mut self.of {
            Of::Own(queue) => &mut queue.flight,
            Of::Shared(side) => &mut side.queue.flight,
        }
    }

    /// Returns the completion for a responder's CQE of the CQ `cq`. Nothing is retired if it is
    /// unexpected.
    pub(super) fn complete(self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let kind = ReceiveKind::decode(cqe);
        if kind.is_none() && cqe.opcode() != cqe_opcode::RESP_ERR {
            return Completion::UnexpectedCqe(UnexpectedCqe::new(
                UnexpectedCqeReason::UnknownOpcode,
                cqe,
            ));
        }
        let taken = match self.of {
            Of::Own(queue) => queue.take(cq, cqe),
            Of::Shared(side) => side.take(cq, cqe),
        };
        let (id, fits) = match taken {
            Ok(taken) => taken,
            Err(reason) => return Completion::UnexpectedCqe(UnexpectedCqe::new(reason, cqe)),
        };
        let failure = |status, vendor_error| {
            Completion::Failed(Failure {
                id,
                qpn: cqe.qpn(),
                queue: QueueKind::Receive,
                status,
                vendor_error,
                wqe_index: cqe.wqe_counter(),
                opcode: 0,
            })
        };
        match kind {
            None => failure(Status::from_syndrome(cqe.syndrome()), cqe.vendor_syndrome()),
            Some(_) if !fits => failure(Status::LocalLength, 0),
            Some(kind) => Completion::Receive(ReceiveDone::decode(id, cqe.qpn(), cqe, kind)),
        }
    }
}

impl ReceiveQueue {
    /// See [`ReceiveSide::retire_plain`].
    #[inline(always)]
    fn retire_plain(&mut self, cq: CqId, qpn: u32, cqe: &CqeRef<'_>) -> Option<u64> {
        let tail = self.cursor.tail();
        if self.cq != cq
            || self.qpn != qpn
            || self.cursor.used() == 0
            || tail.low16() != cqe.wqe_counter()
        {
            return None;
        }
        self.cursor.retire_known(tail.plus(1));
        let slot = self.cursor.shape().slot(tail);
        // SAFETY: a slot is less than the number of entries, which is the shadow's length.
        Some(unsafe { self.shadow.get_unchecked(slot) }.id)
    }

    /// Retires the receive that a CQE of the CQ `cq` names, which is the oldest one. The CQE may
    /// name any queue pair. Returns the counter and the slot of the receive.
    pub(super) fn retire_named(
        &mut self,
        cq: CqId,
        cqe: &CqeRef<'_>,
    ) -> Result<(Counter, usize), UnexpectedCqeReason> {
        if self.cq != cq {
            return Err(UnexpectedCqeReason::UnknownQueue);
        }
        let (tail, named) = (self.cursor.tail(), cqe.wqe_counter());
        if self.cursor.used() == 0 {
            return Err(UnexpectedCqeReason::NotOutstanding);
        }
        if tail.low16() != named {
            return Err(UnexpectedCqeReason::NotOldest { oldest: tail.low16(), named });
        }
        self.cursor.retire_known(tail.plus(1));
        Ok((tail, self.cursor.shape().slot(tail)))
    }

    /// See [`ReceiveSide::retire_short`].
    #[inline(always)]
    fn retire_short(&mut self, cq: CqId, qpn: u32, cqe: &CqeRef<'_>) -> Option<u64> {
        if cqe.has_inline_data() {
            let tail = self.cursor.tail();
            let outstanding = self.cursor.used() != 0 && tail.low16() == cqe.wqe_counter();
            if self.cq != cq || self.qpn != qpn || !outstanding {
                return None;
            }
            let wqe = self.wqe(self.cursor.shape().slot(tail));
            // SAFETY: the first segment of this WQE.
            let segment = unsafe { scatter::Segment::read(wqe) };
            let (bytes, length) = cqe.short_data()?;
            // SAFETY: if the QP puts payload into CQEs, the contract of posting guarantees that the
            // entry's memory is mapped at its address and unused until this completion is reported.
            // `short_data` gives 32 bytes at most.
            if !unsafe { segment.put_short(&bytes, length) } {
                return None;
            }
        }
        self.retire_plain(cq, qpn, cqe)
    }

    /// Records what a CQE says of the receive at `at`, and the receive's WQE, if it failed.
    pub(super) fn note(&mut self, slot: usize, at: Counter, cqe: &CqeRef<'_>) {
        if flight::Recorder::ON && cqe.opcode() == cqe_opcode::RESP_ERR {
            let wqe = self.wqe(slot);
            // SAFETY: a WQE of the ring, of whole segments, which only this queue writes.
            unsafe { self.flight.found_receive(wqe, self.stride, at.low16()) }
        }
        self.flight.cqe(cqe);
    }

    /// Retires the receive that any responder's CQE completes. Returns the id, and whether a
    /// message in the CQE was copied to the memory that the receive names.
    fn take(&mut self, cq: CqId, cqe: &CqeRef<'_>) -> Result<(u64, bool), UnexpectedCqeReason> {
        if cqe.qpn() != self.qpn {
            return Err(UnexpectedCqeReason::UnknownQueue);
        }
        let (tail, slot) = self.retire_named(cq, cqe)?;
        // SAFETY: a slot is less than the number of entries, which is the shadow's length.
        let id = unsafe { self.shadow.get_unchecked(slot) }.id;
        self.note(slot, tail, cqe);
        let inside = cqe.opcode() != cqe_opcode::RESP_ERR && cqe.has_inline_data();
        Ok((id, !inside || self.scatter(slot, cqe)))
    }
}
