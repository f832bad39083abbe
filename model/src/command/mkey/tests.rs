//! Unit tests.

use mlx5_sys::ifc::{Field, opcode};

use super::super::test::{Command, Rig};
use super::*;
use crate::object::Room;

fn field(field: Field) -> Field {
    field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY)
}

#[test]
fn a_key_is_shown_as_it_was_made() {
    let mut rig = Rig::new();
    let create = rig.create_mkey();
    let index = rig.mkey(&create) >> 8;
    let query = Command::new(opcode::QUERY_MKEY, 0x10).set(query_mkey_in::MKEY_INDEX, index);
    let shown = rig.run(&query).unwrap();
    let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.bytes();
    assert_eq!(shown[query_mkey_out::MEMORY_KEY_MKEY_ENTRY.bytes()], create.0[context]);
}

/// Two pages are 16 bytes of a list.
#[test]
fn lists_of_pages_have_as_much_memory_as_the_card_gives() {
    let mut rig = Rig::new();
    rig.become_user();
    rig.card.objects.room = Room::of(40);
    let create = rig.create_mkey();
    let first = rig.mkey(&create) >> 8;
    rig.mkey(&create);
    assert_eq!(rig.run(&create).err(), Some(Refusal::NoRoom));
    let umem = rig.create_umem();
    assert_eq!(rig.run(&umem).err(), Some(Refusal::NoRoom));
    let destroy = Command::new(opcode::DESTROY_MKEY, 0x10).set(destroy_mkey_in::MKEY_INDEX, first);
    rig.run(&destroy).unwrap();
    rig.run(&create).expect("there is room again");
    assert_eq!(rig.run(&create).err(), Some(Refusal::NoRoom));
}

#[test]
fn a_free_key_over_other_keys_needs_nothing_yet() {
    let mut rig = Rig::new();
    let free = rig
        .create_mkey()
        .set(field(mkc::ACCESS_MODE_1_0), 2u64)
        .set(field(mkc::FREE), 1u64)
        .set(field(mkc::LEN), 0u64)
        .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 0u64)
        .without_pages();
    rig.run(&free).unwrap();
}

#[test]
fn a_key_over_equal_pieces_is_followed() {
    use crate::queue::{Access, Denied, Domain};
    let mut rig = Rig::new();
    let pages = [rig.page(), rig.page()];
    let keys = pages.map(|page| {
        let mut create = rig.create_mkey().set(field(mkc::START_ADDR), 0x5000u64);
        create.0[0x110..0x118].copy_from_slice(&page.to_be_bytes());
        rig.mkey(&create)
    });
    let (room, given) =
        (field(mkc::TRANSLATIONS_OCTWORD_SIZE), create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE);
    let mut create = rig
        .create_mkey()
        .set(field(mkc::ACCESS_MODE_1_0), 3u64)
        .set(field(mkc::START_ADDR), 0x9_0123u64)
        .set(field(mkc::LEN), 0x2000u64)
        .set(room, 2u64)
        .set(given, 2u64);
    create.0.truncate(0x110);
    // The second piece comes first. What an entry has for a length does not count.
    for key in [keys[1], keys[0]] {
        let entry = [7u32.to_be_bytes(), key.to_be_bytes(), [0; 4], 0x5000u32.to_be_bytes()];
        create.0.extend_from_slice(&entry.concat());
    }
    let key = rig.mkey(&create);
    let domain = Domain { pd: rig.pd, qp: 0 };
    let data: Vec<u8> = (0..0x40).collect();
    rig.card.write_key(domain, key, 0x9_1103, Access::RemoteWrite, &data).unwrap();
    assert_eq!(rig.read::<0x20>(pages[1] + 0xfe0), data[..0x20]);
    assert_eq!(rig.read::<0x20>(pages[0]), data[0x20..]);
    let mut back = [0; 0x40];
    rig.card.read_key(domain, key, 0x9_1103, Access::RemoteRead, &mut back).unwrap();
    assert_eq!(back, data[..]);
    let beyond = rig.card.read_key(domain, key, 0x9_2122, Access::LocalRead, &mut [0; 2]);
    assert_eq!(beyond, Err(Denied::Bounds));
}

#[test]
fn a_key_lies_in_a_umem_of_its_user() {
    use crate::queue::{Access, Domain};
    let mut rig = Rig::new();
    rig.become_user();
    let (umem, pages) = rig.umem();
    let create = rig
        .create_mkey_in_umem(umem)
        .set(field(mkc::START_ADDR), 0x7f00_0040u64)
        .set(create_mkey_in::MKEY_UMEM_OFFSET, 0x40u64);
    let key = rig.mkey(&create);
    let domain = Domain { pd: rig.pd, qp: 0 };
    rig.card.write_key(domain, key, 0x7f00_0fff, Access::RemoteWrite, b"ab").unwrap();
    assert_eq!((rig.read::<1>(pages[0] + 0xfff), rig.read::<1>(pages[1])), (*b"a", *b"b"));
}
