//! Memory windows: keys that a send queue binds to a part of a region, and takes back.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use mlx5_sys::verbs::{ibv_alloc_mw, ibv_dealloc_mw, ibv_mw, ibv_mw_type};

use super::error::non_null;
use super::{Error, MemoryRegion, ProtectionDomain, Result};
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
pub trait WindowType: Sealed {}

/// Windows that any queue pair of the domain may use, and that are bound anew as they are.
#[derive(Clone, Copy, Debug)]
pub enum Type1 {}

/// Windows of the queue pair that binds them (type 2B). They are invalidated, by this side or by
/// the peer, before they are bound anew; the low byte of their key is the program's to choose.
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
/// [`bind`](Self::bind) gives the request to post; the window has its new key from the time of the
/// post on, and is told so by [`SendQueue::bind`](crate::ring::SendQueue::bind), which posts it, or
/// by [`set_rkey`](Self::set_rkey).
///
/// Dropping the window frees it, bound or not: peers that use its key then get an error. The region
/// that it is bound to may go before it; then, too.
pub struct MemoryWindow<K: WindowType> {
    mw: NonNull<ibv_mw>,
    rkey: u32,
    /// Freed after the window.
    pd: ProtectionDomain,
    kind: PhantomData<fn() -> K>,
}

// SAFETY: verbs calls on a window are allowed from any thread.
unsafe impl<K: WindowType> Send for MemoryWindow<K> {}
// SAFETY: a shared reference reads the key alone, which changes by `&mut self` only.
unsafe impl<K: WindowType> Sync for MemoryWindow<K> {}

impl<K: WindowType> MemoryWindow<K> {
    /// Allocates a window. One system call.
    ///
    /// # Errors
    /// [`Error::Call`]: EOPNOTSUPP where the HCA has no windows of the type.
    pub fn new(pd: &ProtectionDomain) -> Result<Self> {
        // SAFETY: the domain is alive.
        let mw = unsafe { ibv_alloc_mw(pd.as_raw().as_ptr(), K::TYPE) };
        let mw = non_null("ibv_alloc_mw", mw.unwrap_or(std::ptr::null_mut()))?;
        // SAFETY: just allocated.
        let rkey = unsafe { mw.as_ref() }.rkey;
        Ok(Self { mw, rkey, pd: pd.clone(), kind: PhantomData })
    }

    /// Returns the key that lets the peer in, where the window is bound.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Tells the window its key, after a request that gives it another was posted:
    /// [`BindWindow::rkey`].
    ///
    /// # Panics
    /// If it is not a key of this window: they differ in the low byte only.
    pub fn set_rkey(&mut self, rkey: u32) {
        assert_eq!(rkey >> 8, self.rkey >> 8, "{rkey:#x} is no key of window {:#x}", self.rkey);
        self.rkey = rkey;
        // SAFETY: alive; nobody else writes it, since this borrows the window alone.
        unsafe { (*self.mw.as_ptr()).rkey = rkey };
    }

    /// Returns the domain it belongs to.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the window, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_mw> {
        self.mw
    }

    /// Returns the part of a region, if a window with these rights may be bound to it.
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
        if length == 0 || length > 1 << 31 {
            return rule("length", &length, "a window has 1 byte to 2 GiB");
        }
        if offset.checked_add(length).is_none_or(|end| end > region.len()) {
            let text = format_args!("{length} bytes at offset {offset} of {region:?}").to_string();
            return rule("length", &text, "the region does not reach so far");
        }
        Ok(Sge::new(region.address() + offset as u64, length as u32, region.lkey()))
    }
}

impl MemoryWindow<Type1> {
    /// Returns the request that binds the window to a part of a region, `length` bytes at `offset`.
    /// Peers then address it as the region.
    ///
    /// # Errors
    /// [`Error::Attribute`]: another domain's region, one without `MW_BIND`, rights that are not
    /// peers' or that the region's cannot bear, a part that is empty, over 2 GiB or outside.
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

    /// Returns the request that binds it to nothing.
    pub fn unbind(&self) -> BindWindow {
        BindWindow::type_1(self.rkey, Sge::default(), Access::empty())
    }
}

impl MemoryWindow<Type2> {
    /// Returns the request that binds the window, which is not bound, to a part of a region,
    /// `length` bytes at `offset`, for the peer of queue pair `qpn`, on which it must be posted.
    /// The key's low byte is `tag` then; a tag that changes with each binding makes old keys
    /// worthless.
    ///
    /// # Errors
    /// As for [type 1](MemoryWindow::<Type1>::bind).
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

    /// Returns the request that ends what it grants. The key's low byte is 0 afterwards, which
    /// [`set_rkey`](Self::set_rkey) is told, or
    /// [`SendQueue::unbind`](crate::ring::SendQueue::unbind) tells it.
    pub fn invalidate(&self) -> LocalInvalidate {
        LocalInvalidate::new(self.rkey)
    }
}

impl<K: WindowType> Drop for MemoryWindow<K> {
    fn drop(&mut self) {
        // SAFETY: allocated by this crate and freed once, here.
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
