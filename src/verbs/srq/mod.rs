//! Shared receive queues: the type, its builder and its owner, for all back ends.

mod claim;
mod verbs;

use claim::SrqClaim;
pub use verbs::{SrqOptions, VerbsSrq};

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_sys::verbs::ibv_context;

use super::{Backend, Context, Verbs};
use crate::error::{Error, Result};
use crate::ib::Internal;
use crate::ring::SharedReceiveSource;
use crate::ring::source::handover::Shares;
use crate::ring::source::{ObjectId, Retained, SharedView, SrqOwner};

/// A shared receive queue, from which any number of queue pairs take receives, made by back end
/// `B`.
///
/// [`builder`](Self::builder) creates shared receive queues by verbs, and
/// [`by_command`](Self::by_command) by firmware command. Queue pairs by command take from either,
/// those of verbs from those of verbs.
///
/// Clones are cheap and name the same queue. It is destroyed after its last clone, and the last
/// queue pair made with it, are dropped.
///
/// Events of a queue of verbs come from [`Context::async_event`](super::Context::async_event), with
/// the address of [`as_raw`](Self::as_raw) as their source. `SRQ_LIMIT_REACHED` comes once for each
/// [`set_limit`](Self::set_limit). `QP_LAST_WQE_REACHED` means that a queue pair in the error state
/// takes no more receives from the queue. Events of a queue by command come to an
/// [`EventChannel`](crate::devx::EventChannel).
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::verbs::{QueuePair, SharedReceiveQueue};
///
/// let srq = SharedReceiveQueue::builder(&pd).max_wr(256).build()?;
/// // Two connections take their receives from it. `ring::Srq` posts them.
/// let first = QueuePair::builder(&pd, &cq).shared_receive_queue(&srq).build()?;
/// let second = QueuePair::builder(&pd, &cq).shared_receive_queue(&srq).build()?;
/// assert!(first.shared_receive_queue().is_some() && srq.capacity() >= 256);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_srq", "ibv_destroy_srq"))]
pub struct SharedReceiveQueue<B: Backend = Verbs> {
    srq: Arc<Srq<B::Srq>>,
}

impl<B: Backend> Clone for SharedReceiveQueue<B> {
    fn clone(&self) -> Self {
        Self { srq: Arc::clone(&self.srq) }
    }
}

/// A shared receive queue, as its users own it.
pub struct Srq<O: SrqPart> {
    max_wr: u32,
    max_sge: u32,
    claim: SrqClaim,
    /// Set when the queue is destroyed, so that no completion is expected any more.
    destroyed: Arc<AtomicBool>,
    /// Memory of receives that the HCA may write until the queue is destroyed.
    retained: Retained,
    part: O,
}

/// A back end's part of a shared receive queue.
pub trait SrqPart: Send + Sync + Sized + 'static {
    /// Returns the device.
    fn context(&self) -> &Context;

    /// Returns its number.
    fn number(&self) -> Result<u32>;

    /// Requests one event when fewer than `receives` are posted.
    fn set_limit(&self, receives: u32) -> Result<()>;

    /// Queries capacity and limit.
    fn query(&self) -> Result<SharedReceiveAttributes>;

    /// Returns whether queue pairs take from it directly, and not the receive that each request
    /// names.
    fn is_plain(&self) -> bool;

    /// Returns the identity of the object.
    fn id(&self) -> ObjectId;

    /// Returns its addresses and parameters.
    ///
    /// # Safety
    /// The caller has claimed the queue, so nothing writes the list of WQEs, which is read.
    unsafe fn view(&self, order: Option<Box<[u16]>>) -> Result<SharedView>;

    /// Destroys the queue, once, and returns whether it is gone.
    fn destroy(&mut self) -> bool;
}

impl<O: SrqPart> Drop for Srq<O> {
    fn drop(&mut self) {
        let gone = self.part.destroy();
        self.destroyed.store(gone, Ordering::Release);
        if gone {
            // SAFETY: the queue is destroyed, and no claimant exists that could add memory.
            unsafe { self.retained.free() };
        }
    }
}

impl<O: SrqPart> SrqOwner for Srq<O> {
    fn claim(&self) -> Result<Option<Box<[u16]>>> {
        self.claim.claim()
    }

    fn release(&self, order: Option<Box<[u16]>>) {
        self.claim.release(order);
    }

    fn unclaim(&self, order: Option<Box<[u16]>>) {
        self.claim.unclaim(order);
    }

    fn retain(&self, memory: Box<dyn Send>) {
        self.retained.add(memory);
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.destroyed)
    }
}

/// Capacity and limit of a shared receive queue.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::verbs::SharedReceiveQueue;
///
/// let srq = SharedReceiveQueue::builder(&pd).max_wr(64).max_sge(2).build()?;
/// let attributes = srq.query()?;
/// assert!(attributes.max_wr >= 64 && attributes.limit == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_srq_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveAttributes {
    /// WQEs that the kernel made it for. libmlx5 makes about twice as many as can be posted, and
    /// reserves the others for receives that met a page fault.
    pub max_wr: u32,
    /// Scatter/gather entries of a receive.
    pub max_sge: u32,
    /// An event comes when fewer receives than this are posted; 0: no event.
    pub limit: u32,
}

impl<B: Backend> SharedReceiveQueue<B> {
    /// Returns a queue for `max_wr` receives that its back end has just made.
    pub(crate) fn of(max_wr: u32, max_sge: u32, part: B::Srq) -> SharedReceiveQueue<B> {
        let (claim, destroyed) = (SrqClaim::default(), Arc::default());
        let retained = Retained::default();
        let srq = Srq { max_wr, max_sge, claim, destroyed, retained, part };
        SharedReceiveQueue { srq: Arc::new(srq) }
    }

    /// Returns how many receives can be posted: at least the requested number.
    pub fn capacity(&self) -> u32 {
        self.srq.max_wr
    }

    /// Returns the number of scatter/gather entries that a receive may have.
    pub fn max_sge(&self) -> u32 {
        self.srq.max_sge
    }

    /// Returns the number by which requests on extended reliable connections name it. 24 bits.
    ///
    /// # Errors
    /// By verbs: [`Error::Queue`] if it is not a queue of libmlx5. By command: none.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Result<u32> {
        self.srq.part.number()
    }

    /// Requests one event when fewer than `receives` are posted, which may be at once. 0 requests
    /// none.
    ///
    /// # Errors
    /// [`Error::Attribute`] beyond the capacity; [`Error::Call`] by verbs, [`Error::Refused`] by
    /// command.
    #[doc(alias("ibv_modify_srq", "IBV_SRQ_LIMIT"))]
    pub fn set_limit(&self, receives: u32) -> Result<()> {
        if receives > self.capacity() {
            let rule = format!("the queue holds {}", self.capacity());
            return Err(Error::attribute("limit", receives, rule));
        }
        self.srq.part.set_limit(receives)
    }

    /// Queries the attributes of the queue. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`] by verbs, [`Error::Refused`] by command.
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SharedReceiveAttributes> {
        self.srq.part.query()
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.srq.part.context()
    }

    pub(crate) fn part(&self) -> &B::Srq {
        &self.srq.part
    }

    /// Returns the flag that is set when the queue is destroyed.
    pub(super) fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.srq.destroyed)
    }
}

// SAFETY: the owner keeps the queue alive, with its memory, which does not move. The claim keeps other
// writers of this crate away. Users of the raw pointer of an SRQ of verbs guarantee the same. Users
// of a umem guarantee not to write where queues lie.
unsafe impl<B: Backend> Shares for SharedReceiveQueue<B> {
    fn owner(&self, _: Internal) -> Arc<dyn SrqOwner> {
        Arc::<Srq<B::Srq>>::clone(&self.srq)
    }

    fn device(&self) -> NonNull<ibv_context> {
        self.context().as_raw()
    }

    unsafe fn shared(&self, order: Option<Box<[u16]>>) -> Result<SharedView> {
        // SAFETY: the caller has claimed the queue.
        unsafe { self.srq.part.view(order) }
    }

    fn number(&self) -> Result<u32> {
        self.srq.part.number()
    }

    fn id(&self) -> ObjectId {
        self.srq.part.id()
    }

    fn is_plain(&self) -> bool {
        self.srq.part.is_plain()
    }
}

impl<B: Backend> SharedReceiveSource for SharedReceiveQueue<B> {}

impl<B: Backend> fmt::Debug for SharedReceiveQueue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("capacity", &self.capacity())
            .field("max_sge", &self.max_sge())
            .field("plain", &self.srq.part.is_plain())
            .finish_non_exhaustive()
    }
}

/// Builder for [`SharedReceiveQueue`], by back end `B`.
///
/// See the examples on [`SharedReceiveQueue`] and, for XRC, on [`XrcDomain`](super::XrcDomain).
#[doc(alias("ibv_srq_init_attr", "ibv_srq_init_attr_ex"))]
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct SharedReceiveQueueBuilder<B: Backend = Verbs> {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    /// What only this back end has.
    pub(crate) options: B::SrqOptions,
}

impl<B: Backend> SharedReceiveQueueBuilder<B> {
    pub(crate) fn with(options: B::SrqOptions) -> Self {
        Self { max_wr: 64, max_sge: 1, options }
    }

    /// Sets how many receives it holds at least.
    pub fn max_wr(mut self, receives: u32) -> Self {
        self.max_wr = receives;
        self
    }

    /// Sets the number of scatter/gather entries of a receive.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: beyond the device's limits, or an object of another device.
    /// - [`Error::Call`] with the memory lock limit named.
    /// - By command: [`Error::NoCapability`], [`Error::Refused`], [`Error::Withheld`],
    ///   [`Error::NoDevx`].
    #[doc(alias("ibv_create_srq", "ibv_create_srq_ex"))]
    pub fn build(self) -> Result<SharedReceiveQueue<B>> {
        B::build_srq(self)
    }

    /// Checks the sizes against the device's limits.
    pub(crate) fn check_sizes(&self, context: &Context) -> Result<()> {
        let limits = context.attributes()?;
        for (attribute, value, limit) in [
            ("max_wr", self.max_wr, limits.max_srq_wr),
            ("max_sge", self.max_sge, limits.max_srq_sge),
        ] {
            if !(1..=limit).contains(&value) {
                let rule = format!("of a shared receive queue of this device it is 1 to {limit}");
                return Err(Error::attribute(attribute, value, rule));
            }
        }
        Ok(())
    }
}
