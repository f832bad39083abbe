//! Unit tests.

use mlx5_sys::ifc::{Field, create_mkey_in, create_qp_in, create_qp_out, destroy_mkey_in, opcode};

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
    let page =
        |i: usize| u64::from_be_bytes(create.0[0x110 + i * 8..0x118 + i * 8].try_into().unwrap());
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
fn the_key_of_the_bus_is_for_queue_pairs_of_the_driver_that_ask_for_it() {
    let mut rig = Rig::new();
    let page = rig.page();
    let create = |rig: &mut Rig, wants: u64| {
        let (sends, receives) = (rig.cq(), rig.cq());
        let create = rig.create_qp(sends, receives).set(qpc::RLKY.within(create_qp_in::QPC), wants);
        Domain { pd: rig.pd, qp: rig.number(&create, create_qp_out::QPN) }
    };
    let (with, without) = (create(&mut rig, 1), create(&mut rig, 0));
    rig.card.write_key(with, RESERVED, page + 8, Access::LocalWrite, &[7; 8]).unwrap();
    assert_eq!(rig.read::<8>(page + 8), [7; 8]);
    let mut bytes = [0; 8];
    rig.card.read_key(with, RESERVED, page + 8, Access::LocalRead, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 8]);
    assert_eq!(rig.card.check(without, RESERVED, page, 1, Access::LocalRead), Err(Denied::Key));
    for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteAtomic] {
        assert_eq!(rig.card.check(with, RESERVED, page, 1, access), Err(Denied::Key));
    }
    rig.become_user();
    let of_user = create(&mut rig, 1);
    assert_eq!(rig.card.check(of_user, RESERVED, page, 1, Access::LocalRead), Err(Denied::Key));
}

#[test]
fn behind_the_null_key_is_no_memory() {
    let rig = Rig::new();
    for access in [Access::LocalRead, Access::LocalWrite, Access::RemoteRead, Access::RemoteWrite] {
        assert_eq!(rig.card.check(domain(&rig), NULL, START, 1, access), Err(Denied::Fault));
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
    let read = rig.card.read_key(domain(&rig), key, START + 0xe00, Access::LocalRead, &mut bytes);
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
    assert_eq!(rig.card.update_key(domain(&rig), key, START + 4, &mut add), Err(Denied::Bounds));
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
