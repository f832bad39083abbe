//! XRC domains.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::verbs::{
    ibv_close_xrcd, ibv_open_xrcd, ibv_xrcd, ibv_xrcd_init_attr, ibv_xrcd_init_attr_mask,
};

use super::Context;
use crate::error::{Cause, Errno, Error, Result, non_null};

/// A domain of extended reliable connections: a request that arrives at one of its targets
/// may name any of its shared receive queues, of whichever process that
/// has opened the domain.
///
/// Clones are cheap and name the same domain, which is closed when the last of them, and the last
/// object made in it, is gone.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::verbs::{QueuePair, SharedReceiveQueue, XrcDomain};
///
/// let domain = XrcDomain::new(&context)?;
/// let srq = SharedReceiveQueue::builder(&pd).xrc(&domain, &cq).build()?;
/// // Whatever arrives at the target names the SRQ by its number.
/// let target = QueuePair::target(&domain)?;
/// assert_ne!(srq.number()?, target.number());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_xrcd", "ibv_close_xrcd"))]
#[derive(Clone)]
pub struct XrcDomain {
    inner: Arc<XrcdInner>,
}

struct XrcdInner {
    xrcd: NonNull<ibv_xrcd>,
    context: Context,
}

// SAFETY: libibverbs allows calls on one XRC domain from several threads.
unsafe impl Send for XrcdInner {}
// SAFETY: libibverbs allows calls on one XRC domain from several threads at once.
unsafe impl Sync for XrcdInner {}

impl Drop for XrcdInner {
    fn drop(&mut self) {
        // SAFETY: this crate opened the domain and closes it once, here. Objects made in it held an
        // Arc of it and are gone.
        unsafe { ibv_close_xrcd(self.xrcd.as_ptr()) };
    }
}

/// Whether a domain behind a file is to be made or to be found.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::verbs::{XrcDomain, XrcOpen};
///
/// // Processes that open the same file share a domain. Here is none yet.
/// let file = std::fs::File::open("Cargo.toml")?;
/// assert!(XrcDomain::of_file(&context, &file, XrcOpen::Existing).is_err());
/// let _domain = XrcDomain::of_file(&context, &file, XrcOpen::New)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum XrcOpen {
    /// Found, or else made.
    #[default]
    Either,
    /// Made: an error if the file has one.
    New,
    /// Found: an error if the file has none.
    Existing,
}

impl XrcDomain {
    /// A domain of this opened device alone.
    ///
    /// # Errors
    /// [`Error::Call`]; `EOPNOTSUPP` where the device has no extended reliable connections.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn new(context: &Context) -> Result<XrcDomain> {
        Self::open(context, -1, libc::O_CREAT)
    }

    /// The domain behind a file, which processes that open the same file share, as long as one of
    /// them has the domain open. The file itself may be closed at once; nothing is written to it.
    ///
    /// # Errors
    /// [`Error::Call`], with the reason where the file has a domain and should not, or the other
    /// way round.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn of_file(context: &Context, file: impl AsFd, how: XrcOpen) -> Result<XrcDomain> {
        let flags = match how {
            XrcOpen::Either => libc::O_CREAT,
            XrcOpen::New => libc::O_CREAT | libc::O_EXCL,
            XrcOpen::Existing => 0,
        };
        Self::open(context, file.as_fd().as_raw_fd(), flags)
    }

    fn open(context: &Context, fd: libc::c_int, oflags: libc::c_int) -> Result<XrcDomain> {
        let mask = ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_FD
            | ibv_xrcd_init_attr_mask::IBV_XRCD_INIT_ATTR_OFLAGS;
        let mut attributes = ibv_xrcd_init_attr { comp_mask: mask.0, fd, oflags };
        // SAFETY: the context is open, and the attributes live through the call.
        let xrcd = unsafe { ibv_open_xrcd(context.as_raw().as_ptr(), &mut attributes) };
        let xrcd = non_null("ibv_open_xrcd", xrcd.unwrap_or(std::ptr::null_mut()));
        let xrcd = xrcd.map_err(|error| explain(error, fd >= 0))?;
        Ok(XrcDomain { inner: Arc::new(XrcdInner { xrcd, context: context.clone() }) })
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the domain, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_xrcd> {
        self.inner.xrcd
    }
}

fn explain(error: Error, file: bool) -> Error {
    let cause = match error.errno() {
        Some(Errno(libc::EOPNOTSUPP)) => {
            Some(Cause::Known("the device has no extended reliable connections"))
        }
        Some(Errno(libc::EAGAIN)) if file => {
            Some(Cause::Known("no process has a domain of this file open"))
        }
        Some(Errno(libc::EINVAL)) if file => {
            Some(Cause::Known("the file has a domain already, or is none of a file system"))
        }
        _ => None,
    };
    error.because(cause)
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain").field("context", &self.inner.context).finish()
    }
}
