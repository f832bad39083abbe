//! Tests: a query of a shared receive queue returns its counters.

use mlx5_sys::ifc::{
    Field, arm_rq_in, arm_xrc_srq_in, create_rmp_in, create_rmp_out, create_srq_in, create_srq_out,
    create_xrc_srq_out, modify_rmp_in, opcode, query_rmp_in, query_rmp_out, query_srq_in,
    query_srq_out, query_xrc_srq_in, query_xrc_srq_out, rmp_bitmask, rmpc, srqc, wq, xrc_srqc,
};

use super::super::test::{Command, Rig};

#[test]
fn a_pool_is_shown_with_its_limit_and_counters() {
    let mut rig = Rig::new();
    let create = rig.create_rmp();
    let number = rig.number(&create, create_rmp_out::RMPN);
    let record = wq::DBR_ADDR.within(rmpc::WQ).within(create_rmp_in::CTX).get(&create.0);
    rig.write(record, &5u32.to_be_bytes());
    let query = Command::new(opcode::QUERY_RMP, 0x10).set(query_rmp_in::RMPN, number);
    let shown = |rig: &mut Rig, field: Field| {
        let reply = rig.run(&query).unwrap();
        field.within(rmpc::WQ).within(query_rmp_out::RMP_CONTEXT).get(&reply)
    };
    assert_eq!(shown(&mut rig, wq::PD), rig.pd.into());
    assert_eq!(shown(&mut rig, wq::LWM), 0);

    let bit = rmp_bitmask::LWM.within(modify_rmp_in::BITMASK);
    let modify = Command::new(opcode::MODIFY_RMP, 0x110)
        .set(modify_rmp_in::RMPN, number)
        .set(modify_rmp_in::RMP_STATE, 1u64)
        .set(rmpc::STATE.within(modify_rmp_in::CTX), 1u64)
        .set(wq::LWM.within(rmpc::WQ).within(modify_rmp_in::CTX), 4u64)
        .set(bit, 1u64);
    rig.run(&modify.clone().set(bit, 0u64)).unwrap();
    assert_eq!(shown(&mut rig, wq::LWM), 0);
    rig.run(&modify).unwrap();
    assert_eq!(shown(&mut rig, wq::LWM), 4);
    assert_eq!(shown(&mut rig, wq::SW_COUNTER), 5);
}

#[test]
fn an_armed_xrc_srq_is_shown_with_its_limit_and_counters() {
    let mut rig = Rig::new();
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let create = rig.create_xrc_srq(domain, cq);
    let xrc = rig.number(&create, create_xrc_srq_out::XRC_SRQN);
    let record = rig.card.objects.srqs.get(xrc).unwrap().record;
    rig.write(record, &7u32.to_be_bytes());
    let arm = Command::new(opcode::ARM_XRC_SRQ, 0x10)
        .set(arm_xrc_srq_in::XRC_SRQN, xrc)
        .set(arm_xrc_srq_in::OP_MOD, 1u64)
        .set(arm_xrc_srq_in::LWM, 5u64);
    rig.run(&arm).unwrap();
    let query = Command::new(opcode::QUERY_XRC_SRQ, 0x10).set(query_xrc_srq_in::XRC_SRQN, xrc);
    let shown = rig.run(&query).unwrap();
    let get = |field: Field| field.within(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY).get(&shown);
    assert_eq!((get(xrc_srqc::LWM), get(xrc_srqc::WQE_CNT)), (5, 7));
    assert_eq!((get(xrc_srqc::STATE), get(xrc_srqc::USER_INDEX)), (0, 0x1234));
}

#[test]
fn an_armed_queue_of_old_is_shown_with_its_limit_and_counters() {
    let mut rig = Rig::new();
    let create = rig.create_srq();
    let record = srqc::DBR_ADDR.within(create_srq_in::SRQ_CONTEXT_ENTRY).get(&create.0);
    let number = rig.number(&create, create_srq_out::SRQN);
    rig.write(record, &7u32.to_be_bytes());
    let arm = Command::new(opcode::ARM_RQ, 0x10)
        .set(arm_rq_in::SRQ_NUMBER, number)
        .set(arm_rq_in::OP_MOD, 1u64)
        .set(arm_rq_in::LWM, 5u64);
    rig.run(&arm).unwrap();
    let query = Command::new(opcode::QUERY_SRQ, 0x10).set(query_srq_in::SRQN, number);
    let shown = rig.run(&query).unwrap();
    let get = |field: Field| field.within(query_srq_out::SRQ_CONTEXT_ENTRY).get(&shown);
    assert_eq!((get(srqc::LWM), get(srqc::WQE_CNT), get(srqc::STATE)), (5, 7, 0));
}
