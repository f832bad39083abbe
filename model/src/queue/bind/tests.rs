//! Unit tests.

use mlx5_sys::ifc::{
    Field, alloc_memic_out, alloc_pd_out, create_mkey_in, create_qp_in, create_qp_out,
    destroy_mkey_in, opcode, qpc,
};
use proptest::prelude::*;

use super::*;
use crate::command::test::{Command, Rig};
use crate::memory::Memory;
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

fn unread(denied: Denied) -> Syndrome {
    Syndrome::LocalProtection(Protection::Gather(denied))
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

/// The driver's queue for UMR.
fn driver(rig: &mut Rig) -> Domain {
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq);
    let create = create.set(qpc::ST.within(create_qp_in::QPC), 0xcu64);
    let create = create.set(qpc::PD.within(create_qp_in::QPC), 0u64);
    Domain { pd: 0, qp: rig.number(&create, create_qp_out::QPN) }
}

/// A key over pages as Linux's driver makes them: free, and with room for so many octwords.
fn without_pages(rig: &mut Rig, octwords: u64) -> u32 {
    let create = free(rig)
        .set(field(mkc::ACCESS_MODE_1_0), 1u64)
        .set(field(mkc::LOG_PAGE_SIZE), 12u64)
        .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), octwords);
    rig.mkey(&create)
}

/// Octwords with these entries of pages, filled up to a unit of them.
fn octwords(pages: &[u64]) -> Vec<Klm> {
    let mut bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(UNIT * 16), 0);
    Klm::list(&bytes)
}

/// Gives a free key `length` bytes of pages, with all rights, as `ibv_reg_mr` does.
fn enable(key: u32, pd: u32, length: u64, pages: &[u64]) -> Umr {
    let mut context = [0; CONTEXT];
    for (field, value) in [
        (mkc::LEN, length),
        (mkc::START_ADDR, START),
        (mkc::LOG_PAGE_SIZE, 12),
        (mkc::PD, pd.into()),
        (mkc::MKEY_7_0, u64::from(key & 0xff)),
        (mkc::LR, 1),
        (mkc::LW, 1),
        (mkc::RR, 1),
        (mkc::RW, 1),
        (mkc::A, 1),
        (mkc::QPN, 0xff_ffff),
    ] {
        field.set(&mut context, value);
    }
    Umr {
        key,
        check_free: true,
        check_used: false,
        check_qp: false,
        mask: GEOMETRY | 1 << 7 | 1 << 13 | 0xf << 17 | 1 << 21 | 1 << 29,
        context,
        offset: 0,
        entries: Some(Entries::Inline(octwords(pages))),
    }
}

const PRESENT: u64 = 3;

#[test]
fn the_drivers_queue_gives_a_region_its_pages_and_others() {
    let mut rig = Rig::new();
    let (own, driver) = (domain(&rig), driver(&mut rig));
    let key = without_pages(&mut rig, 8);
    let pages: [u64; 4] = std::array::from_fn(|_| rig.page());
    let read = |rig: &Rig, at, n| {
        let mut bytes = vec![0; n];
        rig.card.read_key(own, key, START + at, Access::LocalRead, &mut bytes).map(|()| bytes)
    };
    assert_eq!(read(&rig, 0, 1), Err(Denied::Key), "it is free");
    // Backwards, and the third is not there.
    let [first, second, third, fourth] = pages;
    let list = [third | PRESENT, second | PRESENT, 0, first | PRESENT];
    let umr = enable(key, rig.pd, 0x3f00, &list);
    assert_eq!(rig.card.change_key(own, &umr), Err(REFUSED), "no program knows bus addresses");
    rig.card.change_key(driver, &umr).unwrap();
    let data: Vec<u8> = (0..=255).cycle().take(0x1e00).collect();
    rig.card.write_key(own, key, START, Access::RemoteWrite, &data).unwrap();
    assert_eq!(read(&rig, 0, data.len()).unwrap(), data);
    assert_eq!(rig.read::<16>(third + 0x100), data[..16], "START is 0x100 into a page");
    assert_eq!(rig.read::<16>(second), data[0xf00..0xf10]);
    assert_eq!(read(&rig, 0x1ef0, 0x20), Err(Denied::Fault), "a page that is not there");
    rig.card.write_key(own, key, START + 0x3eff, Access::RemoteWrite, &[9]).unwrap();
    assert_eq!(rig.read::<1>(first + 0xfff), [9]);
    assert_eq!(read(&rig, 0x3eff, 2), Err(Denied::Bounds));

    // Another list from an offset on, without a change of the context.
    let more = octwords(&[fourth | PRESENT]);
    let entries = Some(Entries::Inline(more));
    let change = Umr { mask: 0, check_free: false, check_used: true, entries, ..umr.clone() };
    let far = Umr { offset: 4, ..change.clone() };
    rig.card.change_key(driver, &far).unwrap();
    assert_eq!(read(&rig, 0, 16).unwrap(), data[..16]);
    rig.card.change_key(driver, &change).unwrap();
    assert_eq!(read(&rig, 0, 16).unwrap(), [0; 16], "the fourth page");
    assert_eq!(read(&rig, 0xf00, 1), Err(Denied::Fault), "the list was filled up");
}

#[test]
fn entries_of_pages_come_from_memory_by_any_key() {
    let mut rig = Rig::new();
    let (own, driver) = (domain(&rig), driver(&mut rig));
    let key = without_pages(&mut rig, 64);
    let region = rig.create_mkey();
    let region = rig.mkey(&region);
    let page = rig.page();
    rig.memory.write(page, b"one page").unwrap();
    let list: Vec<u8> = (0..16).flat_map(|_| (page | PRESENT).to_be_bytes()).collect();
    rig.card.write_key(own, region, START, Access::LocalWrite, &list).unwrap();
    let entries = Some(Entries::Pointer { count: 8, key: region, address: START });
    let umr = Umr { entries, ..enable(key, rig.pd, 0xff00, &[]) };
    rig.card.change_key(driver, &umr).unwrap();
    for page in 1..16u64 {
        let mut bytes = [0; 8];
        let at = START - 0x100 + page * 0x1000;
        rig.card.read_key(own, key, at, Access::LocalRead, &mut bytes).unwrap();
        assert_eq!(&bytes, b"one page");
    }
    let beyond = Umr {
        entries: Some(Entries::Pointer { count: 0x110, key: region, address: START }),
        ..umr.clone()
    };
    assert_eq!(rig.card.change_key(driver, &beyond), Err(unread(Denied::Bounds)));
    let nowhere = Umr {
        entries: Some(Entries::Pointer { count: 8, key: 0x0dea_d000, address: START }),
        ..umr
    };
    assert_eq!(rig.card.change_key(driver, &nowhere), Err(unread(Denied::Key)));
}

/// Larger pages, and a key that `CREATE_MKEY` gave its pages.
#[test]
fn pages_that_a_command_gave_are_changed_too() {
    let mut rig = Rig::new();
    let (own, driver) = (domain(&rig), driver(&mut rig));
    let create = rig.create_mkey().set(field(mkc::UMR_EN), 1u64);
    let create = create.set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), 4u64);
    let key = rig.mkey(&create);
    rig.card.write_key(own, key, START + 0xff0, Access::LocalWrite, b"kept").unwrap();
    let read = |rig: &Rig, at, n| {
        let mut bytes = vec![0; n];
        rig.card.read_key(own, key, at, Access::LocalRead, &mut bytes).map(|()| bytes)
    };
    let mut shorter = enable(key, rig.pd, 0xff4, &[]);
    (shorter.entries, shorter.check_free) = (None, false);
    rig.card.change_key(driver, &shorter).unwrap();
    assert_eq!(read(&rig, START + 0xff0, 4).unwrap(), b"kept");
    assert_eq!(read(&rig, START + 0xff4, 1), Err(Denied::Bounds));

    let page = (rig.page() | 0xffff) + 1;
    rig.memory.write(page + 0x9100, b"64 KiB").unwrap();
    let mut large = enable(key, rig.pd, 0x1_0000, &[page | PRESENT]);
    large.check_free = false;
    mkc::LOG_PAGE_SIZE.set(&mut large.context, 16);
    mkc::START_ADDR.set(&mut large.context, 0x7abc_0000);
    rig.card.change_key(driver, &large).unwrap();
    assert_eq!(read(&rig, 0x7abc_9100, 6).unwrap(), b"64 KiB");
    assert_eq!(read(&rig, START, 1), Err(Denied::Bounds));
}

#[test]
fn lists_of_pages_that_do_not_fit_change_nothing() {
    let mut rig = Rig::new();
    let (own, driver) = (domain(&rig), driver(&mut rig));
    let key = without_pages(&mut rig, 8);
    let page = rig.page() | PRESENT;
    let good = enable(key, rig.pd, 0x3f00, &[page; 4]);
    let with = |field: Field, value| {
        let mut umr = good.clone();
        field.set(&mut umr.context, value);
        umr
    };
    let list = |n: usize| Some(Entries::Inline(octwords(&[page; 64])[..n].to_vec()));
    for umr in [
        with(mkc::LEN, 0x1_0000),
        with(mkc::LEN, Mkey::MAX_LENGTH + 1),
        with(mkc::LOG_PAGE_SIZE, 11),
        with(mkc::LOG_PAGE_SIZE, 0),
        Umr { offset: 1, ..good.clone() },
        Umr { offset: 8, ..good.clone() },
        Umr { offset: 0xffff, ..good.clone() },
        Umr { entries: list(3), ..good.clone() },
        Umr { entries: list(12), ..good.clone() },
        Umr { check_free: false, check_used: true, ..good.clone() },
    ] {
        assert_eq!(rig.card.change_key(driver, &umr), Err(REFUSED), "{umr:?}");
        let read = rig.card.read_key(own, key, START, Access::LocalRead, &mut [0]);
        assert_eq!(read, Err(Denied::Key), "it is free");
    }
    // A part of a unit stands for a whole one.
    let part = without_pages(&mut rig, 1);
    rig.card.change_key(driver, &enable(part, rig.pd, 0x7f00, &[page; 8])).unwrap();
    let more = enable(part, rig.pd, 0x7f01, &[page; 8]);
    assert_eq!(rig.card.change_key(driver, &Umr { check_free: false, ..more }), Err(REFUSED));
    rig.card.change_key(driver, &with(mkc::LEN, 0xff00)).unwrap();
    let short = rig.card.read_key(own, key, START + 0x7f00, Access::LocalRead, &mut [0]);
    assert_eq!(short, Err(Denied::Fault), "entries that were never written");
    // Neither the pages of a umem nor those of a program's key are for UMR.
    rig.become_user();
    let (umem, _) = rig.umem();
    let create = rig.create_mkey_in_umem(umem).set(field(mkc::UMR_EN), 1u64);
    let held = rig.mkey(&create);
    let mut umr = enable(held, rig.pd, 8, &[]);
    (umr.entries, umr.check_free, umr.mask) = (None, false, GEOMETRY);
    assert_eq!(rig.card.change_key(driver, &umr), Err(REFUSED));
    assert_eq!(rig.card.change_key(domain(&rig), &umr), Err(REFUSED));
}

#[test]
fn lists_grow_by_umr_as_far_as_there_is_memory() {
    let (mut rig, region, window) = keys();
    let (own, driver) = (domain(&rig), driver(&mut rig));
    let key = without_pages(&mut rig, 8);
    let page = rig.page() | PRESENT;
    // A unit of four octwords.
    let umr = enable(key, rig.pd, 0x3f00, &[page; 8]);
    rig.card.objects.room = Room::of(63);
    assert_eq!(rig.card.change_key(driver, &umr), Err(REFUSED));
    rig.card.objects.room = Room::of(64);
    rig.card.change_key(driver, &umr).unwrap();
    let again = Umr { check_free: false, ..umr };
    rig.card.change_key(driver, &again).expect("the list does not grow");
    assert_eq!(rig.card.change_key(driver, &Umr { offset: 4, ..again }), Err(REFUSED));
    assert_eq!(rig.card.change_key(own, &bind(window, region, 8)), Err(REFUSED));
    let destroy = Command::new(opcode::DESTROY_MKEY, 0x10);
    rig.run(&destroy.set(destroy_mkey_in::MKEY_INDEX, key >> 8)).unwrap();
    rig.card.change_key(own, &bind(window, region, 8)).unwrap();
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
    let (own, driver) = (domain(&rig), driver(&mut rig));
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

/// Which bytes of the card or of the bus such a key leads to is for commands to say.
#[test]
fn a_key_without_a_list_keeps_its_start_and_length() {
    let mut rig = Rig::new();
    rig.give_memic();
    let reply = rig.run(&Command::alloc_memic(256)).unwrap();
    let start = alloc_memic_out::MEMIC_START_ADDR.get(&reply);
    let create = rig.create_mkey().set(field(mkc::UMR_EN), 1u64).set(field(mkc::LEN), 128u64);
    let of_device = create
        .clone()
        .set(field(mkc::ACCESS_MODE_1_0), 1u64)
        .set(field(mkc::ACCESS_MODE_4_2), 1u64)
        .set(field(mkc::START_ADDR), start);
    let of_bus = create.set(field(mkc::ACCESS_MODE_1_0), 0u64);
    let (own, driver) = (domain(&rig), driver(&mut rig));
    for (create, at) in [(of_device, 0), (of_bus, START)] {
        let key = rig.mkey(&create);
        let mut umr = enable(key, rig.pd, 0x1000, &[]);
        (umr.entries, umr.check_free) = (None, false);
        for (by, mask) in [(own, 1), (own, 1 << 6), (own, 1 | 1 << 6), (driver, GEOMETRY)] {
            let changed = rig.card.change_key(by, &Umr { mask, ..umr.clone() });
            assert_eq!(changed, Err(REFUSED), "mask {mask:#x}");
            let beyond = rig.card.check(own, key, at + 128, 1, Access::LocalRead);
            assert_eq!(beyond, Err(Denied::Bounds), "mask {mask:#x}");
        }
        // Rights may change still.
        rig.card.change_key(own, &Umr { mask: 1 << 20, ..umr }).unwrap();
        assert_eq!(rig.card.check(own, key, at, 128, Access::LocalRead), Ok(()));
    }
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
    assert_eq!(rig.card.change_key(own, &lost), Err(unread(Denied::Key)));

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
        let (driver, pages) = (driver(&mut rig), without_pages(&mut rig, 0x1_0000));
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
        for key in [window, region, pages] {
            if let Ok(umr) = decode(key, &bytes) {
                let _ = rig.card.change_key(own, &umr);
                let _ = rig.card.change_key(driver, &umr);
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
