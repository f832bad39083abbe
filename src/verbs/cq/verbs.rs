//! Completion queues that libibverbs makes.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use mlx5_sys::cqe::{MINI_FORMAT_CSUM, MINI_FORMAT_CSUM_STRIDX, MINI_FORMAT_HASH};
use mlx5_sys::dv::{
    MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE, MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
    mlx5dv_cq_init_attr, mlx5dv_create_cq,
};
use mlx5_sys::verbs::{
    ibv_ack_cq_events, ibv_cq, ibv_cq_attr_mask, ibv_cq_init_attr_ex, ibv_cq_init_attr_mask,
    ibv_create_cq_attr_flags, ibv_destroy_cq, ibv_moderate_cq, ibv_modify_cq, ibv_modify_cq_attr,
    ibv_poll_cq, ibv_req_notify_cq, ibv_resize_cq,
};

use super::{CompletionQueue, CompletionQueueBuilder, Cq, CqPart, QUEUE};
use crate::error::{Cause, Error, Result, check, non_null};
use crate::ib::CqeCompression;
use crate::ring::source::{CompletionView, CqCheck, check_cq, view_cq};
use crate::verbs::placement::{CallbackTarget, QueueAllocator};
use crate::verbs::td::ParentDomain;
use crate::verbs::{CompletionChannel, Context, ProtectionDomain, Zeroed, keep_from_children};

/// `enum mlx5dv_cqe_comp_res_format`.
const fn compression_format(compression: CqeCompression) -> u8 {
    match compression {
        CqeCompression::Hash => MINI_FORMAT_HASH,
        CqeCompression::Checksum => MINI_FORMAT_CSUM,
        CqeCompression::ChecksumStride => MINI_FORMAT_CSUM_STRIDX,
    }
}

/// A completion queue of libibverbs, with the objects that it uses.
pub struct VerbsCq {
    cq: NonNull<ibv_cq>,
    /// Held while libmlx5 replaces the ring, or reads its address and size.
    ring: Mutex<()>,
    /// The `cq_context` of the queue, which its events name.
    target: Arc<EventTarget>,
    channel: Option<CompletionChannel>,
    /// Owns the memory if an allocator provided it; freed after the queue.
    _parent: Option<ParentDomain>,
    context: Context,
}

/// The `cq_context` of a queue, by which an event finds the queue. It outlives the verbs queue.
#[derive(Default)]
pub(crate) struct EventTarget {
    queue: OnceLock<Weak<Cq<VerbsCq>>>,
}

impl EventTarget {
    /// Returns the queue, unless it is being destroyed.
    pub(crate) fn queue(&self) -> Option<CompletionQueue> {
        Some(CompletionQueue { cq: self.queue.get()?.upgrade()? })
    }
}

// SAFETY: libibverbs allows calls on one CQ from several threads.
unsafe impl Send for VerbsCq {}
// SAFETY: libibverbs allows calls on one CQ from several threads at once.
unsafe impl Sync for VerbsCq {}

impl CqPart for VerbsCq {
    fn context(&self) -> &Context {
        &self.context
    }

    fn capacity(&self) -> u32 {
        // SAFETY: the CQ is alive. Only `resize` changes the field, and not now.
        self.with_ring(|cq| unsafe { (*cq.as_ptr()).cqe }).try_into().unwrap_or(0)
    }

    fn moderate(&self, completions: u16, period: u16) -> Result<()> {
        let mut attributes = ibv_modify_cq_attr {
            attr_mask: ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
            moderate: ibv_moderate_cq { cq_count: completions, cq_period: period },
        };
        // SAFETY: the CQ is alive, and the attributes live through the call.
        check("ibv_modify_cq", unsafe { ibv_modify_cq(self.cq.as_ptr(), &mut attributes) })
    }

    fn check(&self, cqn: u32) -> CqCheck {
        // An asynchronous event may have been read that reported the failure.
        let failures = self.context.failures();
        if failures.has_device() {
            return CqCheck::DeviceFailed;
        }
        if failures.has_cq(self.cq) {
            return CqCheck::Failed;
        }
        // SAFETY: the CQ is alive.
        unsafe { check_cq(self.cq, cqn) }
    }

    fn view(cq: &Cq<Self>) -> Result<CompletionView> {
        // SAFETY: the CQ is alive.
        let view = cq.part.with_ring(|cq| unsafe { view_cq(cq) })?;
        // SAFETY: libmlx5 has mapped the page, and keeps it mapped as long as the CQ.
        unsafe { keep_from_children(view.page)? };
        Ok(CompletionView { compression: cq.compression().unwrap_or_default(), ..view })
    }

    fn end(&mut self, events: u32) {
        if events > 0 {
            // SAFETY: the CQ is alive, and that many of its events were read from its channel.
            unsafe { ibv_ack_cq_events(self.cq.as_ptr(), events) };
        }
        // SAFETY: this crate created the CQ and destroys it once, here, while context and channel
        // are alive. Queue pairs and readers held an Arc of it and are gone.
        let status = unsafe { ibv_destroy_cq(self.cq.as_ptr()) };
        if status != 0 {
            // The CQ lives on, and an event may still name the target.
            std::mem::forget(Arc::clone(&self.target));
        }
    }
}

impl CompletionQueue {
    /// Creates a completion queue of at least `entries` entries of 64 bytes, to be polled.
    ///
    /// # Errors
    /// [`Error::Attribute`]: the number of entries is out of the device's range. [`Error::Call`]
    /// with the memory lock limit named.
    #[doc(alias = "ibv_create_cq")]
    pub fn new(context: &Context, entries: u32) -> Result<CompletionQueue> {
        CompletionQueue::builder(context, entries).build()
    }

    /// Creates a builder for a completion queue of at least `entries` entries.
    #[doc(alias("ibv_create_cq", "ibv_create_cq_ex", "mlx5dv_create_cq"))]
    pub fn builder(context: &Context, entries: u32) -> CompletionQueueBuilder {
        CompletionQueueBuilder::with(context, entries, CqOptions::default())
    }

    /// Arms the queue: requests one event on the channel for the next completion, or, if
    /// `solicited_only`, for the next solicited message or error. Completions that are already in
    /// the queue cause no event, so poll once more after the call.
    ///
    /// For queues that `ibv_poll_cq` empties. libmlx5 does not know the consumer index of a reader
    /// on the direct path. Such a reader arms by
    /// [`CqReader::arm`](crate::ring::CqReader::arm).
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while the direct path reads the queue or another thread is in this call,
    /// [`Error::Attribute`] without a channel, [`Error::Call`].
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn request_notification(&self, solicited_only: bool) -> Result<()> {
        if self.cq.part.channel.is_none() {
            return Err(Error::attribute(
                "completion channel",
                "none",
                "events go to a channel, which is given when the CQ is made",
            ));
        }
        // A reader of the direct path would write the same arm word.
        let result = self.cq.without_reader(|| {
            // SAFETY: the CQ is alive.
            unsafe { ibv_req_notify_cq(self.as_raw().as_ptr(), solicited_only.into()) }
        })?;
        check("ibv_req_notify_cq", result)
    }

    /// Resizes the queue to at least `entries` completions, more or fewer than before. Completions
    /// in the queue stay.
    ///
    /// Resize before a [reader](crate::ring::CqReader) takes the queue. libmlx5 moves
    /// completions to the new ring from its own consumer index, which cannot be set. Where the
    /// direct path needs another size, create another CQ.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] once the direct path has read the queue, or while another thread
    /// resizes or arms it. [`Error::Attribute`] out of the device's range. [`Error::Call`], for
    /// example if the queue holds more completions than that.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, entries: u32) -> Result<()> {
        let limit = self.context().attributes()?.max_cqe;
        let wanted = match i32::try_from(entries) {
            Ok(wanted) if wanted > 0 && entries <= limit => wanted,
            _ => {
                let rule = format!("of this device it is 1 to {limit}");
                return Err(Error::attribute("CQ entries", entries, rule));
            }
        };
        self.cq.without_reader(|| {
            if self.cq.was_taken.load(Ordering::Relaxed) {
                return Err(Error::QueueInUse { queue: QUEUE });
            }
            self.with_ring(|cq| {
                // SAFETY: the CQ is alive. No reader has the ring, which the call replaces.
                check("ibv_resize_cq", unsafe { ibv_resize_cq(cq.as_ptr(), wanted) })?;
                // The resize has a CQE of its own, which libmlx5 counts without storing its
                // consumer index. A poll stores it, also one for no CQE. The direct path continues
                // at the stored index.
                // SAFETY: the CQ is alive, no reader has it, and no completion is written.
                match unsafe { ibv_poll_cq(cq.as_ptr(), 0, ptr::null_mut()) } {
                    0 => Ok(()),
                    errno => check("ibv_poll_cq", errno.abs()),
                }
            })
        })?
    }

    /// Returns the queue, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_cq> {
        self.cq.part.cq
    }

    /// Counts an event that was read from the channel.
    pub(crate) fn count_event(&self) {
        self.cq.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `work` with the queue while its ring is not replaced.
    pub(crate) fn with_ring<R>(&self, work: impl FnOnce(NonNull<ibv_cq>) -> R) -> R {
        self.cq.part.with_ring(work)
    }
}

impl VerbsCq {
    /// Calls `work` with the queue while its ring is not replaced by another thread.
    fn with_ring<R>(&self, work: impl FnOnce(NonNull<ibv_cq>) -> R) -> R {
        let _held = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        work(self.cq)
    }
}

/// Options that only completion queues of verbs have.
#[derive(Clone, Debug, Default)]
pub struct CqOptions {
    channel: Option<CompletionChannel>,
    memory: Option<(ProtectionDomain, CallbackTarget)>,
}

impl CompletionQueueBuilder {
    /// Sets the channel of its events; none if not called.
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.options.channel = Some(channel.clone());
        self
    }

    /// Sets the allocator of the ring and doorbell record, for example
    /// [`Placement`](crate::expert::Placement); libmlx5 if not called. It is kept until the queue is
    /// destroyed. Verbs take it with a protection domain of the same device, which has no other
    /// meaning for the queue.
    pub fn placement<A: QueueAllocator>(mut self, pd: &ProtectionDomain, memory: &Arc<A>) -> Self {
        self.options.memory = Some((pd.clone(), CallbackTarget(Arc::<A>::clone(memory))));
        self
    }

    pub(in crate::verbs) fn build_by_verbs(self) -> Result<CompletionQueue> {
        let limit = self.context.attributes()?.max_cqe;
        if self.entries == 0 || self.entries > limit {
            let rule = format!("of this device it is 1 to {limit}");
            return Err(Error::attribute("CQ entries", self.entries, rule));
        }
        self.check_vector()?;
        let CqOptions { channel, memory } = &self.options;
        let others = [
            ("completion channel", channel.as_ref().map(CompletionChannel::context)),
            ("protection domain", memory.as_ref().map(|(pd, _)| pd.context())),
        ];
        for (object, device) in others {
            device.map_or(Ok(()), |device| self.context.require_same(object, device.as_raw()))?;
        }
        let parent = match memory {
            Some((pd, memory)) => ParentDomain::of(pd, None, Some(memory))?,
            None => None,
        };
        let target = Arc::new(EventTarget::default());
        let cq = self.create(Arc::as_ptr(&target), parent.as_ref())?;
        self.context.failures().forget_cq(cq);
        let part = VerbsCq {
            cq,
            ring: Mutex::new(()),
            target,
            channel: self.options.channel.clone(),
            _parent: parent,
            context: self.context.clone(),
        };
        let cq = Arc::new(Cq::new(&self, part));
        // No event comes before the queue made here requests a notification.
        cq.part.target.queue.set(Arc::downgrade(&cq)).expect("the target is new");
        // From this call on, libmlx5 leaves the CQEs alone. Otherwise, when a queue pair is destroyed or
        // reset, it removes its CQEs from the ring, and relinks the WQEs that they name in the shared
        // receive queue, which is this crate's.
        // SAFETY: the CQ is alive.
        unsafe { view_cq(cq.part.cq)? };
        Ok(CompletionQueue { cq })
    }

    fn create(
        &self,
        target: *const EventTarget,
        parent: Option<&ParentDomain>,
    ) -> Result<NonNull<ibv_cq>> {
        let channel = self.options.channel.as_ref();
        let mut attributes = ibv_cq_init_attr_ex::zeroed();
        attributes.cqe = self.entries;
        attributes.cq_context = target.cast_mut().cast();
        attributes.channel = channel.map_or(std::ptr::null_mut(), |it| it.as_raw().as_ptr());
        attributes.comp_vector = self.vector;
        if self.ignores_overrun {
            attributes.comp_mask |= ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
            attributes.flags = ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
        }
        if let Some(parent) = parent {
            attributes.comp_mask |= ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_PD.0;
            attributes.parent_domain = parent.as_raw().as_ptr();
        }
        let mut mlx5 = mlx5dv_cq_init_attr::zeroed();
        // The size is always set, because libmlx5 otherwise reads it from an environment variable.
        mlx5.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE as u64;
        mlx5.cqe_size = self.cqe_size.bytes() as u16;
        if let Some(compression) = self.compression {
            mlx5.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE as u64;
            mlx5.cqe_comp_res_format = compression_format(compression);
        }
        // SAFETY: the context is open, the attributes live through the call, and the queue keeps
        // the channel alive.
        let cq =
            unsafe { mlx5dv_create_cq(self.context.as_raw().as_ptr(), &mut attributes, &mut mlx5) };
        let cq = non_null("mlx5dv_create_cq", cq).map_err(|error| {
            let cause =
                Cause::memlock(error.errno(), Some(self.entries as usize * self.cqe_size.bytes()));
            error.because(cause)
        })?;
        // An ibv_cq_ex begins with the ibv_cq it extends.
        Ok(cq.cast())
    }
}
