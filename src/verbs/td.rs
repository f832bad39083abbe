//! Thread domains: a doorbell register for one thread.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::verbs::{
    ibv_alloc_parent_domain, ibv_alloc_td, ibv_dealloc_pd, ibv_dealloc_td,
    ibv_parent_domain_init_attr, ibv_parent_domain_init_attr_mask as mask, ibv_pd, ibv_td,
    ibv_td_init_attr,
};

use super::placement::{self, CallbackTarget};
use super::{Context, ProtectionDomain};
use crate::error::{Result, non_null};
use crate::verbs::Zeroed;

/// A thread domain: its queue pairs have a doorbell register that no other queue pair uses.
///
/// Without one, libmlx5 distributes the queue pairs of a context over a few registers (16 by
/// default), so that two of them may share one. A WQE may be copied to a register (BlueFlame) only
/// while no other queue stores to it. So make a thread domain for each queue pair, or for each
/// thread and the queue pairs that only it uses.
///
/// Clones are cheap and name the same domain. It is freed after its last clone, and the last queue
/// pair made in it, are dropped. Each takes a page of the HCA's register space.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::verbs::{QueuePair, ThreadDomain};
///
/// // Queues of one thread: a doorbell register that no other thread stores to.
/// let domain = ThreadDomain::new(&context)?;
/// let qp = QueuePair::builder(&pd, &cq).thread_domain(&domain).build()?;
/// drop(domain); // the queue pair keeps it
/// assert!(qp.number() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_td", "ibv_dealloc_td"))]
#[derive(Clone)]
pub struct ThreadDomain {
    inner: Arc<TdInner>,
}

struct TdInner {
    td: NonNull<ibv_td>,
    context: Context,
}

// SAFETY: libibverbs allows calls on one thread domain from several threads. Only posting to its
// queues is restricted to one thread at a time.
unsafe impl Send for TdInner {}
// SAFETY: libibverbs allows calls on one thread domain from several threads at once. Only posting
// to its queues is restricted to one thread at a time, by the claims of its register.
unsafe impl Sync for TdInner {}

impl Drop for TdInner {
    fn drop(&mut self) {
        // SAFETY: this crate allocated the domain and frees it once, here. Parent domains held an
        // Arc of it and are gone.
        unsafe { ibv_dealloc_td(self.td.as_ptr()) };
    }
}

impl ThreadDomain {
    /// Creates a new domain.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call): ENOSPC or ENOMEM if the HCA has no UAR page left.
    #[doc(alias = "ibv_alloc_td")]
    pub fn new(context: &Context) -> Result<ThreadDomain> {
        let mut attributes = ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and the attributes live through the call.
        let td = unsafe { ibv_alloc_td(context.as_raw().as_ptr(), &mut attributes) };
        let td = non_null("ibv_alloc_td", td.unwrap_or(std::ptr::null_mut()))?;
        Ok(ThreadDomain { inner: Arc::new(TdInner { td, context: context.clone() }) })
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl fmt::Debug for ThreadDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadDomain").field("context", &self.inner.context).finish()
    }
}

/// A protection domain, extended by the doorbell register of a thread domain and by an allocator.
pub(crate) struct ParentDomain {
    domain: NonNull<ibv_pd>,
    /// The allocator that libmlx5 calls, in a leaked box.
    target: Option<NonNull<CallbackTarget>>,
    /// Freed after the parent domain.
    _pd: ProtectionDomain,
    _td: Option<ThreadDomain>,
}

// SAFETY: libibverbs allows calls on a parent domain from any thread, and its parts are `Send`.
unsafe impl Send for ParentDomain {}
// SAFETY: a shared reference only gives out the raw pointer, and its parts are `Sync`.
unsafe impl Sync for ParentDomain {}

impl Drop for ParentDomain {
    fn drop(&mut self) {
        // SAFETY: this crate allocated the domain and frees it once, here, before its two domains.
        let result = unsafe { ibv_dealloc_pd(self.domain.as_ptr()) };
        // If a queue could not be destroyed, its memory stays allocated, and so does its allocator.
        if let (0, Some(target)) = (result, self.target) {
            // SAFETY: the box was leaked when the domain was made and is taken back once, here. No
            // call uses it any more, because the domain is freed.
            drop(unsafe { Box::from_raw(target.as_ptr()) });
        }
    }
}

impl ParentDomain {
    /// Returns the parent domain to make a queue in; `None` if `pd` itself suffices.
    pub(crate) fn of(
        pd: &ProtectionDomain,
        td: Option<&ThreadDomain>,
        memory: Option<&CallbackTarget>,
    ) -> Result<Option<ParentDomain>> {
        if td.is_none() && memory.is_none() {
            return Ok(None);
        }
        Self::new(pd, td, memory).map(Some)
    }

    fn new(
        pd: &ProtectionDomain,
        td: Option<&ThreadDomain>,
        memory: Option<&CallbackTarget>,
    ) -> Result<ParentDomain> {
        let mut attributes = ibv_parent_domain_init_attr::zeroed();
        attributes.pd = pd.as_raw().as_ptr();
        attributes.td = td.map_or(std::ptr::null_mut(), |td| td.inner.td.as_ptr());
        let target = memory.map(|memory| Box::new(memory.clone()));
        let target = target.map(|target| NonNull::from(Box::leak(target)));
        if let Some(target) = target {
            attributes.comp_mask = (mask::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
                | mask::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
                .0;
            attributes.alloc = Some(placement::allocate);
            attributes.free = Some(placement::free);
            attributes.pd_context = target.as_ptr().cast();
        }
        // SAFETY: the domains are alive and of one context, and the attributes live through the
        // call. The callback target is freed only after the domain.
        let domain =
            unsafe { ibv_alloc_parent_domain(pd.context().as_raw().as_ptr(), &mut attributes) };
        let domain = non_null("ibv_alloc_parent_domain", domain.unwrap_or(std::ptr::null_mut()))
            .inspect_err(|_| {
                if let Some(target) = target {
                    // SAFETY: the box was leaked above, and no other code has its pointer.
                    drop(unsafe { Box::from_raw(target.as_ptr()) });
                }
            })?;
        Ok(ParentDomain { domain, target, _pd: pd.clone(), _td: td.cloned() })
    }

    pub(crate) fn as_raw(&self) -> NonNull<ibv_pd> {
        self.domain
    }
}
