//! Commands on memory keys.

use mlx5_sys::ifc::{
    create_mkey_in, create_mkey_out, destroy_mkey_in, mkc, query_mkey_in, query_mkey_out,
};

use super::capability::LOG_MAX_KLMS;
use super::{Refusal, buffer, context, get, owned, uid};
use crate::card::Card;
use crate::object::{Klm, Mkey, Translation};

/// Access modes (`mlx5_ifc.h`, `MLX5_MKC_ACCESS_MODE_*`).
const PHYSICAL: u32 = 0;
const MTT: u32 = 1;
const KLMS: u32 = 2;
const MEMIC: u32 = 5;

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
        KLMS => klms(input, &mkc)?,
        MEMIC => memic(card, &mkc, uid(input))?,
        _ => return Err(Refusal::MkeyAccessMode),
    };
    let mkey = Mkey { uid: uid(input), context: mkc, translation };
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
fn klms(input: &[u8], mkc: &[u8; mkc::SIZE]) -> Result<Translation, Refusal> {
    check_length(mkc)?;
    let room = get(mkc, mkc::TRANSLATIONS_OCTWORD_SIZE);
    let given = get(input, create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE);
    let free = get(mkc, mkc::FREE) == 1;
    if room > 1 << LOG_MAX_KLMS || given > room || (given == 0 && !free) {
        return Err(Refusal::MkeyTranslation);
    }
    if free {
        return Ok(Translation::Klms(Vec::new()));
    }
    // An entry is an octword.
    let end = buffer::PAS + given as usize * 16;
    let list = input.get(buffer::PAS..end).ok_or(Refusal::InputLength)?;
    Ok(Translation::Klms(Klm::list(list)))
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
fn pages(input: &[u8], mkc: &[u8; mkc::SIZE]) -> Result<Translation, Refusal> {
    let shift = get(mkc, mkc::LOG_PAGE_SIZE);
    if shift < 12 {
        return Err(Refusal::MkeyPageSize);
    }
    check_length(mkc)?;
    let start = mkc::START_ADDR.get(mkc);
    let length = mkc::LEN.get(mkc);
    if get(mkc, mkc::FREE) == 1 {
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

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{Field, opcode};

    use super::super::UID;
    use super::super::test::{Command, Rig};
    use super::*;

    fn field(field: Field) -> Field {
        field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY)
    }

    #[test]
    fn each_field_of_a_key_is_checked() {
        let mut rig = Rig::new();
        let create = rig.create_mkey();
        rig.refuses(
            &create,
            &[
                (create_mkey_in::MKEY_UMEM_VALID, 1, Refusal::Umem),
                (create_mkey_in::PG_ACCESS, 1, Refusal::MkeyPageAccess),
                (field(mkc::BSF_EN), 1, Refusal::MkeySignature),
                (field(mkc::BSF_OCTWORD_SIZE), 4, Refusal::MkeySignature),
                (field(mkc::QPN), 5, Refusal::MkeyQp),
                (field(mkc::PD), 0, Refusal::NoPd),
                (field(mkc::ACCESS_MODE_1_0), 3, Refusal::MkeyAccessMode),
                // Device memory, which this card has none of.
                (field(mkc::ACCESS_MODE_4_2), 1, Refusal::MkeyMemic),
                (field(mkc::ACCESS_MODE_4_2), 2, Refusal::MkeyAccessMode),
                (field(mkc::LOG_PAGE_SIZE), 11, Refusal::MkeyPageSize),
                (field(mkc::LEN), 0, Refusal::MkeyLength),
                (field(mkc::LEN), (1 << 47) + 1, Refusal::MkeyLength),
                (field(mkc::LENGTH64), 1, Refusal::MkeyLength),
                (field(mkc::START_ADDR), u64::MAX - 0xffe, Refusal::MkeyLength),
                (field(mkc::LEN), 0x2000, Refusal::MkeyTranslation),
                (field(mkc::TRANSLATIONS_OCTWORD_SIZE), 0, Refusal::MkeyTranslation),
                (create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 0, Refusal::MkeyTranslation),
                (Field::new(0x110, 31, 64), 0x10_0100, Refusal::PageAddress),
            ],
        );
        let long = create
            .clone()
            .set(field(mkc::LEN), 1u64 << 40)
            .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), 1u64 << 30)
            .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 1u64 << 30);
        assert_eq!(rig.run(&long).err(), Some(Refusal::InputLength));
        assert!(rig.card.objects.mkeys.is_empty());
    }

    #[test]
    fn a_key_is_shown_as_it_was_made() {
        let mut rig = Rig::new();
        let create = rig.create_mkey();
        let index = rig.mkey(&create) >> 8;
        let query = Command::new(opcode::QUERY_MKEY, 0x10).set(query_mkey_in::MKEY_INDEX, index);
        rig.refuses(
            &query,
            &[
                (query_mkey_in::MKEY_INDEX, 1, Refusal::NoMkey),
                (query_mkey_in::PG_ACCESS, 1, Refusal::MkeyPageAccess),
            ],
        );
        let shown = rig.run(&query).unwrap();
        let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.bytes();
        assert_eq!(shown[query_mkey_out::MEMORY_KEY_MKEY_ENTRY.bytes()], create.0[context]);
        let destroy =
            Command::new(opcode::DESTROY_MKEY, 0x10).set(destroy_mkey_in::MKEY_INDEX, index);
        rig.refuses(&destroy, &[(destroy_mkey_in::MKEY_INDEX, 1, Refusal::NoMkey)]);
        rig.run(&destroy).unwrap();
        assert_eq!(rig.run(&query).err(), Some(Refusal::NoMkey));
    }

    #[test]
    fn a_key_over_other_keys_is_checked() {
        let mut rig = Rig::new();
        let create = rig.create_mkey().set(field(mkc::ACCESS_MODE_1_0), 2u64);
        let room = field(mkc::TRANSLATIONS_OCTWORD_SIZE);
        let given = create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE;
        rig.refuses(
            &create,
            &[
                (field(mkc::LEN), 0, Refusal::MkeyLength),
                (field(mkc::LENGTH64), 1, Refusal::MkeyLength),
                (field(mkc::START_ADDR), u64::MAX - 0xffe, Refusal::MkeyLength),
                (room, 0, Refusal::MkeyTranslation),
                (room, (1 << 12) + 1, Refusal::MkeyTranslation),
                (room, 0xffff_ffff, Refusal::MkeyTranslation),
                (given, 0, Refusal::MkeyTranslation),
                (given, 2, Refusal::MkeyTranslation),
            ],
        );
        let long = create.clone().set(room, 64u64).set(given, 64u64);
        assert_eq!(rig.run(&long).err(), Some(Refusal::InputLength));
        rig.run(&create).unwrap();
        // A free one needs nothing yet.
        let mut free =
            create.set(field(mkc::FREE), 1u64).set(field(mkc::LEN), 0u64).set(given, 0u64);
        free.0.truncate(0x110);
        rig.run(&free).unwrap();
    }

    #[test]
    fn users_get_no_physical_keys() {
        let mut rig = Rig::new();
        let create = Command::new(opcode::CREATE_UCTX, 0x40);
        let user = rig.number(&create, mlx5_sys::ifc::create_uctx_out::UID);
        let pd = rig.number(
            &Command::new(opcode::ALLOC_PD, 0x10).set(UID, user),
            mlx5_sys::ifc::alloc_pd_out::PD,
        );
        let physical = rig
            .create_mkey()
            .set(field(mkc::ACCESS_MODE_1_0), 0u64)
            .set(field(mkc::LENGTH64), 1u64);
        assert!(rig.run(&physical).is_ok());
        let by_user = physical.set(UID, user).set(field(mkc::PD), pd);
        assert_eq!(rig.run(&by_user).err(), Some(Refusal::MkeyPhysicalUser));
    }
}
