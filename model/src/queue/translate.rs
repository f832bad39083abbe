//! Memory access through keys: every access is checked against the key, its PD, bounds and rights.

use std::ops::Range;

use mlx5_sys::ifc::{mkc, qpc};

use super::bind::{GONE, OTHER_DOMAIN, OTHER_QUEUE};
use super::{Access, Data, Denied, Domain};
use crate::card::Card;
use crate::memory::Fault;
use crate::object::{Mkey, Qp, Translation};
use crate::work::Reason;

/// How many keys over other keys an access may go through.
pub(crate) const INDIRECTION: u32 = 4;

/// The key of no memory: reads give zeros, and writes have no effect. Local requests may use it, at
/// any address.
pub(crate) const DUMP_FILL: u32 = 0x300;

/// The key of the whole bus, for local requests of queue pairs that the driver makes for it (`rlky`).
pub(crate) const RESERVED: u32 = 0x200;

/// The key of memory that is not there: every access fails.
pub(crate) const NULL: u32 = 0x400;

impl Card {
    /// Looks a key up and checks everything about an access but its length of zero. Tells why it is
    /// refused.
    fn region(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<&Mkey, Denied> {
        self.find_region(domain, key, address, length, access)
            .map_err(|denied| self.explain_denied(domain, key, (address, length), access, denied))
    }

    fn find_region(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<&Mkey, Denied> {
        if key == NULL {
            return Err(Denied::Fault);
        }
        let mkey = self.objects.mkeys.get(key >> 8).ok_or(Denied::Key)?;
        if mkey.get(mkc::MKEY_7_0) != key & 0xff || mkey.get(mkc::FREE) == 1 {
            return Err(Denied::Key);
        }
        if mkey.get(mkc::PD) != domain.pd {
            return Err(Denied::Domain);
        }
        if mkey.bound_to().is_some_and(|qp| qp != domain.qp) {
            return Err(Denied::Queue);
        }
        if access.right().is_some_and(|right| mkey.get(right) == 0) {
            return Err(Denied::Rights);
        }
        if !mkey.contains(address, length) {
            return Err(Denied::Bounds);
        }
        Ok(mkey)
    }

    /// Checks an access of `length` bytes without making it. An access of zero bytes is always
    /// granted, whatever the key. Keys under other keys are checked when the access is made.
    pub fn check(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<(), Denied> {
        if length == 0 || nowhere(key, access) || self.is_reserved(domain, key, access) {
            return Ok(());
        }
        self.region(domain, key, address, length, access).map(|_| ())
    }

    /// Returns whether an access is by the reserved key, and of a queue pair that may use it.
    fn is_reserved(&self, domain: Domain, key: u32, access: Access) -> bool {
        let may_use = |qp: &Qp| qp.uid == 0 && qp.get(qpc::RLKY) == 1;
        key == RESERVED
            && matches!(access, Access::LocalRead | Access::LocalWrite)
            && self.objects.queue_pair(domain.qp).is_some_and(may_use)
    }

    /// Does `work` on each piece of the region behind a key that is contiguous on the bus, in
    /// increasing order: its bus address and which bytes of the access it is. Keys over other keys
    /// are followed, as deep as cards do.
    pub(super) fn pieces(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        bytes: Range<usize>,
        access: (Access, u32),
        work: &mut dyn FnMut(u64, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Denied> {
        let (access, depth) = access;
        if bytes.is_empty() || nowhere(key, access) {
            return Ok(());
        }
        let length = bytes.len() as u64;
        let gone = |_| self.explain_denied(domain, key, (address, length), access, Denied::Fault);
        if self.is_reserved(domain, key, access) {
            return work(address, bytes).map_err(gone);
        }
        let mkey = self.region(domain, key, address, length, access)?;
        match &mkey.translation {
            Translation::Physical => work(address, bytes).map_err(gone),
            Translation::Memic(start) => work(start + address, bytes).map_err(gone),
            Translation::Pages(pages) => {
                let mut at = offset(mkey, address)?;
                let mut done = bytes.start;
                while done < bytes.end {
                    let (bus, room) = pages.locate(at).ok_or(Denied::Bounds)?;
                    let n = room.min(bytes.end - done);
                    work(bus, done..done + n).map_err(gone)?;
                    (at, done) = (at + n, done + n);
                }
                Ok(())
            }
            Translation::Table(table) => {
                let log = mkey.get(mkc::LOG_PAGE_SIZE);
                let first = mkey.start() & ((1u64 << log) - 1);
                let at = first + offset(mkey, address)? as u64;
                let place = |done: usize| table.locate(log, at + (done - bytes.start) as u64);
                let mut done = bytes.start;
                while done < bytes.end {
                    let (bus, room) = place(done).ok_or(()).map_err(|()| gone(Fault(address)))?;
                    let n = room.min(bytes.end - done);
                    work(bus, done..done + n).map_err(gone)?;
                    done += n;
                }
                Ok(())
            }
            Translation::Klms(_) | Translation::Ksms(..) if depth == 0 => Err(Denied::Key),
            Translation::Klms(klms) => {
                let below = (access.below(), depth - 1);
                self.listed(domain, klms, offset(mkey, address)? as u64, bytes, below, work)
            }
            Translation::Ksms(log, list) => {
                let below = (access.below(), depth - 1);
                self.equal(domain, (*log, list), offset(mkey, address)?, bytes, below, work)
            }
        }
    }

    /// Reads memory behind a key, for `access` [`Access::LocalRead`] or [`Access::RemoteRead`].
    pub fn read_key(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        access: Access,
        to: &mut [u8],
    ) -> Result<(), Denied> {
        let memory = &*self.memory;
        self.port.pace.read(to.len());
        let has_pages =
            |mkey: &Mkey| matches!(mkey.translation, Translation::Pages(_) | Translation::Table(_));
        if nowhere(key, access) || !self.objects.mkeys.get(key >> 8).is_some_and(has_pages) {
            // What lies behind the key of no memory: this one, or one below it.
            to.fill(0);
        }
        self.pieces(domain, key, address, 0..to.len(), (access, INDIRECTION), &mut |bus, bytes| {
            memory.read(bus, &mut to[bytes])
        })
    }

    /// Writes memory behind a key, in increasing order of address.
    pub fn write_key(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        access: Access,
        from: &[u8],
    ) -> Result<(), Denied> {
        let memory = &*self.memory;
        self.port.pace.wrote(from.len());
        let access = (access, INDIRECTION);
        self.pieces(domain, key, address, 0..from.len(), access, &mut |bus, bytes| {
            memory.write(bus, &from[bytes])
        })
    }

    /// Writes a packet's data to memory behind a key, as [`Card::write_key`] does. With a seed of placement,
    /// some of it becomes visible later: see [`Card::place`].
    pub(crate) fn deliver_key(
        &mut self,
        domain: Domain,
        key: u32,
        address: u64,
        access: Access,
        from: &[u8],
    ) -> Result<(), Denied> {
        let Some(mut placement) = self.placement.take() else {
            return self.write_key(domain, key, address, access, from);
        };
        let memory = &*self.memory;
        self.port.pace.wrote(from.len());
        let access = (access, INDIRECTION);
        let added = self.pieces(domain, key, address, 0..from.len(), access, &mut |bus, bytes| {
            placement.add(domain.qp, memory, bus, &from[bytes])
        });
        placement.place_some(domain.qp, memory, self.clock.now());
        self.placement = Some(placement);
        added
    }

    /// Changes eight aligned bytes behind a key at once and returns the old bytes, in memory order.
    /// `address` must be a multiple of 8, and the bytes contiguous (else [`Denied::Bounds`]).
    pub fn update_key(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Denied> {
        if address % 8 != 0 {
            return Err(Denied::Bounds);
        }
        let mut place = None;
        let access = (Access::RemoteAtomic, INDIRECTION);
        self.pieces(domain, key, address, 0..8, access, &mut |bus, bytes| {
            if bytes.len() == 8 {
                place = Some(bus);
            }
            Ok(())
        })?;
        self.port.pace.atomic(address, 8);
        // Behind a key over other keys, alignment may be lost on the way.
        let at = place.filter(|at| at % 8 == 0).ok_or(Denied::Bounds)?;
        self.memory.update(at, change).map_err(|_| Denied::Fault)
    }

    /// Changes 4, 8, 16 or 32 aligned bytes behind a key. `found` gets the old bytes, in memory
    /// order, and `change` gives the new ones. No other access of this card comes in between.
    /// Against the processor the change is atomic up to eight bytes. `address` must be a multiple
    /// of the size, and the bytes contiguous (else [`Denied::Bounds`]).
    pub fn update_bytes(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        found: &mut [u8],
        change: &mut dyn FnMut(&[u8]) -> [u8; super::LARGEST],
    ) -> Result<(), Denied> {
        let size = found.len();
        if size == 8 {
            let old = self.update_key(domain, key, address, &mut |old| {
                let mut new = [0; 8];
                new.copy_from_slice(&change(&old)[..8]);
                new
            })?;
            found.copy_from_slice(&old);
            return Ok(());
        }
        if address % size as u64 != 0 {
            return Err(Denied::Bounds);
        }
        let mut place = None;
        let access = (Access::RemoteAtomic, INDIRECTION);
        self.pieces(domain, key, address, 0..size, access, &mut |bus, bytes| {
            if bytes.len() == size {
                place = Some(bus);
            }
            Ok(())
        })?;
        self.port.pace.atomic(address, size);
        let at = place.filter(|at| at % size as u64 == 0).ok_or(Denied::Bounds)?;
        if size == 4 {
            // The other half of the eight bytes stays as it is.
            let half = (at % 8) as usize;
            let old = self.memory.update(at & !7, &mut |old| {
                let mut new = old;
                new[half..half + 4].copy_from_slice(&change(&old[half..half + 4])[..4]);
                new
            });
            found.copy_from_slice(&old.map_err(|_| Denied::Fault)?[half..half + 4]);
            return Ok(());
        }
        self.memory.read(at, found).map_err(|_| Denied::Fault)?;
        self.memory.write(at, &change(found)[..size]).map_err(|_| Denied::Fault)
    }

    /// Invalidates a key, as a peer's SEND with invalidate asks. The whole key has to match, be in
    /// use, and allow remote invalidation.
    pub(crate) fn invalidate_key(&mut self, domain: Domain, key: u32) -> Result<(), Denied> {
        self.place_all();
        let invalidated = self.invalidated(domain, key);
        let why = match invalidated {
            Ok(()) => return Ok(()),
            Err(Denied::Domain) => OTHER_DOMAIN,
            Err(Denied::Queue) => OTHER_QUEUE,
            Err(Denied::Rights) => "peers may invalidate windows of type 2 alone",
            Err(Denied::Key | Denied::Bounds | Denied::Fault) => GONE,
        };
        self.explain(domain.qp, &Reason::KeyChange { key, why });
        invalidated
    }

    fn invalidated(&mut self, domain: Domain, key: u32) -> Result<(), Denied> {
        let mkey = self.objects.mkeys.get_mut(key >> 8).ok_or(Denied::Key)?;
        if mkey.get(mkc::MKEY_7_0) != key & 0xff || mkey.get(mkc::FREE) == 1 {
            return Err(Denied::Key);
        }
        if mkey.get(mkc::PD) != domain.pd {
            return Err(Denied::Domain);
        }
        if mkey.bound_to().is_some_and(|qp| qp != domain.qp) {
            return Err(Denied::Queue);
        }
        if mkey.get(mkc::EN_RINVAL) == 0 {
            return Err(Denied::Rights);
        }
        mkc::FREE.set(&mut mkey.context[..], 1);
        Ok(())
    }

    /// Reads `to.len()` bytes that start `offset` bytes into the gather list.
    pub fn gather(
        &self,
        domain: Domain,
        data: &[Data],
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), Denied> {
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
                    self.read_key(domain, *key, at, Access::LocalRead, now)?;
                }
            }
            skip = 0;
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(Denied::Bounds) }
    }

    /// Writes bytes that start `offset` bytes into the scatter list. The caller has checked that
    /// they fit; what does not is [`Denied::Bounds`].
    pub fn scatter(
        &self,
        domain: Domain,
        data: &[Data],
        offset: u64,
        from: &[u8],
    ) -> Result<(), Denied> {
        scattered(data, offset, from, |key, at, bytes| {
            self.write_key(domain, key, at, Access::LocalWrite, bytes)
        })
    }

    /// Writes a packet's data to the scatter list, as [`Card::scatter`] and [`Card::deliver_key`] do.
    pub(crate) fn deliver_list(
        &mut self,
        domain: Domain,
        data: &[Data],
        offset: u64,
        from: &[u8],
    ) -> Result<(), Denied> {
        scattered(data, offset, from, |key, at, bytes| {
            self.deliver_key(domain, key, at, Access::LocalWrite, bytes)
        })
    }
}

/// Does `work` on each piece of the scatter list that bytes go to, `offset` bytes into it: key, address
/// and bytes.
fn scattered(
    data: &[Data],
    offset: u64,
    from: &[u8],
    mut work: impl FnMut(u32, u64, &[u8]) -> Result<(), Denied>,
) -> Result<(), Denied> {
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
                work(*key, at, now)?;
            }
        }
        skip = 0;
        rest = later;
    }
    if rest.is_empty() { Ok(()) } else { Err(Denied::Bounds) }
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

/// Whether an access is to the key of no memory, and is one that may use it.
fn nowhere(key: u32, access: Access) -> bool {
    key == DUMP_FILL && matches!(access, Access::LocalRead | Access::LocalWrite)
}

/// Returns the offset of an address in the region's pages.
fn offset(mkey: &Mkey, address: u64) -> Result<usize, Denied> {
    address.checked_sub(mkey.start()).map(|offset| offset as usize).ok_or(Denied::Bounds)
}

#[cfg(test)]
mod tests;
