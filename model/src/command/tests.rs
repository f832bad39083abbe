//! Unit tests.

use mlx5_sys::ifc::{alloc_uar_out, create_mkey_in, dealloc_uar_in, destroy_cq_in, mkc};
use proptest::prelude::*;

use super::test::{Command as Given, Rig};
use super::*;

#[test]
fn what_is_no_command_is_refused() {
    let mut rig = Rig::new();
    assert_eq!(rig.run(&Given::new(0xfff, 0x10)).err(), Some(Refusal::Opcode));
    assert_eq!(rig.run(&Given(vec![])).err(), Some(Refusal::InputLength));
    assert_eq!(rig.run(&Given(vec![8; 7])).err(), Some(Refusal::InputLength));
}

#[test]
fn replies_without_room_for_a_status_do_no_harm() {
    let mut rig = Rig::new();
    for room in 0..8 {
        let mut output = vec![0xaa; room];
        rig.card.execute(&Given::new(opcode::NOP, 0x10).0, &mut output);
        assert!(output.iter().take(1).all(|status| *status == Status::BadOutputLength as u8));
    }
}

#[test]
fn objects_for_all_user_contexts_are_the_drivers() {
    let mut rig = Rig::new();
    let alloc = Given::new(opcode::ALLOC_PD, 0x10);
    rig.run(&alloc.clone().set(UID, SHARED)).unwrap();
    assert_eq!(rig.card.objects.pds.iter().last().unwrap().1.uid, 0);
    assert_eq!(rig.run(&alloc.set(UID, SHARED - 1)).err(), Some(Refusal::User));
}

#[test]
fn the_driver_makes_keys_for_any_domain() {
    let mut rig = Rig::new();
    let pd = mkc::PD.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
    let create = rig.create_mkey().set(pd, 0xab_cdefu64);
    rig.run(&create).unwrap();
    rig.become_user();
    assert_eq!(rig.run(&create).err(), Some(Refusal::NoPd));
}

#[test]
fn a_uar_page_can_be_freed_before_the_cqs_that_arm_there() {
    let mut rig = Rig::new();
    let number = rig.number(&Given::new(opcode::ALLOC_UAR, 0x10), alloc_uar_out::UAR);
    let own = std::mem::replace(&mut rig.uar, number);
    let cq = rig.cq();
    rig.uar = own;
    rig.run(&Given::new(opcode::DEALLOC_UAR, 0x10).set(dealloc_uar_in::UAR, number)).unwrap();
    rig.run(&Given::new(opcode::DESTROY_CQ, 0x10).set(destroy_cq_in::CQN, cq)).unwrap();
}

#[test]
fn opcodes_are_listed_once() {
    for (i, one) in COMMANDS.iter().enumerate() {
        assert!(COMMANDS[..i].iter().all(|other| other.opcode != one.opcode));
        assert!(opcode::name(one.opcode).is_some());
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        which in 0..COMMANDS.len(),
        mut bytes in proptest::collection::vec(any::<u8>(), 8..0x200),
        zeros in proptest::collection::vec(any::<bool>(), 0x200),
        room in 0usize..0x300,
    ) {
        let mut rig = Rig::new();
        // Zeroes let a command get further than the first check.
        for (byte, zero) in bytes.iter_mut().zip(zeros) {
            if zero {
                *byte = 0;
            }
        }
        bytes[..8].fill(0);
        OPCODE.set(&mut bytes, COMMANDS[which].opcode.into());
        rig.card.execute(&bytes, &mut vec![0; room]);
    }
}
