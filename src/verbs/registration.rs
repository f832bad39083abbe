//! Registered memory: its keys and rights, its parts as entries of requests, deregistration.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use mlx5_sys::verbs::{ibv_dereg_mr, ibv_mr};

use super::ProtectionDomain;
use crate::error::{Error, Result, check};
use crate::ib::Access;
use crate::wqe::{MAX_SGE_LENGTH, Remote, Sge, Word};

/// A registration of memory of the program (`M`), of the HCA or of another device.
///
/// Dropping it deregisters the memory, and then drops `M` and the protection domain. If the memory
/// cannot be deregistered, the HCA may still access it, and `M` is leaked.
pub(super) struct Registration<M = ()> {
    mr: NonNull<ibv_mr>,
    /// The address by which requests name the first byte.
    start: u64,
    length: usize,
    access: Access,
    memory: ManuallyDrop<M>,
    pd: ProtectionDomain,
}

// SAFETY: verbs calls on a registration are allowed from any thread.
unsafe impl<M: Send> Send for Registration<M> {}
// SAFETY: it changes only under `&mut self`, and verbs calls on it are allowed from several threads
// at once.
unsafe impl<M: Sync> Sync for Registration<M> {}

impl<M> Registration<M> {
    /// Takes ownership of a registration, whose requests name `length` bytes from `start` on.
    ///
    /// # Safety
    /// `mr` was registered with these rights in that domain, and no other code deregisters it.
    pub(super) unsafe fn new(
        mr: NonNull<ibv_mr>,
        start: u64,
        length: usize,
        access: Access,
        memory: M,
        pd: &ProtectionDomain,
    ) -> Self {
        Self { mr, start, length, access, memory: ManuallyDrop::new(memory), pd: pd.clone() }
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the memory is registered, and verbs change the field only under `&mut self`.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the memory is registered, and verbs change the field only under `&mut self`.
        unsafe { (*self.mr.as_ptr()).rkey }
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(super) fn as_raw(&self) -> NonNull<ibv_mr> {
        self.mr
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    pub(super) fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Stores the range after verbs changed it.
    pub(super) fn set_range(&mut self, start: u64, length: usize) {
        (self.start, self.length) = (start, length);
    }

    /// Stores the rights after verbs changed them.
    pub(super) fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// Stores the domain after verbs changed it.
    pub(super) fn set_protection_domain(&mut self, pd: &ProtectionDomain) {
        self.pd = pd.clone();
    }

    /// Deregisters the memory and returns it.
    ///
    /// # Errors
    /// The registration, and [`Error::Call`], if the memory cannot be deregistered.
    pub(super) fn into_memory(self) -> Result<M, (Self, Error)> {
        // SAFETY: on success the registration is taken apart below and not dropped.
        if let Err(error) = unsafe { self.deregister() } {
            return Err((self, error));
        }
        let mut registration = ManuallyDrop::new(self);
        // SAFETY: the registration is not dropped, and neither field is used after this.
        unsafe {
            std::ptr::drop_in_place(&mut registration.pd);
            Ok(ManuallyDrop::take(&mut registration.memory))
        }
    }

    /// # Safety
    /// After it succeeded, the registration is neither used nor dropped.
    unsafe fn deregister(&self) -> Result<()> {
        // SAFETY: the caller of `new` gave up the registration to `self`, and its domain is alive.
        check("ibv_dereg_mr", unsafe { ibv_dereg_mr(self.mr.as_ptr()) })
    }
}

impl<M> Drop for Registration<M> {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the registration.
        if unsafe { self.deregister() }.is_ok() {
            // SAFETY: the memory is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Parts of the memory, checked against its length and rights.
impl<M> Registration<M> {
    /// Returns an entry that any request may use.
    #[inline]
    pub(super) fn sge(&self, offset: usize, length: usize) -> Result<Sge> {
        let sge = self.source(offset, length)?;
        if !self.access.contains(Access::LOCAL_WRITE) {
            return Err(self.refuse(offset, length, NOT_WRITABLE));
        }
        Ok(sge)
    }

    /// Returns an entry for requests that only read.
    #[inline]
    pub(super) fn source(&self, offset: usize, length: usize) -> Result<Sge> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(self.refuse(offset, length, OUTSIDE));
        }
        if length > MAX_SGE_LENGTH as usize {
            return Err(self.refuse(offset, length, TOO_LONG));
        }
        Ok(Sge::new(self.start.wrapping_add(offset as u64), length as u32, self.lkey()))
    }

    /// Returns the eight bytes for the result of an atomic.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> Result<Word> {
        let Sge { addr, lkey, .. } = self.sge(offset, 8)?;
        Ok(Word::new(addr, lkey))
    }

    /// Returns the memory from `offset` on, for requests of the peer.
    #[inline]
    pub(super) fn remote(&self, offset: usize) -> Result<Remote> {
        let Some(length) = self.length.checked_sub(offset).filter(|&length| length != 0) else {
            return Err(self.refuse(offset, 1, OUTSIDE));
        };
        if !self.access.intersects(REMOTE) {
            return Err(self.refuse(offset, length, NOT_REMOTE));
        }
        Ok(Remote::new(self.start.wrapping_add(offset as u64), self.rkey()))
    }

    #[cold]
    fn refuse(&self, offset: usize, length: usize, (verb, rule): Refusal) -> Error {
        let (bytes, start, lkey) = (self.length, self.start, self.lkey());
        let region = format!("the region of {bytes} bytes at {start:#x} with lkey {lkey:#x}");
        let range = format!("{length} bytes at offset {offset}");
        Error::attribute("range", range, format!("{verb}{region}{rule}"))
    }
}

/// The text of an error before and behind the region.
type Refusal = (&'static str, &'static str);

const OUTSIDE: Refusal = ("it ends outside ", "");
const TOO_LONG: Refusal = ("an SGE has at most 2^31 bytes; split this part of ", "");
const NOT_WRITABLE: Refusal = (
    "",
    " has no LOCAL_WRITE: receives, READs and atomics need it; SENDs and WRITEs may use `source`",
);
const NOT_REMOTE: Refusal = (
    "",
    " has no REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC: register it with what the peer is to do",
);

/// The rights of peers. `MW_BIND` gives none: a window has a key of its own.
const REMOTE: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Implements the named methods for a type that has a [`Registration`] in its field `registration`.
macro_rules! registered {
    ($type:ty: $($part:ident)*) => {
        impl $type {
            $($crate::verbs::registration::registered!(@$part);)*
        }
    };
    (@entries) => {
        /// Returns `length` bytes from `offset` on as a scatter/gather entry, for any request of
        /// this program. Both are in bytes.
        ///
        /// # Errors
        /// [`Error::Attribute`](crate::Error::Attribute), which names the range and the region:
        /// - The range ends outside the region, or has more than 2^31 bytes.
        /// - The region has no [`LOCAL_WRITE`](crate::ib::Access::LOCAL_WRITE), so that receives,
        ///   READs and atomics may not use it. [`source`](Self::source) does not require it.
        #[doc(alias = "ibv_sge")]
        #[inline]
        pub fn sge(&self, offset: usize, length: usize) -> $crate::Result<$crate::wqe::Sge> {
            self.registration.sge(offset, length)
        }

        /// Returns `length` bytes from `offset` on as a scatter/gather entry for requests that only
        /// read it: SEND and WRITE. The region needs no right for them.
        ///
        /// # Errors
        /// [`Error::Attribute`](crate::Error::Attribute): the range ends outside the region, or has
        /// more than 2^31 bytes.
        #[inline]
        pub fn source(&self, offset: usize, length: usize) -> $crate::Result<$crate::wqe::Sge> {
            self.registration.source(offset, length)
        }

        /// Returns eight bytes at `offset`, in which an atomic puts the peer's old value.
        ///
        /// # Errors
        /// [`Error::Attribute`](crate::Error::Attribute): the eight bytes end outside the region, or
        /// it has no [`LOCAL_WRITE`](crate::ib::Access::LOCAL_WRITE).
        #[inline]
        pub fn word(&self, offset: usize) -> $crate::Result<$crate::wqe::Word> {
            self.registration.word(offset)
        }

        /// Returns the memory from byte `offset` on, for requests of the peer.
        ///
        /// # Errors
        /// [`Error::Attribute`](crate::Error::Attribute), which names the range and the region: the
        /// offset lies outside the region, or the region has none of
        /// [`REMOTE_WRITE`](crate::ib::Access::REMOTE_WRITE),
        /// [`REMOTE_READ`](crate::ib::Access::REMOTE_READ) and
        /// [`REMOTE_ATOMIC`](crate::ib::Access::REMOTE_ATOMIC).
        #[inline]
        pub fn remote(&self, offset: usize) -> $crate::Result<$crate::wqe::Remote> {
            self.registration.remote(offset)
        }
    };
    (@length) => {
        /// Returns the length in bytes.
        pub fn len(&self) -> usize {
            self.registration.length()
        }

        /// Always returns false: it has at least one byte.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }
    };
    (@lkey) => {
        /// Returns the key for this host's work requests.
        pub fn lkey(&self) -> u32 {
            self.registration.lkey()
        }
    };
    (@rkey) => {
        /// Returns the key for requests of the peer.
        pub fn rkey(&self) -> u32 {
            self.registration.rkey()
        }
    };
    (@rights) => {
        /// Returns its access rights.
        pub fn access(&self) -> $crate::ib::Access {
            self.registration.access()
        }

        /// Returns its protection domain.
        pub fn protection_domain(&self) -> &$crate::verbs::ProtectionDomain {
            self.registration.protection_domain()
        }
    };
    (@raw) => {
        /// Returns the region, for calls that this crate does not wrap. It lives as long as `self`.
        pub fn as_raw(&self) -> ::std::ptr::NonNull<::mlx5_sys::verbs::ibv_mr> {
            self.registration.as_raw()
        }
    };
}

pub(super) use registered;
