//! Changes of memory keys by UMR: binding and invalidating memory windows.

use mlx5_sys::ifc::mkc;

use super::{Access, Domain, Entries, Syndrome, Umr};
use crate::card::Card;
use crate::object::{Klm, Mkey, Translation};
use crate::work::umr::{FIELDS, OF_DRIVER};

impl Card {
    /// Changes a key as a queue pair's UMR asks, or not at all. The memory or the keys behind the
    /// key are examined when it is used.
    pub(crate) fn change_key(&mut self, domain: Domain, umr: &Umr) -> Result<(), Syndrome> {
        const REFUSED: Syndrome = Syndrome::MemoryWindowBind;
        let entries = match &umr.entries {
            None => None,
            Some(Entries::Inline(klms)) => Some(klms.clone()),
            Some(Entries::Pointer { count, key, address }) => {
                let mut bytes = vec![0; count * 16];
                self.read_key(domain, *key, *address, Access::LocalRead, &mut bytes).map_err(
                    |denied| {
                        tracing::debug!(?denied, "the entries of a UMR cannot be read");
                        Syndrome::LocalProtection
                    },
                )?;
                Some(Klm::list(&bytes))
            }
        };
        let mkey = self.objects.mkeys.get_mut(umr.key >> 8).ok_or(REFUSED)?;
        let free = mkey.get(mkc::FREE) == 1;
        if mkey.get(mkc::UMR_EN) == 0
            // Only the driver's queue for UMR has no protection domain.
            || ![0, mkey.get(mkc::PD)].contains(&domain.pd)
            // A key that is free may have been given its new low byte in advance.
            || (!free && mkey.get(mkc::MKEY_7_0) != umr.key & 0xff)
            || (umr.mask & OF_DRIVER != 0 && domain.pd != 0)
            || (umr.check_free && !free)
            || (umr.check_used && free)
            || (umr.check_qp && (free || mkey.bound_to().is_some_and(|qp| qp != domain.qp)))
        {
            tracing::debug!(key = umr.key, "a UMR of a key that may not be changed so");
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
        if let Some(entries) = entries {
            let end = umr.offset + entries.len();
            let room = mkey.get(mkc::TRANSLATIONS_OCTWORD_SIZE) as usize;
            // Pages are bus addresses, which are not for programs to choose.
            if end > room {
                return Err(REFUSED);
            }
            match &mut mkey.translation {
                Translation::Klms(list) => list.replace(umr.offset, &entries),
                Translation::Ksms(_, list) => {
                    if list.len() < end {
                        list.resize(end, Klm::default());
                    }
                    list[umr.offset..end].copy_from_slice(&entries);
                }
                _ => return Err(REFUSED),
            }
        }
        mkey.context = context;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
