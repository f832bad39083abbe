//! Unit tests.

use mlx5_sys::ifc::{Field, create_mkey_in, mkc};
use proptest::prelude::*;

use super::*;
use crate::command::test::{Rig, thread_time};

/// Start address of the rig's region, and the key that marks a strided pattern's header.
const START: u64 = 0x7000_0100;
const REPEAT: u32 = 0x400;

/// A region of 0x1000 bytes, and a key over a list, whose addresses start at 0.
fn over(rig: &mut Rig, list: &[Klm], length: u64) -> u32 {
    let field = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
    let room = list.len().max(1) as u64;
    let mut create = rig
        .create_mkey()
        .set(field(mkc::ACCESS_MODE_1_0), 2u64)
        .set(field(mkc::START_ADDR), 0u64)
        .set(field(mkc::LEN), length)
        .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), room)
        .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, room);
    create.0.truncate(0x110);
    for klm in list {
        create.0.extend(klm.length.to_be_bytes());
        create.0.extend(klm.key.to_be_bytes());
        create.0.extend(klm.address.to_be_bytes());
    }
    rig.mkey(&create)
}

fn region(rig: &mut Rig) -> u32 {
    let create = rig.create_mkey();
    let key = rig.mkey(&create);
    let bytes: Vec<u8> = (0..0x1000u32).map(|at| (at % 251) as u8).collect();
    let domain = Domain { pd: rig.pd, qp: 0 };
    rig.card.write_key(domain, key, START, Access::LocalWrite, &bytes).unwrap();
    key
}

fn header(times: u32, entries: u16) -> Klm {
    Klm { length: 0, key: REPEAT, address: u64::from(times) << 32 | u64::from(entries) }
}

fn entry(key: u32, at: u64, piece: u16, stride: u16) -> Klm {
    Klm { length: u32::from(stride) << 16 | u32::from(piece), key, address: START + at }
}

/// Reads `n` bytes at `at` through a key.
fn read(rig: &Rig, key: u32, at: u64, n: usize) -> Result<Vec<u8>, Denied> {
    let domain = Domain { pd: rig.pd, qp: 0 };
    let mut bytes = vec![0; n];
    rig.card.read_key(domain, key, at, Access::RemoteRead, &mut bytes).map(|()| bytes)
}

#[test]
fn a_pattern_is_walked_from_anywhere() {
    let mut rig = Rig::new();
    let below = region(&mut rig);
    // Two pieces of three and of two bytes, four times, between plain ones.
    let list = [
        Klm { length: 4, key: below, address: START + 0x800 },
        header(4, 2),
        entry(below, 0, 3, 10),
        entry(below, 0x100, 2, 7),
        Klm { length: 5, key: below, address: START + 0x900 },
    ];
    let mut places: Vec<u64> = (0x800..0x804).collect();
    for turn in 0..4 {
        places.extend((0..3).map(|at| turn * 10 + at));
        places.extend((0..2).map(|at| 0x100 + turn * 7 + at));
    }
    places.extend(0x900..0x905);
    let whole: Vec<u8> = places.iter().map(|at| (at % 251) as u8).collect();
    let key = over(&mut rig, &list, whole.len() as u64);
    for from in 0..whole.len() {
        for to in from + 1..=whole.len() {
            let got = read(&rig, key, from as u64, to - from).unwrap();
            assert_eq!(got, whole[from..to], "{from}..{to}");
        }
    }
    assert_eq!(read(&rig, key, 0, whole.len() + 1), Err(Denied::Bounds));
    // Written through it, and through a key over it.
    let nested = over(&mut rig, &[Klm { length: 12, key, address: 3 }], 12);
    let domain = Domain { pd: rig.pd, qp: 0 };
    rig.card.write_key(domain, nested, 0, Access::RemoteWrite, &[0xee; 12]).unwrap();
    let mut expected = whole.clone();
    expected[3..15].fill(0xee);
    assert_eq!(read(&rig, key, 0, whole.len()).unwrap(), expected);
    assert_eq!(read(&rig, below, START + 3, 7).unwrap(), [3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_pattern_that_says_more_than_the_list_has_is_out_of_bounds() {
    let mut rig = Rig::new();
    let below = region(&mut rig);
    for list in [
        vec![header(4, 3), entry(below, 0, 3, 10), entry(below, 0, 3, 10)],
        vec![header(0, 2), entry(below, 0, 3, 10), entry(below, 0, 3, 10)],
        vec![header(9, 0)],
        vec![header(u32::MAX, 1), entry(below, 0, 0, 10)],
        vec![header(2, 1), Klm { address: u64::MAX - 2, ..entry(below, 0, 3, 10) }],
    ] {
        let key = over(&mut rig, &list, 0x100);
        assert_eq!(read(&rig, key, 0, 0x100), Err(Denied::Bounds), "{list:?}");
    }
    // Keys that lead to each other come to an end.
    let key = over(&mut rig, &[Klm { length: 8, key: 0, address: 0 }], 8);
    let itself = Klm { length: 8, key, address: 0 };
    let crate::object::Translation::Klms(list) =
        &mut rig.card.objects.mkeys.get_mut(key >> 8).unwrap().translation
    else {
        panic!("a key over keys")
    };
    *list = KlmList::new(vec![itself]);
    assert_eq!(read(&rig, key, 0, 8), Err(Denied::Key));
}

#[test]
fn finding_a_piece_does_not_walk_the_list() {
    // 2^16 pieces of one byte, each behind so many empty ones that a walk from the list's
    // start takes hours.
    const PIECES: usize = 1 << 16;
    let mut list = Vec::new();
    for at in 0..PIECES {
        list.extend([Klm::default(); 15]);
        list.push(Klm { length: 1, key: 7, address: at as u64 });
    }
    let list = KlmList::new(list);
    let begin = thread_time();
    for _ in 0..4 {
        for at in 0..PIECES as u64 {
            let piece = list.find(at).unwrap();
            assert_eq!((piece.address, piece.length), (Some(at), 1));
        }
    }
    assert_eq!(list.find(PIECES as u64), None);
    let spent = thread_time() - begin;
    assert!(spent.as_secs() < 20, "{spent:?}");
}

proptest! {
    #[test]
    fn random_lists_never_panic(
        list in proptest::collection::vec(
            (any::<u32>(), any::<bool>(), any::<u64>(), 0u64..4),
            1..12,
        ),
        at in any::<u64>(),
        n in 1usize..300,
        small in any::<bool>(),
    ) {
        let mut rig = Rig::new();
        let below = region(&mut rig);
        let list: Vec<Klm> = list
            .into_iter()
            .map(|(length, pattern, address, near)| Klm {
                length: if small { length & 0x1f_001f } else { length },
                key: if pattern { REPEAT } else { below },
                address: match near {
                    0 => address,
                    1 => START + address % 0x1000,
                    few => (address % 5) << 32 | few,
                },
            })
            .collect();
        let key = over(&mut rig, &list, 1 << 40);
        let _ = read(&rig, key, at, n);
        let _ = read(&rig, key, at % 0x200, n);
    }
}
