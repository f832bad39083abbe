//! Commands on shared receive queues, with and without tag matching.

use mlx5_sys::ifc::{
    Field, arm_rq_in, arm_xrc_srq_in, arm_xrq_in, create_rmp_in, create_rmp_out, create_srq_in,
    create_srq_out, create_xrc_srq_in, create_xrc_srq_out, create_xrq_in, create_xrq_out,
    destroy_rmp_in, destroy_srq_in, destroy_xrc_srq_in, destroy_xrq_in, modify_rmp_in, opcode,
    query_rmp_in, query_srq_in, query_xrc_srq_in, query_xrq_in, rmpc, srqc,
    tag_matching_topology_context as topology, wq, xrc_srqc, xrqc,
};

use super::super::buffer::PAS;
use super::super::{OP_MOD, Refusal};
use super::memory::umem;
use super::queues::PAGE;
use super::work_queue::{in_umem, on_pages};
use super::{Case, Command, Rig, Row};

pub const ROWS: &[Row] = &[
    Row::new(create_rmp),
    Row::users(create_rmp_in_umem),
    Row::new(modify_rmp),
    Row::new(|rig| on(rig, opcode::QUERY_RMP, query_rmp_in::RMPN, rmp, xrc_srq)),
    Row::drivers(|rig| on(rig, opcode::QUERY_RMP, query_rmp_in::RMPN, rmp, srq)),
    Row::new(|rig| destroy(rig, opcode::DESTROY_RMP, destroy_rmp_in::RMPN, rmp, xrc_srq)),
    Row::new(create_xrc_srq),
    Row::users(create_xrc_srq_in_umem),
    Row::new(query_xrc_srq),
    Row::new(arm_xrc_srq),
    Row::new(|rig| {
        on(rig, opcode::DESTROY_XRC_SRQ, destroy_xrc_srq_in::XRC_SRQN, xrc_srq, rmp)
            .twice(Refusal::NoSrq)
    }),
    Row::new(create_xrq),
    Row::users(create_xrq_in_umem),
    Row::new(|rig| on(rig, opcode::QUERY_XRQ, query_xrq_in::XRQN, xrq, rmp)),
    Row::new(arm_xrq),
    Row::new(|rig| destroy(rig, opcode::DESTROY_XRQ, destroy_xrq_in::XRQN, xrq, rmp)),
    Row::drivers(create_srq),
    Row::drivers(|rig| on(rig, opcode::QUERY_SRQ, query_srq_in::SRQN, srq, rmp)),
    Row::drivers(arm_srq),
    Row::drivers(|rig| destroy(rig, opcode::DESTROY_SRQ, destroy_srq_in::SRQN, srq, rmp)),
];

/// Makes a queue of one kind; gives its number.
type Make = fn(&mut Rig) -> u32;

fn rmp(rig: &mut Rig) -> u32 {
    let create = rig.create_rmp();
    rig.number(&create, create_rmp_out::RMPN)
}

fn xrc_srq(rig: &mut Rig) -> u32 {
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let create = rig.create_xrc_srq(domain, cq);
    rig.number(&create, create_xrc_srq_out::XRC_SRQN)
}

fn xrq(rig: &mut Rig) -> u32 {
    let cq = rig.cq();
    let create = rig.create_xrq(cq);
    rig.number(&create, create_xrq_out::XRQN)
}

fn srq(rig: &mut Rig) -> u32 {
    let create = rig.create_srq();
    rig.number(&create, create_srq_out::SRQN)
}

/// A command of 16 bytes on a queue, and the number of one of another kind.
fn on(rig: &mut Rig, opcode: u16, number: Field, make: Make, other: Make) -> Case {
    let command = Command::new(opcode, 0x10);
    with(rig, command, number, make, other)
}

fn with(rig: &mut Rig, command: Command, number: Field, make: Make, other: Make) -> Case {
    let (own, other, foreign) = (make(rig), other(rig), rig.foreign(make));
    Case::new(command.set(number, own))
        .refuses(number, 1u64, Refusal::NoSrq)
        .refuses(number, other, Refusal::NoSrq)
        .foreign(number, foreign)
}

fn destroy(rig: &mut Rig, opcode: u16, number: Field, make: Make, other: Make) -> Case {
    let (busy, cq) = (make(rig), rig.cq());
    let sharing = rig.create_sharing_qp(cq, busy);
    let holder = rig.holder(&sharing);
    on(rig, opcode, number, make, other)
        .held(number, busy, Refusal::SrqBusy, [holder])
        .twice(Refusal::NoSrq)
}

/// With the number of a queue that has failed.
fn unless_failed(rig: &mut Rig, case: Case, number: Field, make: Make) -> Case {
    let failed = make(rig);
    rig.card.objects.srqs.get_mut(failed).expect("the queue").failed = true;
    case.refuses(number, failed, Refusal::SrqState)
}

/// Adds the refusals of a work queue inside another context.
fn work_queue(rig: &mut Rig, case: Case, field: impl Fn(Field) -> Field) -> Case {
    let pd = rig.foreign_pd();
    case.refuses(field(wq::WQ_TYPE), 2u64, Refusal::SrqType)
        .refuses(field(wq::WQ_TYPE), 3u64, Refusal::SrqType)
        .refuses(field(wq::WQ_SIGNATURE), 1u64, Refusal::QpSignature)
        .refuses(field(wq::END_PADDING_MODE), 1u64, Refusal::QpPadding)
        .refuses(field(wq::PD), 0u64, Refusal::NoPd)
        .foreign(field(wq::PD), pd)
        .refuses(field(wq::LOG_WQ_SZ), 16u64, Refusal::SrqSize)
        .refuses(field(wq::LOG_WQ_SZ), 31u64, Refusal::SrqSize)
        .refuses(field(wq::LOG_WQ_STRIDE), 4u64, Refusal::SrqStride)
        .refuses(field(wq::LOG_WQ_STRIDE), 10u64, Refusal::SrqStride)
        .refuses(field(wq::LOG_WQ_STRIDE), 15u64, Refusal::SrqStride)
}

fn pool(field: Field) -> Field {
    field.within(create_rmp_in::CTX)
}

fn pools_queue(field: Field) -> Field {
    pool(field.within(rmpc::WQ))
}

/// Creates a case with the refusals common to all new pools.
fn rmp_case(rig: &mut Rig, create: Command) -> Case {
    let case = Case::new(create)
        .refuses(pool(rmpc::STATE), 0u64, Refusal::SrqState)
        .refuses(pool(rmpc::STATE), 3u64, Refusal::SrqState)
        .refuses(pool(rmpc::BASIC_CYCLIC_RCV_WQE), 1u64, Refusal::SrqType);
    work_queue(rig, case, pools_queue)
}

fn create_rmp(rig: &mut Rig) -> Case {
    let create = rig.create_rmp();
    on_pages(rmp_case(rig, create), pools_queue)
        .refuses(pools_queue(wq::LOG_WQ_SZ), 7u64, Refusal::InputLength)
        .refuses(PAGE, 0x10_0008u64, Refusal::PageAddress)
}

fn create_rmp_in_umem(rig: &mut Rig) -> Case {
    let (own, others) = (umem(rig), rig.as_stranger(umem));
    let create = rig.create_rmp_in_umem(own);
    in_umem(rmp_case(rig, create), others, pools_queue)
}

fn modify_rmp(rig: &mut Rig) -> Case {
    let modify = Command::new(opcode::MODIFY_RMP, PAS)
        .set(modify_rmp_in::RMP_STATE, 1u64)
        .set(rmpc::STATE.within(modify_rmp_in::CTX), 1u64);
    let number = modify_rmp_in::RMPN;
    let case = with(rig, modify, number, rmp, xrc_srq);
    unless_failed(rig, case, number, rmp)
        .refuses(modify_rmp_in::RMP_STATE, 0u64, Refusal::SrqState)
        .refuses(modify_rmp_in::BITMASK, 3u64, Refusal::SrqModify)
        .refuses(rmpc::STATE.within(modify_rmp_in::CTX), 3u64, Refusal::SrqState)
}

fn entry(field: Field) -> Field {
    field.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY)
}

/// Creates a case with the refusals common to all new XRC SRQs.
fn xrc_case(rig: &mut Rig, create: Command) -> Case {
    let (pd, cq) = (rig.foreign_pd(), rig.foreign_cq());
    let domain = rig.foreign(Rig::xrc_domain);
    Case::new(create)
        .refuses(entry(xrc_srqc::CONT_SRQ), 1u64, Refusal::SrqType)
        .refuses(entry(xrc_srqc::RLKY), 1u64, Refusal::SrqType)
        .refuses(entry(xrc_srqc::BASIC_CYCLIC_RCV_WQE), 1u64, Refusal::SrqType)
        .refuses(entry(xrc_srqc::USER_INDEX_EQUAL_XRC_SRQN), 1u64, Refusal::SrqType)
        .refuses(entry(xrc_srqc::WQ_SIGNATURE), 1u64, Refusal::QpSignature)
        .refuses(entry(xrc_srqc::PD), 0u64, Refusal::NoPd)
        .foreign(entry(xrc_srqc::PD), pd)
        .refuses(entry(xrc_srqc::XRCD), 0u64, Refusal::NoXrcd)
        .foreign(entry(xrc_srqc::XRCD), domain)
        .refuses(entry(xrc_srqc::CQN), 0u64, Refusal::NoCq)
        .foreign(entry(xrc_srqc::CQN), cq)
        .refuses(entry(xrc_srqc::LOG_RQ_STRIDE), 0u64, Refusal::SrqStride)
        .refuses(entry(xrc_srqc::LOG_RQ_STRIDE), 6u64, Refusal::SrqStride)
        .refuses(entry(xrc_srqc::LOG_PAGE_SIZE), 63u64, Refusal::PageOffset)
        // The address's last bits, which are reserved.
        .refuses(entry(Field::new(0x2c, 1, 2)), 1u64, Refusal::Record)
}

fn create_xrc_srq(rig: &mut Rig) -> Case {
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let create = rig.create_xrc_srq(domain, cq);
    xrc_case(rig, create)
        .refuses(create_xrc_srq_in::XRC_SRQ_UMEM_VALID, 1u64, Refusal::NoUmem)
        .refuses(entry(xrc_srqc::DBR_UMEM_VALID), 1u64, Refusal::NoUmem)
        .refuses(entry(xrc_srqc::DB_RECORD_ADDR_L), 1u64, Refusal::Record)
        .refuses(entry(xrc_srqc::LOG_PAGE_SIZE), 31u64, Refusal::PageAddress)
        .refuses(entry(xrc_srqc::LOG_XRC_SRQ_SIZE), 7u64, Refusal::InputLength)
        .refuses(entry(xrc_srqc::PAGE_OFFSET), 63u64, Refusal::InputLength)
        .refuses(PAGE, 0x10_0008u64, Refusal::PageAddress)
}

fn create_xrc_srq_in_umem(rig: &mut Rig) -> Case {
    use create_xrc_srq_in as c;
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let (own, others) = (umem(rig), rig.as_stranger(umem));
    let create = rig.create_xrc_srq_in_umem(domain, cq, own);
    xrc_case(rig, create)
        .refuses(c::XRC_SRQ_UMEM_VALID, 0u64, Refusal::InputLength)
        .refuses(c::XRC_SRQ_UMEM_ID, 1u64, Refusal::NoUmem)
        .refuses(c::XRC_SRQ_UMEM_ID, others, Refusal::Owner)
        .refuses(c::XRC_SRQ_UMEM_OFFSET, 0x2000u64, Refusal::UmemRange)
        // It starts inside of the memory, and ends behind it.
        .refuses(c::XRC_SRQ_UMEM_OFFSET, 0x1f00u64, Refusal::UmemRange)
        .refuses(entry(xrc_srqc::DBR_UMEM_ID), 1u64, Refusal::NoUmem)
        .refuses(entry(xrc_srqc::DBR_UMEM_ID), others, Refusal::Owner)
        .refuses(entry(xrc_srqc::DB_RECORD_ADDR_H), 1u64, Refusal::UmemRange)
        .refuses(entry(xrc_srqc::DB_RECORD_ADDR_L), 1u64, Refusal::Record)
        .refuses(entry(xrc_srqc::LOG_PAGE_SIZE), 31u64, Refusal::UmemRange)
        .refuses(entry(xrc_srqc::PAGE_OFFSET), 63u64, Refusal::UmemRange)
        .refuses(entry(xrc_srqc::LOG_XRC_SRQ_SIZE), 7u64, Refusal::UmemRange)
}

fn query_xrc_srq(rig: &mut Rig) -> Case {
    let number = query_xrc_srq_in::XRC_SRQN;
    let mut case = on(rig, opcode::QUERY_XRC_SRQ, number, xrc_srq, rmp);
    // What the driver has made, everybody may look at.
    case.foreign.clear();
    if rig.user == 0 {
        case.stranger = None;
    }
    case
}

fn arm_xrc_srq(rig: &mut Rig) -> Case {
    let arm = Command::new(opcode::ARM_XRC_SRQ, 0x10).set(OP_MOD, 1u64);
    let number = arm_xrc_srq_in::XRC_SRQN;
    let case = with(rig, arm, number, xrc_srq, rmp);
    unless_failed(rig, case, number, xrc_srq).refuses(OP_MOD, 0u64, Refusal::OpModifier)
}

/// Creates a case with the refusals common to all new tag-matching queues.
fn xrq_case(rig: &mut Rig, create: Command) -> Case {
    let field = |field: Field| field.within(create_xrq_in::XRQ_CONTEXT);
    let tags = topology::LOG_MATCHING_LIST_SZ.within(xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT);
    let cq = rig.foreign_cq();
    let case = Case::new(create)
        .refuses(field(xrqc::TOPOLOGY), 0u64, Refusal::SrqType)
        .refuses(field(xrqc::OFFLOAD), 2u64, Refusal::SrqType)
        .refuses(field(xrqc::RLKEY), 1u64, Refusal::SrqType)
        .refuses(field(xrqc::CQN), 0xff_ffffu64, Refusal::NoCq)
        .foreign(field(xrqc::CQN), cq)
        .refuses(field(tags), 8u64, Refusal::SrqSize);
    work_queue(rig, case, matchers_queue)
}

fn matchers_queue(field: Field) -> Field {
    field.within(xrqc::WQ).within(create_xrq_in::XRQ_CONTEXT)
}

fn create_xrq(rig: &mut Rig) -> Case {
    let cq = rig.cq();
    let create = rig.create_xrq(cq);
    let page = Field::new(create_xrq_in::SIZE, 31, 64);
    on_pages(xrq_case(rig, create), matchers_queue)
        .refuses(matchers_queue(wq::LOG_WQ_SZ), 7u64, Refusal::InputLength)
        .refuses(page, 0x10_0008u64, Refusal::PageAddress)
}

fn create_xrq_in_umem(rig: &mut Rig) -> Case {
    let (own, others, cq) = (umem(rig), rig.as_stranger(umem), rig.cq());
    let create = rig.create_xrq(cq).into_umem(own, matchers_queue);
    in_umem(xrq_case(rig, create), others, matchers_queue)
}

fn arm_xrq(rig: &mut Rig) -> Case {
    let case = on(rig, opcode::ARM_XRQ, arm_xrq_in::XRQN, xrq, rmp);
    unless_failed(rig, case, arm_xrq_in::XRQN, xrq)
}

fn create_srq(rig: &mut Rig) -> Case {
    let field = |field: Field| field.within(create_srq_in::SRQ_CONTEXT_ENTRY);
    Case::drivers(rig.create_srq(), Refusal::SrqOfUser)
        .refuses(field(srqc::CONT_SRQ), 1u64, Refusal::SrqType)
        .refuses(field(srqc::RLKY), 1u64, Refusal::SrqType)
        .refuses(field(srqc::WQ_SIGNATURE), 1u64, Refusal::QpSignature)
        .refuses(field(srqc::PD), 0u64, Refusal::NoPd)
        .refuses(field(srqc::LOG_SRQ_SIZE), 7u64, Refusal::InputLength)
        .refuses(field(srqc::LOG_RQ_STRIDE), 0u64, Refusal::SrqStride)
        .refuses(field(srqc::LOG_PAGE_SIZE), 63u64, Refusal::PageOffset)
        .refuses(field(srqc::LOG_PAGE_SIZE), 31u64, Refusal::PageAddress)
        .refuses(field(srqc::PAGE_OFFSET), 63u64, Refusal::InputLength)
        .refuses(field(srqc::DBR_ADDR), 4u64, Refusal::Record)
        .refuses(PAGE, 0x10_0008u64, Refusal::PageAddress)
}

fn arm_srq(rig: &mut Rig) -> Case {
    let arm = Command::new(opcode::ARM_RQ, 0x10).set(OP_MOD, 1u64);
    let case = with(rig, arm, arm_rq_in::SRQ_NUMBER, srq, rmp);
    unless_failed(rig, case, arm_rq_in::SRQ_NUMBER, srq).refuses(OP_MOD, 0u64, Refusal::OpModifier)
}
