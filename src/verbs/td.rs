//! Thread domains: a doorbell register for one thread.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::verbs::{
    ibv_alloc_parent_domain, ibv_alloc_td, ibv_dealloc_pd, ibv_dealloc_td,
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};

use super::error::non_null;
use super::{Context, ProtectionDomain, Result};

/// A thread domain: its queue pairs share one doorbell register, with each other and no one else.
///
/// Without one, libmlx5 deals the queue pairs of a context out over a few registers (16 by default),
/// so that two of them may meet on one. A WQE may be copied to a register (BlueFlame) only where no
/// other queue stores to it at the same time: make a thread domain for each queue pair, or for each
/// thread and queue pairs that it alone uses.
///
/// Clones are cheap and name the same domain, which is freed when the last of them, and the last
/// queue pair made in it, is gone. Each takes a page of the card's register space.
#[derive(Clone)]
pub struct ThreadDomain {
    inner: Arc<TdInner>,
}

struct TdInner {
    td: NonNull<ibv_td>,
    context: Context,
}

// SAFETY: libibverbs allows calls on one thread domain from several threads; only posting to its
// queues is left to one.
unsafe impl Send for TdInner {}
// SAFETY: as above.
unsafe impl Sync for TdInner {}

impl Drop for TdInner {
    fn drop(&mut self) {
        // SAFETY: allocated by this crate, freed once, here; parent domains held an Arc of it and
        // are gone.
        unsafe { ibv_dealloc_td(self.td.as_ptr()) };
    }
}

impl ThreadDomain {
    /// A new domain.
    ///
    /// # Errors
    /// [`Error::Call`](super::Error::Call): ENOSPC or ENOMEM where the card has no register page
    /// left.
    pub fn new(context: &Context) -> Result<ThreadDomain> {
        let mut attributes = ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and the attributes live through the call.
        let td = unsafe { ibv_alloc_td(context.as_raw().as_ptr(), &mut attributes) };
        let td = non_null("ibv_alloc_td", td.unwrap_or(std::ptr::null_mut()))?;
        Ok(ThreadDomain { inner: Arc::new(TdInner { td, context: context.clone() }) })
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl fmt::Debug for ThreadDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadDomain").field("context", &self.inner.context).finish()
    }
}

/// A protection domain seen through a thread domain: what a queue pair is made in.
pub(crate) struct ParentDomain {
    domain: NonNull<ibv_pd>,
    /// Freed after the parent domain.
    _pd: ProtectionDomain,
    _td: ThreadDomain,
}

// SAFETY: as for the two domains it is made of.
unsafe impl Send for ParentDomain {}
// SAFETY: as above.
unsafe impl Sync for ParentDomain {}

impl Drop for ParentDomain {
    fn drop(&mut self) {
        // SAFETY: allocated by this crate, freed once, here, before its two domains.
        unsafe { ibv_dealloc_pd(self.domain.as_ptr()) };
    }
}

impl ParentDomain {
    pub(crate) fn new(pd: &ProtectionDomain, td: &ThreadDomain) -> Result<ParentDomain> {
        // SAFETY: integers and pointers only, for which zeroes mean "not given".
        let mut attributes: ibv_parent_domain_init_attr = unsafe { std::mem::zeroed() };
        attributes.pd = pd.as_raw().as_ptr();
        attributes.td = td.inner.td.as_ptr();
        // SAFETY: the domains are alive and of one context, the attributes live through the call.
        let domain =
            unsafe { ibv_alloc_parent_domain(pd.context().as_raw().as_ptr(), &mut attributes) };
        let domain = non_null("ibv_alloc_parent_domain", domain.unwrap_or(std::ptr::null_mut()))?;
        Ok(ParentDomain { domain, _pd: pd.clone(), _td: td.clone() })
    }

    pub(crate) fn as_raw(&self) -> NonNull<ibv_pd> {
        self.domain
    }
}
