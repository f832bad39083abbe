//! Unit tests.

use mlx5_sys::ifc::{Field, opcode};

use super::super::buffer::PAS;
use super::super::test::{Command, Rig};
use super::*;

#[test]
fn a_cq_is_shown_as_it_was_changed() {
    let mut rig = Rig::new();
    let cq = rig.cq();
    let select = modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;
    let field = |field: Field| field.within(modify_cq_in::CQ_CONTEXT);
    let modify = Command::new(opcode::MODIFY_CQ, PAS)
        .set(modify_cq_in::CQN, cq)
        .set(select, SELECT_OVERRUN | SELECT_COUNT)
        .set(field(cqc::OI), 1u64)
        .set(field(cqc::CQ_MAX_COUNT), 5u64)
        .set(field(cqc::CQ_PERIOD), 9u64);
    rig.run(&modify).unwrap();
    let query = Command::new(opcode::QUERY_CQ, 0x10).set(query_cq_in::CQN, cq);
    let shown = rig.run(&query).unwrap();
    let shown = [cqc::OI, cqc::CQ_MAX_COUNT, cqc::CQ_PERIOD]
        .map(|field| field.within(query_cq_out::CQ_CONTEXT).get(&shown));
    assert_eq!(shown, [1, 5, 0]);
}
