//! Completion queues: the type, its builder and its owner, for all back ends.

mod verbs;

pub(crate) use verbs::EventTarget;
pub use verbs::{CqOptions, VerbsCq};

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5_sys::verbs::ibv_context;

use super::{Backend, Context, Verbs};
use crate::error::{Error, Result};
use crate::ib::{CqeCompression, Internal};
use crate::ring::source::handover::Completes;
use crate::ring::source::{CompletionView, CqCheck, CqOwner};
use crate::ring::{CompletionSource, Titles};

/// The name of the object in errors.
const QUEUE: &str = "completion queue";

/// The size of a completion queue entry.
///
/// See the example on [`CompletionQueueBuilder`].
#[doc(alias = "mlx5dv_cq_init_attr")]
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

/// A completion queue, which any number of queue pairs report to, made by back end `B`.
///
/// [`builder`](Self::builder) creates completion queues by verbs, and
/// [`by_command`](Self::by_command) by firmware command. [`CqReader`](crate::ring::CqReader) reads
/// both. Queue pairs by command complete on either. Verbs queue pairs complete on those of verbs
/// alone: libibverbs and the kernel take a `struct ibv_cq`, a kernel object for a CQ that the
/// kernel's driver has made.
///
/// Clones are cheap and name the same queue. It is destroyed after its last clone, and the last
/// queue pair and reader made with it, are dropped.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::ring::CqReader;
/// use mlx5::verbs::CompletionQueue;
///
/// let cq = CompletionQueue::new(&context, 100)?;
/// assert!(cq.capacity() >= 100 && cq == cq.clone());
/// // This crate polls it from now on.
/// let mut reader = CqReader::new(&cq)?;
/// assert!(reader.poll(&mut ())?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_cq", "ibv_cq_ex", "ibv_destroy_cq"))]
pub struct CompletionQueue<B: Backend = Verbs> {
    cq: Arc<Cq<B::Cq>>,
}

/// A completion queue, as readers and queue pairs own it.
pub struct Cq<O: CqPart> {
    cqe_size: CqeSize,
    compression: Option<CqeCompression>,
    ignores_overrun: bool,
    /// Events that were read from the channel.
    pub(crate) events: Arc<AtomicU32>,
    /// Whether a reader on the direct path owns the consumer index.
    taken: AtomicBool,
    /// Whether a reader ever did. If so, libmlx5 does not know the consumer index.
    was_taken: AtomicBool,
    pub(crate) part: O,
}

/// A back end's part of a completion queue.
pub trait CqPart: Send + Sync + Sized + 'static {
    /// Returns the device.
    fn context(&self) -> &Context;

    /// Returns how many completions it holds.
    fn capacity(&self) -> u32;

    /// Moderates its events; the period is in microseconds, below 4096.
    fn moderate(&self, completions: u16, period: u16) -> Result<()>;

    /// Checks whether the HCA failed the CQ `cqn`.
    fn check(&self, cqn: u32) -> CqCheck;

    /// Returns its addresses and parameters.
    fn view(cq: &Cq<Self>) -> Result<CompletionView>;

    /// Returns where a CQ of the enhanced layout keeps its titles for the next reader.
    fn titles(&self) -> Option<&Mutex<Titles>> {
        None
    }

    /// Prepares its destruction, after `events` events were read.
    fn end(&mut self, _events: u32) {}
}

impl<O: CqPart> Cq<O> {
    /// Returns a new completion queue with the options of its builder.
    pub(crate) fn new<B: Backend>(builder: &CompletionQueueBuilder<B>, part: O) -> Cq<O> {
        Cq {
            cqe_size: builder.cqe_size,
            compression: builder.compression,
            ignores_overrun: builder.ignores_overrun,
            events: Arc::default(),
            taken: AtomicBool::new(false),
            was_taken: AtomicBool::new(false),
            part,
        }
    }

    pub(crate) fn cqe_size(&self) -> CqeSize {
        self.cqe_size
    }

    pub(crate) fn compression(&self) -> Option<CqeCompression> {
        self.compression
    }
}

impl<O: CqPart> Cq<O> {
    /// Calls `work` while no reader has the consumer index, and none can claim it.
    fn without_reader<R>(&self, work: impl FnOnce() -> R) -> Result<R> {
        if self.taken.swap(true, Ordering::Acquire) {
            return Err(Error::QueueInUse { queue: QUEUE });
        }
        let result = work();
        self.taken.store(false, Ordering::Release);
        Ok(result)
    }
}

impl<O: CqPart> Drop for Cq<O> {
    fn drop(&mut self) {
        self.part.end(self.events.load(Ordering::Relaxed));
    }
}

impl<O: CqPart> CqOwner for Cq<O> {
    /// Claims the consumer index for one reader until [`release`](Self::release) or the queue's
    /// destruction. Two readers would take each other's completions.
    fn claim(&self) -> Result<()> {
        if self.taken.swap(true, Ordering::Acquire) {
            return Err(Error::QueueInUse { queue: QUEUE });
        }
        self.was_taken.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    fn ignores_overrun(&self) -> bool {
        self.ignores_overrun
    }

    fn events(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.events)
    }

    fn check(&self, cqn: u32) -> CqCheck {
        self.part.check(cqn)
    }

    fn titles(&self) -> Option<&Mutex<Titles>> {
        self.part.titles()
    }
}

impl<B: Backend> CompletionQueue<B> {
    /// Returns a completion queue that its back end has just made.
    pub(crate) fn of(cq: Arc<Cq<B::Cq>>) -> CompletionQueue<B> {
        CompletionQueue { cq }
    }

    /// Returns how many completions it holds, at least what was asked for: a power of two less one
    /// by verbs, a power of two by command.
    pub fn capacity(&self) -> u32 {
        self.cq.part.capacity()
    }

    /// Returns the size of its entries.
    pub fn cqe_size(&self) -> CqeSize {
        self.cq.cqe_size
    }

    /// Returns how the HCA compresses CQEs, in either layout; `None` if it does not.
    pub fn compression(&self) -> Option<CqeCompression> {
        self.cq.compression
    }

    /// Returns whether the HCA writes CQEs without checking the consumer index.
    pub fn ignores_overrun(&self) -> bool {
        self.cq.ignores_overrun
    }

    /// Moderates its events. A requested event comes after `completions` completions, or when
    /// `period` has passed since the first of them. The period is in whole microseconds, up to
    /// 4095. Zero of either ends moderation.
    ///
    /// # Errors
    /// [`Error::Attribute`] for a longer time; for example where the HCA has no moderation,
    /// [`Error::Call`] by verbs, [`Error::Refused`] by command.
    #[doc(alias("ibv_modify_cq", "ibv_moderate_cq"))]
    pub fn moderate(&self, completions: u16, period: Duration) -> Result<()> {
        self.cq.part.moderate(completions, microseconds(period)?)
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.cq.part.context()
    }

    pub(crate) fn cq(&self) -> &Arc<Cq<B::Cq>> {
        &self.cq
    }
}

// SAFETY: the owner keeps the CQ alive, with its ring and register. They do not move: this crate does
// not resize a claimed CQ, and a CQ by command owns its parts of umems. The claim keeps other readers
// away. Users of the raw pointer guarantee neither to read nor to resize a claimed CQ.
unsafe impl<B: Backend> Completes for CompletionQueue<B> {
    fn owner(&self, _: Internal) -> Arc<dyn CqOwner> {
        Arc::<Cq<B::Cq>>::clone(&self.cq)
    }

    fn device(&self) -> NonNull<ibv_context> {
        self.context().as_raw()
    }

    fn completions(&self) -> Result<CompletionView> {
        CqPart::view(&self.cq)
    }
}

impl<B: Backend> CompletionSource for CompletionQueue<B> {}

impl<B: Backend> Clone for CompletionQueue<B> {
    fn clone(&self) -> Self {
        Self { cq: Arc::clone(&self.cq) }
    }
}

/// Whether both name the same queue.
impl<B: Backend> PartialEq for CompletionQueue<B> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cq, &other.cq)
    }
}

impl<B: Backend> Eq for CompletionQueue<B> {}

impl<B: Backend> fmt::Debug for CompletionQueue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("capacity", &self.capacity())
            .field("cqe_size", &self.cqe_size())
            .finish_non_exhaustive()
    }
}

/// Converts a moderation period to whole microseconds: 12 bits.
pub(crate) fn microseconds(period: Duration) -> Result<u16> {
    u16::try_from(period.as_micros()).ok().filter(|it| *it <= 0xfff).ok_or_else(|| {
        let value = format_args!("{period:?}").to_string();
        Error::attribute("period", value, "it is up to 4095 microseconds")
    })
}

/// Builder for [`CompletionQueue`], by back end `B`.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::verbs::attr::CqeSize;
/// use mlx5::verbs::{CompletionChannel, CompletionQueue};
///
/// let channel = CompletionChannel::new(&context)?;
/// let cq = CompletionQueue::builder(&context, 256)
///     .channel(&channel)
///     .vector(0)
///     .cqe_size(CqeSize::B128)
///     .build()?;
/// assert_eq!(cq.cqe_size().bytes(), 128);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_cq_init_attr_ex", "mlx5dv_cq_init_attr"))]
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct CompletionQueueBuilder<B: Backend = Verbs> {
    pub(crate) context: Context,
    pub(crate) entries: u32,
    pub(crate) cqe_size: CqeSize,
    pub(crate) compression: Option<CqeCompression>,
    pub(crate) ignores_overrun: bool,
    pub(crate) vector: u32,
    /// The options of this back end alone.
    pub(crate) options: B::CqOptions,
}

impl<B: Backend> CompletionQueueBuilder<B> {
    pub(crate) fn with(context: &Context, entries: u32, options: B::CqOptions) -> Self {
        Self {
            context: context.clone(),
            entries,
            cqe_size: CqeSize::B64,
            compression: None,
            ignores_overrun: false,
            vector: 0,
            options,
        }
    }

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
    #[doc(alias = "MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE")]
    pub fn compression(mut self, format: CqeCompression) -> Self {
        self.compression = Some(format);
        self
    }

    /// Lets the HCA write CQEs without checking the consumer index
    /// (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`). The consumer index need not be published then
    /// ([`Publish::Never`](crate::expert::Publish::Never)). Completions beyond the capacity overwrite
    /// the oldest, without an event.
    ///
    /// # Safety
    /// The caller ensures that the CQ never has more CQEs to be polled than entries. Polls read CQEs
    /// in place, and the HCA must not overwrite one meanwhile. A queue that completes on a reader of
    /// this crate reserves an entry for each completion that it asks for. But a queue pair in the
    /// error state writes a CQE for each outstanding WQE, signaled or not. So either the CQ has an
    /// entry for each WQE of all its queues, or all WQEs are signaled.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub unsafe fn ignore_overrun(mut self) -> Self {
        self.ignores_overrun = true;
        self
    }

    /// Sets the completion vector (interrupt) of its events; 0 if not called.
    #[doc(alias = "comp_vector")]
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: the entries or the vector are out of the device's range, an object
    ///   belongs to another device, or (by command) a place is in use, misaligned or out of range.
    /// - [`Error::Call`] with the memory lock limit named.
    /// - By command: [`Error::NoUar`], [`Error::NoCapability`], [`Error::Refused`],
    ///   [`Error::Withheld`], [`Error::NoDevx`].
    #[doc(alias("ibv_create_cq", "ibv_create_cq_ex", "mlx5dv_create_cq"))]
    pub fn build(self) -> Result<CompletionQueue<B>> {
        B::build_cq(self)
    }

    /// Checks that the device has the completion vector.
    pub(crate) fn check_vector(&self) -> Result<()> {
        let vectors = self.context.completion_vectors();
        if self.vector >= vectors {
            let rule = format!("this device has {vectors}, numbered from 0");
            return Err(Error::attribute("completion vector", self.vector, rule));
        }
        Ok(())
    }
}
