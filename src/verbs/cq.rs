//! Completion queues.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use mlx5_sys::cqe::{MINI_FORMAT_CSUM, MINI_FORMAT_CSUM_STRIDX, MINI_FORMAT_HASH};
use mlx5_sys::dv::{
    MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE, MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
    mlx5dv_cq_init_attr, mlx5dv_create_cq,
};
use mlx5_sys::verbs::{
    ibv_ack_cq_events, ibv_cq, ibv_cq_attr_mask, ibv_cq_init_attr_ex, ibv_cq_init_attr_mask,
    ibv_create_cq_attr_flags, ibv_destroy_cq, ibv_moderate_cq, ibv_modify_cq, ibv_modify_cq_attr,
    ibv_req_notify_cq, ibv_resize_cq,
};

use super::placement::{CallbackTarget, QueueAllocator};
use super::td::ParentDomain;
use super::{CompletionChannel, Context, ProtectionDomain};
use crate::error::{Cause, Error, Result, check, non_null};
use crate::ib::CqeCompression;
use crate::verbs::Zeroed;

/// The name of the object in errors.
const QUEUE: &str = "completion queue";

/// The size of a completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CqeSize {
    /// 64 bytes: up to 32 bytes of received data can travel inside.
    #[default]
    B64,
    /// 128 bytes: up to 64 bytes of received data can travel inside.
    B128,
}

impl CqeSize {
    /// In bytes.
    pub const fn bytes(self) -> usize {
        match self {
            CqeSize::B64 => 64,
            CqeSize::B128 => 128,
        }
    }
}

/// `enum mlx5dv_cqe_comp_res_format`.
const fn compression_format(compression: CqeCompression) -> u8 {
    match compression {
        CqeCompression::Hash => MINI_FORMAT_HASH,
        CqeCompression::Checksum => MINI_FORMAT_CSUM,
        CqeCompression::ChecksumStride => MINI_FORMAT_CSUM_STRIDX,
    }
}

/// A completion queue, which any number of queue pairs report to.
pub struct CompletionQueue {
    inner: Arc<CqInner>,
}

/// Keeps a completion queue alive. Clones are cheap.
#[derive(Clone)]
pub struct CompletionQueueHandle {
    inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    cq: NonNull<ibv_cq>,
    cqe_size: CqeSize,
    compression: Option<CqeCompression>,
    ignores_overrun: bool,
    /// Events that were read from the channel, all of them to be acknowledged at the end.
    events: Arc<AtomicU32>,
    /// Whether a reader on the direct path owns the consumer index.
    taken: AtomicBool,
    /// Whether a reader ever did. If so, libmlx5 does not know the consumer index.
    was_taken: AtomicBool,
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
    queue: OnceLock<Weak<CqInner>>,
}

impl EventTarget {
    /// Returns the queue, unless it is being destroyed.
    pub(crate) fn queue(&self) -> Option<CompletionQueueHandle> {
        Some(CompletionQueueHandle { inner: self.queue.get()?.upgrade()? })
    }
}

// SAFETY: libibverbs allows calls on one CQ from several threads; the counters are atomic.
unsafe impl Send for CqInner {}
// SAFETY: libibverbs allows calls on one CQ from several threads at once, and the other fields that
// change are synchronized.
unsafe impl Sync for CqInner {}

impl Drop for CqInner {
    fn drop(&mut self) {
        let events = self.events.load(Ordering::Relaxed);
        if events > 0 {
            // SAFETY: the CQ is alive, and that many of its events were read from its channel.
            unsafe { ibv_ack_cq_events(self.cq.as_ptr(), events) };
        }
        // SAFETY: this crate created the CQ and destroys it once, here, while context and channel
        // are alive. Queue pairs and readers held an Arc of it and are gone.
        unsafe { ibv_destroy_cq(self.cq.as_ptr()) };
    }
}

impl CompletionQueue {
    /// Creates a completion queue of at least `entries` entries of 64 bytes, to be polled.
    ///
    /// # Errors
    /// [`Error::Attribute`]: the number of entries is out of the device's range. [`Error::Call`]
    /// with the memory lock limit named.
    pub fn new(context: &Context, entries: u32) -> Result<CompletionQueue> {
        CompletionQueue::builder(context, entries).build()
    }

    /// Creates a builder for a completion queue of at least `entries` entries.
    pub fn builder(context: &Context, entries: u32) -> CompletionQueueBuilder {
        CompletionQueueBuilder {
            context: context.clone(),
            entries,
            cqe_size: CqeSize::B64,
            compression: None,
            ignores_overrun: false,
            channel: None,
            vector: 0,
            memory: None,
        }
    }

    /// Returns how many completions it holds: a power of two less one, at least what was asked for.
    pub fn capacity(&self) -> u32 {
        // SAFETY: the CQ is alive. Only `resize` changes the field, and it cannot run now: it takes
        // the queue by unique reference.
        unsafe { (*self.as_raw().as_ptr()).cqe }.try_into().unwrap_or(0)
    }

    /// Returns the size of its entries.
    pub fn cqe_size(&self) -> CqeSize {
        self.inner.cqe_size
    }

    /// Returns how the HCA compresses CQEs; `None` if it does not.
    pub fn compression(&self) -> Option<CqeCompression> {
        self.inner.compression
    }

    /// Returns whether the HCA writes CQEs without checking the consumer index.
    pub fn ignores_overrun(&self) -> bool {
        self.inner.ignores_overrun
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
    /// [`Error::QueueInUse`] while the direct path reads the queue, [`Error::Attribute`] without a
    /// channel, [`Error::Call`].
    pub fn request_notification(&self, solicited_only: bool) -> Result<()> {
        if self.inner.taken.load(Ordering::Acquire) {
            return Err(Error::QueueInUse { queue: QUEUE });
        }
        if self.inner.channel.is_none() {
            return Err(Error::attribute(
                "completion channel",
                "none",
                "events go to a channel, which is given when the CQ is made",
            ));
        }
        // SAFETY: the CQ is alive.
        let result = unsafe { ibv_req_notify_cq(self.as_raw().as_ptr(), solicited_only.into()) };
        check("ibv_req_notify_cq", result)
    }

    /// Moderates its events. A requested event comes after `completions` completions, or when
    /// `period` has passed since the first of them. The period is in whole microseconds, up to
    /// 4095. Zero of either ends moderation.
    ///
    /// # Errors
    /// [`Error::Attribute`] for a longer time; [`Error::Call`], for example where the HCA has no
    /// moderation.
    pub fn moderate(&self, completions: u16, period: Duration) -> Result<()> {
        let Some(period) = u16::try_from(period.as_micros()).ok().filter(|it| *it <= 0xfff) else {
            let value = format_args!("{period:?}").to_string();
            return Err(Error::attribute("period", value, "it is up to 4095 microseconds"));
        };
        let mut attributes = ibv_modify_cq_attr {
            attr_mask: ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
            moderate: ibv_moderate_cq { cq_count: completions, cq_period: period },
        };
        // SAFETY: the CQ is alive, and the attributes live through the call.
        check("ibv_modify_cq", unsafe { ibv_modify_cq(self.as_raw().as_ptr(), &mut attributes) })
    }

    /// Resizes the queue to at least `entries` completions, more or fewer than before. Completions
    /// in the queue stay.
    ///
    /// Resize before a [reader](crate::ring::CqReader) takes the queue. libmlx5 moves
    /// completions to the new ring from its own consumer index, which cannot be set. Where the
    /// direct path needs another size, create another CQ.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] once the direct path has read the queue; [`Error::Attribute`] out of
    /// the device's range; [`Error::Call`], for example if the queue holds more completions than
    /// that.
    pub fn resize(&mut self, entries: u32) -> Result<()> {
        if self.inner.was_taken.load(Ordering::Relaxed) {
            return Err(Error::QueueInUse { queue: QUEUE });
        }
        let limit = self.inner.context.attributes()?.max_cqe;
        let wanted = match i32::try_from(entries) {
            Ok(wanted) if wanted > 0 && entries <= limit => wanted,
            _ => {
                let rule = format!("of this device it is 1 to {limit}");
                return Err(Error::attribute("CQ entries", entries, rule));
            }
        };
        // SAFETY: the CQ is alive. No reader has the ring, which the call replaces.
        check("ibv_resize_cq", unsafe { ibv_resize_cq(self.as_raw().as_ptr(), wanted) })
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns a handle that keeps the queue alive.
    pub fn handle(&self) -> CompletionQueueHandle {
        CompletionQueueHandle { inner: Arc::clone(&self.inner) }
    }

    /// Returns the queue, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_cq> {
        self.inner.cq
    }
}

impl CompletionQueueHandle {
    /// Returns the queue. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_cq> {
        self.inner.cq
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the size of its entries.
    pub fn cqe_size(&self) -> CqeSize {
        self.inner.cqe_size
    }

    /// Returns whether the HCA writes CQEs without checking the consumer index.
    pub fn ignores_overrun(&self) -> bool {
        self.inner.ignores_overrun
    }

    /// Returns whether an asynchronous event that this crate has read reported that the HCA failed
    /// it.
    pub(crate) fn has_failed(&self) -> bool {
        self.inner.context.failed_cqs().has(self.inner.cq)
    }

    /// Returns whether both name the same queue.
    pub fn same(&self, other: &CompletionQueueHandle) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Claims the consumer index for one reader until [`release`](Self::release) or the queue's
    /// destruction. Two readers would take each other's completions.
    ///
    /// # Errors
    /// [`Error::QueueInUse`]: the index is claimed already.
    pub(crate) fn claim(&self) -> Result<()> {
        if self.inner.taken.swap(true, Ordering::Acquire) {
            return Err(Error::QueueInUse { queue: QUEUE });
        }
        self.inner.was_taken.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Releases the claim.
    pub(crate) fn release(&self) {
        self.inner.taken.store(false, Ordering::Release);
    }

    /// Counts an event that was read from the channel.
    pub(crate) fn count_event(&self) {
        self.inner.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of events that were read from the channel since the queue was made,
    /// modulo 2^32.
    pub(crate) fn events(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.inner.events)
    }
}

impl PartialEq<CompletionQueue> for CompletionQueueHandle {
    fn eq(&self, other: &CompletionQueue) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.capacity())
            .field("cqe_size", &self.inner.cqe_size)
            .field("channel", &self.inner.channel)
            .finish()
    }
}

impl fmt::Debug for CompletionQueueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueueHandle").field("cq", &self.inner.cq).finish()
    }
}

/// Builder for [`CompletionQueue`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct CompletionQueueBuilder {
    context: Context,
    entries: u32,
    cqe_size: CqeSize,
    compression: Option<CqeCompression>,
    ignores_overrun: bool,
    channel: Option<CompletionChannel>,
    vector: u32,
    memory: Option<(ProtectionDomain, CallbackTarget)>,
}

impl CompletionQueueBuilder {
    /// Sets the size of the entries; 64 bytes if not called.
    pub fn cqe_size(mut self, size: CqeSize) -> Self {
        self.cqe_size = size;
        self
    }

    /// Lets the HCA compress similar completions that come together to eight bytes each. That saves
    /// bus bandwidth and reads. A [reader](crate::ring::CqReader) of this crate handles
    /// compressed CQEs at about the same cost. `ibv_poll_cq` does not: its reports of them are
    /// wrong.
    ///
    /// A compressed completion has no timestamp of its own, only that of its title CQE.
    pub fn compression(mut self, format: CqeCompression) -> Self {
        self.compression = Some(format);
        self
    }

    /// Lets the HCA write CQEs without checking the consumer index
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`). The consumer index need not be published then
    /// ([`Publish::Never`](crate::ring::Publish::Never)). Completions beyond the capacity overwrite
    /// the oldest, without an event. A reader of this crate limits the outstanding WQEs of its
    /// queues to the capacity. A queue pair in the error state flushes more than that if it has
    /// unsignaled WQEs.
    pub fn ignore_overrun(mut self) -> Self {
        self.ignores_overrun = true;
        self
    }

    /// Sets the channel of its events; none if not called.
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Sets the completion vector (interrupt) of its events; 0 if not called.
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Sets the allocator of the ring and doorbell record, for example
    /// [`Placement`](super::Placement); libmlx5 if not called. It is kept until the queue is
    /// destroyed. Verbs take it with a protection domain of the same device, which has no other
    /// meaning for the queue.
    pub fn placement<A: QueueAllocator>(mut self, pd: &ProtectionDomain, memory: &Arc<A>) -> Self {
        self.memory = Some((pd.clone(), CallbackTarget(Arc::<A>::clone(memory))));
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    /// [`Error::Attribute`]: the entries or the vector are out of the device's range, or the
    /// channel belongs to another device. [`Error::Call`] with the memory lock limit named.
    pub fn build(self) -> Result<CompletionQueue> {
        let limit = self.context.attributes()?.max_cqe;
        if self.entries == 0 || self.entries > limit {
            let rule = format!("of this device it is 1 to {limit}");
            return Err(Error::attribute("CQ entries", self.entries, rule));
        }
        let vectors = self.context.completion_vectors();
        if self.vector >= vectors {
            let rule = format!("this device has {vectors}, numbered from 0");
            return Err(Error::attribute("completion vector", self.vector, rule));
        }
        if let Some(channel) = &self.channel {
            if channel.context().as_raw() != self.context.as_raw() {
                return Err(Error::attribute(
                    "completion channel",
                    format_args!("of {}", channel.context().name()),
                    "it belongs to another opened device",
                ));
            }
        }
        let parent = match &self.memory {
            Some((pd, _)) if pd.context().as_raw() != self.context.as_raw() => {
                return Err(Error::attribute(
                    "protection domain",
                    format_args!("of {}", pd.context().name()),
                    "it belongs to another opened device",
                ));
            }
            Some((pd, memory)) => ParentDomain::of(pd, None, Some(memory))?,
            None => None,
        };
        let target = Arc::new(EventTarget::default());
        let cq = self.create(Arc::as_ptr(&target), parent.as_ref())?;
        self.context.failed_cqs().forget(cq);
        let inner = Arc::new(CqInner {
            cq,
            cqe_size: self.cqe_size,
            compression: self.compression,
            ignores_overrun: self.ignores_overrun,
            events: Arc::default(),
            taken: AtomicBool::new(false),
            was_taken: AtomicBool::new(false),
            target,
            channel: self.channel,
            _parent: parent,
            context: self.context,
        });
        // No event comes before the queue made here requests a notification.
        inner.target.queue.set(Arc::downgrade(&inner)).expect("the target is new");
        Ok(CompletionQueue { inner })
    }

    fn create(
        &self,
        target: *const EventTarget,
        parent: Option<&ParentDomain>,
    ) -> Result<NonNull<ibv_cq>> {
        let channel = self.channel.as_ref();
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
