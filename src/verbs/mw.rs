//! Memory windows: keys that a send queue binds to a part of a region, and invalidates.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use mlx5_sys::verbs::{ibv_alloc_mw, ibv_dealloc_mw, ibv_mw, ibv_mw_type};

use super::{MemoryRegion, ProtectionDomain};
use crate::error::{Error, Result, non_null};
use crate::ib::Access;
use crate::wqe::{BindWindow, LocalInvalidate, Sge};

mod sealed {
    use super::ibv_mw_type;

    pub trait Sealed {
        const TYPE: ibv_mw_type::Type;
    }
}
use sealed::Sealed;

/// A type of memory windows: [`Type1`] or [`Type2`].
///
/// See the examples on [`Type1`] and on [`MemoryWindow`].
pub trait WindowType: Sealed {}

/// Windows that any queue pair of the domain may use, and that can be rebound while bound.
///
/// ```
/// # let rig::Link { pd, mut reader, mut sends, memory, .. } = rig::link()?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::{MemoryWindow, Type1};
///
/// let mut window = MemoryWindow::<Type1>::new(&pd)?;
/// let grant = window.bind(&memory, 0, 64, Access::REMOTE_READ)?;
/// // SAFETY: the memory stays registered, and no code writes it.
/// let rkey = unsafe { sends.bind(1, &mut window, grant.signaled())? };
/// # assert!(matches!(rig::poll(&mut reader, &mut sends)?, mlx5::cqe::Completion::Send(_)));
/// assert_eq!(window.rkey(), rkey); // every binding has another key
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "IBV_MW_TYPE_1")]
#[derive(Clone, Copy, Debug)]
pub enum Type1 {}

/// Windows of the queue pair that binds them (type 2B). This side or the peer invalidates them
/// before they are rebound. The program chooses the low byte of their key.
///
/// See the example on [`MemoryWindow`].
#[doc(alias = "IBV_MW_TYPE_2")]
#[derive(Clone, Copy, Debug)]
pub enum Type2 {}

impl Sealed for Type1 {
    const TYPE: ibv_mw_type::Type = ibv_mw_type::IBV_MW_TYPE_1;
}
impl Sealed for Type2 {
    const TYPE: ibv_mw_type::Type = ibv_mw_type::IBV_MW_TYPE_2;
}
impl WindowType for Type1 {}
impl WindowType for Type2 {}

/// A memory window. It grants nothing until it is bound.
///
/// [`bind`](Self::bind) returns the request to post. The window has its new key from the post on.
/// [`SendQueue::bind`](crate::ring::SendQueue::bind), which posts it, or
/// [`set_rkey`](Self::set_rkey) stores the new key.
///
/// Dropping the window frees it, bound or not. Peers that use its key then get an error. They also
/// do if the region that it is bound to is dropped before it.
///
/// ```
/// # let rig::Link { pd, qp, mut reader, mut sends, memory, .. } = rig::link()?;
/// use mlx5::ib::Access;
/// use mlx5::verbs::{MemoryWindow, Type2};
///
/// // The peer of `qp` may write bytes 1024 to 1535 of the memory, by the key of the window.
/// let mut window = MemoryWindow::<Type2>::new(&pd)?;
/// let grant = window.bind(qp.number(), 42, &memory, 1024, 512, Access::REMOTE_WRITE)?;
/// // SAFETY: no reference covers the memory as long as the peer may write it.
/// let rkey = unsafe { sends.bind(1, &mut window, grant.signaled())? };
/// # assert!(matches!(rig::poll(&mut reader, &mut sends)?, mlx5::cqe::Completion::Send(_)));
/// assert_eq!(rkey & 0xff, 42);
/// // The key opens nothing any more.
/// sends.unbind(2, &mut window)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_mw", "ibv_dealloc_mw"))]
pub struct MemoryWindow<K: WindowType> {
    mw: NonNull<ibv_mw>,
    rkey: u32,
    /// Freed after the window.
    pd: ProtectionDomain,
    kind: PhantomData<fn() -> K>,
}

// SAFETY: verbs calls on a window are allowed from any thread.
unsafe impl<K: WindowType> Send for MemoryWindow<K> {}
// SAFETY: a shared reference only reads the key, which only `&mut self` changes.
unsafe impl<K: WindowType> Sync for MemoryWindow<K> {}

impl<K: WindowType> MemoryWindow<K> {
    /// Allocates a window. One system call.
    ///
    /// # Errors
    /// [`Error::Call`]: EOPNOTSUPP where the HCA has no windows of the type.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn new(pd: &ProtectionDomain) -> Result<Self> {
        // SAFETY: the domain is alive.
        let mw = unsafe { ibv_alloc_mw(pd.as_raw().as_ptr(), K::TYPE) };
        let mw = non_null("ibv_alloc_mw", mw.unwrap_or(std::ptr::null_mut()))?;
        // SAFETY: the call above allocated the window.
        let rkey = unsafe { mw.as_ref() }.rkey;
        Ok(Self { mw, rkey, pd: pd.clone(), kind: PhantomData })
    }

    /// Returns the key for requests of the peer, once the window is bound.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Stores a new key of the window, after a request that changes the key was posted:
    /// [`BindWindow::rkey`].
    ///
    /// # Panics
    /// If it is not a key of this window: they differ in the low byte only.
    #[doc(alias = "ibv_inc_rkey")]
    pub fn set_rkey(&mut self, rkey: u32) {
        assert_eq!(rkey >> 8, self.rkey >> 8, "{rkey:#x} is no key of window {:#x}", self.rkey);
        self.store_rkey(rkey);
    }

    /// Stores a new key, which is one of this window.
    #[inline(always)]
    pub(super) fn store_rkey(&mut self, rkey: u32) {
        self.rkey = rkey;
        // SAFETY: the window is alive. `&mut self` borrows it exclusively, so no other code writes
        // it.
        unsafe { (*self.mw.as_ptr()).rkey = rkey };
    }

    /// Returns its protection domain.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the window, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_mw> {
        self.mw
    }

    /// Returns the part of a region as an SGE, if a window with these rights may be bound to it.
    fn part(
        &self,
        region: &MemoryRegion,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Sge> {
        let rule = |attribute, value: &dyn fmt::Debug, rule: &str| {
            Err(Error::attribute(attribute, format_args!("{value:?}"), rule))
        };
        if region.protection_domain().as_raw() != self.pd.as_raw() {
            return rule("region", region, "it belongs to another protection domain");
        }
        if !region.access().contains(Access::MW_BIND) {
            return rule("region", &region.access(), "windows need a region with MW_BIND");
        }
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if !rights.contains(access) {
            return rule("access", &access, "a window grants rights to peers, and no others");
        }
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !region.access().contains(Access::LOCAL_WRITE)
        {
            return rule("access", &access, "the region does not have LOCAL_WRITE");
        }
        if length == 0 {
            return rule("length", &length, "a window has 1 byte to 2 GiB");
        }
        region.source(offset, length)
    }
}

impl MemoryWindow<Type1> {
    /// Returns the request that binds the window to a part of a region, `length` bytes at `offset`.
    /// Peers then use the region's addresses.
    ///
    /// # Errors
    /// [`Error::Attribute`]: the region is of another domain or lacks `MW_BIND`; the rights are not
    /// peers' rights or exceed the region's; the part is empty, over 2 GiB or outside the region.
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind(
        &self,
        region: &MemoryRegion,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<BindWindow> {
        let part = self.part(region, offset, length, access)?;
        Ok(BindWindow::type_1(self.rkey, part, access))
    }

    /// Returns the request that unbinds it.
    pub fn unbind(&self) -> BindWindow {
        BindWindow::type_1(self.rkey, Sge::default(), Access::empty())
    }
}

impl MemoryWindow<Type2> {
    /// Returns the request that binds an unbound window to a part of a region, `length` bytes at
    /// `offset`, for the peer of queue pair `qpn`, on which it must be posted. The key's low byte
    /// becomes `tag`. A tag that changes with each binding makes old keys invalid.
    ///
    /// # Errors
    /// [`Error::Attribute`]: the region is of another domain or lacks `MW_BIND`; the rights are not
    /// peers' rights or exceed the region's; the part is empty, over 2 GiB or outside the region.
    #[doc(alias("ibv_bind_mw", "IBV_WR_BIND_MW"))]
    pub fn bind(
        &self,
        qpn: u32,
        tag: u8,
        region: &MemoryRegion,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<BindWindow> {
        let part = self.part(region, offset, length, access)?;
        Ok(BindWindow::type_2(self.rkey, tag, qpn, part, access))
    }

    /// Returns the request that invalidates the window. The key's low byte is 0 afterwards. Store
    /// the new key by [`set_rkey`](Self::set_rkey), or post by
    /// [`SendQueue::unbind`](crate::ring::SendQueue::unbind), which stores it.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn invalidate(&self) -> LocalInvalidate {
        LocalInvalidate::new(self.rkey)
    }
}

impl<K: WindowType> Drop for MemoryWindow<K> {
    fn drop(&mut self) {
        // SAFETY: this crate allocated the window and frees it once, here.
        unsafe { ibv_dealloc_mw(self.mw.as_ptr()) };
    }
}

impl<K: WindowType> fmt::Debug for MemoryWindow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("type", &K::TYPE)
            .field("rkey", &format_args!("{:#x}", self.rkey))
            .finish()
    }
}
