//! The send queue.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_diag::lint::Facts;
use mlx5_sys::doorbell::SEND_WORD;
use mlx5_sys::verbs::{ibv_qp, ibv_qp_state};
use mlx5_sys::wqe::{InlineHeader, MAX_DS, SEGMENT_SIZE, WQEBB_SIZE};

use super::batch::Batch;
use super::completion::CqReader;
use super::cq_slots::Reservation;
use super::keep::{QueueKeep, RegisterClaim};
use super::known::Name;
use super::observed::observed;
use super::own::{InRing, Place};
use super::retire::SendSide;
use super::send_ring::SendRing;
use super::slots::{self, Names, UNITS};
use super::source::{
    CompletionOrder, CqId, Foreign, QpView, QueueOwner, SendSource, SendView, require,
};
use super::state::{SendState, Start};
use super::{BlueFlameCopy, PostError, UarMapping};
use crate::cqe::QueueKind;
use crate::doorbell::{Record, SendDoorbell};
use crate::error::QueueError;
use crate::ib::{Counter, INTERNAL, Rc, Shape, Transport};
use crate::watch::flight::{self, Queue};
use crate::watch::lint::{Guard, Refusal};
use crate::watch::timing::Recorder;
use crate::wqe::{Limits, PostOn};

/// Which queues store to the QP's doorbell register.
///
/// ```
/// # mod rig { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rig/loopback.rs")); }
/// # let rig::Link { qp, mut reader, sends, .. } = rig::link()?;
/// # drop(sends);
/// use mlx5::ring::{RegisterUse, SendConfig, SendQueue};
///
/// // libibverbs posts to other queue pairs of this context, maybe by the same register.
/// let config = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
/// let sends = SendQueue::new(&qp, &mut reader, config)?;
/// assert!(sends.copy().is_none()); // eight bytes ring, and no WQE is copied
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterUse {
    /// Only this queue. Short WQEs that are posted singly are copied to the register (BlueFlame),
    /// if the register supports it.
    Own,
    /// Other queues may store to it, too. Only 8-byte doorbells are used; these do not disturb each
    /// other.
    Shared,
}

/// Configuration of a [`SendQueue`].
///
/// ```
/// # mod rig { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rig/loopback.rs")); }
/// # let rig::Link { qp, mut reader, sends, .. } = rig::link()?;
/// # drop(sends);
/// use mlx5::ring::{BlueFlameCopy, SendConfig, SendQueue};
///
/// // At most 16 requests are outstanding. WQEs are copied as the processor does it best.
/// let copy = BlueFlameCopy::detect();
/// let config = SendConfig { requests: 16, copy, ..SendConfig::default() };
/// let sends = SendQueue::new(&qp, &mut reader, config)?;
/// assert!(sends.request_limit() <= 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendConfig {
    /// Which queues store to the doorbell register. Default: only this queue.
    pub register: RegisterUse,
    /// CQ slots to reserve for this queue: the number of requests that may be outstanding, signaled
    /// or not, at most the QP's `max_send_wr`. So many are reserved, or the queue is refused.
    /// Default (`u32::MAX`): `max_send_wr`, or fewer if the CQ has fewer left, see
    /// [CQ slots](CqReader#cq-slots).
    pub requests: u32,
    /// How WQEs are copied to the register, if they are. Default: [`BlueFlameCopy::Words`], the
    /// stores of libmlx5.
    pub copy: BlueFlameCopy,
    /// Whether the last WQE of a batch is copied by BlueFlame, as a single WQE is. This saves the
    /// HCA one fetch before it can start on that WQE. It fetches the other WQEs from the ring.
    /// Worth it for short batches. Default: no, as with libmlx5.
    pub copy_last: bool,
    /// The memory type of the register, if the program knows more of it than the queue. Default:
    /// [`UarMapping::WRITE_COMBINING`], or what is known of it by the kind of its
    /// [`Uar`](crate::devx::Uar).
    pub memory: UarMapping,
}

impl Default for SendConfig {
    fn default() -> Self {
        Self {
            register: RegisterUse::Own,
            requests: u32::MAX,
            copy: BlueFlameCopy::Words,
            copy_last: false,
            memory: UarMapping::WRITE_COMBINING,
        }
    }
}

/// A send queue of transport `T`. It writes WQEs to the ring directly, without libibverbs.
///
/// Created from a QP in RTS by [`new`](Self::new) or [`from_raw`](Self::from_raw). To post, fill a
/// [`Batch`] and ring it, or call [`post`](Self::post), which does both for one request. A post
/// stores the WQE, one word to the doorbell record, and one to the register (or the WQE's blocks,
/// by BlueFlame). On x86-64 it also takes two store fences. It takes no lock, and makes no
/// allocation and no system call.
///
/// At most [`request_limit`](Self::request_limit) requests are outstanding: a queue pair that fails
/// completes each of them, unsignaled ones too, and the CQ has a slot for each.
///
/// Unsignaled requests never take the last free block or CQ slot while no signaled request is
/// outstanding ([`PostError::NothingSignaled`]). So there is always one for a signaled request, or
/// for the NOP of [`reclaim`](Self::reclaim), whose completion retires them.
///
/// A forked child that posts gets SIGSEGV: see [`fork_init`](crate::verbs::fork_init).
///
/// ```
/// # mod rig { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rig/loopback.rs")); }
/// # let rig::Link { qp, mut reader, sends, remote, memory: _m, .. } = rig::link()?;
/// # drop(sends);
/// use mlx5::cqe::Completion;
/// use mlx5::ring::{SendConfig, SendQueue};
/// use mlx5::wqe::{Inline, RdmaWrite};
///
/// let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default())?;
/// // SAFETY: the payload is copied into the WQE.
/// unsafe { sends.post(7, RdmaWrite::new(Inline(b"hello"), remote).signaled())? };
/// let completion = loop {
///     if let Some(completion) = reader.poll(&mut sends)? {
///         break completion;
///     }
/// };
/// assert!(matches!(completion, Completion::Send(done) if done.id == 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_qp")]
pub struct SendQueue<T: Transport = Rc> {
    pub(super) ring: SendRing,
    keep: Option<QueueKeep>,
    transport: PhantomData<T>,
}

/// Parts of a send queue. [`SendQueue::from_raw`] and tests of the writer build queues from it.
pub(super) struct SendParts {
    pub(super) buffer: NonNull<u8>,
    pub(super) blocks: u32,
    pub(super) doorbell: SendDoorbell,
    pub(super) qpn: u32,
    pub(super) limits: Limits,
    pub(super) signal_all: bool,
    pub(super) order: CompletionOrder,
    pub(super) start: Counter,
    pub(super) cq_slots: Reservation,
    pub(super) cq: CqId,
    pub(super) owner: Arc<dyn QueueOwner>,
}

// SAFETY: only the queue reaches ring, record and register (`from_raw`'s contract), through `&mut
// self`. The HCA accepts stores from any thread.
unsafe impl<T: Transport> Send for SendQueue<T> {}

impl<T: Transport> SendQueue<T> {
    /// Takes over the send queue of a queue pair that completes on `completions`.
    ///
    /// The result keeps the pair alive. The pair cannot be reset until the result is dropped.
    /// Dropping the result with requests outstanding leaves the send queue unusable until the pair
    /// is reset. Its CQ slots then stay reserved until the send queue is taken over again or the
    /// pair is destroyed.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// QP is no longer in RTS, it completes on another CQ, the CQ has no free slot to reserve, or
    /// another send queue of this crate uses the doorbell register. Nothing is changed then.
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_QP"))]
    pub fn new<Q: SendSource<Transport = T>>(
        qp: &Q,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> crate::error::Result<Self> {
        let mut queue = Self::unclaimed(qp, completions, config)?;
        // Without BlueFlame, all queues store only doorbells there, so they may share the register.
        let doorbell = &queue.ring.doorbell;
        let claim = RegisterClaim::new(doorbell.register(), doorbell.blue_flame())?;
        if let Some(keep) = &mut queue.keep {
            keep.register = Some(claim);
        }
        Ok(queue)
    }

    /// Starts a batch. Dropping it unrung posts nothing.
    #[doc(alias("ibv_wr_start", "ibv_post_send"))]
    #[inline]
    pub fn batch(&mut self) -> Batch<'_, T> {
        Batch::new(self)
    }

    /// Posts one request: [`Batch::append`], then [`Batch::ring`]. A short WQE goes by BlueFlame if
    /// the register allows it.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until the request is retired:
    /// - The memory that it names by an `lkey` stays allocated, and registered under that `lkey`:
    ///   that of its entries, and destination and notes of a [`DmaMemcpy`](crate::wqe::DmaMemcpy).
    /// - Nothing writes the memory that a SEND, WRITE or `DmaMemcpy` reads.
    /// - Nothing reads, writes or holds a reference to the memory that the HCA writes: that of a
    ///   READ or atomic, and destination and notes of a `DmaMemcpy`. Other `DmaMemcpy` requests may
    ///   have the same notes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic
    ///   writes is mapped, writable, in this process at the address in the entry.
    /// - A key that the request gives access to memory ([`ConfigureKey`](crate::wqe::ConfigureKey),
    ///   [`BindWindow`](crate::wqe::BindWindow)) keeps it after the request is retired: until the key
    ///   is configured or bound again, invalidated or freed. For all that time, no reference exists
    ///   that the access would contradict, and the memory stays registered.
    ///
    /// A request is retired when a poll returns its completion or that of a later request of this
    /// queue (its own, if the QP has [streams](crate::verbs::DciStreams)), or when the QP has been
    /// moved to RESET or destroyed. Inline payload names no memory.
    #[doc(alias = "ibv_post_send")]
    #[inline(always)]
    pub unsafe fn post<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        self.ring.doorbell.timing.begin();
        if slots::changes_keys(operation.code().opcode) {
            // SAFETY: this function's contract covers the memory of the request.
            return unsafe { self.post_key_change(id, operation) };
        }
        // SAFETY: this function's contract covers the memory of the request.
        unsafe {
            if self.post_short(id, &operation, &mut Place::default())? {
                return Ok(());
            }
            // Moved, so that only this path needs the operation in memory.
            let rest = operation;
            self.post_rest(id, &rest)
        }
    }

    /// Takes over a send queue like [`new`](Self::new), but without a claim to the register. The
    /// caller ensures that no other queue stores to the register while this queue copies WQEs
    /// there.
    pub(super) fn unclaimed<Q: SendSource<Transport = T>>(
        qp: &Q,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> crate::error::Result<Self> {
        let keep = QueueKeep::send(qp.owner(INTERNAL))?;
        let (view, owner) = (qp.sends()?, Arc::clone(keep.owner()));
        // SAFETY: the result holds the owner, which keeps QP and CQ alive. It also holds the claim
        // on the send queue, which keeps other writers away. The caller claims the register before
        // it posts.
        let mut queue = unsafe { Self::take_over(view, owner, completions, config)? };
        queue.keep = Some(keep);
        completions.discard(queue.qpn(), QueueKind::Send);
        Ok(queue)
    }

    /// Takes over the send queue of a QP in RTS that completes on `completions`.
    ///
    /// Its next WQE goes to the index in the doorbell record. So a QP that has posted before can be
    /// taken over once it is idle. CQEs of the QP's send queue that are still in the CQ are
    /// dropped: they are from before a RESET. Dropping the result with requests outstanding leaves
    /// its CQ slots reserved until the QP is taken over again.
    ///
    /// # Errors
    /// [`QueueError`]: the QP is not of libmlx5, not of transport `T` or not in RTS, it completes
    /// on another CQ, or the CQ has no free slot to reserve. Nothing is changed then.
    ///
    /// # Safety
    /// - `qp` stays alive as long as the result, and all its send WQEs are complete. It is not a
    ///   target of dynamic connections (DCT).
    /// - It has no [streams](crate::verbs::DciStreams), which libibverbs does not report.
    ///   [`new`](Self::new) takes over initiators that have them.
    /// - Until the result is dropped, nothing else posts to the QP's send queue (`ibv_post_send`,
    ///   another `SendQueue`), and the QP is not moved to RESET, except for
    ///   [`restart`](Self::restart).
    /// - With [`RegisterUse::Own`], no other queue, here or in libmlx5, stores to the BlueFlame
    ///   register that libmlx5 gave the QP.
    #[doc(alias("mlx5dv_init_obj", "MLX5DV_OBJ_QP"))]
    pub unsafe fn from_raw(
        qp: NonNull<ibv_qp>,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> Result<Self, QueueError> {
        // SAFETY: the caller keeps the QP alive as long as the result, which holds the owner.
        let (view, owner) = unsafe { (QpView::new(qp)?.sends::<T>()?, Foreign::owner(qp)) };
        // SAFETY: the view is of the caller's QP. By this function's contract, the QP is idle and
        // nothing else posts to it.
        let queue = unsafe { Self::take_over(view, owner, completions, config)? };
        completions.discard(queue.qpn(), QueueKind::Send);
        Ok(queue)
    }

    /// Takes over the send queue of a view. Does not drop its old CQEs.
    ///
    /// # Safety
    /// - `view` is of a QP in RTS that `owner` keeps alive, and all its send WQEs are complete.
    /// - Until the result is dropped, nothing else posts to the send queue, and the QP is not moved
    ///   to RESET, except for [`restart`](Self::restart).
    /// - With [`RegisterUse::Own`], nothing else stores to its doorbell register after the first
    ///   post.
    unsafe fn take_over(
        view: SendView,
        owner: Arc<dyn QueueOwner>,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> Result<Self, QueueError> {
        if !completions.reads(view.cq) {
            return Err(QueueError::CqMismatch);
        }
        // SAFETY: the record of a live QP. Only this queue posts, so only it writes the send word.
        let record = unsafe { Record::new(view.record, SEND_WORD) };
        let start = Counter::new(record.read() & 0xffff);
        let own = config.register == RegisterUse::Own;
        // SAFETY: register and size are the live QP's; the size is 0 where BlueFlame must not be
        // used. With `own`, the caller guarantees that nothing else stores to the register.
        let mut doorbell = unsafe {
            match view.recordless {
                false => SendDoorbell::new(record, view.register, view.half, own),
                true => SendDoorbell::without_record(record, view.register),
            }
        };
        doorbell.set_copy(config.copy)?;
        if config.copy_last {
            doorbell.copy_last();
        }
        if view.memory.is_uncached() || config.memory.is_uncached() {
            // SAFETY: the UAR was mapped that way, or `UarMapping::uncached`'s caller promises it.
            unsafe { doorbell.set_uncached() };
        }
        let wanted = (config.requests, view.max_wr);
        let cq_slots = completions.reserve(view.number, QueueKind::Send, wanted, view.partner)?;
        let parts = SendParts {
            buffer: view.buffer,
            blocks: view.blocks,
            doorbell,
            qpn: view.number,
            limits: view.limits,
            signal_all: view.signal_all,
            order: view.order,
            start,
            cq_slots,
            cq: completions.id(),
            owner,
        };
        // SAFETY: ring and doorbell are the live QP's, and nothing else posts to it.
        let mut queue = unsafe { Self::from_parts(parts)? };
        queue.ring.doorbell.flight.completes_on(completions.cqn());
        queue.ring._member = completions.admit(Name::Queue(queue.qpn(), QueueKind::Send), None);
        queue.ring.guard = Guard::new(|| queue.facts());
        Ok(queue)
    }

    /// # Safety
    /// `buffer` is a ring of `blocks` blocks that only the result writes, and the doorbell is its
    /// own; both live as long as the result.
    pub(super) unsafe fn from_parts(mut parts: SendParts) -> Result<Self, QueueError> {
        let Some(shape) = Shape::new(parts.blocks).filter(|shape| shape.entries() <= 1 << 15)
        else {
            return Err(QueueError::Geometry("the send queue's size is not a power of two"));
        };
        // With the limits kept to what is left for the payload, every WQE that passes them fits
        // `ds` and the ring.
        let max_ds = (parts.blocks * UNITS).min(MAX_DS as u32);
        let payload = max_ds.saturating_sub(T::UNITS_BEFORE_PAYLOAD);
        let inline = (payload * SEGMENT_SIZE as u32).saturating_sub(InlineHeader::SIZE as u32);
        let limits = Limits {
            max_sge: parts.limits.max_sge.min(payload),
            max_inline: parts.limits.max_inline.min(inline),
        };
        parts.doorbell.timing = Recorder::of_ring(shape);
        let facts = flight::Facts {
            queue: Queue::Send,
            number: parts.qpn,
            transport: T::NAME,
            cqn: 0,
            entries: parts.blocks,
            stride: WQEBB_SIZE as u32,
        };
        parts.doorbell.flight = flight::Recorder::new(facts, parts.start);
        let state = SendState::new(Start {
            shape,
            at: parts.start,
            slots: parts.cq_slots.entries(),
            order: parts.order,
            no_entries: limits.max_sge == 0,
        });
        let ring = SendRing {
            state,
            buffer: parts.buffer,
            doorbell: parts.doorbell,
            names: Names::new(parts.qpn),
            limits,
            units_before_payload: T::UNITS_BEFORE_PAYLOAD,
            // If requests complete in any order, each needs a completion of its own.
            signal_all: parts.signal_all || parts.order == CompletionOrder::Any,
            cq_slots: parts.cq_slots,
            cq: parts.cq,
            owner: parts.owner,
            guard: Guard::new(|| None),
            _member: None,
        };
        Ok(Self { ring, keep: None, transport: PhantomData })
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.ring.qpn()
    }

    /// Returns the limits of a request: entries and inline bytes.
    pub fn limits(&self) -> Limits {
        self.ring.limits
    }

    /// Size of the ring in 64-byte blocks.
    pub fn blocks(&self) -> u32 {
        self.ring.shape().entries()
    }

    /// Returns the queue's parameters for a [lint](mlx5_diag::lint) of its ring. `None` for a
    /// transport that the lint does not support.
    pub fn facts(&self) -> Option<Facts> {
        self.ring.facts::<T>()
    }

    /// Returns how WQEs are copied to the doorbell register. `None`: no WQE goes by BlueFlame.
    pub fn copy(&self) -> Option<BlueFlameCopy> {
        self.ring.doorbell.blue_flame().then(|| self.ring.doorbell.copy())
    }

    /// Returns whether the doorbell register is known to be in uncached memory.
    pub fn is_uncached(&self) -> bool {
        self.ring.doorbell.is_uncached()
    }

    /// Copies WQEs by `copy` from now on, instead of [`SendConfig::copy`].
    /// [`probe_copies`](Self::probe_copies) finds a suitable value.
    ///
    /// # Errors
    /// [`QueueError::CopyUnavailable`]; nothing is changed then.
    pub fn set_copy(&mut self, copy: BlueFlameCopy) -> Result<(), QueueError> {
        self.ring.doorbell.set_copy(copy)?;
        self.ring.state.end_run();
        self.ring.grant(self.ring.state.clear());
        Ok(())
    }

    /// Returns the number of free blocks. A request takes one block per four segments. It also takes
    /// one of the [`request_limit`](Self::request_limit) CQ slots.
    pub fn free_blocks(&self) -> u32 {
        self.ring.state.free_blocks()
    }

    /// Returns whether every posted request is retired.
    pub fn is_idle(&self) -> bool {
        self.ring.state.is_idle()
    }

    /// Returns the number of CQ slots reserved for this queue: requests that may be outstanding,
    /// signaled or not. At most the QP's `max_send_wr`.
    pub fn request_limit(&self) -> u32 {
        self.ring.state.slots()
    }

    /// Posts an operation given by reference; see [`post`](Self::post).
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    pub(crate) unsafe fn post_ref<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        self.ring.doorbell.timing.begin();
        if slots::changes_keys(operation.code().opcode) {
            // SAFETY: passed on.
            return unsafe { self.post_key_change_ref(id, operation) };
        }
        // SAFETY: passed on.
        unsafe {
            if self.post_short(id, operation, &mut Place::default())? {
                return Ok(());
            }
            self.post_rest(id, operation)
        }
    }

    /// Returns the state of the queue, for an owner of the memory of its requests.
    #[inline(always)]
    pub(crate) fn state(&self) -> &SendState {
        &self.ring.state
    }

    /// Returns the state of the queue, see [`state`](Self::state).
    #[inline(always)]
    pub(crate) fn state_mut(&mut self) -> &mut SendState {
        &mut self.ring.state
    }

    /// Posts a request for an owner of its memory like [`post`](Self::post), if its WQE is short and
    /// the head is clear. Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    pub(crate) unsafe fn post_owned<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        self.ring.doorbell.timing.begin();
        // SAFETY: passed on.
        unsafe { self.post_short(id, operation, place) }
    }

    /// Posts a request if its WQE fits one block (or a BlueFlame buffer, if its size is known) and
    /// the head is clear. Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post_short<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        if O::LONG_DS != 0 {
            // SAFETY: passed on.
            return unsafe { self.post_long(id, operation, place) };
        }
        // `post_words` and `post_plain` ask this again. Asking first lets the compiler evaluate
        // once what is the same for every post.
        if O::USUAL_DS != 0 && !operation.is_usual(&self.ring.limits) {
            return Ok(false);
        }
        // SAFETY: passed on.
        unsafe {
            Ok(self.post_words(id, operation, place)? || self.post_plain(id, operation, place)?)
        }
    }

    /// Posts a request if its WQE fits one block, goes by BlueFlame word by word, and the head is
    /// clear. Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post_words<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        let ring = &mut self.ring;
        if !ring.state.may_take_single() {
            return Ok(false);
        }
        let at = ring.end();
        let encoded = match O::USUAL_DS {
            0 => ring.encode_short::<T, O>(at, id, operation),
            // SAFETY: these are the ring's own.
            _ => unsafe { ring.encode_block::<T, O>(InRing, at, id, operation) },
        };
        let Some((_, image)) = encoded else { return Ok(false) };
        *place = image.place;
        // SAFETY: passed on.
        unsafe { ring.commit_block(at.at.plus(1), image)? };
        Ok(true)
    }

    /// Posts a usual request to a register that takes no WQEs word by word, if the head is clear.
    /// Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post_plain<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        let ring = &mut self.ring;
        if O::USUAL_DS == 0 || !ring.state.may_take() {
            return Ok(false);
        }
        let at = ring.end();
        // SAFETY: these are the ring's own.
        let encoded = unsafe { ring.encode_block::<T, O>(InRing, at, id, operation) };
        let Some((last, image)) = encoded else { return Ok(false) };
        *place = image.place;
        // SAFETY: passed on.
        unsafe {
            if ring.doorbell.rings_plain() {
                ring.commit_plain(at.at.plus(1), last)?;
            } else {
                ring.commit_other(at.at.plus(1), last)?;
            }
        }
        Ok(true)
    }

    /// Posts any request, whatever its size and the state of the queue.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[cold]
    #[inline(never)]
    unsafe fn post_rest<O: PostOn<T>>(&mut self, id: u64, operation: &O) -> Result<(), PostError> {
        let ring = &mut self.ring;
        let clear = ring.state.clear();
        if let Some((end, last)) = ring.encode_sized::<T, O>(ring.end(), clear, id, operation) {
            // SAFETY: `encode_sized` wrote the WQE before `end`; `last` is it. The contract of this
            // function covers its memory.
            unsafe { ring.commit(end, &last, true)? };
            ring.grant(clear);
            return Ok(());
        }
        ring.refill();
        // SAFETY: passed on.
        if unsafe { O::LONG_DS != 0 || !self.post_words(id, operation, &mut Place::default())? } {
            let mut batch = self.batch();
            batch.append_ref(id, operation)?;
            // SAFETY: passed on.
            unsafe { batch.try_ring()? }
        }
        // If this request is signaled, no block has to be kept for one any more.
        self.ring.grant_most();
        Ok(())
    }

    /// Restarts the queue after the QP went through RESET and back to RTS. Indices start at zero.
    /// Outstanding requests are forgotten, and their CQEs that are still in the CQ are dropped.
    ///
    /// # Errors
    /// [`QueueError::WrongState`] if the QP is not in RTS, [`QueueError::NotReset`] if it was not
    /// reset since the last post, [`QueueError::CqMismatch`]; nothing is changed then.
    ///
    /// # Safety
    /// - All send WQEs of the QP were posted by this queue: nothing else posts to its send queue.
    /// - No WQE was posted since the QP was reset.
    pub unsafe fn restart(&mut self, completions: &mut CqReader) -> Result<(), QueueError> {
        require(self.ring.owner.state()?, &[ibv_qp_state::IBV_QPS_RTS], "RTS")?;
        if completions.id() != self.ring.cq {
            return Err(QueueError::CqMismatch);
        }
        self.ring.restart()?;
        completions.discard(self.qpn(), QueueKind::Send);
        Ok(())
    }

    /// Returns this queue's side, by which a poll retires its WQEs.
    #[inline(always)]
    pub(super) fn side(&mut self) -> SendSide<'_> {
        SendSide { ring: &mut self.ring, shared: None }
    }
}

observed!([T: Transport] SendQueue<T>, ring, doorbell);

impl<T: Transport> Drop for SendQueue<T> {
    fn drop(&mut self) {
        self.ring.doorbell.leave(self.ring.head().low16());
        let idle = self.is_idle();
        if let Some(keep) = &mut self.keep {
            keep.idle = idle;
        }
        if !idle {
            let destroyed = QueueKeep::destroyed_of(self.keep.as_ref());
            self.ring.cq_slots.keep(self.ring.qpn(), QueueKind::Send, destroyed);
        }
    }
}

impl<T: Transport> fmt::Debug for SendQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("transport", &T::NAME)
            .field("qpn", &self.qpn())
            .field("state", &self.ring.state)
            .field("limits", &self.ring.limits)
            .finish_non_exhaustive()
    }
}
