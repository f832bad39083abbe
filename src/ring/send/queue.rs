//! The send queue: its public face.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use mlx5_diag::lint::Facts;
use mlx5_sys::verbs::{ibv_qp, ibv_qp_state};

use super::batch::Batch;
use super::config::SendConfig;
use super::own::Place;
use super::retire::SendSide;
use super::ring::SendRing;
use super::state::SendState;
use super::wqes;
use crate::cqe::QueueKind;
use crate::doorbell::Lent;
use crate::error::QueueError;
use crate::ib::{Rc, Transport};
use crate::ring::completion::reader::CqReader;
use crate::ring::observed::observed;
use crate::ring::source::claims::{QueueKeep, RegisterClaim};
use crate::ring::source::{Foreign, QpView, SendSource, require};
use crate::ring::{BlueFlameCopy, PostError};
use crate::wqe::{Limits, PostOn};

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
    pub(in crate::ring) ring: SendRing,
    pub(super) keep: Option<QueueKeep>,
    pub(super) transport: PhantomData<T>,
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
    /// The HCA works on the request from now on: until it is retired,
    /// [its memory](crate::ring#the-memory-of-requests) is the HCA's.
    #[doc(alias = "ibv_post_send")]
    #[inline(always)]
    pub unsafe fn post<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        // SAFETY: this function's contract.
        self.post_lent(unsafe { Lent::promised() }, id, operation)
    }

    /// Posts one request, see [`post`](Self::post).
    #[inline(always)]
    pub(in crate::ring) fn post_lent<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: O,
    ) -> Result<(), PostError> {
        self.ring.doorbell.timing.begin();
        if wqes::changes_keys(operation.code().opcode) {
            return self.post_key_change(lent, id, operation);
        }
        if self.post_clear(lent, id, &operation, &mut Place::default())? {
            return Ok(());
        }
        // Moved, so that only this path needs the operation in memory.
        let rest = operation;
        self.post_rest(lent, id, &rest)
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
    /// - It has no [streams](crate::verbs::attr::DciStreams), which libibverbs does not report.
    ///   [`new`](Self::new) takes over initiators that have them.
    /// - Until the result is dropped, nothing else posts to the QP's send queue (`ibv_post_send`,
    ///   another `SendQueue`), and the QP is not moved to RESET, except for
    ///   [`restart`](Self::restart).
    /// - With [`RegisterUse::Own`](crate::ring::RegisterUse::Own), no other queue, here or in
    ///   libmlx5, stores to the BlueFlame register that libmlx5 gave the QP.
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
    pub(in crate::ring) fn side(&mut self) -> SendSide<'_> {
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
