//! Memory keys over other keys.

use std::fmt;
use std::ptr::NonNull;

use mlx5_sys::dv::{
    MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE,
    mlx5dv_create_mkey, mlx5dv_destroy_mkey, mlx5dv_mkey, mlx5dv_mkey_init_attr,
};

use super::ProtectionDomain;
use crate::error::{Cause, Error, Result, non_null};
use crate::wqe::{ConfigureKey, LocalInvalidate};

/// A memory key over other keys. It gives pieces of memory one contiguous address range.
///
/// It gives access to nothing until a send queue has configured it ([`configure`](Self::configure))
/// by a list of pieces, or a strided pattern. The pieces are of regions of its protection domain or
/// of other such keys. Configuring costs a request, no system call, and can be repeated.
///
/// The key is made by DevX, which the device must allow ([`Context::devx`](super::Context::devx)).
/// Dropping it frees it. Requests that use it fail from then on.
///
/// ```
/// # let rig::Link { pd, mut reader, mut sends, memory, sge, .. } = rig::link()?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::Mkey;
///
/// let key = Mkey::new(&pd, 4)?;
/// let far = memory.sge(2048, 64)?;
/// // Behind the key, the two pieces of memory are one of 128 bytes, from address 0 on.
/// let pieces = key.configure().access(Access::REMOTE_READ).layout([sge, far]);
/// // SAFETY: the memory stays registered, and no code writes it.
/// unsafe { sends.post(1, pieces.signaled())? };
/// # assert!(matches!(rig::poll(&mut reader, &mut sends)?, mlx5::cqe::Completion::Send(_)));
/// assert!(key.entries() >= 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("mlx5dv_mkey", "mlx5dv_destroy_mkey"))]
pub struct Mkey {
    mkey: NonNull<mlx5dv_mkey>,
    entries: u16,
    /// Freed after the key.
    pd: ProtectionDomain,
}

// SAFETY: users of the key only read its number. Calls of libmlx5 on it take `&mut`, or happen on
// drop.
unsafe impl Send for Mkey {}
// SAFETY: a shared reference reads numbers that do not change as long as it exists.
unsafe impl Sync for Mkey {}

impl Mkey {
    /// Creates a key with at least `entries` entries for a list or a strided pattern, whose header
    /// counts as one. One system call.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for no entries, or over 65,532.
    /// - [`Error::Call`] with EOPNOTSUPP or EPROTONOSUPPORT: the context was not opened with DevX,
    ///   or the kernel does not offer it.
    /// - [`Error::Call`] with EINVAL or EREMOTEIO: the HCA has no space for so many entries.
    #[doc(alias = "mlx5dv_create_mkey")]
    pub fn new(pd: &ProtectionDomain, entries: u16) -> Result<Self> {
        Self::builder(pd, entries).build()
    }

    /// Creates a builder for a key with at least `entries` entries.
    pub fn builder(pd: &ProtectionDomain, entries: u16) -> MkeyBuilder {
        MkeyBuilder { pd: pd.clone(), entries, flags: MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT }
    }

    /// Returns the key, for this host's work requests.
    pub fn lkey(&self) -> u32 {
        // SAFETY: alive, and the field does not change.
        unsafe { self.mkey.as_ref() }.lkey
    }

    /// Returns the key for requests of the peer, if it has rights.
    pub fn rkey(&self) -> u32 {
        // SAFETY: the key is alive, and the field does not change while it is borrowed.
        unsafe { self.mkey.as_ref() }.rkey
    }

    /// Returns how many entries it has.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Returns a builder for the UMR WQE that configures the key.
    #[doc(alias = "mlx5dv_wr_mkey_configure")]
    pub fn configure(&self) -> ConfigureKey {
        ConfigureKey::new(self.lkey())
    }

    /// Returns the request that invalidates the key.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn invalidate(&self) -> LocalInvalidate {
        LocalInvalidate::new(self.lkey())
    }

    /// Returns its protection domain.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the key, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<mlx5dv_mkey> {
        self.mkey
    }
}

/// Builder for [`Mkey`].
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::verbs::Mkey;
///
/// // The peer may invalidate the key by a SEND.
/// let key = Mkey::builder(&pd, 8).remote_invalidate().build()?;
/// assert!(key.entries() >= 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_mkey_init_attr")]
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build"]
pub struct MkeyBuilder {
    pd: ProtectionDomain,
    entries: u16,
    flags: u32,
}

impl MkeyBuilder {
    /// Lets the peer invalidate the key by SEND with invalidate.
    pub fn remote_invalidate(mut self) -> Self {
        self.flags |= MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;
        self
    }

    /// Creates the key.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for no entries, or over 65,532.
    /// - [`Error::Call`] with EOPNOTSUPP or EPROTONOSUPPORT: the context was not opened with DevX,
    ///   or the kernel does not offer it.
    /// - [`Error::Call`] with EINVAL or EREMOTEIO: the HCA has no space for so many entries.
    #[doc(alias = "mlx5dv_create_mkey")]
    pub fn build(self) -> Result<Mkey> {
        // libmlx5 counts up to a multiple of four, in 16 bits.
        const MOST: u16 = u16::MAX - 3;
        if !(1..=MOST).contains(&self.entries) {
            let rule = format!("a key has room for 1 at least, and for {MOST} at most");
            return Err(Error::attribute("entries", self.entries, rule));
        }
        let mut attributes = mlx5dv_mkey_init_attr {
            pd: self.pd.as_raw().as_ptr(),
            create_flags: self.flags,
            max_entries: self.entries,
        };
        // SAFETY: the domain is alive, and the attributes live through the call.
        let mkey = unsafe { mlx5dv_create_mkey(&mut attributes) };
        let mkey = non_null("mlx5dv_create_mkey", mkey).map_err(|error| {
            let cause = match error.errno().map(|errno| errno.0) {
                Some(libc::EINVAL | libc::EREMOTEIO) => Some(Cause::Known(
                    "the context was not opened with DevX, or the HCA has no room for so many \
                     entries",
                )),
                _ => None,
            };
            error.because(cause)
        })?;
        Ok(Mkey { mkey, entries: attributes.max_entries, pd: self.pd })
    }
}

impl Drop for Mkey {
    fn drop(&mut self) {
        // SAFETY: this crate made the key and destroys it once, here, before its domain.
        unsafe { mlx5dv_destroy_mkey(self.mkey.as_ptr()) };
    }
}

impl fmt::Debug for Mkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mkey")
            .field("lkey", &format_args!("{:#x}", self.lkey()))
            .field("entries", &self.entries)
            .finish()
    }
}
