//! Unit tests.

use mlx5_evidence::Table;
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

/// Read from a ConnectX-6 Dx: a CQ of Linux's driver with 1,024 entries that is armed and has not had a
/// completion.
#[test]
fn an_armed_cq_reads_back_as_on_a_device() {
    let table = Table::read("contexts-hex");
    let row = table.rows().find(|row| row.text("what").starts_with("QUERY_CQ")).expect("a row");
    let words = row.text("hex").split(' ').map(|word| u32::from_str_radix(word, 16).unwrap());
    let device: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();

    let mut rig = Rig::new();
    let field = |field: Field| field.within(create_cq_in::CQ_CONTEXT);
    let create = rig
        .create_cq()
        .set(field(cqc::LOG_CQ_SIZE), 10u64)
        .set(field(cqc::CQ_PERIOD), 8u64)
        .set(field(cqc::CQ_MAX_COUNT), 128u64);
    let create = (1..16).fold(create, |create, _| create.page(rig.page()));
    let cq = rig.number(&create, create_cq_out::CQN);
    rig.card.arm_cq(cq, 0);
    let query = Command::new(opcode::QUERY_CQ, 0x10).set(query_cq_in::CQN, cq);
    let mut shown = rig.run(&query).unwrap();
    // Where its register, its events and its record are is the host's.
    for host in [cqc::UAR_PAGE, cqc::C_EQN_OR_APU_ELEMENT, cqc::DBR_ADDR] {
        let host = host.within(query_cq_out::CQ_CONTEXT);
        host.set(&mut shown, host.get(&device));
    }
    assert_eq!(shown[..device.len()], device, "{:02x?}", &shown[..device.len()]);
}
