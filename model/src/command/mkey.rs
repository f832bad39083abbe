//! Commands on memory keys.

use mlx5_sys::ifc::{
    create_mkey_in, create_mkey_out, destroy_mkey_in, mkc, query_mkey_in, query_mkey_out,
};

use super::{Refusal, buffer, context, get, owned, uid};
use crate::card::Card;
use crate::object::{Mkey, Translation};

/// Access modes (`mlx5_ifc.h`, `MLX5_MKC_ACCESS_MODE_*`).
const PHYSICAL: u32 = 0;
const MTT: u32 = 1;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mkc: Box<[u8; mkc::SIZE]> = context(input, create_mkey_in::MEMORY_KEY_MKEY_ENTRY)?;
    let field = |field| get(&mkc[..], field);
    if get(input, create_mkey_in::MKEY_UMEM_VALID) == 1 {
        return Err(Refusal::Umem);
    }
    if get(input, create_mkey_in::PG_ACCESS) == 1 {
        return Err(Refusal::MkeyPageAccess);
    }
    if field(mkc::BSF_EN) == 1 || field(mkc::BSF_OCTWORD_SIZE) != 0 {
        return Err(Refusal::MkeySignature);
    }
    if field(mkc::QPN) != 0x00ff_ffff {
        return Err(Refusal::MkeyQp);
    }
    let pd = card.objects.pds.get(field(mkc::PD)).ok_or(Refusal::NoPd)?;
    owned(pd.uid, uid(input))?;
    let translation = match field(mkc::ACCESS_MODE_4_2) << 2 | field(mkc::ACCESS_MODE_1_0) {
        PHYSICAL if uid(input) != 0 => return Err(Refusal::MkeyPhysicalUser),
        PHYSICAL => Translation::Physical,
        MTT => pages(input, &mkc)?,
        _ => return Err(Refusal::MkeyAccessMode),
    };
    let mkey = Mkey { uid: uid(input), context: mkc, translation };
    let index = card.objects.mkeys.add(mkey).ok_or(Refusal::Exhausted)?;
    create_mkey_out::MKEY_INDEX.set(output, index.into());
    Ok(())
}

/// The pages of a key with an MTT, or none where it is free and gets them later.
fn pages(input: &[u8], mkc: &[u8; mkc::SIZE]) -> Result<Translation, Refusal> {
    let shift = get(mkc, mkc::LOG_PAGE_SIZE);
    if shift < 12 {
        return Err(Refusal::MkeyPageSize);
    }
    let start = mkc::START_ADDR.get(mkc);
    let length = mkc::LEN.get(mkc);
    let free = get(mkc, mkc::FREE) == 1;
    if get(mkc, mkc::LENGTH64) == 1
        || length > 1 << 47
        || start.checked_add(length).is_none()
        || (length == 0 && !free)
    {
        return Err(Refusal::MkeyLength);
    }
    if free {
        return Ok(Translation::None);
    }
    // Start address and page agree below the page size.
    let offset = start & ((1u64 << shift) - 1);
    let count = (offset + length).div_ceil(1 << shift);
    // Two translation entries of eight bytes make an octword.
    let octwords = count.div_ceil(2);
    if u64::from(get(input, create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE)) < octwords
        || u64::from(get(mkc, mkc::TRANSLATIONS_OCTWORD_SIZE)) < octwords
    {
        return Err(Refusal::MkeyTranslation);
    }
    buffer::pages(input, count as usize, shift, offset as usize, length as usize)
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
    card.objects.mkeys.remove(index);
    Ok(())
}
