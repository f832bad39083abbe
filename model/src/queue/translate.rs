//! Memory through keys: every access is checked against the key, its PD, bounds and rights.

use super::Data;
use crate::card::Card;

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read local memory.
    LocalRead,
    /// Write local memory.
    LocalWrite,
    /// A peer's READ.
    RemoteRead,
    /// A peer's WRITE.
    RemoteWrite,
    /// A peer's atomic.
    RemoteAtomic,
}

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No such key, or it is free.
    Key,
    /// The key belongs to another protection domain.
    Domain,
    /// Outside the region.
    Bounds,
    /// The region does not grant it.
    Rights,
    /// The region's memory is gone.
    Fault,
}

impl Card {
    /// Checks an access of `length` bytes without making it.
    pub fn check(
        &self,
        pd: u32,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<(), Denied> {
        todo!()
    }

    /// Reads memory behind a key, for `access` [`Access::LocalRead`] or [`Access::RemoteRead`].
    pub fn read_key(
        &self,
        pd: u32,
        key: u32,
        address: u64,
        access: Access,
        to: &mut [u8],
    ) -> Result<(), Denied> {
        todo!()
    }

    /// Writes memory behind a key, in increasing order of address.
    pub fn write_key(
        &self,
        pd: u32,
        key: u32,
        address: u64,
        access: Access,
        from: &[u8],
    ) -> Result<(), Denied> {
        todo!()
    }

    /// Changes eight aligned bytes behind a key at once and returns what was there, in memory
    /// order. `address` must be a multiple of 8 (else [`Denied::Bounds`]).
    pub fn update_key(
        &self,
        pd: u32,
        key: u32,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Denied> {
        todo!()
    }

    /// Reads `to.len()` bytes that start `offset` bytes into the gather list.
    pub fn gather(&self, pd: u32, data: &[Data], offset: u64, to: &mut [u8]) -> Result<(), Denied> {
        todo!()
    }

    /// Writes bytes that start `offset` bytes into the scatter list. The caller has checked that
    /// they fit; what does not is [`Denied::Bounds`].
    pub fn scatter(&self, pd: u32, data: &[Data], offset: u64, from: &[u8]) -> Result<(), Denied> {
        todo!()
    }
}
