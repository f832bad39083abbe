//! Memory through keys: every access is checked against the key, its PD, bounds and rights.

use mlx5_sys::ifc::{Field, mkc};

use super::Data;
use crate::card::Card;
use crate::object::{Mkey, Translation};

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

impl Access {
    /// The bit of the mkey context that grants it; local reads need none.
    fn right(self) -> Option<Field> {
        match self {
            Self::LocalRead => None,
            Self::LocalWrite => Some(mkc::LW),
            Self::RemoteRead => Some(mkc::RR),
            Self::RemoteWrite => Some(mkc::RW),
            Self::RemoteAtomic => Some(mkc::A),
        }
    }
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
    /// Looks a key up and checks everything about an access but its length of zero.
    fn region(
        &self,
        pd: u32,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<&Mkey, Denied> {
        let mkey = self.objects.mkeys.get(key >> 8).ok_or(Denied::Key)?;
        if mkey.get(mkc::MKEY_7_0) != key & 0xff || mkey.get(mkc::FREE) == 1 {
            return Err(Denied::Key);
        }
        if mkey.get(mkc::PD) != pd {
            return Err(Denied::Domain);
        }
        if access.right().is_some_and(|right| mkey.get(right) == 0) {
            return Err(Denied::Rights);
        }
        if !mkey.contains(address, length) {
            return Err(Denied::Bounds);
        }
        Ok(mkey)
    }

    /// Checks an access of `length` bytes without making it. An access of nothing is always
    /// granted, whatever the key.
    pub fn check(
        &self,
        pd: u32,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<(), Denied> {
        if length == 0 {
            return Ok(());
        }
        self.region(pd, key, address, length, access).map(|_| ())
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
        if to.is_empty() {
            return Ok(());
        }
        let mkey = self.region(pd, key, address, to.len() as u64, access)?;
        let memory = &*self.memory;
        match &mkey.translation {
            Translation::Physical => memory.read(address, to),
            Translation::Pages(pages) => pages.read(memory, offset(mkey, address)?, to),
            Translation::None => return Err(Denied::Key),
        }
        .map_err(|_| Denied::Fault)
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
        if from.is_empty() {
            return Ok(());
        }
        let mkey = self.region(pd, key, address, from.len() as u64, access)?;
        let memory = &*self.memory;
        match &mkey.translation {
            Translation::Physical => memory.write(address, from),
            Translation::Pages(pages) => pages.write(memory, offset(mkey, address)?, from),
            Translation::None => return Err(Denied::Key),
        }
        .map_err(|_| Denied::Fault)
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
        if address % 8 != 0 {
            return Err(Denied::Bounds);
        }
        let mkey = self.region(pd, key, address, 8, Access::RemoteAtomic)?;
        let at = match &mkey.translation {
            Translation::Physical => address,
            // The start address and its bus address agree below the page size, so eight aligned
            // bytes are on one page.
            Translation::Pages(pages) => match pages.locate(offset(mkey, address)?) {
                Some((at, room)) if room >= 8 => at,
                _ => return Err(Denied::Bounds),
            },
            Translation::None => return Err(Denied::Key),
        };
        self.memory.update(at, change).map_err(|_| Denied::Fault)
    }

    /// Reads `to.len()` bytes that start `offset` bytes into the gather list.
    pub fn gather(&self, pd: u32, data: &[Data], offset: u64, to: &mut [u8]) -> Result<(), Denied> {
        let mut rest = to;
        let mut skip = offset;
        for piece in data {
            if rest.is_empty() {
                return Ok(());
            }
            let Some(n) = part(piece, &mut skip, rest.len()) else { continue };
            let (now, later) = rest.split_at_mut(n);
            match piece {
                Data::Inline(bytes) => {
                    now.copy_from_slice(&bytes[skip as usize..skip as usize + n])
                }
                Data::Pointer { key, address, .. } => {
                    let at = address.checked_add(skip).ok_or(Denied::Bounds)?;
                    self.read_key(pd, *key, at, Access::LocalRead, now)?;
                }
            }
            skip = 0;
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(Denied::Bounds) }
    }

    /// Writes bytes that start `offset` bytes into the scatter list. The caller has checked that
    /// they fit; what does not is [`Denied::Bounds`].
    pub fn scatter(&self, pd: u32, data: &[Data], offset: u64, from: &[u8]) -> Result<(), Denied> {
        let mut rest = from;
        let mut skip = offset;
        for piece in data {
            if rest.is_empty() {
                return Ok(());
            }
            let Some(n) = part(piece, &mut skip, rest.len()) else { continue };
            let (now, later) = rest.split_at(n);
            match piece {
                // Nothing can be scattered into a WQE.
                Data::Inline(_) => return Err(Denied::Rights),
                Data::Pointer { key, address, .. } => {
                    let at = address.checked_add(skip).ok_or(Denied::Bounds)?;
                    self.write_key(pd, *key, at, Access::LocalWrite, now)?;
                }
            }
            skip = 0;
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(Denied::Bounds) }
    }
}

/// How many bytes of a list's piece an access that skips `skip` bytes and wants `wanted` touches;
/// `None` if it starts behind the piece, whose length is then taken off `skip`.
fn part(piece: &Data, skip: &mut u64, wanted: usize) -> Option<usize> {
    if *skip >= piece.len() {
        *skip -= piece.len();
        return None;
    }
    Some((piece.len() - *skip).min(wanted as u64) as usize)
}

/// Where in the region's pages an address lies.
fn offset(mkey: &Mkey, address: u64) -> Result<usize, Denied> {
    address.checked_sub(mkey.start()).map(|offset| offset as usize).ok_or(Denied::Bounds)
}
