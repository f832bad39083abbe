//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn psvs_are_made_together_and_go_one_by_one() {
    let mut rig = Rig::new();
    let create = Command::new(opcode::CREATE_PSV, 0x10)
        .set(create_psv_in::NUM_PSV, 3u64)
        .set(create_psv_in::PD, rig.pd);
    let reply = rig.run(&create).unwrap();
    let made = [create_psv_out::PSV0_INDEX, create_psv_out::PSV1_INDEX]
        .map(|place| place.get(&reply) as u32);
    assert_eq!(made[1], made[0] + 1);
    assert_eq!(create_psv_out::PSV3_INDEX.get(&reply), 0);
    for number in made[0]..made[0] + 3 {
        let destroy = Command::new(opcode::DESTROY_PSV, 0x10).set(destroy_psv_in::PSVN, number);
        rig.run(&destroy).unwrap();
        assert_eq!(rig.run(&destroy).err(), Some(Refusal::NoPsv));
    }
}
