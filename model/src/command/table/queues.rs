//! Commands on event queues and completion queues.

use mlx5_sys::ifc::{
    Field, cqc, create_cq_in, create_cq_out, create_eq_in, create_eq_out, create_qp_in,
    create_rmp_out, destroy_cq_in, destroy_eq_in, eqc, modify_cq_in, opcode, qpc, query_cq_in,
};

use super::super::buffer::PAS;
use super::super::{OP_MOD, Refusal};
use super::memory::umem;
use super::{Case, Command, Rig, Row};

pub const ROWS: &[Row] = &[
    Row::drivers(create_eq),
    Row::drivers(|rig| eq_case(rig, opcode::QUERY_EQ)),
    Row::drivers(|rig| {
        let (busy, cq) = (rig.eq, rig.create_cq());
        let holder = rig.holder(&cq);
        eq_case(rig, opcode::DESTROY_EQ)
            .held(destroy_eq_in::EQ_NUMBER, busy, Refusal::EqBusy, [holder])
            .twice(Refusal::NoEq)
    }),
    Row::new(create_cq),
    Row::new(create_compressing_cq),
    Row::users(create_cq_in_umem),
    Row::new(query_cq),
    Row::new(modify_cq),
    Row::new(resize_cq),
    Row::new(destroy_cq),
];

/// The first page of a queue's list.
pub const PAGE: Field = Field::new(PAS, 31, 64);

fn create_eq(rig: &mut Rig) -> Case {
    let field = |field: Field| field.within(create_eq_in::EQ_CONTEXT_ENTRY);
    let create = rig.create_eq();
    let taken = rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << 5);
    rig.run(&taken).expect("an EQ");
    Case::new(create)
        .refuses(create_eq_in::EVENT_BITMASK, 1u64 << 5, Refusal::EqEvents)
        .refuses(field(eqc::LOG_EQ_SIZE), 23u64, Refusal::EqSize)
        .refuses(field(eqc::LOG_EQ_SIZE), 7u64, Refusal::InputLength)
        .refuses(field(eqc::UAR_PAGE), 0u64, Refusal::NoUar)
        .refuses(field(eqc::PAGE_OFFSET), 63u64, Refusal::InputLength)
        .refuses(field(eqc::LOG_PAGE_SIZE), 31u64, Refusal::PageAddress)
        .refuses(PAGE, 0x10_0010u64, Refusal::PageAddress)
}

fn eq_case(rig: &mut Rig, opcode: u16) -> Case {
    let create = rig.create_eq();
    let number = rig.number(&create, create_eq_out::EQ_NUMBER);
    Case::new(Command::new(opcode, 0x10).set(destroy_eq_in::EQ_NUMBER, number)).refuses(
        destroy_eq_in::EQ_NUMBER,
        99u64,
        Refusal::NoEq,
    )
}

fn field(field: Field) -> Field {
    field.within(create_cq_in::CQ_CONTEXT)
}

/// Creates a case with the refusals common to all new CQs.
fn cq_case(rig: &mut Rig, create: Command) -> Case {
    let uar = rig.foreign_uar();
    Case::new(create)
        .kind(field(cqc::CQE_COMP_EN))
        .refuses(field(cqc::CQE_SZ), 3u64, Refusal::CqeSize)
        .refuses(field(cqc::APU_CQ), 1u64, Refusal::CqKind)
        .refuses(field(cqc::LOG_CQ_SIZE), 23u64, Refusal::CqSize)
        .refuses(field(cqc::UAR_PAGE), 0u64, Refusal::NoUar)
        .foreign(field(cqc::UAR_PAGE), uar)
        .refuses(field(cqc::C_EQN_OR_APU_ELEMENT), 0u64, Refusal::NoEq)
}

/// Adds the refusals of a ring on pages that the command lists.
fn on_pages(case: Case) -> Case {
    case.refuses(create_cq_in::CQ_UMEM_VALID, 1u64, Refusal::NoUmem)
        .refuses(field(cqc::LOG_CQ_SIZE), 7u64, Refusal::InputLength)
        .refuses(field(cqc::PAGE_OFFSET), 63u64, Refusal::InputLength)
        .refuses(field(cqc::LOG_PAGE_SIZE), 31u64, Refusal::PageAddress)
        .refuses(PAGE, 0x10_0040u64, Refusal::PageAddress)
}

fn on_pages_with_record(case: Case) -> Case {
    on_pages(case).refuses(field(cqc::DBR_UMEM_VALID), 1u64, Refusal::NoUmem).refuses(
        field(cqc::DBR_ADDR),
        0x10_0004u64,
        Refusal::Record,
    )
}

/// A CQ from the middle of its page on, which has room for it.
fn create_cq(rig: &mut Rig) -> Case {
    let create = rig.create_cq().set(field(cqc::PAGE_OFFSET), 32u64);
    on_pages_with_record(cq_case(rig, create))
}

fn create_compressing_cq(rig: &mut Rig) -> Case {
    let create = rig.create_cq().set(field(cqc::CQE_COMP_EN), 1u64);
    let large = create
        .clone()
        .set(field(cqc::CQE_COMPRESSION_LAYOUT), 1u64)
        .set(field(cqc::LOG_CQ_SIZE), 17u64);
    on_pages_with_record(cq_case(rig, create))
        .refuses(field(cqc::MINI_CQE_RES_FORMAT), 2u64, Refusal::CqCompression)
        .refuses(field(cqc::CQE_COMPRESSION_LAYOUT), 2u64, Refusal::CqCompression)
        .refuses(field(cqc::CC), 1u64, Refusal::CqCompression)
        .otherwise(large, Refusal::CqCompression)
}

fn create_cq_in_umem(rig: &mut Rig) -> Case {
    let (own, others) = (umem(rig), rig.as_stranger(umem));
    let create = rig.create_cq_in_umem(own);
    cq_case(rig, create)
        .refuses(create_cq_in::CQ_UMEM_VALID, 0u64, Refusal::InputLength)
        .refuses(create_cq_in::CQ_UMEM_ID, 1u64, Refusal::NoUmem)
        .refuses(create_cq_in::CQ_UMEM_ID, others, Refusal::Owner)
        .refuses(create_cq_in::CQ_UMEM_OFFSET, 32u64, Refusal::PageOffset)
        .refuses(create_cq_in::CQ_UMEM_OFFSET, 0x2000u64, Refusal::UmemRange)
        .refuses(create_cq_in::CQ_UMEM_OFFSET, u64::MAX, Refusal::UmemRange)
        .refuses(field(cqc::LOG_CQ_SIZE), 7u64, Refusal::UmemRange)
        .refuses(field(cqc::PAGE_OFFSET), 63u64, Refusal::UmemRange)
        .refuses(field(cqc::LOG_PAGE_SIZE), 31u64, Refusal::UmemRange)
        .refuses(field(cqc::DBR_UMEM_ID), 1u64, Refusal::NoUmem)
        .refuses(field(cqc::DBR_UMEM_ID), others, Refusal::Owner)
        .refuses(field(cqc::DBR_ADDR), 0x2000u64, Refusal::UmemRange)
        .refuses(field(cqc::DBR_ADDR), 0x1ffcu64, Refusal::Record)
}

/// A command on a CQ that there is; its number lies at `field`.
fn on_cq(rig: &mut Rig, command: Command, field: Field) -> Case {
    let (own, foreign) = (rig.cq(), rig.foreign_cq());
    Case::new(command.set(field, own)).refuses(field, 1u64, Refusal::NoCq).foreign(field, foreign)
}

fn query_cq(rig: &mut Rig) -> Case {
    on_cq(rig, Command::new(opcode::QUERY_CQ, 0x10), query_cq_in::CQN)
}

const SELECT: Field = modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT;

/// A CQ that has failed.
fn failed_cq(rig: &mut Rig) -> u32 {
    let number = rig.cq();
    rig.card.objects.cqs.get_mut(number).expect("the CQ").failed = true;
    number
}

fn modify_cq(rig: &mut Rig) -> Case {
    let failed = failed_cq(rig);
    let modify = Command::new(opcode::MODIFY_CQ, PAS).set(SELECT, 0b111u64);
    on_cq(rig, modify, modify_cq_in::CQN)
        .refuses(modify_cq_in::CQN, failed, Refusal::CqFailed)
        .refuses(SELECT, 1u64 << 4, Refusal::CqModify)
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
}

fn resize_cq(rig: &mut Rig) -> Case {
    let failed = failed_cq(rig);
    let collapsed = rig.create_cq().set(field(cqc::CC), 1u64);
    let collapsed = rig.number(&collapsed, create_cq_out::CQN);
    let mut resize = rig.create_cq();
    super::OPCODE.set(&mut resize.0, opcode::MODIFY_CQ.into());
    let resize = resize.set(OP_MOD, 1u64).set(SELECT, 0b111u64);
    let case = on_cq(rig, resize, modify_cq_in::CQN);
    // Four outstanding CQEs do not fit a ring of one.
    let number = modify_cq_in::CQN.get(&case.accepted.0) as u32;
    let cq = rig.card.objects.cqs.get_mut(number).expect("the CQ");
    cq.producer = 4;
    case.refuses(modify_cq_in::CQN, failed, Refusal::CqFailed)
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
        .refuses(modify_cq_in::CQN, collapsed, Refusal::CqLayout)
        .refuses(modify_cq_in::CQ_UMEM_VALID, 1u64, Refusal::Umem)
        .refuses(field(cqc::CQE_SZ), 3u64, Refusal::CqeSize)
        .refuses(field(cqc::CQE_SZ), 1u64, Refusal::CqeSize)
        .refuses(field(cqc::LOG_CQ_SIZE), 23u64, Refusal::CqSize)
        .refuses(field(cqc::LOG_CQ_SIZE), 7u64, Refusal::InputLength)
        .refuses(field(cqc::LOG_CQ_SIZE), 0u64, Refusal::CqResize)
        .refuses(field(cqc::PAGE_OFFSET), 63u64, Refusal::InputLength)
        .refuses(field(cqc::LOG_PAGE_SIZE), 31u64, Refusal::PageAddress)
        .refuses(PAGE, 0x10_0040u64, Refusal::PageAddress)
}

fn destroy_cq(rig: &mut Rig) -> Case {
    let field = destroy_cq_in::CQN;
    let [send, receive, shared, extended, matching] = std::array::from_fn(|_| rig.cq());
    let (domain, pool) = (rig.xrc_domain(), rig.create_rmp());
    let pool = rig.number(&pool, create_rmp_out::RMPN);
    let receives = qpc::CQN_RCV.within(create_qp_in::QPC);
    let sharing = rig.create_sharing_qp(send, pool).set(receives, shared);
    let qps = [rig.create_qp(send, receive), sharing].map(|create| rig.holder(&create));
    let srq = rig.create_xrc_srq(domain, extended);
    let xrq = rig.create_xrq(matching);
    on_cq(rig, Command::new(opcode::DESTROY_CQ, 0x10), field)
        .held(field, receive, Refusal::CqBusy, [qps[0].clone()])
        .held(field, shared, Refusal::CqBusy, [qps[1].clone()])
        .held(field, send, Refusal::CqBusy, qps)
        .held(field, extended, Refusal::CqBusy, [rig.holder(&srq)])
        .held(field, matching, Refusal::CqBusy, [rig.holder(&xrq)])
        .twice(Refusal::NoCq)
}
