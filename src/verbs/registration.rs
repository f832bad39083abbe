//! Common parts of registered memory that the program does not own: keys, rights, deregistration.

use std::ptr::NonNull;

use mlx5_sys::verbs::{ibv_dereg_mr, ibv_mr};

use super::ProtectionDomain;
use crate::ib::Access;

/// A registration. Dropping it deregisters the memory, and then drops the objects it depends on.
pub(super) struct Registration {
    mr: NonNull<ibv_mr>,
    access: Access,
    /// Freed after the registration.
    pd: ProtectionDomain,
}

// SAFETY: verbs calls on a registration are allowed from any thread, and it is immutable.
unsafe impl Send for Registration {}
// SAFETY: it does not change, and verbs calls on it are allowed from several threads at once.
unsafe impl Sync for Registration {}

impl Registration {
    /// Takes ownership of a registration.
    ///
    /// # Safety
    /// `mr` was registered with these rights in that domain, and no other code deregisters it.
    pub(super) unsafe fn new(mr: NonNull<ibv_mr>, access: Access, pd: &ProtectionDomain) -> Self {
        Self { mr, access, pd: pd.clone() }
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: the region is registered, and the field does not change.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the region is registered, and the field does not change.
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
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the caller of `new` gave up the registration to `self`, and its domain is still
        // alive.
        unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

/// Implements the named methods for a type that has a [`Registration`] in its field `registration`.
/// `length` uses a field of that name.
macro_rules! registered {
    ($type:ty: $($part:ident)*) => {
        impl $type {
            $($crate::verbs::registration::registered!(@$part);)*
        }
    };
    (@length) => {
        /// Returns the length in bytes.
        pub fn len(&self) -> usize {
            self.length
        }

        /// Always returns false: it has at least one byte.
        pub fn is_empty(&self) -> bool {
            self.length == 0
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
