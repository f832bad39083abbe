//! Unit tests.

use mlx5_sys::ifc::{Field, alloc_pd_out, create_mkey_in, destroy_mkey_in, opcode};
use proptest::prelude::*;

use super::*;
use crate::command::test::{Command, Rig};
use crate::queue::Denied;
use crate::work::umr::{CONTEXT, CONTROL, decode, flag};

/// Start address of the rig's region.
const START: u64 = 0x7000_0100;
const QP: u32 = 0x1201;

const BIND: u64 = 1 | 1 << 6 | 1 << 13 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21 | 1 << 29;
const TYPE_2: u64 = 1 << 14;

fn field(field: Field) -> Field {
    field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY)
}

fn free(rig: &Rig) -> Command {
    Command::new(opcode::CREATE_MKEY, 0x110)
        .set(field(mkc::FREE), 1u64)
        .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), 4u64)
        .set(field(mkc::PD), rig.pd)
        .set(field(mkc::UMR_EN), 1u64)
        .set(field(mkc::LR), 1u64)
        .set(field(mkc::ACCESS_MODE_1_0), 2u64)
        .set(field(mkc::EN_RINVAL), 1u64)
        .set(field(mkc::QPN), 0xff_ffffu64)
        .set(field(mkc::MKEY_7_0), 0x10u64)
}

/// A region, and a window of the rig's domain.
fn keys() -> (Rig, u32, u32) {
    let mut rig = Rig::new();
    let region = rig.create_mkey();
    let region = rig.mkey(&region);
    let window = free(&rig);
    let window = rig.mkey(&window);
    (rig, region, window)
}

fn domain(rig: &Rig) -> Domain {
    Domain { pd: rig.pd, qp: QP }
}

/// Binds a key to `length` bytes of the region, with all rights.
fn bind(window: u32, region: u32, length: u32) -> Umr {
    let mut context = [0; CONTEXT];
    for (field, value) in [
        (mkc::LEN, length.into()),
        (mkc::START_ADDR, START),
        (mkc::MKEY_7_0, u64::from(window & 0xff) + 1),
        (mkc::LW, 1),
        (mkc::RR, 1),
        (mkc::RW, 1),
        (mkc::A, 1),
        (mkc::QPN, QP.into()),
    ] {
        field.set(&mut context, value);
    }
    let klm = Klm { length, key: region, address: START };
    Umr {
        key: window,
        check_free: true,
        check_used: false,
        check_qp: false,
        mask: BIND | TYPE_2,
        context,
        offset: 0,
        entries: Some(Entries::Inline(vec![klm])),
    }
}

fn unbind(key: u32) -> Umr {
    let mut context = [0; CONTEXT];
    mkc::FREE.set(&mut context, 1);
    mkc::QPN.set(&mut context, 0xff_ffff);
    Umr {
        key,
        check_free: false,
        check_used: false,
        check_qp: true,
        mask: TYPE_2 | 1 << 13 | 1 << 29,
        context,
        offset: 0,
        entries: None,
    }
}

/// As Linux's driver changes the domain and the rights of a region (`ibv_rereg_mr`).
#[test]
fn the_drivers_queue_alone_moves_a_region_to_another_domain() {
    let mut rig = Rig::new();
    let region = rig.create_mkey().set(field(mkc::UMR_EN), 1u64);
    let region = rig.mkey(&region);
    let other = rig.number(&Command::new(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD);
    let mut context = [0; CONTEXT];
    mkc::PD.set(&mut context, other.into());
    mkc::LR.set(&mut context, 1);
    mkc::QPN.set(&mut context, 0xff_ffff);
    let umr = Umr {
        key: region,
        check_free: false,
        check_used: true,
        check_qp: false,
        mask: 1 << 7 | 0xf << 17 | 1 << 21,
        context,
        offset: 0,
        entries: None,
    };
    let (own, driver) = (domain(&rig), Domain { pd: 0, qp: QP });
    assert_eq!(rig.card.change_key(own, &umr), Err(Syndrome::MemoryWindowBind));
    rig.card.change_key(driver, &umr).unwrap();
    let check = |pd, access| rig.card.check(Domain { pd, ..own }, region, START, 1, access);
    assert_eq!(check(own.pd, Access::LocalRead), Err(Denied::Domain));
    assert_eq!(check(other, Access::LocalRead), Ok(()));
    assert!(check(other, Access::LocalWrite).is_err(), "the right is gone");
    let free = Umr { mask: 1 << 29, context: unbind(region).context, ..umr.clone() };
    rig.card.change_key(driver, &free).unwrap();
    assert_eq!(rig.card.change_key(driver, &umr), Err(Syndrome::MemoryWindowBind), "it is free");
}

#[test]
fn a_window_grants_what_it_is_bound_to() {
    let (mut rig, region, window) = keys();
    let own = domain(&rig);
    let check = |rig: &Rig, own, key, at, n| rig.card.check(own, key, at, n, Access::RemoteWrite);
    assert_eq!(check(&rig, own, window, START, 1), Err(Denied::Key));
    rig.card.change_key(own, &bind(window, region, 0x100)).unwrap();
    let bound = window + 1;
    assert_eq!(check(&rig, own, window, START, 1), Err(Denied::Key), "the key has changed");
    assert_eq!(check(&rig, own, bound, START, 0x100), Ok(()));
    assert_eq!(check(&rig, own, bound, START + 1, 0x100), Err(Denied::Bounds));
    assert_eq!(check(&rig, Domain { qp: QP + 1, ..own }, bound, START, 1), Err(Denied::Queue));
    assert_eq!(check(&rig, Domain { pd: 0, ..own }, bound, START, 1), Err(Denied::Domain));
    let data: Vec<u8> = (0..=255).collect();
    rig.card.write_key(own, bound, START, Access::RemoteWrite, &data).unwrap();
    let mut back = [0; 16];
    rig.card.read_key(own, region, START + 0xf0, Access::LocalRead, &mut back).unwrap();
    assert_eq!(back, data[0xf0..]);
    rig.card.read_key(own, bound, START + 8, Access::RemoteRead, &mut back).unwrap();
    assert_eq!(back, data[8..24]);
    let old = rig.card.update_key(own, bound, START + 8, &mut |old| old).unwrap();
    assert_eq!(old, data[8..16]);

    rig.card.change_key(own, &unbind(bound)).unwrap();
    assert_eq!(check(&rig, own, bound, START, 1), Err(Denied::Key));
    // The window is no longer bound.
    let again = rig.card.change_key(own, &unbind(window & !0xff));
    assert_eq!(again, Err(Syndrome::MemoryWindowBind));
}

#[test]
fn addresses_of_a_window_may_start_at_zero() {
    let (mut rig, region, window) = keys();
    let own = domain(&rig);
    let mut umr = bind(window, region, 0x10);
    mkc::START_ADDR.set(&mut umr.context, 0);
    rig.card.change_key(own, &umr).unwrap();
    rig.card.write_key(own, window + 1, 4, Access::RemoteWrite, b"four").unwrap();
    let mut back = [0; 4];
    rig.card.read_key(own, region, START + 4, Access::LocalRead, &mut back).unwrap();
    assert_eq!(&back, b"four");
    let beyond = rig.card.check(own, window + 1, START, 1, Access::RemoteWrite);
    assert_eq!(beyond, Err(Denied::Bounds));
}

#[test]
fn lists_are_walked_and_regions_below_are_checked() {
    let (mut rig, region, window) = keys();
    let own = domain(&rig);
    let piece = |key, at, length| Klm { length, key, address: START + at };
    let mut umr = bind(window, region, 0x20);
    umr.entries = Some(Entries::Inline(vec![
        piece(region, 0x100, 4),
        Klm::default(),
        piece(region, 0x200, 0x10),
        piece(region, 0x300, 0x8),
    ]));
    rig.card.change_key(own, &umr).unwrap();
    let (data, key): (Vec<u8>, _) = ((1..=0x1c).collect(), window + 1);
    rig.card.write_key(own, key, START, Access::RemoteWrite, &data).unwrap();
    let read = |rig: &Rig, at, length| {
        let mut bytes = vec![0; length];
        rig.card.read_key(own, region, START + at, Access::LocalRead, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read(&rig, 0x100, 5), [1, 2, 3, 4, 0]);
    assert_eq!(read(&rig, 0x200, 0x10), data[4..0x14]);
    assert_eq!(read(&rig, 0x300, 9), [&data[0x14..], &[0]].concat());
    // The list is shorter than the length says.
    let short = rig.card.write_key(own, key, START + 0x1b, Access::RemoteWrite, &[9, 9]);
    assert_eq!(short, Err(Denied::Bounds));
    // Eight bytes that are not in one place.
    let torn = rig.card.update_key(own, key, START, &mut |old| old);
    assert_eq!(torn, Err(Denied::Bounds));

    // What a window may be written through must be writable itself.
    let create = rig.create_mkey().set(field(mkc::LW), 0u64);
    let constant = rig.mkey(&create);
    let window = free(&rig);
    let window = rig.mkey(&window);
    rig.card.change_key(own, &bind(window, constant, 8)).unwrap();
    let write = rig.card.write_key(own, window + 1, START, Access::RemoteWrite, &[1]);
    assert_eq!(write, Err(Denied::Rights));
    rig.card.read_key(own, window + 1, START, Access::RemoteRead, &mut [0]).unwrap();
    // And there.
    let destroy =
        Command::new(opcode::DESTROY_MKEY, 0x10).set(destroy_mkey_in::MKEY_INDEX, constant >> 8);
    rig.run(&destroy).unwrap();
    let read = rig.card.read_key(own, window + 1, START, Access::RemoteRead, &mut [0]);
    assert_eq!(read, Err(Denied::Key));
}

#[test]
fn keys_over_themselves_lead_nowhere() {
    let (mut rig, _, window) = keys();
    let own = domain(&rig);
    rig.card.change_key(own, &bind(window, window + 1, 64)).unwrap();
    let read = rig.card.read_key(own, window + 1, START, Access::RemoteRead, &mut [0; 64]);
    assert_eq!(read, Err(Denied::Key));
}

#[test]
fn changes_that_may_not_be_made_change_nothing() {
    let (mut rig, region, window) = keys();
    let own = domain(&rig);
    let pd = rig.number(&Command::new(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD);
    let good = bind(window, region, 0x100);
    let mut long = good.clone();
    mkc::LEN.set(&mut long.context, Mkey::MAX_LENGTH + 1);
    let mut high = good.clone();
    mkc::START_ADDR.set(&mut high.context, u64::MAX);
    let far = Umr { offset: 4, ..good.clone() };
    let wide = Umr { entries: Some(Entries::Inline(vec![Klm::default(); 5])), ..good.clone() };
    let none = Umr { key: 0x0dea_d000, ..good.clone() };
    let pages = Umr { key: region, check_free: false, ..good.clone() };
    for (domain, umr) in [
        (Domain { pd, ..own }, &good),
        (own, &long),
        (own, &high),
        (own, &far),
        (own, &wide),
        (own, &none),
        (own, &pages),
        (own, &unbind(window)),
    ] {
        let before = rig.card.objects.mkeys.get(window >> 8).unwrap().context.clone();
        assert_eq!(rig.card.change_key(domain, umr), Err(Syndrome::MemoryWindowBind), "{umr:?}");
        assert_eq!(rig.card.objects.mkeys.get(window >> 8).unwrap().context, before);
    }
    let entries = Some(Entries::Pointer { count: 1, key: 0x77, address: 0 });
    let lost = Umr { entries, ..good.clone() };
    assert_eq!(rig.card.change_key(own, &lost), Err(Syndrome::LocalProtection));

    rig.card.change_key(own, &good).unwrap();
    let bound = window + 1;
    // The window is bound already. Another queue pair cannot unbind it, and its former key
    // cannot.
    let again = Umr { key: bound, ..good.clone() };
    assert_eq!(rig.card.change_key(own, &again), Err(Syndrome::MemoryWindowBind));
    let other = Domain { qp: QP + 1, ..own };
    assert_eq!(rig.card.change_key(other, &unbind(bound)), Err(Syndrome::MemoryWindowBind));
    assert_eq!(rig.card.change_key(own, &unbind(window)), Err(Syndrome::MemoryWindowBind));
    // A region that was not made for it.
    let create = free(&rig).set(field(mkc::UMR_EN), 0u64);
    let fixed = rig.mkey(&create);
    let umr = bind(fixed, region, 8);
    assert_eq!(rig.card.change_key(own, &umr), Err(Syndrome::MemoryWindowBind));
}

#[test]
fn entries_come_from_memory_too() {
    let (mut rig, region, window) = keys();
    let own = domain(&rig);
    let mut list = vec![0; 16];
    list.extend(8u32.to_be_bytes());
    list.extend(region.to_be_bytes());
    list.extend((START + 0x400).to_be_bytes());
    rig.card.write_key(own, region, START, Access::LocalWrite, &list).unwrap();
    let entries = Some(Entries::Pointer { count: 2, key: region, address: START });
    let umr = Umr { entries, ..bind(window, region, 8) };
    rig.card.change_key(own, &umr).unwrap();
    rig.card.write_key(own, window + 1, START, Access::RemoteWrite, b"far away").unwrap();
    let mut back = [0; 8];
    rig.card.read_key(own, region, START + 0x400, Access::LocalRead, &mut back).unwrap();
    assert_eq!(&back, b"far away");
}

#[test]
fn invalidating_from_afar_is_checked() {
    let (mut rig, region, window) = keys();
    let own = domain(&rig);
    assert_eq!(rig.card.invalidate_key(own, window), Err(Denied::Key), "it is free");
    rig.card.change_key(own, &bind(window, region, 8)).unwrap();
    let bound = window + 1;
    for (domain, key, denied) in [
        (own, window, Denied::Key),
        (own, 0x0dea_d000, Denied::Key),
        (Domain { pd: 0, ..own }, bound, Denied::Domain),
        (Domain { qp: 5, ..own }, bound, Denied::Queue),
        // Regions are not made for it.
        (own, region, Denied::Rights),
    ] {
        assert_eq!(rig.card.invalidate_key(domain, key), Err(denied));
    }
    rig.card.invalidate_key(own, bound).unwrap();
    assert_eq!(rig.card.check(own, bound, START, 1, Access::RemoteRead), Err(Denied::Key));
    // What was invalidated may be bound again.
    rig.card.change_key(own, &bind(bound, region, 8)).unwrap();
}

proptest! {
    #[test]
    fn random_changes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
        flags in 0u8..16,
        count in 0u16..8,
        near in any::<bool>(),
        at in any::<u64>(),
    ) {
        let (mut rig, region, window) = keys();
        let own = domain(&rig);
        if near && bytes.len() >= 16 {
            bytes[0] = flags << 3 & 0xb8;
            bytes[4..6].copy_from_slice(&count.to_be_bytes());
            bytes[6..8].copy_from_slice(&[0, 0]);
            let known = FIELDS.iter().fold(0u64, |known, (bit, _)| known | 1 << bit);
            bytes[8..16].copy_from_slice(&(at & known).to_be_bytes());
            let list = if bytes[0] & flag::INLINE == 0 {
                16
            } else {
                usize::from(count * 16).next_multiple_of(64)
            };
            bytes.resize(CONTROL + CONTEXT + if count == 0 { 0 } else { list }, 0x33);
        }
        for key in [window, region] {
            if let Ok(umr) = decode(key, &bytes) {
                let _ = rig.card.change_key(own, &umr);
            }
            for key in (0..=255).map(|low| key & !0xff | low) {
                for at in [at, START, 0] {
                    let mut some = [0; 24];
                    let _ = rig.card.read_key(own, key, at, Access::RemoteRead, &mut some);
                    let _ = rig.card.update_key(own, key, at & !7, &mut |old| old);
                }
            }
        }
    }
}
