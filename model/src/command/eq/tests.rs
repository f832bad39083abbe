//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn an_eq_is_shown_as_it_was_made() {
    let mut rig = Rig::new();
    let create = rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << 5);
    let number = rig.number(&create, create_eq_out::EQ_NUMBER);
    let query = Command::new(opcode::QUERY_EQ, 0x10).set(destroy_eq_in::EQ_NUMBER, number);
    let shown = rig.run(&query).unwrap();
    assert_eq!(eqc::INTR.get(&shown[0x10..]), 3);
    assert_eq!(shown[EVENTS..EVENTS + 8], (1u64 << 5).to_be_bytes());
}
