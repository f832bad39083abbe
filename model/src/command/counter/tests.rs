//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn sets_have_numbers_that_run_out_and_come_back() {
    let mut rig = Rig::new();
    let alloc = Command::new(opcode::ALLOC_Q_COUNTER, 0x10);
    let set = rig.counters();
    assert_ne!(set, 0, "which stands for none");
    let rest = (0..0xff).filter(|_| rig.run(&alloc).is_ok()).count();
    assert_eq!(rest, 0x7e, "127 in all, as a ConnectX-6 Dx has them");
    let dealloc = Command::new(opcode::DEALLOC_Q_COUNTER, 0x10)
        .set(dealloc_q_counter_in::COUNTER_SET_ID, set);
    rig.run(&dealloc).unwrap();
    assert_eq!(rig.counters(), set);
}

#[test]
fn user_contexts_get_no_sets_unless_the_card_allows_it() {
    let mut rig = Rig::new();
    rig.become_user();
    let alloc = Command::new(opcode::ALLOC_Q_COUNTER, 0x10);
    rig.card.set_counter_sets(CounterSets::Refused);
    assert_eq!(rig.run(&alloc).err(), Some(Refusal::CountersOfUser));
    // The driver gets one, for itself and for all.
    rig.as_driver(|rig| rig.run(&alloc)).unwrap();
    let for_all = alloc.clone().set(UID, SHARED);
    rig.as_driver(|rig| rig.run(&for_all)).unwrap();
    rig.card.set_counter_sets(CounterSets::Allowed);
    rig.run(&alloc).unwrap();
}

#[test]
fn queues_of_all_user_contexts_may_count_in_a_set_for_all_and_only_the_driver_may_free_it() {
    let mut rig = Rig::new();
    let of_driver = rig.counters();
    let alloc = Command::new(opcode::ALLOC_Q_COUNTER, 0x10).set(UID, SHARED);
    let for_all = rig.number(&alloc, alloc_q_counter_out::COUNTER_SET_ID);
    assert_eq!(may_name(&rig.card, for_all, 7), Ok(()));
    assert_eq!(may_name(&rig.card, of_driver, 7), Err(Refusal::Owner));
    assert_eq!(find(&rig.card, for_all, 7).err(), Some(Refusal::Owner));
    assert!(find(&rig.card, for_all, 0).is_ok());
}
