//! The receive queue of a queue pair.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::doorbell::RECEIVE_WORD;
use mlx5_sys::verbs::ibv_qp;

use super::core::{Layout, ReceiveRing, Wqes};
use super::in_order::Name as ReceiveName;
use super::{InOrder, ReceiveBatch, ReceiveSide};
use crate::cqe::{CqeRef, QueueKind};
use crate::doorbell::Lent;
use crate::doorbell::Record;
use crate::error::QueueError;
use crate::ib::INTERNAL;
use crate::ring::PostError;
use crate::ring::completion::members::{Membership, Name};
use crate::ring::completion::reader::CqReader;
use crate::ring::completion::slots::Reservation;
use crate::ring::observed::observed;
use crate::ring::source::claims::QueueKeep;
use crate::ring::source::{
    CqId, Foreign, ObjectId, POSTABLE, QpView, QueueOwner, ReceiveSource, ReceiveView, require,
    require_named,
};
use crate::watch::flight::{self, Facts, Queue};
use crate::wqe::SgeList;

/// Configuration of a [`ReceiveQueue`].
///
/// ```
/// # let rig::Link { qp, mut reader, receives, .. } = rig::link()?;
/// # drop(receives);
/// use mlx5::ring::{ReceiveConfig, ReceiveQueue};
///
/// // So many receives are outstanding at most, and so many CQ slots are reserved.
/// let receives = ReceiveQueue::new(&qp, &mut reader, ReceiveConfig { receives: 16 })?;
/// assert_eq!(receives.free(), 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveConfig {
    /// CQ slots to reserve for this queue: the number of receives that may be outstanding, at most
    /// the size of the queue. So many are reserved, or the queue is refused. Default (`u32::MAX`):
    /// the size of the queue, or fewer if the CQ has fewer left, see
    /// [CQ slots](CqReader#cq-slots).
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
///
/// ```
/// # let rig::Link { qp, mut reader, mut sends, receives, memory, .. } = rig::link()?;
/// # drop(receives);
/// use mlx5::ring::{ReceiveConfig, ReceiveQueue};
///
/// // From INIT on, before the peer can send.
/// let mut receives = ReceiveQueue::new(&qp, &mut reader, ReceiveConfig::default())?;
/// let mut batch = receives.batch();
/// for id in 0..8 {
///     batch.append(id, memory.sge(64 * id as usize, 64)?)?;
/// }
/// // SAFETY: the memory stays registered, and nothing uses it before the completions.
/// unsafe { batch.ring() };
/// assert_eq!(receives.outstanding(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_qp")]
pub struct ReceiveQueue {
    // Holds the queue pair, as `owner` does.
    keep: Option<QueueKeep>,
    pub(in crate::ring) owner: Arc<dyn QueueOwner>,
    pub(in crate::ring) ring: ReceiveRing<InOrder>,
    qpn: u32,
    cq_slots: Reservation,
    cq: CqId,
    /// Registers the queue with the reader of that CQ.
    _member: Option<Membership>,
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
    /// QP has no receive queue of its own, it completes on another CQ, the CQ has no free slot to
    /// reserve, or it is for packets ([`PacketRq`](super::PacketRq) takes those);
    /// [`QueueError::IndexTaken`]. Nothing is changed then.
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_QP"))]
    pub fn new<Q: ReceiveSource>(
        qp: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        require_named::<Q::Transport>()?;
        Self::of(qp, completions, config)
    }

    /// Takes over a receive queue that may be one for packets.
    pub(super) fn of<Q: ReceiveSource>(
        qp: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        // Before the claim: a QP without a receive queue of its own has none to claim.
        let view = qp.receives()?;
        let keep = QueueKeep::receive(qp.owner(INTERNAL))?;
        let owner = Arc::clone(keep.owner());
        // SAFETY: the result holds the owner, which keeps QP and CQ alive, and the claim on the
        // receive queue, which keeps other writers away and forbids RESET.
        let mut queue = unsafe { Self::take_over(view, owner, completions, config)? };
        queue.keep = Some(keep);
        Ok(queue)
    }

    /// Starts a batch. Dropping it posts nothing.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn batch(&mut self) -> ReceiveBatch<'_> {
        ReceiveBatch::new(&mut self.ring)
    }

    /// Posts one receive into the memory of `list` ([`Sge`](crate::wqe::Sge), an array or a slice
    /// of them); a message fills one entry after another. `id` comes back with the completion.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA may put a message into the receive from now on: until it is retired,
    /// [its memory](crate::ring#the-memory-of-receives) is the HCA's.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub unsafe fn post<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: this function's contract.
        self.ring.post(unsafe { Lent::promised() }, id, list)
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
    /// completes on another CQ, or the CQ has no free slot to reserve; [`QueueError::IndexTaken`].
    /// Nothing is changed then.
    ///
    /// # Safety
    /// - `qp` stays alive as long as the result, and none of its receives is outstanding. It is not
    ///   a target of dynamic connections, and was not made with `MLX5DV_QP_CREATE_OOO_DP`: receives
    ///   complete in order.
    /// - Until the result is dropped, nothing else posts to the QP's receive queue
    ///   (`ibv_post_recv`, another `ReceiveQueue`), and the QP is not moved to RESET, except for
    ///   [`restart`](Self::restart).
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_QP"))]
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

    /// Takes over the receive queue of a QP for packets.
    ///
    /// # Safety
    /// [`from_raw`](Self::from_raw)'s.
    pub(super) unsafe fn from_raw_packets(
        qp: NonNull<ibv_qp>,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> Result<Self, QueueError> {
        // SAFETY: as in `from_raw`.
        unsafe {
            let view = QpView::new(qp)?.packets()?;
            Self::take_over(view, Foreign::owner(qp), completions, config)
        }
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
        let (name, index) = (Name::Queue(view.number, QueueKind::Receive), view.index);
        completions.check_index(name, index)?;
        let wanted = (config.receives, view.entries);
        let cq_slots =
            completions.reserve(view.number, QueueKind::Receive, wanted, view.partner)?;
        // SAFETY: the view is of a live QP, to whose receive queue nothing else posts.
        let mut queue = unsafe { Self::from_view(view, owner, completions, cq_slots)? };
        queue._member = completions.admit(name, Some(index));
        completions.discard(queue.qpn, QueueKind::Receive);
        Ok(queue)
    }

    /// # Safety
    /// - The view describes a ring that only the result writes, and its record.
    /// - Ring and record live as long as the result. No receive is outstanding.
    pub(in crate::ring) unsafe fn from_view(
        view: ReceiveView,
        owner: Arc<dyn QueueOwner>,
        completions: &CqReader,
        cq_slots: Reservation,
    ) -> Result<Self, QueueError> {
        // SAFETY: by this function's contract, the record lives as long as the result, and only the
        // result posts, so only it writes the receive word.
        let record = unsafe { Record::new(view.record, RECEIVE_WORD) };
        let wqes = Wqes::new(view.buffer, view.stride, InOrder::FIRST)?;
        let start = (record.read(), view.number);
        let layout = InOrder::new(view.entries, cq_slots.entries(), start, &wqes)?;
        let facts = Facts {
            queue: Queue::Receive,
            number: view.number,
            transport: "",
            cqn: completions.cqn(),
            entries: view.entries,
            stride: view.stride,
        };
        let flight = flight::Recorder::new(facts, layout.head());
        // SAFETY: by this function's contract, the ring has the WQEs of the layout, only the result
        // writes ring and record, and both live as long as it. The layout has no receive
        // outstanding.
        let ring = unsafe { ReceiveRing::new(layout, wqes, record, flight) };
        Ok(Self {
            keep: None,
            owner,
            ring,
            qpn: view.number,
            cq_slots,
            cq: completions.id(),
            _member: None,
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
        self.ring.max_sge()
    }

    /// Returns the number of receives that the ring holds.
    pub fn capacity(&self) -> u32 {
        self.ring.layout.capacity()
    }

    /// Returns the number of receives that can still be posted.
    pub fn free(&self) -> u32 {
        self.ring.free()
    }

    /// Returns the number of outstanding receives.
    pub fn outstanding(&self) -> u32 {
        self.ring.layout.used()
    }

    /// Returns which receives are outstanding, for an owner of their memory.
    #[inline(always)]
    pub(crate) fn layout(&self) -> &InOrder {
        &self.ring.layout
    }

    /// Posts a usual receive, if there is known to be room for it, for an owner of its memory.
    /// Returns whether it did.
    #[inline(always)]
    pub(crate) fn post_usual<P: SgeList>(&mut self, lent: Lent, id: u64, list: &P) -> bool {
        self.ring.post_usual(lent, id, list)
    }

    /// Posts any receive, for an owner of its memory.
    #[inline(always)]
    pub(crate) fn post_any<P: SgeList>(
        &mut self,
        lent: Lent,
        id: u64,
        list: &P,
    ) -> Result<(), PostError> {
        self.ring.post_any(lent, id, list)
    }

    /// Returns whether CQEs of the CQ `cq` with the number `qpn` complete its receives.
    #[inline(always)]
    pub(super) fn completes(&self, cq: CqId, qpn: u32) -> bool {
        self.cq == cq && self.qpn == qpn
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
        if self.ring.recorded() != 0 {
            return Err(QueueError::NotReset);
        }
        self.ring.layout.restart();
        self.ring.flight.restart(self.ring.layout.head());
        completions.discard(self.qpn, QueueKind::Receive);
        Ok(())
    }

    /// Retires the oldest receive, and returns its id, if a CQE of the CQ `cq` completes it. The CQE
    /// reports success, and the message is in the receive's memory. `None`, and nothing changes, if
    /// that is not known at once.
    #[inline(always)]
    pub(in crate::ring) fn retire_next(&mut self, cq: CqId, cqe: &CqeRef<'_>) -> Option<u64> {
        if self.cq != cq {
            return None;
        }
        let id = self.ring.layout.retire_next(ReceiveName::of(cqe))?;
        self.ring.flight.cqe(cqe);
        Some(id)
    }

    /// Copies the message of up to 32 bytes that a CQE of the CQ `cq` holds to the memory of the
    /// receive that [`retire_next`](Self::retire_next) would retire. Returns false, and copies
    /// nothing, if that would retire none, or the receive is not one entry that is long enough.
    #[inline(always)]
    pub(in crate::ring) fn deliver_next(&self, cq: CqId, cqe: &CqeRef<'_>) -> bool {
        let slot = self.ring.layout.next(ReceiveName::of(cqe)).filter(|_| self.cq == cq);
        slot.is_some_and(|slot| self.ring.deliver_to(slot, cqe))
    }

    /// Returns this queue's side, by which a poll retires its receives.
    #[inline(always)]
    pub(in crate::ring) fn side(&mut self) -> ReceiveSide<'_> {
        ReceiveSide::Own(self)
    }
}

observed!([] ReceiveQueue, ring);

impl Drop for ReceiveQueue {
    fn drop(&mut self) {
        let idle = self.outstanding() == 0;
        if let Some(keep) = &mut self.keep {
            keep.idle = idle;
        }
        if !idle {
            let destroyed = QueueKeep::destroyed_of(self.keep.as_ref());
            self.cq_slots.keep(self.qpn, QueueKind::Receive, destroyed);
        }
    }
}

impl fmt::Debug for ReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveQueue")
            .field("qpn", &self.qpn)
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}
