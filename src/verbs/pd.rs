//! Protection domains.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::{MLX5DV_OBJ_PD, mlx5dv_init_obj, mlx5dv_obj, mlx5dv_pd};
use mlx5_sys::verbs::{ibv_alloc_pd, ibv_dealloc_pd, ibv_pd};

use super::Context;
use crate::error::{Result, check, non_null};
use crate::ring::source::DomainId;

/// A protection domain: its queue pairs reach its memory regions, and no others.
///
/// Clones are cheap and name the same domain, which is freed when the last of them, and the last
/// object made in it, is gone.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::ProtectionDomain;
///
/// let pd = ProtectionDomain::new(&context)?;
/// let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// // A clone names the same domain. The region keeps it alive.
/// drop(pd.clone());
/// assert_eq!(region.protection_domain().number()?, pd.number()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_pd", "ibv_dealloc_pd"))]
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    pd: NonNull<ibv_pd>,
    context: Context,
}

// SAFETY: libibverbs allows calls on one PD from any thread.
unsafe impl Send for PdInner {}
// SAFETY: libibverbs allows calls on one PD from several threads at once.
unsafe impl Sync for PdInner {}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: allocated by this crate, freed once, here, while its context is still open;
        // regions and queue pairs held an Arc of it and are gone.
        unsafe { ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

impl ProtectionDomain {
    /// A new domain.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(context: &Context) -> Result<ProtectionDomain> {
        // SAFETY: the context is open.
        let pd = non_null("ibv_alloc_pd", unsafe { ibv_alloc_pd(context.as_raw().as_ptr()) })?;
        Ok(ProtectionDomain { inner: Arc::new(PdInner { pd, context: context.clone() }) })
    }

    /// Returns its number, by which firmware commands name it. 24 bits.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call) where it is not one of libmlx5.
    #[doc(alias = "mlx5dv_pd")]
    pub fn number(&self) -> Result<u32> {
        let mut pd = MaybeUninit::<mlx5dv_pd>::zeroed();
        let mut object = MaybeUninit::<mlx5dv_obj>::zeroed();
        // SAFETY: all-zero is a value of both C structures, the domain is alive, and the library
        // fills `pd`.
        unsafe {
            let object = object.assume_init_mut();
            object.pd.in_ = self.as_raw().as_ptr();
            object.pd.out = pd.as_mut_ptr();
            check("mlx5dv_init_obj", mlx5dv_init_obj(object, MLX5DV_OBJ_PD.into()))?;
            Ok(pd.assume_init().pdn)
        }
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Tells it from other domains, as long as `self` or a clone lives.
    pub(crate) fn id(&self) -> DomainId {
        DomainId::at(self.inner.pd.as_ptr())
    }

    /// Returns the domain, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_pd> {
        self.inner.pd
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("context", &self.inner.context).finish()
    }
}
