//! The shared receive queue.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mlx5_sys::verbs::ibv_srq;

use super::index;
use super::numbers::Numbers;
use crate::cqe::{Completion, CqeRef};
use crate::doorbell::Lent;
use crate::doorbell::Record;
use crate::error::QueueError;
use crate::ib::{Counter, INTERNAL};
use crate::ring::completion::members::{Membership, Name};
use crate::ring::completion::reader::CqReader;
use crate::ring::completion::slots::{Demand, Reservation, SharedId};
use crate::ring::observed::observed;
use crate::ring::receive::core::{Layout, ReceiveRing, Wqes};
use crate::ring::receive::{AnyOrder, Member, Taking};
use crate::ring::source::claims::{QueueKeep, SrqKeep};
use crate::ring::source::{CqId, ObjectId, SharedView, UserIndex};
use crate::ring::{PostError, ReceiveBatch, ReceiveConfig, ReceiveSide, SharedReceiveSource};
use crate::watch::flight::{self, Facts, Queue};
use crate::wqe::SgeList;

/// A shared receive queue. It writes WQEs directly, without libibverbs.
///
/// Created by [`new`](Self::new) or [`from_raw`](Self::from_raw). Queue pairs that take receives
/// from it are [attached](Self::attach), so that polls find the queue by their numbers. To post,
/// fill a [`ReceiveBatch`] and ring it, or call [`post`](Self::post), which does both
/// for one receive. A post stores the WQE, with the index of its successor, and one word to the
/// doorbell record. It rings no register. A poll of a completion does not touch the queue's memory.
///
/// With on-demand paging (ODP), an HCA may abort a receive whose page is not present. The receive
/// completes with [`Status::RemoteAborted`](crate::cqe::Status::RemoteAborted) and vendor syndrome
/// 0x93. Its queue pair continues, and the message comes again. libmlx5 posts such a receive again
/// by itself. With this queue the program does so, after it has faulted the pages in.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # use mlx5::connect::LocalPort;
/// # use mlx5::ib::Access;
/// use mlx5::ring::{CqReader, ReceiveConfig, Srq};
/// use mlx5::verbs::{QueuePair, SharedReceiveQueue};
///
/// # let local = LocalPort::new(&context, 1, None)?;
/// # let memory = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let srq = SharedReceiveQueue::builder(&pd).max_wr(64).build()?;
/// let mut reader = CqReader::new(&cq)?;
/// let mut receives = Srq::new(&srq, &mut reader, ReceiveConfig::default())?;
/// for _ in 0..2 {
///     let qp = QueuePair::builder(&pd, &cq).shared_receive_queue(&srq).build()?;
///     receives.attach(&qp.init(&local.init())?, &mut reader)?;
/// }
/// // SAFETY: the memory stays registered, and nothing uses it before the completion.
/// unsafe { receives.post(1, memory.sge(0, 4096)?)? };
/// assert_eq!((receives.attached().count(), receives.outstanding()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_srq")]
#[repr(align(64))]
pub struct Srq {
    pub(in crate::ring) ring: ReceiveRing<AnyOrder>,
    /// The CQ that the queue was taken over with. [`CqId::NONE`] for a cyclic queue.
    cq: CqId,
    /// Numbers of the queue pairs that take from it.
    pub(super) members: Numbers,
    /// How CQEs name it, if it is one of an XRC domain.
    pub(in crate::ring) index: Option<UserIndex>,
    /// Every CQ that it completes on, with the slots reserved there.
    pub(super) slots: Vec<(CqId, Reservation)>,
    /// The attached queue pairs.
    pub(super) attached: Vec<Attached>,
    pub(super) detached: Box<AllDetached>,
    /// Ids of receives whose completions were dropped together with their queue pair.
    pub(super) reclaimed: Vec<u64>,
    pub(super) id: ObjectId,
    /// Registers the queue with the reader of its CQ by its index, if it is one of an XRC domain.
    _member: Option<Membership>,
    keep: Option<Box<SrqKeep>>,
}

/// A table finds one of its queues by a shift, as the size is a power of two.
#[cfg(all(target_pointer_width = "64", not(any(feature = "timing", feature = "flight-recorder"))))]
const _: () = assert!(size_of::<Option<Srq>>() == 256);

/// A queue pair that takes from the queue.
pub(super) struct Attached {
    pub(super) qpn: u32,
    pub(super) cq: CqId,
    pub(super) keep: Option<QueueKeep>,
    /// Registers the queue pair with the reader of that CQ.
    pub(super) _member: Option<Membership>,
}

/// Queue pairs that were detached while receives were outstanding.
pub(super) struct AllDetached {
    /// The id by which CQs know the queue that the pairs belonged to.
    pub(super) of: SharedId,
    pub(super) queue_pairs: Vec<Detached>,
}

/// A detached queue pair. All CQEs of its receives that have come since belong to this queue, as
/// long as the queue pair exists. Later, another queue pair may have its number.
pub(super) struct Detached {
    pub(super) qpn: u32,
    pub(super) cq: CqId,
    /// Set when the queue pair is destroyed. Each queue pair has its own flag, which identifies it.
    pub(super) life: Arc<AtomicBool>,
}

// SAFETY: only the queue reaches the list's memory (`from_raw`'s contract), and the HCA accepts
// stores from any thread.
unsafe impl Send for Srq {}

impl Srq {
    /// Takes over a shared receive queue whose receives complete on `completions`, and keeps it
    /// alive.
    ///
    /// A queue of an XRC domain completes on that CQ itself. For any other queue, the queue pairs
    /// that will be [attached](Self::attach) do. The queue can be taken over again after the result
    /// was dropped, if no receive was outstanding then: a shared receive queue cannot be reset.
    /// Otherwise its CQ slots stay reserved until it is destroyed.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): an
    /// error of [`from_raw`](Self::from_raw), or the queue is of an XRC domain and completes on
    /// another CQ. Nothing is changed then.
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_SRQ"))]
    pub fn new<Q: SharedReceiveSource>(
        srq: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        Self::of_view(srq, completions, config, |view| match view.index {
            Some(UserIndex::Tagged(_)) => Err(QueueError::Tagged),
            _ => Ok(view),
        })
    }

    /// Starts a batch. Dropping it posts nothing.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn batch(&mut self) -> ReceiveBatch<'_, Self> {
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
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub unsafe fn post<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: this function's contract.
        self.ring.post(unsafe { Lent::promised() }, id, list)
    }

    /// Takes over a tag-matching queue, see [`new`](Self::new). Its name is left to its owner.
    pub(in crate::ring) fn of_tagged<Q: SharedReceiveSource>(
        srq: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        Self::of_view(srq, completions, config, |view| Ok(SharedView { index: None, ..view }))
    }

    fn of_view<Q: SharedReceiveSource>(
        srq: &Q,
        completions: &mut CqReader,
        config: ReceiveConfig,
        look: impl FnOnce(SharedView) -> Result<SharedView, QueueError>,
    ) -> crate::error::Result<Self> {
        let (mut keep, order) = SrqKeep::new(srq.owner(INTERNAL))?;
        // SAFETY: the keep has claimed the queue of its owner.
        let view = unsafe { srq.shared(order.clone()) };
        let queue = view.and_then(|view| {
            // SAFETY: the keep holds the owner, which keeps the queue alive, and the claim on it,
            // which keeps other writers away. The view is of that queue.
            Ok(unsafe { Self::take_over(look(view)?, completions, config)? })
        });
        match queue {
            Ok(mut queue) => {
                queue.keep = Some(Box::new(keep));
                Ok(queue)
            }
            Err(error) => {
                keep.give_up(order);
                Err(error)
            }
        }
    }

    /// Takes over a shared receive queue. Its list of WQEs continues where libmlx5 left it.
    /// Dropping the result with receives outstanding leaves its CQ slots reserved as long as the
    /// reader lives.
    ///
    /// # Errors
    /// [`QueueError`]: the SRQ is not of libmlx5, has receives outstanding or an impossible
    /// geometry, or the CQ has no free slot to reserve; [`QueueError::UnknownIndex`],
    /// [`QueueError::IndexTaken`]. Nothing is changed then.
    ///
    /// # Safety
    /// - `srq` stays alive as long as the result.
    /// - `xrc` says whether it is one of an XRC domain. If so, it completes on `completions`.
    /// - None of its receives is outstanding. No former direct owner has posted to it.
    /// - Until the result is dropped, nothing else posts to it (`ibv_post_srq_recv`, another
    ///   `Srq`).
    /// - If it is one of an XRC domain, nothing else posts to other such queues that complete on
    ///   the same CQ.
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_SRQ"))]
    pub unsafe fn from_raw(
        srq: NonNull<ibv_srq>,
        xrc: bool,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> Result<Self, QueueError> {
        // SAFETY: the caller keeps the SRQ alive, with no receive outstanding, and lets nothing
        // else post to it, so nothing writes its list.
        unsafe { Self::take_over(index::view_of(srq, xrc, None)?, completions, config) }
    }

    /// # Safety
    /// - Until the result is dropped, the SRQ that the view was taken of stays alive, and nothing
    ///   else posts to it.
    /// - None of its receives is outstanding, and the HCA takes its WQEs in the view's order.
    /// - If it is of an XRC domain, nothing else posts to other such queues that complete on the
    ///   same CQ.
    unsafe fn take_over(
        view: SharedView,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> Result<Self, QueueError> {
        if view.cq.is_some_and(|cq| !completions.reads(cq)) {
            return Err(QueueError::CqMismatch);
        }
        let (index, origin) = (view.index, view.origin);
        if let Some(index) = index {
            completions.check_index(Name::Index(index), origin)?;
            if !completions.meets_xrc(index) {
                return Err(QueueError::UnknownIndex);
            }
        }
        if let Some(UserIndex::Known(index)) = index {
            completions.begin_index(index);
        }
        let demand = Demand::of(config.receives, view.order.len() as u32 - 1, 0);
        let cq_slots = completions.reserve_shared(demand)?;
        // SAFETY: the view describes the memory of the SRQ, which the caller keeps alive and lets
        // nothing else post to. None of its receives is outstanding.
        let mut queue = unsafe { Self::from_view(view, completions, cq_slots)? };
        queue._member = index.and_then(|index| completions.admit(Name::Index(index), Some(origin)));
        Ok(queue)
    }

    /// # Safety
    /// - The view describes memory of WQEs that only the result writes, and their record.
    /// - Memory and record live as long as the result.
    /// - No WQE is outstanding, and the HCA takes the WQEs in the view's order.
    pub(in crate::ring) unsafe fn from_view(
        view: SharedView,
        completions: &CqReader,
        cq_slots: Reservation,
    ) -> Result<Self, QueueError> {
        if !view.stride.is_power_of_two() || view.stride > 1 << 16 {
            return Err(QueueError::Geometry(
                "the shared receive queue's stride is none of a list",
            ));
        }
        if !view.wqes.is_power_of_two() || view.wqes > 1 << 16 {
            return Err(QueueError::Geometry("the shared receive queue's size is no power of two"));
        }
        // SAFETY: by this function's contract, the record, which has one word, lives as long as the
        // result, and only the result posts, so only it writes the record.
        let record = unsafe { Record::new(view.record, 0) };
        let (cq, taking) = match view.cyclic {
            false => (completions.id(), Taking::Linked),
            // Makes the fast path of a poll leave cyclic queues to the slow path.
            true => (CqId::NONE, Taking::Cyclic),
        };
        let wqes = Wqes::new(view.buffer, view.stride, AnyOrder::FIRST)?;
        let start = record.read() as u16;
        let layout = AnyOrder::new(view.order, view.wqes as usize, start, taking);
        let Some(mut layout) = layout else {
            return Err(QueueError::Geometry("the shared receive queue's list leads out of it"));
        };
        layout.limit_to(cq_slots.entries());
        let facts = Facts {
            queue: Queue::SharedReceive,
            number: view.number,
            transport: "",
            cqn: completions.cqn(),
            entries: view.wqes,
            stride: view.stride,
        };
        let flight = flight::Recorder::new(facts, Counter::default());
        Ok(Self {
            // SAFETY: by this function's contract, the memory has the WQEs of the layout, only the
            // result writes memory and record, and both live as long as it.
            ring: unsafe { ReceiveRing::new(layout, wqes, record, flight) },
            cq,
            members: Numbers::new(),
            index: view.index,
            slots: vec![(completions.id(), cq_slots)],
            attached: Vec::new(),
            detached: Box::new(AllDetached { of: SharedId::next(), queue_pairs: Vec::new() }),
            reclaimed: Vec::new(),
            id: view.id,
            _member: None,
            keep: None,
        })
    }

    /// Returns the completion for a CQE of a receive of this queue, of any queue pair.
    pub(in crate::ring) fn complete(&mut self, cqe: &CqeRef<'_>) -> Completion {
        let (cq, member) = (self.cq, Member::Qpn(cqe.qpn()));
        ReceiveSide::Shared(self, member).complete(cq, cqe)
    }

    /// Returns the ids of receives whose completions were dropped when their queue pair was
    /// attached or detached. Each id is returned once. The content of their memory is unknown, but
    /// the memory may be used again.
    pub fn reclaimed(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.reclaimed.drain(..)
    }

    /// Returns the maximum number of entries of a receive.
    pub fn max_sge(&self) -> u32 {
        self.ring.max_sge()
    }

    /// Returns the number of receives that the queue holds.
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

    /// Returns the numbers of the attached queue pairs.
    pub fn attached(&self) -> impl Iterator<Item = u32> + '_ {
        self.attached.iter().map(|qp| qp.qpn)
    }

    /// Returns the user index in CQEs of a queue of an XRC domain, if it is known. It is queried
    /// from the HCA, which needs a context that [may give firmware
    /// commands](crate::verbs::Context::devx). If it is not known, only one such queue may complete
    /// on a CQ, and no other queue of receives.
    pub fn user_index(&self) -> Option<u32> {
        match self.index {
            Some(UserIndex::Known(index)) => Some(index),
            _ => None,
        }
    }

    /// Whether the queue is one of an XRC domain.
    pub fn is_xrc(&self) -> bool {
        self.index.is_some()
    }

    /// Posts one receive into the memory of `list`; see [`post`](Self::post).
    #[inline(always)]
    pub(crate) fn post_ref<L: SgeList>(
        &mut self,
        lent: Lent,
        id: u64,
        list: &L,
    ) -> Result<(), PostError> {
        if self.ring.post_usual(lent, id, list) {
            return Ok(());
        }
        self.ring.post_any(lent, id, list)
    }

    /// Returns this queue's side for CQEs of the queue pair `qpn`, if it is
    /// [attached](Self::attach).
    #[inline(always)]
    pub(in crate::ring) fn side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        self.members.get(qpn)?;
        Some(ReceiveSide::Shared(self, Member::Qpn(qpn)))
    }

    /// Returns this queue's side for CQEs that name it by `index`, if it is of an XRC domain and
    /// may have this index.
    #[inline(always)]
    pub(in crate::ring) fn side_of_index(&mut self, index: u32) -> Option<ReceiveSide<'_>> {
        match self.index? {
            UserIndex::Known(known) if known != index => None,
            _ => Some(ReceiveSide::Shared(self, Member::Index(index))),
        }
    }

    /// Returns whether receives complete on that CQ. False for a cyclic queue.
    #[inline(always)]
    pub(in crate::ring) fn completes_on(&self, cq: CqId) -> bool {
        self.cq == cq || self.also_completes_on(cq)
    }

    #[cold]
    fn also_completes_on(&self, cq: CqId) -> bool {
        !self.is_cyclic() && self.has_slots_on(cq)
    }

    /// Returns whether receives complete on that CQ, also for a cyclic queue.
    pub(crate) fn has_slots_on(&self, cq: CqId) -> bool {
        self.slots.iter().any(|slots| slots.0 == cq)
    }

    /// Returns whether the HCA takes the WQEs in cyclic order, not by their list.
    pub fn is_cyclic(&self) -> bool {
        self.cq == CqId::NONE
    }
}

observed!([] Srq, ring);

impl Drop for Srq {
    fn drop(&mut self) {
        let order = self.ring.layout.order();
        let of: Vec<_> = self.attached.iter().map(|qp| (qp.qpn, qp.cq)).collect();
        for (cq, cq_slots) in &mut self.slots {
            if order.is_some() {
                // All receives are retired, so no CQE of them is in a CQ or comes.
                cq_slots.take_strays(self.detached.of);
                continue;
            }
            let qpns = of.iter().filter(|qp| qp.1 == *cq).map(|qp| qp.0).collect();
            // Nothing says when a queue of `from_raw` is destroyed: its slots stay reserved.
            let destroyed = self.keep.as_ref().map_or_else(Arc::default, |keep| keep.destroyed());
            cq_slots.keep_shared(qpns, Some(self.detached.of), self.index, destroyed);
        }
        if let Some(keep) = &mut self.keep {
            keep.order = order;
        }
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq")
            .field("capacity", &self.capacity())
            .field("outstanding", &self.outstanding())
            .field("max_sge", &self.max_sge())
            .field("index", &self.index)
            .field("attached", &self.attached.len())
            .finish_non_exhaustive()
    }
}
