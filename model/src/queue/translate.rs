//! Memory access through keys: every access is checked against the key, its PD, bounds and rights.

use std::ops::Range;

use mlx5_sys::ifc::mkc;

use super::{Access, Data, Denied, Domain};
use crate::card::Card;
use crate::memory::Fault;
use crate::object::{Mkey, Translation};

/// How many keys over other keys an access may go through.
pub(crate) const INDIRECTION: u32 = 4;

/// The key of no memory: reads give zeros, and writes have no effect. Local requests may use it, at
/// any address.
pub(crate) const DUMP_FILL: u32 = 0x300;

impl Card {
    /// Looks a key up and checks everything about an access but its length of zero.
    fn region(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<&Mkey, Denied> {
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
        if length == 0 || nowhere(key, access) {
            return Ok(());
        }
        self.region(domain, key, address, length, access).map(|_| ())
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
        let mkey = self.region(domain, key, address, bytes.len() as u64, access)?;
        match &mkey.translation {
            Translation::Physical => work(address, bytes).map_err(|_| Denied::Fault),
            Translation::Memic(start) => work(start + address, bytes).map_err(|_| Denied::Fault),
            Translation::Pages(pages) => {
                let mut at = offset(mkey, address)?;
                let mut done = bytes.start;
                while done < bytes.end {
                    let (bus, room) = pages.locate(at).ok_or(Denied::Bounds)?;
                    let n = room.min(bytes.end - done);
                    work(bus, done..done + n).map_err(|_| Denied::Fault)?;
                    (at, done) = (at + n, done + n);
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
            Translation::None => Err(Denied::Key),
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
        // What lies behind the key of no memory.
        to.fill(0);
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
        let access = (access, INDIRECTION);
        self.pieces(domain, key, address, 0..from.len(), access, &mut |bus, bytes| {
            memory.write(bus, &from[bytes])
        })
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
                    self.write_key(domain, *key, at, Access::LocalWrite, now)?;
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

/// Whether an access is to the key of no memory, and is one that may use it.
fn nowhere(key: u32, access: Access) -> bool {
    key == DUMP_FILL && matches!(access, Access::LocalRead | Access::LocalWrite)
}

/// Returns the offset of an address in the region's pages.
fn offset(mkey: &Mkey, address: u64) -> Result<usize, Denied> {
    address.checked_sub(mkey.start()).map(|offset| offset as usize).ok_or(Denied::Bounds)
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{Field, create_mkey_in, destroy_mkey_in, opcode};

    use super::*;
    use crate::command::test::{BASE, Command, Rig, SIZE};

    /// Start address of the rig's keys.
    const START: u64 = 0x7000_0100;

    fn field(field: Field) -> Field {
        field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY)
    }

    fn domain(rig: &Rig) -> Domain {
        Domain { pd: rig.pd, qp: 0 }
    }

    fn keyed() -> (Rig, u32, u64, u64) {
        let mut rig = Rig::new();
        let create = rig.create_mkey();
        let page = |i: usize| {
            u64::from_be_bytes(create.0[0x110 + i * 8..0x118 + i * 8].try_into().unwrap())
        };
        let (first, second) = (page(0), page(1));
        let key = rig.mkey(&create);
        (rig, key, first, second)
    }

    #[test]
    fn an_access_follows_the_pages() {
        let (rig, key, first, second) = keyed();
        let data: Vec<u8> = (0..0x1000u32).map(|i| (i % 253) as u8).collect();
        rig.card.write_key(domain(&rig), key, START, Access::RemoteWrite, &data).unwrap();
        assert_eq!(rig.read::<0xf00>(first + 0x100), data[..0xf00]);
        assert_eq!(rig.read::<0x100>(second), data[0xf00..]);
        let mut back = vec![0; 0x20];
        rig.card.read_key(domain(&rig), key, START + 0xef0, Access::LocalRead, &mut back).unwrap();
        assert_eq!(back, data[0xef0..0xf10]);
    }

    #[test]
    fn each_check_has_its_refusal() {
        let (mut rig, key, ..) = keyed();
        let pd = rig.pd;
        let check = |rig: &Rig, pd, key, at, n, access| {
            rig.card.check(Domain { pd, qp: 0 }, key, at, n, access)
        };
        use Access::{LocalRead, LocalWrite, RemoteAtomic, RemoteRead, RemoteWrite};
        for access in [LocalRead, LocalWrite, RemoteRead, RemoteWrite, RemoteAtomic] {
            assert_eq!(check(&rig, pd, key, START, 0x1000, access), Ok(()));
        }
        for (pd, key, at, n, denied) in [
            (pd, key ^ 1, START, 1, Denied::Key),
            (pd, key ^ 0x100, START, 1, Denied::Key),
            (pd + 1, key, START, 1, Denied::Domain),
            (pd, key, START - 1, 1, Denied::Bounds),
            (pd, key, START, 0x1001, Denied::Bounds),
            (pd, key, START + 0x1000, 1, Denied::Bounds),
            (pd, key, u64::MAX, 2, Denied::Bounds),
            (pd, key, START + 1, u64::MAX, Denied::Bounds),
        ] {
            assert_eq!(check(&rig, pd, key, at, n, LocalRead), Err(denied));
        }
        assert_eq!(check(&rig, pd, 0, 0, 0, RemoteWrite), Ok(()));
        for (right, access) in [
            (mkc::LW, LocalWrite),
            (mkc::RR, RemoteRead),
            (mkc::RW, RemoteWrite),
            (mkc::A, RemoteAtomic),
        ] {
            let create = rig.create_mkey().set(field(right), 0u64);
            let key = rig.mkey(&create);
            assert_eq!(check(&rig, pd, key, START, 1, access), Err(Denied::Rights));
            assert_eq!(check(&rig, pd, key, START, 1, LocalRead), Ok(()));
        }
        let free = rig.create_mkey().set(field(mkc::FREE), 1u64);
        let free = rig.mkey(&free);
        assert_eq!(check(&rig, pd, free, START, 1, LocalRead), Err(Denied::Key));
        let destroy =
            Command::new(opcode::DESTROY_MKEY, 0x10).set(destroy_mkey_in::MKEY_INDEX, key >> 8);
        rig.run(&destroy).unwrap();
        assert_eq!(check(&rig, pd, key, START, 1, LocalRead), Err(Denied::Key));
    }

    #[test]
    fn behind_the_key_of_no_memory_are_zeroes() {
        let rig = Rig::new();
        let (pd, at) = (domain(&rig), u64::MAX - 0x1000);
        rig.card.write_key(pd, DUMP_FILL, at, Access::LocalWrite, &[7; 100]).unwrap();
        let mut bytes = [1; 100];
        rig.card.read_key(pd, DUMP_FILL, at, Access::LocalRead, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
        for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteAtomic] {
            assert_eq!(rig.card.check(pd, DUMP_FILL, 0, 1, access), Err(Denied::Key));
        }
    }

    #[test]
    fn device_memory_starts_at_zero() {
        use mlx5_sys::ifc::alloc_memic_out;
        let mut rig = Rig::new();
        let bus = rig.give_memic();
        let reply = rig.run(&Command::alloc_memic(256)).unwrap();
        let start = alloc_memic_out::MEMIC_START_ADDR.get(&reply);
        let create = rig
            .create_mkey()
            .set(field(mkc::ACCESS_MODE_1_0), 1u64)
            .set(field(mkc::ACCESS_MODE_4_2), 1u64)
            .set(field(mkc::LEN), 128u64)
            .set(field(mkc::START_ADDR), start + 64);
        let key = rig.mkey(&create);
        let pd = domain(&rig);
        rig.card.write_key(pd, key, 8, Access::RemoteWrite, b"on the card").unwrap();
        assert_eq!(rig.read::<11>(bus + 64 + 8), *b"on the card");
        let mut beyond = [0; 2];
        let read = rig.card.read_key(pd, key, 127, Access::LocalRead, &mut beyond);
        assert_eq!(read, Err(Denied::Bounds));
        let eight = rig.card.update_key(pd, key, 16, &mut |old| old).unwrap();
        assert_eq!(eight, *b"ard\0\0\0\0\0");
    }

    #[test]
    fn memory_that_is_gone_is_a_fault() {
        let mut rig = Rig::new();
        let gone = BASE + SIZE as u64;
        let create = rig.create_mkey().set(Field::new(0x118, 31, 64), gone);
        let key = rig.mkey(&create);
        let mut bytes = [0; 0x200];
        let read =
            rig.card.read_key(domain(&rig), key, START + 0xe00, Access::LocalRead, &mut bytes);
        assert_eq!(read, Err(Denied::Fault));
        let write =
            rig.card.write_key(domain(&rig), key, START + 0xf00, Access::LocalWrite, &bytes[..1]);
        assert_eq!(write, Err(Denied::Fault));
        let update = rig.card.update_key(domain(&rig), key, START + 0xf00, &mut |old| old);
        assert_eq!(update, Err(Denied::Fault));
    }

    #[test]
    fn physical_keys_reach_bus_addresses() {
        let mut rig = Rig::new();
        let create = rig
            .create_mkey()
            .set(field(mkc::ACCESS_MODE_1_0), 0u64)
            .set(field(mkc::LENGTH64), 1u64)
            .set(field(mkc::START_ADDR), 0u64);
        let key = rig.mkey(&create);
        let page = rig.page();
        rig.card.write_key(domain(&rig), key, page, Access::LocalWrite, b"bus").unwrap();
        assert_eq!(&rig.read::<3>(page), b"bus");
        let mut back = [0; 3];
        rig.card.read_key(domain(&rig), key, page, Access::RemoteRead, &mut back).unwrap();
        assert_eq!(&back, b"bus");
        assert_eq!(
            rig.card.read_key(domain(&rig), key, 0, Access::LocalRead, &mut back),
            Err(Denied::Fault)
        );
        assert_eq!(
            rig.card.check(domain(&rig), key, u64::MAX - 1, 3, Access::LocalRead),
            Err(Denied::Bounds)
        );
    }

    #[test]
    fn updates_are_aligned_and_need_the_right() {
        let (mut rig, key, first, _) = keyed();
        rig.write(first + 0x100, &5u64.to_be_bytes());
        let mut add = |old: [u8; 8]| (u64::from_be_bytes(old) + 4).to_be_bytes();
        assert_eq!(rig.card.update_key(domain(&rig), key, START, &mut add), Ok(5u64.to_be_bytes()));
        assert_eq!(rig.read::<8>(first + 0x100), 9u64.to_be_bytes());
        assert_eq!(
            rig.card.update_key(domain(&rig), key, START + 4, &mut add),
            Err(Denied::Bounds)
        );
        let create = rig.create_mkey().set(field(mkc::A), 0u64);
        let key = rig.mkey(&create);
        assert_eq!(rig.card.update_key(domain(&rig), key, START, &mut add), Err(Denied::Rights));
    }

    #[test]
    fn lists_are_walked_from_any_offset() {
        let (rig, key, first, _) = keyed();
        rig.write(first + 0x100, b"abcdefgh");
        let piece = |offset, length| Data::Pointer { length, key, address: START + offset };
        let list = [piece(4, 4), Data::Inline(b"-inline-".to_vec()), piece(0, 4)];
        let whole = b"efgh-inline-abcd";
        for from in 0..=whole.len() {
            for to in from..=whole.len() {
                let mut bytes = vec![0; to - from];
                rig.card.gather(domain(&rig), &list, from as u64, &mut bytes).unwrap();
                assert_eq!(bytes, whole[from..to]);
            }
        }
        assert_eq!(rig.card.gather(domain(&rig), &list, 10, &mut [0; 7]), Err(Denied::Bounds));

        let list = [piece(0x10, 3), piece(0x20, 5)];
        rig.card.scatter(domain(&rig), &list, 1, b"12345").unwrap();
        assert_eq!(rig.read::<3>(first + 0x110), *b"\x0012");
        assert_eq!(rig.read::<5>(first + 0x120), *b"345\0\0");
        assert_eq!(rig.card.scatter(domain(&rig), &list, 4, b"12345"), Err(Denied::Bounds));
        let inline = [Data::Inline(vec![0; 8])];
        assert_eq!(rig.card.scatter(domain(&rig), &inline, 0, b"1"), Err(Denied::Rights));
    }
}
