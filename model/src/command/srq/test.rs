//! Every field of the commands on shared receive queues.

use mlx5_sys::ifc::{
    Field, arm_rq_in, arm_xrc_srq_in, create_qp_in, create_qp_out, create_rmp_in, create_rmp_out,
    create_srq_in, create_srq_out, create_uctx_out, create_umem_in, create_umem_out,
    create_xrc_srq_in, create_xrc_srq_out, dealloc_pd_in, dealloc_xrcd_in, destroy_cq_in,
    destroy_qp_in, destroy_rmp_in, destroy_srq_in, destroy_umem_in, destroy_xrc_srq_in,
    modify_rmp_in, opcode, qpc, query_rmp_in, query_rmp_out, query_srq_in, query_srq_out,
    query_xrc_srq_in, query_xrc_srq_out, rmp_bitmask, rmpc, srqc, umem, wq, xrc_srqc,
};

use super::super::Refusal;
use super::super::test::{Command, Rig, ring};
use crate::memory::Memory;

fn field(field: Field) -> Field {
    field.within(rmpc::WQ).within(create_rmp_in::CTX)
}

const STATE: Field = rmpc::STATE.within(create_rmp_in::CTX);

#[test]
fn each_field_of_a_pool_is_checked() {
    let mut rig = Rig::new();
    let create = rig.create_rmp();
    rig.refuses(
        &create,
        &[
            (STATE, 0, Refusal::SrqState),
            (STATE, 3, Refusal::SrqState),
            (field(wq::WQ_TYPE), 2, Refusal::SrqType),
            (field(wq::WQ_TYPE), 3, Refusal::SrqType),
            (rmpc::BASIC_CYCLIC_RCV_WQE.within(create_rmp_in::CTX), 1, Refusal::SrqType),
            (field(wq::WQ_SIGNATURE), 1, Refusal::QpSignature),
            (field(wq::END_PADDING_MODE), 1, Refusal::QpPadding),
            (field(wq::DBR_UMEM_VALID), 1, Refusal::NoUmem),
            (field(wq::WQ_UMEM_VALID), 1, Refusal::NoUmem),
            (field(wq::PD), 0, Refusal::NoPd),
            (field(wq::LOG_WQ_SZ), 16, Refusal::SrqSize),
            (field(wq::LOG_WQ_SZ), 31, Refusal::SrqSize),
            (field(wq::LOG_WQ_STRIDE), 4, Refusal::SrqStride),
            (field(wq::LOG_WQ_STRIDE), 10, Refusal::SrqStride),
            (field(wq::LOG_WQ_STRIDE), 15, Refusal::SrqStride),
            (field(wq::DBR_ADDR), 0x10_0004, Refusal::Record),
            (field(wq::LOG_WQ_SZ), 7, Refusal::InputLength),
            (field(wq::LOG_WQ_PG_SZ), 31, Refusal::PageAddress),
            (Field::new(0x110, 31, 64), 0x10_0008, Refusal::PageAddress),
        ],
    );
    assert!(rig.card.objects.srqs.is_empty());
}

#[test]
fn a_pool_is_shown_with_its_limit_and_counters() {
    let mut rig = Rig::new();
    let create = rig.create_rmp();
    let number = rig.number(&create, create_rmp_out::RMPN);
    let record = field(wq::DBR_ADDR).get(&create.0);
    rig.write(record, &5u32.to_be_bytes());
    let query = Command::new(opcode::QUERY_RMP, 0x10).set(query_rmp_in::RMPN, number);
    rig.refuses(&query, &[(query_rmp_in::RMPN, 1, Refusal::NoSrq)]);
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
    rig.refuses(
        &modify,
        &[
            (modify_rmp_in::RMPN, 1, Refusal::NoSrq),
            (modify_rmp_in::RMP_STATE, 0, Refusal::SrqState),
            (modify_rmp_in::BITMASK, 3, Refusal::SrqModify),
            (rmpc::STATE.within(modify_rmp_in::CTX), 3, Refusal::SrqState),
        ],
    );
    rig.run(&modify.clone().set(bit, 0u64)).unwrap();
    assert_eq!(shown(&mut rig, wq::LWM), 0);
    rig.run(&modify).unwrap();
    assert_eq!(shown(&mut rig, wq::LWM), 4);
    assert_eq!(shown(&mut rig, wq::SW_COUNTER), 5);
    rig.card.objects.srqs.get_mut(number).unwrap().failed = true;
    assert_eq!(rig.run(&modify).err(), Some(Refusal::SrqState));
}

#[test]
fn a_pool_in_use_stays() {
    let mut rig = Rig::new();
    let create = rig.create_rmp();
    let number = rig.number(&create, create_rmp_out::RMPN);
    let cq = rig.cq();
    let sharing = rig.create_sharing_qp(cq, number);
    assert!(ring(&sharing) != ring(&create));
    let qp = rig.number(&sharing, create_qp_out::QPN);
    let destroy = Command::new(opcode::DESTROY_RMP, 0x10).set(destroy_rmp_in::RMPN, number);
    rig.refuses(&destroy, &[(destroy_rmp_in::RMPN, 1, Refusal::NoSrq)]);
    assert_eq!(rig.run(&destroy).err(), Some(Refusal::SrqBusy));
    let gone = Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, qp);
    rig.run(&gone).unwrap();
    let dealloc = Command::new(opcode::DEALLOC_PD, 0x10).set(dealloc_pd_in::PD, rig.pd);
    assert_eq!(rig.run(&dealloc).err(), Some(Refusal::PdBusy));
    rig.run(&destroy).unwrap();
    rig.run(&dealloc).unwrap();
    assert_eq!(rig.run(&destroy).err(), Some(Refusal::NoSrq));
}

fn entry(field: Field) -> Field {
    field.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY)
}

#[test]
fn each_field_of_an_xrc_srq_is_checked() {
    let mut rig = Rig::new();
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let create = rig.create_xrc_srq(domain, cq);
    rig.refuses(
        &create,
        &[
            (entry(xrc_srqc::CONT_SRQ), 1, Refusal::SrqType),
            (entry(xrc_srqc::RLKY), 1, Refusal::SrqType),
            (entry(xrc_srqc::BASIC_CYCLIC_RCV_WQE), 1, Refusal::SrqType),
            (entry(xrc_srqc::USER_INDEX_EQUAL_XRC_SRQN), 1, Refusal::SrqType),
            (entry(xrc_srqc::WQ_SIGNATURE), 1, Refusal::QpSignature),
            (entry(xrc_srqc::DBR_UMEM_VALID), 1, Refusal::NoUmem),
            (create_xrc_srq_in::XRC_SRQ_UMEM_VALID, 1, Refusal::NoUmem),
            (entry(xrc_srqc::PD), 0, Refusal::NoPd),
            (entry(xrc_srqc::XRCD), 0, Refusal::NoXrcd),
            (entry(xrc_srqc::CQN), 0, Refusal::NoCq),
            (entry(xrc_srqc::LOG_RQ_STRIDE), 0, Refusal::SrqStride),
            (entry(xrc_srqc::LOG_RQ_STRIDE), 6, Refusal::SrqStride),
            (entry(xrc_srqc::LOG_PAGE_SIZE), 63, Refusal::PageOffset),
            (entry(xrc_srqc::LOG_PAGE_SIZE), 31, Refusal::PageAddress),
            (entry(xrc_srqc::DB_RECORD_ADDR_L), 1, Refusal::Record),
            (entry(xrc_srqc::LOG_XRC_SRQ_SIZE), 7, Refusal::InputLength),
        ],
    );
    assert!(rig.card.objects.srqs.is_empty());
}

#[test]
fn kinds_of_shared_queues_are_kept_apart() {
    let mut rig = Rig::new();
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let create = rig.create_xrc_srq(domain, cq);
    let xrc = rig.number(&create, create_xrc_srq_out::XRC_SRQN);
    let create = rig.create_rmp();
    let rmp = rig.number(&create, create_rmp_out::RMPN);
    assert_ne!(xrc, rmp);
    let query = Command::new(opcode::QUERY_XRC_SRQ, 0x10).set(query_xrc_srq_in::XRC_SRQN, xrc);
    rig.refuses(&query, &[(query_xrc_srq_in::XRC_SRQN, rmp.into(), Refusal::NoSrq)]);
    let other = Command::new(opcode::QUERY_RMP, 0x10).set(query_rmp_in::RMPN, rmp);
    rig.refuses(&other, &[(query_rmp_in::RMPN, xrc.into(), Refusal::NoSrq)]);
    let sharing = rig.create_sharing_qp(cq, xrc);
    assert_eq!(rig.run(&sharing).err(), Some(Refusal::NoSrq));

    let record = rig.card.objects.srqs.get(xrc).unwrap().record;
    rig.write(record, &7u32.to_be_bytes());
    let arm = Command::new(opcode::ARM_XRC_SRQ, 0x10)
        .set(arm_xrc_srq_in::XRC_SRQN, xrc)
        .set(arm_xrc_srq_in::OP_MOD, 1u64)
        .set(arm_xrc_srq_in::LWM, 5u64);
    rig.refuses(
        &arm,
        &[
            (arm_xrc_srq_in::XRC_SRQN, rmp.into(), Refusal::NoSrq),
            (arm_xrc_srq_in::OP_MOD, 0, Refusal::OpModifier),
        ],
    );
    rig.run(&arm).unwrap();
    let shown = rig.run(&query).unwrap();
    let get = |field: Field| field.within(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY).get(&shown);
    assert_eq!((get(xrc_srqc::LWM), get(xrc_srqc::WQE_CNT)), (5, 7));
    assert_eq!((get(xrc_srqc::STATE), get(xrc_srqc::USER_INDEX)), (0, 0x1234));
}

#[test]
fn what_an_xrc_srq_stands_on_stays() {
    let mut rig = Rig::new();
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let create = rig.create_xrc_srq(domain, cq);
    let xrc = rig.number(&create, create_xrc_srq_out::XRC_SRQN);
    let dealloc = Command::new(opcode::DEALLOC_XRCD, 0x10).set(dealloc_xrcd_in::XRCD, domain);
    let cq = Command::new(opcode::DESTROY_CQ, 0x10).set(destroy_cq_in::CQN, cq);
    assert_eq!(rig.run(&dealloc).err(), Some(Refusal::XrcdBusy));
    assert_eq!(rig.run(&cq).err(), Some(Refusal::CqBusy));
    let destroy =
        Command::new(opcode::DESTROY_XRC_SRQ, 0x10).set(destroy_xrc_srq_in::XRC_SRQN, xrc);
    rig.refuses(&destroy, &[(destroy_xrc_srq_in::XRC_SRQN, 5, Refusal::NoSrq)]);
    rig.run(&destroy).unwrap();
    rig.run(&cq).unwrap();
    let target = rig.create_target(domain);
    rig.refuses(
        &target,
        &[
            (qpc::XRCD.within(create_qp_in::QPC), 5, Refusal::NoXrcd),
            (qpc::RQ_TYPE.within(create_qp_in::QPC), 0, Refusal::QpReceiveType),
        ],
    );
    let qp = rig.number(&target, create_qp_out::QPN);
    assert_eq!(rig.run(&dealloc).err(), Some(Refusal::XrcdBusy));
    let gone = Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, qp);
    rig.run(&gone).unwrap();
    rig.run(&dealloc).unwrap();
}

#[test]
fn a_completion_queue_of_a_sharing_queue_pair_stays() {
    let mut rig = Rig::new();
    let create = rig.create_rmp();
    let number = rig.number(&create, create_rmp_out::RMPN);
    let (send, receive) = (rig.cq(), rig.cq());
    let sharing =
        rig.create_sharing_qp(send, number).set(qpc::CQN_RCV.within(create_qp_in::QPC), receive);
    rig.run(&sharing).unwrap();
    for cq in [send, receive] {
        let destroy = Command::new(opcode::DESTROY_CQ, 0x10).set(destroy_cq_in::CQN, cq);
        assert_eq!(rig.run(&destroy).err(), Some(Refusal::CqBusy));
    }
}

/// A user context with a protection domain and a umem of two pages that are no neighbours.
struct User {
    uid: u16,
    pd: u32,
    umem: u64,
    pages: [u64; 2],
}

fn user(rig: &mut Rig) -> User {
    let uid = rig.number(&Command::new(opcode::CREATE_UCTX, 0x40), create_uctx_out::UID) as u16;
    let pages = [rig.page(), rig.page()];
    let create = Command::new(opcode::CREATE_UMEM, 0x40)
        .set(create_umem_in::UID, uid)
        .set(umem::NUM_OF_MTT.within(create_umem_in::UMEM), 2u64)
        .set(Field::new(0x30, 31, 64), pages[0])
        .set(Field::new(0x38, 31, 64), pages[1]);
    let umem = create_umem_out::UMEM_ID.get(&rig.run(&create).unwrap());
    let pd = Command::new(opcode::ALLOC_PD, 0x10).set(create_umem_in::UID, uid);
    let pd = rig.number(&pd, mlx5_sys::ifc::alloc_pd_out::PD);
    User { uid, pd, umem, pages }
}

fn free_umem(user: &User) -> Command {
    Command::new(opcode::DESTROY_UMEM, 0x10)
        .set(destroy_umem_in::UID, user.uid)
        .set(destroy_umem_in::UMEM_ID, user.umem)
}

#[test]
fn a_pool_of_a_user_lies_in_its_umem_and_holds_it() {
    let mut rig = Rig::new();
    let (owner, other) = (user(&mut rig), user(&mut rig));
    let mut create = rig
        .create_rmp()
        .set(create_rmp_in::UID, owner.uid)
        .set(field(wq::PD), owner.pd)
        .set(field(wq::WQ_UMEM_VALID), 1u64)
        .set(field(wq::WQ_UMEM_ID), owner.umem)
        .set(field(wq::WQ_UMEM_OFFSET), 128u64)
        .set(field(wq::DBR_UMEM_VALID), 1u64)
        .set(field(wq::DBR_UMEM_ID), owner.umem)
        .set(field(wq::DBR_ADDR), 0x1ff8u64);
    create.0.truncate(create_rmp_in::SIZE);
    rig.refuses(
        &create,
        &[
            (field(wq::WQ_UMEM_ID), 1, Refusal::NoUmem),
            (field(wq::WQ_UMEM_ID), other.umem, Refusal::Owner),
            (field(wq::WQ_UMEM_OFFSET), 32, Refusal::PageOffset),
            (field(wq::WQ_UMEM_OFFSET), 0x2000, Refusal::UmemRange),
            (field(wq::WQ_UMEM_OFFSET), 0x1e40, Refusal::UmemRange),
            (field(wq::LOG_WQ_SZ), 7, Refusal::UmemRange),
            (field(wq::DBR_UMEM_ID), 1, Refusal::NoUmem),
            (field(wq::DBR_UMEM_ID), other.umem, Refusal::Owner),
            (field(wq::DBR_ADDR), 0x2000, Refusal::UmemRange),
            (field(wq::DBR_ADDR), 0x1ffc, Refusal::Record),
            (field(wq::PD), rig.pd.into(), Refusal::Owner),
            (field(wq::PD), other.pd.into(), Refusal::Owner),
        ],
    );
    assert!(rig.card.objects.srqs.is_empty());
    let number = rig.number(&create, create_rmp_out::RMPN);
    let srq = rig.card.objects.srqs.get(number).unwrap();
    assert_eq!(srq.queue.pages.locate(0), Some((owner.pages[0] + 128, 8 * 64)));
    assert_eq!(srq.record, owner.pages[1] + 0xff8);
    assert_eq!(rig.run(&free_umem(&owner)).err(), Some(Refusal::UmemBusy));
    for uid in [other.uid, owner.uid] {
        let query = Command::new(opcode::QUERY_RMP, 0x10)
            .set(create_rmp_in::UID, uid)
            .set(query_rmp_in::RMPN, number);
        let destroy = Command::new(opcode::DESTROY_RMP, 0x10)
            .set(destroy_rmp_in::UID, uid)
            .set(destroy_rmp_in::RMPN, number);
        let expected = if uid == owner.uid { None } else { Some(Refusal::Owner) };
        assert_eq!(rig.run(&query).err(), expected);
        assert_eq!(rig.run(&destroy).err(), expected);
    }
    rig.run(&free_umem(&owner)).unwrap();
}

#[test]
fn an_xrc_srq_of_a_user_lies_in_its_umem_and_holds_it() {
    let mut rig = Rig::new();
    let (owner, other) = (user(&mut rig), user(&mut rig));
    let mut cq = rig.create_cq().set(create_rmp_in::UID, owner.uid);
    let uar = Command::new(opcode::ALLOC_UAR, 0x10).set(create_rmp_in::UID, owner.uid);
    let uar = rig.number(&uar, mlx5_sys::ifc::alloc_uar_out::UAR);
    let in_cq = mlx5_sys::ifc::cqc::UAR_PAGE.within(mlx5_sys::ifc::create_cq_in::CQ_CONTEXT);
    cq = cq.set(in_cq, uar);
    let cq = rig.number(&cq, mlx5_sys::ifc::create_cq_out::CQN);
    let domain = Command::new(opcode::ALLOC_XRCD, 0x10).set(create_rmp_in::UID, owner.uid);
    let domain = rig.number(&domain, mlx5_sys::ifc::alloc_xrcd_out::XRCD);
    let shared = rig.xrc_domain();
    let mut create = rig
        .create_xrc_srq(domain, cq)
        .set(create_xrc_srq_in::UID, owner.uid)
        .set(entry(xrc_srqc::PD), owner.pd)
        .set(create_xrc_srq_in::XRC_SRQ_UMEM_VALID, 1u64)
        .set(create_xrc_srq_in::XRC_SRQ_UMEM_ID, owner.umem)
        .set(create_xrc_srq_in::XRC_SRQ_UMEM_OFFSET, 128u64)
        .set(entry(xrc_srqc::DBR_UMEM_VALID), 1u64)
        .set(entry(xrc_srqc::DBR_UMEM_ID), owner.umem)
        .set(entry(xrc_srqc::DB_RECORD_ADDR_H), 0u64)
        .set(entry(xrc_srqc::DB_RECORD_ADDR_L), 0x1ff8u64 >> 2);
    create.0.truncate(create_xrc_srq_in::SIZE);
    rig.refuses(
        &create,
        &[
            (create_xrc_srq_in::XRC_SRQ_UMEM_ID, other.umem, Refusal::Owner),
            (create_xrc_srq_in::XRC_SRQ_UMEM_OFFSET, 0x1fc0, Refusal::UmemRange),
            (entry(xrc_srqc::DBR_UMEM_ID), other.umem, Refusal::Owner),
            (entry(xrc_srqc::DB_RECORD_ADDR_H), 1, Refusal::UmemRange),
            (entry(xrc_srqc::DB_RECORD_ADDR_L), 0x1ffc >> 2, Refusal::Record),
            // Domains that verbs made belong to no user context.
            (entry(xrc_srqc::XRCD), shared.into(), Refusal::Owner),
        ],
    );
    let number = rig.number(&create, create_xrc_srq_out::XRC_SRQN);
    let srq = rig.card.objects.srqs.get(number).unwrap();
    assert_eq!(srq.queue.pages.locate(0), Some((owner.pages[0] + 128, 8 * 64)));
    assert_eq!(srq.record, owner.pages[1] + 0xff8);
    assert_eq!(rig.run(&free_umem(&owner)).err(), Some(Refusal::UmemBusy));
    let destroy = Command::new(opcode::DESTROY_XRC_SRQ, 0x10)
        .set(destroy_xrc_srq_in::UID, owner.uid)
        .set(destroy_xrc_srq_in::XRC_SRQN, number);
    rig.run(&destroy).unwrap();
    rig.run(&free_umem(&owner)).unwrap();
}

#[test]
fn a_queue_of_old_is_the_drivers_alone() {
    let mut rig = Rig::new();
    let owner = user(&mut rig);
    let (record, pages) = (rig.page(), rig.page());
    let entry = |field: Field| field.within(create_srq_in::SRQ_CONTEXT_ENTRY);
    let mut create = Command::new(opcode::CREATE_SRQ, create_srq_in::SIZE)
        .set(entry(srqc::LOG_SRQ_SIZE), 3u64)
        .set(entry(srqc::LOG_RQ_STRIDE), 2u64)
        .set(entry(srqc::PD), rig.pd)
        .set(entry(srqc::DBR_ADDR), record);
    create.0.extend_from_slice(&pages.to_be_bytes());
    rig.refuses(
        &create,
        &[
            (create_srq_in::UID, owner.uid.into(), Refusal::SrqOfUser),
            (entry(srqc::CONT_SRQ), 1, Refusal::SrqType),
            (entry(srqc::RLKY), 1, Refusal::SrqType),
            (entry(srqc::WQ_SIGNATURE), 1, Refusal::QpSignature),
            (entry(srqc::PD), 0, Refusal::NoPd),
            (entry(srqc::LOG_RQ_STRIDE), 0, Refusal::SrqStride),
            (entry(srqc::DBR_ADDR), 4, Refusal::Record),
            (entry(srqc::LOG_SRQ_SIZE), 7, Refusal::InputLength),
        ],
    );
    let number = rig.number(&create, create_srq_out::SRQN);
    rig.memory.write(record, &7u32.to_be_bytes()).unwrap();
    let arm = Command::new(opcode::ARM_RQ, 0x10)
        .set(arm_rq_in::SRQ_NUMBER, number)
        .set(arm_rq_in::OP_MOD, 1u64)
        .set(arm_rq_in::LWM, 5u64);
    rig.refuses(
        &arm,
        &[
            (arm_rq_in::SRQ_NUMBER, 1, Refusal::NoSrq),
            (arm_rq_in::OP_MOD, 0, Refusal::OpModifier),
            (arm_rq_in::UID, owner.uid.into(), Refusal::Owner),
        ],
    );
    rig.run(&arm).unwrap();
    let query = Command::new(opcode::QUERY_SRQ, 0x10).set(query_srq_in::SRQN, number);
    rig.refuses(&query, &[(query_srq_in::SRQN, 1, Refusal::NoSrq)]);
    let shown = rig.run(&query).unwrap();
    let get = |field: Field| field.within(query_srq_out::SRQ_CONTEXT_ENTRY).get(&shown);
    assert_eq!((get(srqc::LWM), get(srqc::WQE_CNT), get(srqc::STATE)), (5, 7, 0));
    let pool = Command::new(opcode::QUERY_RMP, 0x10).set(query_rmp_in::RMPN, number);
    assert_eq!(rig.run(&pool).err(), Some(Refusal::NoSrq));
    let cq = rig.cq();
    let sharing = rig.create_sharing_qp(cq, number);
    let qp = rig.number(&sharing, create_qp_out::QPN);
    let destroy = Command::new(opcode::DESTROY_SRQ, 0x10).set(destroy_srq_in::SRQN, number);
    assert_eq!(rig.run(&destroy).err(), Some(Refusal::SrqBusy));
    rig.run(&Command::new(opcode::DESTROY_QP, 0x10).set(destroy_qp_in::QPN, qp)).unwrap();
    rig.refuses(&destroy, &[(destroy_srq_in::SRQN, 1, Refusal::NoSrq)]);
    rig.run(&destroy).unwrap();
}
