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

use super::error::{check, non_null};
use super::placement::{CallbackTarget, QueueAllocator};
use super::td::ParentDomain;
use super::{Cause, CompletionChannel, Context, Error, ProtectionDomain, Result};
use crate::ib::CqeCompression;
use crate::verbs::Zeroed;

/// What errors call it.
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
    /// Whether one ever did: then libmlx5 does not know the consumer index.
    was_taken: AtomicBool,
    /// What events of the queue name.
    target: Arc<EventTarget>,
    channel: Option<CompletionChannel>,
    /// Where the memory is somebody else's; freed after the queue.
    _parent: Option<ParentDomain>,
    context: Context,
}

/// The `cq_context` of a queue, by which an event finds it. It outlives the verbs queue.
#[derive(Default)]
pub(crate) struct EventTarget {
    queue: OnceLock<Weak<CqInner>>,
}

impl EventTarget {
    /// The queue, unless it is being destroyed.
    pub(crate) fn queue(&self) -> Option<CompletionQueueHandle> {
        Some(CompletionQueueHandle { inner: self.queue.get()?.upgrade()? })
    }
}

// SAFETY: libibverbs allows calls on one CQ from several threads; the counters are atomic.
unsafe impl Send for CqInner {}
// SAFETY: libibverbs allows calls on one CQ from several threads at once, and what this crate keeps
// beside it is atomic.
unsafe impl Sync for CqInner {}

impl Drop for CqInner {
    fn drop(&mut self) {
        let events = self.events.load(Ordering::Relaxed);
        if events > 0 {
            // SAFETY: the CQ is alive, and that many of its events were read from its channel.
            unsafe { ibv_ack_cq_events(self.cq.as_ptr(), events) };
        }
        // SAFETY: created by this crate, destroyed once, here, while context and channel live;
        // queue pairs and readers held an Arc of it and are gone.
        unsafe { ibv_destroy_cq(self.cq.as_ptr()) };
    }
}

impl CompletionQueue {
    /// A completion queue of at least `entries` entries of 64 bytes, to be polled.
    ///
    /// # Errors
    /// As [`CompletionQueueBuilder::build`].
    pub fn new(context: &Context, entries: u32) -> Result<CompletionQueue> {
        CompletionQueue::builder(context, entries).build()
    }

    /// A completion queue of at least `entries` entries, with more to choose.
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

    /// How many completions it holds: a power of two less one, at least what was asked for.
    pub fn capacity(&self) -> u32 {
        // SAFETY: the CQ is alive, and the field changes by `resize` only, which nobody else can be
        // in: it takes the queue by unique reference.
        unsafe { (*self.as_raw().as_ptr()).cqe }.try_into().unwrap_or(0)
    }

    /// The size of its entries.
    pub fn cqe_size(&self) -> CqeSize {
        self.inner.cqe_size
    }

    /// How the card compresses what it writes to it, if it does.
    pub fn compression(&self) -> Option<CqeCompression> {
        self.inner.compression
    }

    /// Whether the card writes to it without a look at how far it was read.
    pub fn ignores_overrun(&self) -> bool {
        self.inner.ignores_overrun
    }

    /// Asks for one event on the channel when the next completion arrives; of a solicited message
    /// or an error only, if `solicited_only`. Completions that are already there make none: poll
    /// once more after asking.
    ///
    /// For queues that `ibv_poll_cq` empties. libmlx5 does not know how far a reader on the direct
    /// path has come: that one asks by itself, by [`Completions::arm`](crate::ring::Completions::arm).
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

    /// Moderates its events: one that was asked for comes when so many completions have, or when so
    /// much time has passed since the first of them; whole microseconds, up to 4095. Zero of either
    /// ends moderation.
    ///
    /// # Errors
    /// [`Error::Attribute`] for a longer time, [`Error::Call`]: the card may not have it.
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

    /// Makes it hold at least `entries` completions, more or fewer than before; those that are there
    /// stay.
    ///
    /// That is before a [reader](crate::ring::Completions) takes it over: libmlx5 carries completions
    /// to the new ring from where it believes that the old one was read to, and cannot be told where
    /// that is. Where the direct path needs another size, make another CQ.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] once the direct path has read it, [`Error::Attribute`] out of the device's
    /// range, [`Error::Call`]: more completions are there than that, say.
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
        // SAFETY: the CQ is alive; nobody has its ring, which is replaced.
        check("ibv_resize_cq", unsafe { ibv_resize_cq(self.as_raw().as_ptr(), wanted) })
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// What keeps the queue alive.
    pub fn handle(&self) -> CompletionQueueHandle {
        CompletionQueueHandle { inner: Arc::clone(&self.inner) }
    }

    /// The queue, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_cq> {
        self.inner.cq
    }
}

impl CompletionQueueHandle {
    /// The queue. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_cq> {
        self.inner.cq
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The size of its entries.
    pub fn cqe_size(&self) -> CqeSize {
        self.inner.cqe_size
    }

    /// Whether the card writes to it without a look at how far it was read.
    pub fn ignores_overrun(&self) -> bool {
        self.inner.ignores_overrun
    }

    /// Whether an asynchronous event that this crate has read reported that the HCA failed it.
    pub(crate) fn has_failed(&self) -> bool {
        self.inner.context.failed_cqs().has(self.inner.cq)
    }

    /// Whether both name the same queue.
    pub fn same(&self, other: &CompletionQueueHandle) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Claims the consumer index for one reader, for the rest of the queue's life or until
    /// [`release`](Self::release): two readers would take each other's completions.
    ///
    /// # Errors
    /// [`Error::QueueInUse`].
    pub(crate) fn claim(&self) -> Result<()> {
        if self.inner.taken.swap(true, Ordering::Acquire) {
            return Err(Error::QueueInUse { queue: QUEUE });
        }
        self.inner.was_taken.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the claim back.
    pub(crate) fn release(&self) {
        self.inner.taken.store(false, Ordering::Release);
    }

    /// Counts an event that was read from the channel.
    pub(crate) fn count_event(&self) {
        self.inner.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Events that were read from the channel since the queue was made, modulo 2^32.
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

/// What a completion queue is to be like.
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
    /// The size of its entries; 64 bytes if not called.
    pub fn cqe_size(mut self, size: CqeSize) -> Self {
        self.cqe_size = size;
        self
    }

    /// Lets the card compress completions that come together and are alike, to eight bytes each: less
    /// to write over the bus, and less to read. A [reader](crate::ring::Completions) of this crate
    /// takes them as all others, at about the same cost. `ibv_poll_cq` does not know them: what it
    /// reports of them is wrong.
    ///
    /// What is compressed has no time of its own, but that of the first of them.
    pub fn compression(mut self, format: CqeCompression) -> Self {
        self.compression = Some(format);
        self
    }

    /// Lets the card write to it without a look at how far it was read
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`): the consumer index need not be told then
    /// ([`Publish::Never`](crate::ring::Publish::Never)). If more completions come than it holds,
    /// the oldest are overwritten, and no event says so. A reader of this crate lets its queues have
    /// no more outstanding; what a queue pair in the error state flushes is more, where unsignaled
    /// requests are among it.
    pub fn ignore_overrun(mut self) -> Self {
        self.ignores_overrun = true;
        self
    }

    /// The channel that its events go to; none if not called.
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// The completion vector (interrupt) that its events use; 0 if not called.
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// What gives the queue the memory of its ring and record, [`Placement`](super::Placement) for
    /// one; libmlx5 itself if not called. It is kept until the queue is destroyed. Verbs take it with
    /// a protection domain of the same device, which has no other meaning for the queue.
    pub fn placement<A: QueueAllocator>(mut self, pd: &ProtectionDomain, memory: &Arc<A>) -> Self {
        self.memory = Some((pd.clone(), CallbackTarget(Arc::<A>::clone(memory))));
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    /// [`Error::Attribute`] where the entries or the vector are out of the device's range, or the
    /// channel is another device's; [`Error::Call`] with the memory lock limit named.
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
        // No event comes before a notification is requested, which takes the queue made here.
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
        // Always told, because libmlx5 otherwise takes the size from an environment variable.
        mlx5.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE as u64;
        mlx5.cqe_size = self.cqe_size.bytes() as u16;
        if let Some(compression) = self.compression {
            mlx5.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE as u64;
            mlx5.cqe_comp_res_format = compression_format(compression);
        }
        // SAFETY: the context is open, the attributes live through the call, and the channel
        // outlives the queue, which holds it.
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
