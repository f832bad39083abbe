//! Changes of registered regions.

use std::fmt;
use std::mem::replace;

use mlx5_sys::verbs::{ibv_pd, ibv_rereg_mr, ibv_rereg_mr_err_code as code, ibv_rereg_mr_flags};

use super::{MemoryRegion, Parts, another_type, empty, register_cause};
use crate::error::{Error, Result};
use crate::ib::Access;
use crate::verbs::{Buffer, ProtectionDomain, check_region_access};

/// The outcome of a change of the memory.
enum Changed {
    /// The HCA accesses the new memory alone.
    Yes,
    /// The HCA accesses the old memory alone.
    No(Error),
    /// The HCA may access both.
    Unknown(Error),
}

impl MemoryRegion {
    /// Changes the access rights of the region, under the same keys. No requests on it may be
    /// outstanding: requests that meet the change may fail.
    ///
    /// # Errors
    /// [`Error::Attribute`]: the rights are unchanged then. [`Error::Call`]: verbs do not say which
    /// rights the region has then. [`access`](Self::access) returns those before and those asked
    /// for, until a later change succeeds.
    #[doc(alias("ibv_rereg_mr", "IBV_REREG_MR_CHANGE_ACCESS"))]
    pub fn set_access(&mut self, access: Access) -> Result<()> {
        check_region_access(access)?;
        let pd = std::ptr::null_mut();
        let result = self.change(ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS, pd, access);
        // A peer may write the bytes if either allows it: `as_mut_slice` must not return them.
        let rights = if result.is_ok() { access } else { self.access() | access };
        self.registration.set_access(rights);
        result
    }

    /// Moves the region to another protection domain of the same device, under the same keys. No
    /// requests on it may be outstanding.
    ///
    /// # Errors
    /// [`Error::Attribute`] for a domain of another opened device, [`Error::Call`]: the region's
    /// domain is unchanged then.
    #[doc(alias("ibv_rereg_mr", "IBV_REREG_MR_CHANGE_PD"))]
    pub fn set_protection_domain(&mut self, pd: &ProtectionDomain) -> Result<()> {
        self.protection_domain()
            .context()
            .require_same("protection domain", pd.context().as_raw())?;
        let raw = pd.as_raw().as_ptr();
        self.change(ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD, raw, Access::empty())?;
        self.registration.set_protection_domain(pd);
        Ok(())
    }

    /// Registers another buffer in place of the region's, and returns the old one. The rights and
    /// the protection domain stay. Address and length change, and the keys may change.
    ///
    /// No requests on the region may be outstanding, and no memory window may be bound to it.
    /// Requests that meet the change or use the old addresses or keys fail.
    ///
    /// # Errors
    /// [`ReplaceError`], which returns the new buffer if the region keeps the old one:
    /// - [`Error::Attribute`]: the region was made of another type of buffer, or the buffer is empty.
    /// - [`Error::Call`] with the memory lock limit named. Unless the error returns the buffer, the
    ///   HCA may access both buffers. The region owns both until it is dropped, and is good for
    ///   nothing else.
    ///
    /// ```
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
    /// let mut region = pd.register(vec![1u8; 64], mlx5::ib::Access::LOCAL_WRITE)?;
    /// let old = region.replace_buffer(vec![2u8; 100_000])?;
    /// assert_eq!((old, region.len()), (vec![1; 64], 100_000));
    /// assert_eq!(region.into_buffer::<Vec<u8>>()?, [2; 100_000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("ibv_rereg_mr", "IBV_REREG_MR_CHANGE_TRANSLATION"))]
    pub fn replace_buffer<B: Buffer>(&mut self, buffer: B) -> Result<B, ReplaceError<B>> {
        let memory = self.registration.memory();
        if !memory.buffer.are_of::<B>() || memory.replacement.is_some() {
            return Err(ReplaceError { buffer: Some(buffer), error: another_type::<B>().into() });
        }
        let parts = Parts::of(buffer);
        match self.change_memory(&parts) {
            Changed::Yes => {
                self.registration.set_range(parts.address.as_ptr() as u64, parts.length);
                // Verbs say that the HCA no longer accesses the old memory.
                Ok(replace(&mut self.registration.memory_mut().buffer, parts).into_buffer())
            }
            Changed::No(error) => {
                Err(ReplaceError { buffer: Some(parts.into_buffer()), error: error.into() })
            }
            Changed::Unknown(error) => {
                self.registration.memory_mut().replacement = Some(Box::new(parts));
                Err(ReplaceError { buffer: None, error: error.into() })
            }
        }
    }

    /// Changes the memory. The caller keeps each buffer that the HCA may access then.
    fn change_memory(&mut self, parts: &Parts) -> Changed {
        let Parts { address, length, .. } = *parts;
        if length == 0 {
            return Changed::No(empty());
        }
        let what = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION;
        let memory = (address.as_ptr(), length);
        // SAFETY: no domain changes. The caller keeps the buffers as the outcome says.
        let result = unsafe { self.reregister(what, std::ptr::null_mut(), memory, 0) };
        if result == 0 {
            return Changed::Yes;
        }
        let error = Error::last("ibv_rereg_mr");
        let cause = register_cause(&error, length);
        let error = error.because(cause);
        match result {
            code::IBV_REREG_MR_ERR_INPUT | code::IBV_REREG_MR_ERR_DONT_FORK_NEW => {
                Changed::No(error)
            }
            // Only marking the old memory for children failed.
            code::IBV_REREG_MR_ERR_DO_FORK_OLD => Changed::Yes,
            _ => Changed::Unknown(error),
        }
    }

    fn change(&mut self, what: ibv_rereg_mr_flags, pd: *mut ibv_pd, access: Access) -> Result<()> {
        let none = (std::ptr::null_mut(), 0);
        // The result is one negative number for each step that can fail; the reason is in errno.
        // SAFETY: the memory does not change, and the domain is null or alive.
        match unsafe { self.reregister(what, pd, none, access.bits()) } {
            0 => Ok(()),
            _ => Err(Error::last("ibv_rereg_mr")),
        }
    }

    /// # Safety
    /// - The domain is alive if it changes.
    /// - If the memory changes, the new bytes stay mapped until the region is deregistered or the
    ///   memory has changed again. So do the old bytes unless the result says that the HCA left them.
    unsafe fn reregister(
        &mut self,
        what: ibv_rereg_mr_flags,
        pd: *mut ibv_pd,
        (address, length): (*mut u8, usize),
        access: u32,
    ) -> libc::c_int {
        let (mr, what, access) =
            (self.as_raw().as_ptr(), what.0 as libc::c_int, access as libc::c_int);
        // SAFETY: the region is registered. The caller keeps the domain and the memory.
        unsafe { ibv_rereg_mr(mr, what, pd, address.cast(), length, access) }
    }
}

/// A buffer that could not replace the one of a region.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// let mut region = pd.register(vec![1u8; 64], mlx5::ib::Access::LOCAL_WRITE)?;
/// // The region was not made from a box. The error returns the box.
/// let buffer: Box<[u8]> = Box::new([2; 64]);
/// let failed = region.replace_buffer(buffer).err().ok_or("replaced")?;
/// assert_eq!(failed.buffer.ok_or("lost")?[..], [2; 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReplaceError<B> {
    /// The new buffer. `None` if the HCA may access it: the region owns it then.
    pub buffer: Option<B>,
    /// The error.
    pub error: Box<Error>,
}

impl<B> From<ReplaceError<B>> for Error {
    fn from(error: ReplaceError<B>) -> Error {
        *error.error
    }
}

impl<B> fmt::Debug for ReplaceError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<B> fmt::Display for ReplaceError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> std::error::Error for ReplaceError<B> {}
