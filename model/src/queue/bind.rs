//! Changes of memory keys by UMR: binding and invalidating memory windows, and the pages of regions.

use mlx5_sys::ifc::mkc;

use super::{Access, Domain, Entries, Protection, Syndrome, Umr};
use crate::card::Card;
use crate::object::{Klm, Mkey, Objects, PageTable, Room, Share, Special, Translation};
use crate::work::Reason;
use crate::work::umr::{FIELDS, GEOMETRY, OF_DRIVER, UNIT};

/// The syndrome of a change that a key does not allow.
const REFUSED: Syndrome = Syndrome::MemoryWindowBind;

/// The queue pair that changes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The driver's queue for UMR. Only it knows bus addresses, and it changes keys of all domains.
    Driver,
    /// Any other queue pair.
    Program,
}

impl Card {
    /// Changes a key as a queue pair's UMR asks, or not at all, and tells why. The memory or the keys
    /// behind the key are examined when it is used.
    pub(crate) fn change_key(&mut self, domain: Domain, umr: &Umr) -> Result<(), Syndrome> {
        let changed = self.changed(domain, umr);
        if changed == Err(REFUSED) {
            let by = self.changer(domain);
            let why = match self.objects.mkeys.get(umr.key >> 8) {
                Some(mkey) => forbidden(mkey, domain, by, umr)
                    .unwrap_or("its entries, start or length are none that the key can have"),
                None => GONE,
            };
            self.explain(domain.qp, &Reason::KeyChange { key: umr.key, why });
        }
        changed
    }

    fn changed(&mut self, domain: Domain, umr: &Umr) -> Result<(), Syndrome> {
        self.place_all();
        let by = self.changer(domain);
        let entries = self.new_entries(domain, by, umr)?;
        let Objects { mkeys, room, .. } = &mut self.objects;
        let mkey = mkeys.get_mut(umr.key >> 8).ok_or(REFUSED)?;
        if forbidden(mkey, domain, by, umr).is_some() {
            return Err(REFUSED);
        }
        let mut context = mkey.context.clone();
        for (_, field) in FIELDS.iter().filter(|(bit, _)| umr.mask >> bit & 1 == 1) {
            field.set(&mut context[..], field.get(&umr.context));
        }
        let length = mkc::LEN.get(&context[..]);
        let end = mkc::START_ADDR.get(&context[..]).checked_add(length);
        if length > Mkey::MAX_LENGTH || end.is_none() {
            return Err(REFUSED);
        }
        let end = entries.as_ref().map_or(0, |entries| umr.offset + entries.len());
        let changes = entries.is_some() || umr.mask & GEOMETRY != 0;
        let list = if changes { grown(mkey, end, room)? } else { None };
        match (&mut mkey.translation, entries) {
            (Translation::Pages(_) | Translation::Table(_), entries)
                if entries.is_some() || umr.mask & GEOMETRY != 0 =>
            {
                let entries = entries.unwrap_or_default();
                change_pages(&mut mkey.translation, by, &context[..], umr.offset, &entries)?;
            }
            // Their start and length say which bytes of the card or of the bus the key reaches.
            (Translation::Memic(_) | Translation::Physical, None) if umr.mask & GEOMETRY != 0 => {
                return Err(REFUSED);
            }
            (_, None) => {}
            (_, Some(entries))
                if umr.offset + entries.len()
                    > mkc::TRANSLATIONS_OCTWORD_SIZE.get(&context[..]) as usize =>
            {
                return Err(REFUSED);
            }
            (Translation::Klms(list), Some(entries)) => list.replace(umr.offset, &entries),
            (Translation::Ksms(_, list), Some(entries)) => {
                let end = umr.offset + entries.len();
                if list.len() < end {
                    list.resize(end, Klm::default());
                }
                list[umr.offset..end].copy_from_slice(&entries);
            }
            _ => return Err(REFUSED),
        }
        if umr.entries.is_some() {
            // The whole list is indexed again. Offset and entries of a UMR reach no further.
            let list = mkc::TRANSLATIONS_OCTWORD_SIZE.get(&context[..]).min(1 << 16);
            self.port.charge_bytes(list as usize * size_of::<Klm>());
        }
        mkey.context = context;
        if let Some(list) = list {
            mkey.list = list;
        }
        Ok(())
    }

    /// Returns the new entries of the key's list, from the WQE or from memory.
    fn new_entries(&self, domain: Domain, by: By, umr: &Umr) -> Result<Option<Vec<Klm>>, Syndrome> {
        let (count, key, address) = match &umr.entries {
            None => return Ok(None),
            Some(Entries::Inline(klms)) => return Ok(Some(klms.clone())),
            Some(Entries::Pointer { count, key, address }) => (*count, *key, *address),
        };
        let pd = match self.objects.mkeys.get(key >> 8) {
            // It has no domain of its own (Linux makes it without one), and reads by any key.
            Some(mkey) if by == By::Driver => mkey.get(mkc::PD),
            _ => domain.pd,
        };
        let domain = Domain { pd, ..domain };
        let mut bytes = vec![0; count * 16];
        self.read_key(domain, key, address, Access::LocalRead, &mut bytes).map_err(|denied| {
            tracing::debug!(?denied, "the entries of a UMR cannot be read");
            Syndrome::LocalProtection(Protection::Gather(denied))
        })?;
        Ok(Some(Klm::list(&bytes)))
    }

    fn changer(&self, domain: Domain) -> By {
        let special = self.objects.queue_pair(domain.qp).and_then(|qp| qp.special());
        if special == Some(Special::Umr) { By::Driver } else { By::Program }
    }
}

/// Why a key that does not exist is not changed.
pub(super) const GONE: &str = "there is no such key";
/// Why a key of another protection domain is not changed.
pub(super) const OTHER_DOMAIN: &str = "it is of another protection domain than the queue pair";
/// Why a window of another queue pair is not changed.
pub(super) const OTHER_QUEUE: &str = "it is bound to another queue pair";

/// Returns why a queue pair may not change a key, in the state that the key has. `None` if it may.
fn forbidden(mkey: &Mkey, domain: Domain, by: By, umr: &Umr) -> Option<&'static str> {
    let free = mkey.get(mkc::FREE) == 1;
    let bound_elsewhere = mkey.bound_to().is_some_and(|qp| qp != domain.qp);
    let program = by == By::Program;
    // A key that is free may have been given its new low byte in advance.
    let is_other = !free && mkey.get(mkc::MKEY_7_0) != umr.key & 0xff;
    let rules = [
        (mkey.get(mkc::UMR_EN) == 0, "it was not made for changes by queue pairs"),
        (program && mkey.get(mkc::PD) != domain.pd, OTHER_DOMAIN),
        (program && umr.mask & OF_DRIVER != 0, "it would change what only the kernel changes"),
        (is_other, GONE),
        (umr.check_free && !free, "the key is in use, and has to be free"),
        ((umr.check_used || umr.check_qp) && free, "the key is free: invalidated, or not bound"),
        (umr.check_qp && bound_elsewhere, OTHER_QUEUE),
    ];
    rules.iter().find(|(is_broken, _)| *is_broken).map(|(_, why)| *why)
}

/// Takes the memory that a key's list needs to reach to an octword, if it has less.
fn grown(mkey: &Mkey, end: usize, room: &Room) -> Result<Option<Share>, Syndrome> {
    let pages = match &mkey.translation {
        Translation::Pages(pages) => pages.addresses().len().div_ceil(2),
        _ => 0,
    };
    let bytes = mkey.translation.bytes_of(end.max(pages));
    if bytes <= mkey.list.bytes() {
        return Ok(None);
    }
    room.take(bytes).map(Some).ok_or(REFUSED)
}

/// Changes entries of a key's pages, of which the context is to be `context`, or which bytes of them
/// the key has. Pages are bus addresses, which are not for programs to choose.
fn change_pages(
    translation: &mut Translation,
    by: By,
    context: &[u8],
    offset: usize,
    entries: &[Klm],
) -> Result<(), Syndrome> {
    // Linux writes whole units to keys that it gave a part of one.
    let size = mkc::TRANSLATIONS_OCTWORD_SIZE.get(context).next_multiple_of(UNIT as u64);
    let needed = Mkey::pages_of(context).ok_or(REFUSED)?;
    let end = (offset + entries.len()) as u64;
    let fits = end <= size && (needed <= size * 2 || mkc::FREE.get(context) == 1);
    if by != By::Driver
        || !fits
        || mkc::LOG_PAGE_SIZE.get(context) < Mkey::LOG_MIN_PAGE.into()
        || offset % UNIT != 0
        || entries.len() % UNIT != 0
    {
        return Err(REFUSED);
    }
    let mut table = match translation {
        // The pages are those of another object.
        Translation::Pages(pages) if pages.is_held() => return Err(REFUSED),
        Translation::Pages(pages) => PageTable::of(pages),
        Translation::Table(table) => std::mem::take(table),
        _ => return Err(REFUSED),
    };
    table.replace(offset, entries);
    *translation = Translation::Table(table);
    Ok(())
}

#[cfg(test)]
mod tests;
