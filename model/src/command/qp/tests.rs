//! Unit tests.

use mlx5_sys::ifc::{Field, opcode};

use super::super::test::{Command, Rig};
use super::*;

fn field(field: Field) -> Field {
    field.within(create_qp_in::QPC)
}

#[test]
fn a_queue_pair_without_queues_needs_none() {
    let mut rig = Rig::new();
    let mut create = rig
        .create_qp(0, 0)
        .set(field(qpc::NO_SQ), 1u64)
        .set(field(qpc::RQ_TYPE), 3u64)
        .set(field(qpc::UAR_PAGE), 0u64);
    create.0.truncate(0x110);
    rig.run(&create).unwrap();
}

#[test]
fn only_the_queue_for_umr_has_no_protection_domain() {
    let mut rig = Rig::new();
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq).set(field(qpc::PD), 0u64);
    rig.run(&create.clone().set(field(qpc::ST), 0xcu64)).unwrap();
    assert_eq!(rig.run(&create).err(), Some(Refusal::NoPd));
}

#[test]
fn numbers_carry_the_prefix_and_run_out() {
    let mut rig = Rig::new();
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq);
    let numbers: Vec<u32> = (0..256).map(|_| rig.number(&create, create_qp_out::QPN)).collect();
    assert!(numbers.iter().all(|number| number >> 8 == 0x12));
    assert_eq!(rig.run(&create).err(), Some(Refusal::Exhausted));
    let destroy = Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, numbers[3]);
    rig.run(&destroy).unwrap();
    assert_eq!(rig.number(&create, create_qp_out::QPN), numbers[3]);
    rig.card.identity.qpn_prefixes.push(0x13);
    assert_eq!(rig.number(&create, create_qp_out::QPN), 0x1300);
}

#[test]
fn a_queue_pair_is_shown_as_it_was_made() {
    let mut rig = Rig::new();
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq);
    let qp = rig.number(&create, create_qp_out::QPN);
    let query = Command::new(opcode::QUERY_QP, 0x10).set(query_qp_in::QPN, qp);
    let shown = rig.run(&query).unwrap();
    let shown = &shown[query_qp_out::QPC.bytes()];
    let given = &create.0[create_qp_in::QPC.bytes()];
    for f in [qpc::PD, qpc::USER_INDEX, qpc::CQN_SND, qpc::LOG_SQ_SIZE, qpc::DBR_ADDR] {
        assert_eq!(f.get(shown), f.get(given));
    }
    assert_eq!(qpc::STATE.get(shown), 0);
}
