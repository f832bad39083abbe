//! Commands on memory keys.

use mlx5_sys::ifc::{
    create_mkey_in, create_mkey_out, destroy_mkey_in, mkc, query_mkey_in, query_mkey_out,
};

use super::capability::{LOG_MAX_KLMS, LOG_MIN_ENTITY};
use super::{Refusal, buffer, context, get, owned, uid, umem};
use crate::card::Card;
use crate::object::{Klm, KlmList, Mkey, PageTable, Translation};

/// Access modes (`mlx5_ifc.h`, `MLX5_MKC_ACCESS_MODE_*`).
const PHYSICAL: u32 = 0;
const MTT: u32 = 1;
const KLMS: u32 = 2;
const KSM: u32 = 3;
const MEMIC: u32 = 5;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mkc: Box<[u8; mkc::SIZE]> = context(input, create_mkey_in::MEMORY_KEY_MKEY_ENTRY)?;
    let field = |field| get(&mkc[..], field);
    if get(input, create_mkey_in::PG_ACCESS) == 1 {
        return Err(Refusal::MkeyPageAccess);
    }
    if field(mkc::BSF_EN) == 1 || field(mkc::BSF_OCTWORD_SIZE) != 0 {
        return Err(Refusal::MkeySignature);
    }
    if field(mkc::QPN) != 0x00ff_ffff {
        return Err(Refusal::MkeyQp);
    }
    match card.objects.pds.get(field(mkc::PD)) {
        Some(pd) => owned(pd.uid, uid(input))?,
        // A ConnectX-7 does not look (evidence F127). A user could hold up the domain of another one.
        None if uid(input) == 0 => {}
        None => return Err(Refusal::NoPd),
    }
    let mode = field(mkc::ACCESS_MODE_4_2) << 2 | field(mkc::ACCESS_MODE_1_0);
    if get(input, create_mkey_in::MKEY_UMEM_VALID) == 1 && mode != MTT {
        return Err(Refusal::MkeyUmem);
    }
    let translation = match mode {
        PHYSICAL if uid(input) != 0 => return Err(Refusal::MkeyPhysicalUser),
        PHYSICAL => Translation::Physical,
        MTT => pages(card, input, &mkc)?,
        KLMS => Translation::Klms(KlmList::new(klms(input, &mkc)?)),
        KSM => ksm(input, &mkc)?,
        MEMIC => memic(card, &mkc, uid(input))?,
        _ => return Err(Refusal::MkeyAccessMode),
    };
    let list = translation.bytes_of(translation.octwords());
    let list = card.objects.room.take(list).ok_or(Refusal::NoRoom)?;
    let mkey = Mkey { uid: uid(input), context: mkc, translation, list };
    let index = match get(input, create_mkey_in::INPUT_MKEY_INDEX) {
        0 => card.objects.mkeys.add(mkey).ok_or(Refusal::Exhausted)?,
        // By name: the index of a key that is gone.
        index if card.objects.mkeys.is_vacant(index) => {
            card.objects.mkeys.insert(index, mkey);
            index
        }
        _ => return Err(Refusal::MkeyIndex),
    };
    create_mkey_out::MKEY_INDEX.set(output, index.into());
    Ok(())
}

/// The list of other keys, or none where the key is free and gets it later.
fn klms(input: &[u8], mkc: &[u8; mkc::SIZE]) -> Result<Vec<Klm>, Refusal> {
    check_length(mkc)?;
    let room = get(mkc, mkc::TRANSLATIONS_OCTWORD_SIZE);
    let given = get(input, create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE);
    let free = get(mkc, mkc::FREE) == 1;
    if room == 0 {
        return Err(Refusal::MkeyEmpty);
    }
    if room > 1 << LOG_MAX_KLMS || given > room || (given == 0 && !free) {
        return Err(Refusal::MkeyTranslation);
    }
    if free {
        return Ok(Vec::new());
    }
    // An entry is an octword.
    let end = buffer::PAS + given as usize * 16;
    let list = input.get(buffer::PAS..end).ok_or(Refusal::InputLength)?;
    Ok(Klm::list(list))
}

/// The same where every entry stands for as many bytes, and does not say so itself.
fn ksm(input: &[u8], mkc: &[u8; mkc::SIZE]) -> Result<Translation, Refusal> {
    // `mkc.log_entity_size`, as the field is called then.
    let log = get(mkc, mkc::LOG_PAGE_SIZE);
    if !(LOG_MIN_ENTITY..=31).contains(&log) {
        return Err(Refusal::MkeyEntity);
    }
    let list = klms(input, mkc)?;
    if get(mkc, mkc::FREE) == 0 && mkc::LEN.get(mkc) > (list.len() as u64) << log {
        return Err(Refusal::MkeyTranslation);
    }
    Ok(Translation::Ksms(log, list))
}

/// The part of the card's memory behind a key.
fn memic(card: &Card, mkc: &[u8; mkc::SIZE], uid: u16) -> Result<Translation, Refusal> {
    let (start, length) = (mkc::START_ADDR.get(mkc), mkc::LEN.get(mkc));
    if get(mkc, mkc::LENGTH64) == 1 {
        return Err(Refusal::MkeyLength);
    }
    let run = card.memic.run_of(start, length).ok_or(Refusal::MkeyMemic)?;
    owned(run.uid, uid)?;
    card.memic.bus(start).map(Translation::Memic).ok_or(Refusal::MkeyMemic)
}

/// Whether a region is where regions may be.
fn check_length(mkc: &[u8; mkc::SIZE]) -> Result<(), Refusal> {
    let length = mkc::LEN.get(mkc);
    let free = get(mkc, mkc::FREE) == 1;
    if get(mkc, mkc::LENGTH64) == 1
        || length > Mkey::MAX_LENGTH
        || mkc::START_ADDR.get(mkc).checked_add(length).is_none()
        || (length == 0 && !free)
    {
        return Err(Refusal::MkeyLength);
    }
    Ok(())
}

/// The pages of a key with an MTT, or none where it is free and gets them later.
fn pages(card: &Card, input: &[u8], mkc: &[u8; mkc::SIZE]) -> Result<Translation, Refusal> {
    let shift = get(mkc, mkc::LOG_PAGE_SIZE);
    if shift < Mkey::LOG_MIN_PAGE {
        return Err(Refusal::MkeyPageSize);
    }
    check_length(mkc)?;
    let start = mkc::START_ADDR.get(mkc);
    let length = mkc::LEN.get(mkc);
    if get(mkc, mkc::FREE) == 1 {
        return Ok(Translation::Table(PageTable::default()));
    }
    // Start address and page agree below the page size.
    let offset = start & ((1u64 << shift) - 1);
    let count = (offset + length).div_ceil(1 << shift);
    // Two translation entries of eight bytes make an octword.
    let octwords = count.div_ceil(2);
    if get(mkc, mkc::TRANSLATIONS_OCTWORD_SIZE) == 0 {
        return Err(Refusal::MkeyEmpty);
    }
    if u64::from(get(input, create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE)) < octwords
        || u64::from(get(mkc, mkc::TRANSLATIONS_OCTWORD_SIZE)) < octwords
    {
        return Err(Refusal::MkeyTranslation);
    }
    if get(input, create_mkey_in::MKEY_UMEM_VALID) == 1 {
        let number = get(input, create_mkey_in::MKEY_UMEM_ID);
        let at = create_mkey_in::MKEY_UMEM_OFFSET.get(input);
        return umem::region(card, uid(input), number, at, (start, length)).map(Translation::Pages);
    }
    buffer::pages(card, input, count as usize, shift, offset as usize, length as usize)
        .map(Translation::Pages)
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if get(input, query_mkey_in::PG_ACCESS) == 1 {
        return Err(Refusal::MkeyPageAccess);
    }
    let index = get(input, query_mkey_in::MKEY_INDEX);
    let mkey = card.objects.mkeys.get(index).ok_or(Refusal::NoMkey)?;
    owned(mkey.uid, uid(input))?;
    output[query_mkey_out::MEMORY_KEY_MKEY_ENTRY.bytes()].copy_from_slice(&mkey.context[..]);
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let index = get(input, destroy_mkey_in::MKEY_INDEX);
    let mkey = card.objects.mkeys.get(index).ok_or(Refusal::NoMkey)?;
    owned(mkey.uid, uid(input))?;
    let key = index << 8 | mkey.get(mkc::MKEY_7_0);
    card.objects.mkeys.remove(index);
    card.key_destroyed(key);
    Ok(())
}

#[cfg(test)]
mod tests;
