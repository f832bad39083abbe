use mlx5_sys::ifc::{atomic_caps, cmd_hca_cap, opcode, query_hca_cap_out, set_hca_cap_in};

use super::super::capability::group;
use super::super::test::{Command, Rig};
use super::*;
use crate::card::{GidEntry, Link};

/// The first of the addresses that tests give as pages.
const PAGES: u64 = 0x4000_0000;

pub fn enable() -> Command {
    Command::new(opcode::ENABLE_HCA, 0x10)
}

pub fn set_issi() -> Command {
    Command::new(opcode::SET_ISSI, 0x10).set(set_issi_in::CURRENT_ISSI, u64::from(ISSI))
}

pub fn init() -> Command {
    Command::new(opcode::INIT_HCA, 0x20)
}

pub fn teardown() -> Command {
    Command::new(opcode::TEARDOWN_HCA, 0x10)
}

pub fn missing(rig: &mut Rig, which: u32) -> u32 {
    let ask = Command::new(opcode::QUERY_PAGES, 0x10).set(OP_MOD, which);
    rig.number(&ask, query_pages_out::NUM_PAGES)
}

pub fn give(from: u64, count: u32) -> Command {
    let mut give = Command::new(opcode::MANAGE_PAGES, 0x10)
        .set(OP_MOD, manage::GIVE)
        .set(manage_pages_in::INPUT_NUM_ENTRIES, count);
    for page in 0..u64::from(count) {
        give.0.extend_from_slice(&(from + (page << 12)).to_be_bytes());
    }
    give
}

pub fn take(count: u32) -> Command {
    Command::new(opcode::MANAGE_PAGES, 0x10)
        .set(OP_MOD, manage::TAKE)
        .set(manage_pages_in::INPUT_NUM_ENTRIES, count)
}

/// Resets a device and brings it to the state before INIT_HCA, with all pages given.
pub fn prepare(rig: &mut Rig) {
    rig.card.reset();
    rig.run(&enable()).unwrap();
    rig.run(&set_issi()).unwrap();
    let boot = missing(rig, query::BOOT);
    rig.run(&give(PAGES, boot)).unwrap();
    let init = missing(rig, query::INIT);
    rig.run(&give(PAGES + (u64::from(boot) << 12), init)).unwrap();
}

fn set(group: u32, capabilities: &[u8]) -> Command {
    let mut set = Command::new(opcode::SET_HCA_CAP, set_hca_cap_in::SIZE).set(OP_MOD, group << 1);
    set.0[0x10..0x10 + capabilities.len()].copy_from_slice(capabilities);
    set
}

fn ask(rig: &mut Rig, group: u32, current: u32) -> Vec<u8> {
    let ask = Command::new(opcode::QUERY_HCA_CAP, 0x10).set(OP_MOD, group << 1 | current);
    rig.run(&ask).unwrap()[query_hca_cap_out::CAPABILITY.bytes().start..][..0x100].to_vec()
}

#[test]
fn a_driver_boots_the_hca_after_a_reset() {
    let mut rig = Rig::new();
    let alloc_pd = Command::new(opcode::ALLOC_PD, 0x10);
    rig.card.reset();
    for early in [&alloc_pd, &init(), &set_issi(), &teardown(), &take(1)] {
        assert_eq!(rig.run(early).err(), Some(Refusal::Disabled));
    }
    prepare(&mut rig);
    assert_eq!((missing(&mut rig, query::BOOT), missing(&mut rig, query::INIT)), (0, 0));
    assert_eq!(rig.run(&alloc_pd).err(), Some(Refusal::SystemState));
    rig.run(&init()).unwrap();
    rig.run(&alloc_pd).unwrap();
    for late in [enable(), set_issi(), init(), Command::new(opcode::DISABLE_HCA, 0x10)] {
        assert_eq!(rig.run(&late).err(), Some(Refusal::SystemState));
    }
}

#[test]
fn the_hca_starts_only_with_interface_and_pages() {
    let mut rig = Rig::new();
    rig.card.reset();
    rig.run(&enable()).unwrap();
    assert_eq!(rig.run(&init()).err(), Some(Refusal::IssiUnset));
    let issi = Command::new(opcode::QUERY_ISSI, 0x10);
    assert_eq!(rig.number(&issi, query_issi_out::CURRENT_ISSI), 0);
    assert_eq!(rig.number(&issi, query_issi_out::SUPPORTED_ISSI_DW0), 1 << 1);
    rig.run(&set_issi()).unwrap();
    assert_eq!(rig.number(&issi, query_issi_out::CURRENT_ISSI), 1);
    assert_eq!(rig.run(&init()).err(), Some(Refusal::PagesMissing));
}

#[test]
fn teardown_destroys_objects_and_gives_the_pages_back() {
    let mut rig = Rig::new();
    prepare(&mut rig);
    rig.run(&init()).unwrap();
    rig.run(&Command::new(opcode::ALLOC_PD, 0x10)).unwrap();
    let reply = rig.run(&take(8)).unwrap();
    assert_eq!(manage_pages_out::OUTPUT_NUM_ENTRIES.get(&reply), 0, "the HCA needs them");
    rig.run(&teardown()).unwrap();
    assert_eq!(rig.card.objects.pds.iter().count(), 0);
    let reply = rig.run(&take(8)).unwrap();
    assert_eq!(manage_pages_out::OUTPUT_NUM_ENTRIES.get(&reply), 8);
    assert_eq!(manage_pages_out::PAS.get(&reply), PAGES);
    assert_eq!(rig.run_into(&take(8), 0x10 + 7 * 8).err(), Some(Refusal::OutputLength));
    let reply = rig.run(&take(1000)).unwrap();
    let rest = manage_pages_out::OUTPUT_NUM_ENTRIES.get(&reply);
    assert!(rest > 8, "the list that did not fit lost no page");
    assert_eq!(u64::from(missing(&mut rig, query::INIT)), rest + 8);
    rig.run(&Command::new(opcode::DISABLE_HCA, 0x10)).unwrap();
    assert_eq!(rig.run(&take(1)).err(), Some(Refusal::Disabled));
    prepare(&mut rig);
    rig.run(&init()).unwrap();
}

#[test]
fn a_driver_lowers_capabilities_before_the_hca_starts() {
    let mut rig = Rig::new();
    prepare(&mut rig);
    let greatest = ask(&mut rig, group::GENERAL, 0);
    let mut lower = greatest.clone();
    cmd_hca_cap::LOG_MAX_QP.set(&mut lower, 12);
    cmd_hca_cap::PG.set(&mut lower, 0);
    rig.run(&set(group::GENERAL, &lower)).unwrap();
    assert_eq!(ask(&mut rig, group::GENERAL, 1), lower);
    assert_eq!(ask(&mut rig, group::GENERAL, 0), greatest);
    for above in [cmd_hca_cap::LOG_MAX_QP, cmd_hca_cap::LOG_UAR_PAGE_SZ] {
        let mut higher = greatest.clone();
        above.set(&mut higher, above.get(&greatest) + 1);
        let met = rig.run(&set(group::GENERAL, &higher)).err();
        assert_eq!(met, Some(Refusal::CapabilityMaximum));
    }
    assert_eq!(ask(&mut rig, group::GENERAL, 1), lower, "a refused command changes nothing");
    rig.run(&init()).unwrap();
    assert_eq!(rig.run(&set(group::GENERAL, &lower)).err(), Some(Refusal::SystemState));
    prepare(&mut rig);
    assert_eq!(ask(&mut rig, group::GENERAL, 1), greatest, "a reset forgets them");
}

#[test]
fn only_the_requesters_byte_order_of_atomics_is_set() {
    let mut rig = Rig::new();
    prepare(&mut rig);
    let greatest = ask(&mut rig, group::ATOMIC, 0);
    // Linux writes zero to all other fields.
    let mut order = vec![0; 0x40];
    atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE.set(&mut order, 1);
    rig.run(&set(group::ATOMIC, &order)).unwrap();
    assert_eq!(ask(&mut rig, group::ATOMIC, 1), greatest);
}

#[test]
fn a_reset_returns_the_addresses_of_the_port() {
    let mut rig = Rig::on(Link::Roce);
    let before = rig.card.identity.gids.clone();
    rig.card.identity.gids.push(GidEntry { mac: Some([2; 6]), ..GidEntry::default() });
    rig.card.interrupts.push_back(1);
    prepare(&mut rig);
    assert_eq!(rig.card.identity.gids, before);
    assert!(rig.card.interrupts.is_empty());
    assert_eq!(rig.card.objects.eqs.iter().count(), 0);
}
