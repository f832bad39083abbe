//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn a_queue_is_shown_as_it_was_made_and_armed() {
    let mut rig = Rig::new();
    let cq = rig.cq();
    let create = rig.create_xrq(cq);
    let tags = topology::LOG_MATCHING_LIST_SZ.within(xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT);
    let number = rig.number(&create, create_xrq_out::XRQN);
    let arm = Command::new(opcode::ARM_XRQ, 0x10)
        .set(arm_xrq_in::XRQN, number)
        .set(arm_xrq_in::LWM, 0u64);
    rig.run(&arm).unwrap();
    let query = Command::new(opcode::QUERY_XRQ, 0x10).set(query_xrq_in::XRQN, number);
    let reply = rig.run(&query).unwrap();
    let shown = |field: Field| field.within(query_xrq_out::XRQ_CONTEXT).get(&reply);
    assert_eq!((shown(xrqc::USER_INDEX), shown(xrqc::CQN)), (0x4321, cq.into()));
    assert_eq!(shown(tags), 3);
}
