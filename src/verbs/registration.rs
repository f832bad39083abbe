//! What all registered memory has that the program does not own: keys, rights, and an end.

use std::ptr::NonNull;

use mlx5_sys::verbs::{ibv_dereg_mr, ibv_mr};

use super::ProtectionDomain;
use crate::ib::Access;

/// A registration, which ends when it is dropped; what it stands on is dropped after it.
pub(super) struct Registration {
    mr: NonNull<ibv_mr>,
    access: Access,
    /// Freed after the registration.
    pd: ProtectionDomain,
}

// SAFETY: verbs calls on a registration are allowed from any thread, and it is immutable.
unsafe impl Send for Registration {}
// SAFETY: it does not change, and verbs calls on one are allowed from several threads at once.
unsafe impl Sync for Registration {}

impl Registration {
    /// Takes over what was registered.
    ///
    /// # Safety
    /// `mr` was registered with these rights in that domain, and nobody else deregisters it.
    pub(super) unsafe fn new(mr: NonNull<ibv_mr>, access: Access, pd: &ProtectionDomain) -> Self {
        Self { mr, access, pd: pd.clone() }
    }

    pub(super) fn lkey(&self) -> u32 {
        // SAFETY: registered, and the field does not change.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: registered, and the field does not change.
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
        // SAFETY: `new`'s caller left it to this value, whose domain lives still.
        unsafe { ibv_dereg_mr(self.mr.as_ptr()) };
    }
}

/// The methods of a type that has a [`Registration`] in its field `registration`, as far as they are
/// named; those of `length` speak of a field of that name.
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

        /// Never: there is at least one byte.
        pub fn is_empty(&self) -> bool {
            self.length == 0
        }
    };
    (@lkey) => {
        /// Returns the key of this host's work requests.
        pub fn lkey(&self) -> u32 {
            self.registration.lkey()
        }
    };
    (@rkey) => {
        /// Returns the key that lets the peer in.
        pub fn rkey(&self) -> u32 {
            self.registration.rkey()
        }
    };
    (@rights) => {
        /// Returns its rights.
        pub fn access(&self) -> $crate::ib::Access {
            self.registration.access()
        }

        /// Returns the domain it belongs to.
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
