//! Commands on Ethernet queues and the objects that direct packets to them.

use mlx5_sys::ifc::{
    Field, create_rq_in, create_rq_out, create_rqt_in, create_rqt_out, create_sq_in, create_sq_out,
    create_tir_in, create_tir_out, create_tis_in, destroy_rq_in, destroy_rqt_in, destroy_sq_in,
    destroy_tir_in, destroy_tis_in, modify_rq_in, modify_rqt_in, modify_sq_in, modify_tir_in,
    modify_tis_in, opcode, query_rq_in, query_rqt_in, query_sq_in, query_tir_in, query_tis_in,
    rq_num, rqc, rqtc, rx_hash_field_select, set_pp_rate_limit_context, set_pp_rate_limit_in, sqc,
    tirc, tisc, wq,
};

use super::super::Refusal;
use super::memory::umem;
use super::queues::PAGE;
use super::work_queue::{in_umem, on_pages};
use super::{Case, Command, Rig, Row};

pub const ROWS: &[Row] = &[
    Row::drivers(set_rate),
    Row::new(create_sq).roce(),
    Row::users(create_sq_in_umem).roce(),
    Row::new(modify_sq).roce(),
    Row::new(|rig| on(rig, opcode::QUERY_SQ, query_sq_in::SQN, sq, rq, Refusal::NoSq)).roce(),
    Row::new(|rig| {
        on(rig, opcode::DESTROY_SQ, destroy_sq_in::SQN, sq, rq, Refusal::NoSq).twice(Refusal::NoSq)
    })
    .roce(),
    Row::new(create_rq).roce(),
    Row::users(create_rq_in_umem).roce(),
    Row::new(create_striding_rq).roce(),
    Row::new(modify_rq).roce(),
    Row::new(|rig| on(rig, opcode::QUERY_RQ, query_rq_in::RQN, rq, sq, Refusal::NoRq)).roce(),
    Row::new(destroy_rq).roce(),
    Row::new(create_tis).roce(),
    Row::new(|rig| shows(rig, (opcode::QUERY_TIS, query_tis_in::TISN), Rig::tis, Refusal::NoTis))
        .roce(),
    Row::new(modify_tis).roce(),
    Row::new(destroy_tis).roce(),
    Row::new(create_tir).roce(),
    Row::new(create_indirect_tir).roce(),
    Row::new(|rig| shows(rig, (opcode::QUERY_TIR, query_tir_in::TIRN), tir, Refusal::NoTir)).roce(),
    Row::new(modify_tir).roce(),
    Row::new(modify_indirect_tir).roce(),
    Row::new(destroy_tir).roce(),
    Row::new(create_rqt).roce(),
    Row::new(query_rqt).roce(),
    Row::new(modify_rqt).roce(),
    Row::new(destroy_rqt).roce(),
];

/// A send queue on a TIS of its own.
fn sq_command(rig: &mut Rig) -> Command {
    let (cq, tis) = (rig.cq(), rig.tis());
    rig.create_sq(cq, tis)
}

fn sends(field: Field) -> Field {
    field.within(create_sq_in::CTX)
}

fn send_ring(field: Field) -> Field {
    sends(field.within(sqc::WQ))
}

/// A send queue.
pub fn sq(rig: &mut Rig) -> u32 {
    let create = sq_command(rig);
    rig.number(&create, create_sq_out::SQN)
}

fn rq_command(rig: &mut Rig) -> Command {
    let cq = rig.cq();
    rig.create_rq(cq)
}

fn receives(field: Field) -> Field {
    field.within(create_rq_in::CTX)
}

fn receive_ring(field: Field) -> Field {
    receives(field.within(rqc::WQ))
}

fn rq(rig: &mut Rig) -> u32 {
    let create = rq_command(rig);
    rig.number(&create, create_rq_out::RQN)
}

fn tir_command(rig: &mut Rig, rq: u32) -> Command {
    let domain = rig.transport_domain();
    rig.create_tir(rq, domain)
}

fn spreading(rig: &mut Rig, table: u32) -> Command {
    let domain = rig.transport_domain();
    rig.create_spreading_tir(table, domain)
}

fn leads(field: Field) -> Field {
    field.within(create_tir_in::CTX)
}

/// A TIR and what it leads to.
pub fn tir(rig: &mut Rig) -> u32 {
    let rq = rq(rig);
    let create = tir_command(rig, rq);
    rig.number(&create, create_tir_out::TIRN)
}

/// A table of two receive queues.
fn rqt_command(rig: &mut Rig) -> Command {
    let queues = [rq(rig), rq(rig)];
    rig.create_rqt(2, &queues)
}

fn rqt(rig: &mut Rig) -> u32 {
    let create = rqt_command(rig);
    rig.number(&create, create_rqt_out::RQTN)
}

/// Makes an object of one kind; gives its number.
type Make = fn(&mut Rig) -> u32;

/// A command on a queue, with the number of a queue of the other kind.
fn with(
    rig: &mut Rig,
    command: Command,
    number: Field,
    make: Make,
    other: Make,
    none: Refusal,
) -> Case {
    let (own, other, foreign) = (make(rig), other(rig), rig.foreign(make));
    Case::new(command.set(number, own))
        .refuses(number, 5u64, none)
        .refuses(number, other, none)
        .foreign(number, foreign)
}

fn on(rig: &mut Rig, opcode: u16, number: Field, make: Make, other: Make, none: Refusal) -> Case {
    with(rig, Command::new(opcode, 0x10), number, make, other, none)
}

/// Adds the refusals of a ring, whether it lies on listed pages or in a umem.
fn ring(rig: &mut Rig, mut case: Case, field: impl Fn(Field) -> Field) -> Case {
    let pd = rig.foreign_pd();
    if rig.user != 0 {
        case = case.refuses(field(wq::END_PADDING_MODE), 1u64, Refusal::QpPadding).refuses(
            field(wq::PD),
            0u64,
            Refusal::NoPd,
        );
    }
    case.refuses(field(wq::WQ_SIGNATURE), 1u64, Refusal::QpSignature)
        .refuses(field(wq::END_PADDING_MODE), 2u64, Refusal::QpPadding)
        .refuses(field(wq::LOG_WQ_SZ), 16u64, Refusal::WorkQueueSize)
        .refuses(field(wq::PD), 5u64, Refusal::NoPd)
        .foreign(field(wq::PD), pd)
        .elsewhere(Refusal::NotRoce)
}

/// Creates a case with the refusals common to all new send queues.
fn sq_case(rig: &mut Rig, create: Command) -> Case {
    let (uar, cq, tis) = (rig.foreign_uar(), rig.foreign_cq(), rig.foreign(Rig::tis));
    let mut case = Case::new(create);
    if rig.user != 0 {
        case = case.refuses(sends(sqc::TIS_LST_SZ), 0u64, Refusal::NoTis);
    }
    let case = case
        .refuses(sends(sqc::STATE), 1u64, Refusal::WorkQueueState)
        .refuses(sends(sqc::HAIRPIN), 1u64, Refusal::WorkQueueFeature)
        .refuses(sends(sqc::ALLOW_SWP), 1u64, Refusal::WorkQueueFeature)
        .refuses(sends(sqc::REG_UMR), 1u64, Refusal::WorkQueueFeature)
        .refuses(sends(sqc::TS_FORMAT), 3u64, Refusal::WorkQueueTimestamp)
        .refuses(sends(sqc::PACKET_PACING_RATE_LIMIT_INDEX), 1u64, Refusal::NoRate)
        .refuses(sends(sqc::CQN), 0u64, Refusal::NoCq)
        .foreign(sends(sqc::CQN), cq)
        .refuses(sends(sqc::TIS_LST_SZ), 2u64, Refusal::NoTis)
        .refuses(sends(sqc::TIS_NUM_0), 0u64, Refusal::NoTis)
        .foreign(sends(sqc::TIS_NUM_0), tis)
        .refuses(send_ring(wq::WQ_TYPE), 0u64, Refusal::WorkQueueType)
        .refuses(send_ring(wq::WQ_TYPE), 3u64, Refusal::WorkQueueType)
        .refuses(send_ring(wq::LOG_WQ_STRIDE), 5u64, Refusal::WorkQueueSize)
        .refuses(send_ring(wq::UAR_PAGE), 0u64, Refusal::NoUar)
        .foreign(send_ring(wq::UAR_PAGE), uar);
    ring(rig, case, send_ring)
}

fn create_sq(rig: &mut Rig) -> Case {
    let create = sq_command(rig);
    on_pages(sq_case(rig, create), send_ring)
        .refuses(send_ring(wq::LOG_WQ_SZ), 9u64, Refusal::InputLength)
        .refuses(PAGE, 0x10_0008u64, Refusal::PageAddress)
}

fn create_sq_in_umem(rig: &mut Rig) -> Case {
    let (own, others) = (umem(rig), rig.as_stranger(umem));
    let create = sq_command(rig).into_umem(own, send_ring);
    in_umem(sq_case(rig, create), others, send_ring)
}

/// With queues that are in another state than is said, and states that there is no way to.
fn moves(case: Case, from: Field, to: Field) -> Case {
    case.refuses(from, 1u64, Refusal::WorkQueueState)
        .refuses(to, 2u64, Refusal::WorkQueueState)
        .refuses(to, 0xfu64, Refusal::WorkQueueState)
        .twice(Refusal::WorkQueueState)
}

fn modify_sq(rig: &mut Rig) -> Case {
    let (from, to) = (modify_sq_in::SQ_STATE, sqc::STATE.within(modify_sq_in::CTX));
    let modify = Command::new(opcode::MODIFY_SQ, modify_sq_in::SIZE).set(to, 1u64);
    let case = with(rig, modify, modify_sq_in::SQN, sq, rq, Refusal::NoSq);
    let index = sqc::PACKET_PACING_RATE_LIMIT_INDEX.within(modify_sq_in::CTX);
    let limited = case.accepted.clone().set(modify_sq_in::MODIFY_BITMASK, 1u64).set(index, 1u64);
    moves(case, from, to)
        .refuses(modify_sq_in::MODIFY_BITMASK, 2u64, Refusal::WorkQueueFeature)
        .otherwise(limited, Refusal::NoRate)
}

fn set_rate(_: &mut Rig) -> Case {
    let rate = set_pp_rate_limit_context::RATE_LIMIT.within(set_pp_rate_limit_in::CTX);
    let set = Command::new(opcode::SET_PP_RATE_LIMIT, set_pp_rate_limit_in::SIZE)
        .set(set_pp_rate_limit_in::RATE_LIMIT_INDEX, 1u64)
        .set(rate, 1000u64);
    Case::drivers(set, Refusal::ForDriver)
        .refuses(set_pp_rate_limit_in::RATE_LIMIT_INDEX, 0u64, Refusal::RateIndex)
        .refuses(set_pp_rate_limit_in::RATE_LIMIT_INDEX, 128u64, Refusal::RateIndex)
        .refuses(rate, 100_000_001u64, Refusal::RateRange)
}

/// Creates a case with the refusals common to all new receive queues.
fn rq_case(rig: &mut Rig, create: Command) -> Case {
    let (cq, counters) = (rig.foreign_cq(), rig.foreign(Rig::counters));
    let case = Case::new(create)
        .refuses(receives(rqc::COUNTER_SET_ID), 0xffu64, Refusal::NoCounters)
        .foreign(receives(rqc::COUNTER_SET_ID), counters)
        .refuses(receives(rqc::STATE), 1u64, Refusal::WorkQueueState)
        .refuses(receives(rqc::HAIRPIN), 1u64, Refusal::WorkQueueFeature)
        .refuses(receives(rqc::MEM_RQ_TYPE), 1u64, Refusal::WorkQueueFeature)
        .refuses(receives(rqc::SCATTER_FCS), 1u64, Refusal::WorkQueueFeature)
        .refuses(receives(rqc::DELAY_DROP_EN), 1u64, Refusal::WorkQueueFeature)
        .refuses(receives(rqc::TS_FORMAT), 3u64, Refusal::WorkQueueTimestamp)
        .refuses(receives(rqc::CQN), 0u64, Refusal::NoCq)
        .foreign(receives(rqc::CQN), cq)
        .refuses(receive_ring(wq::WQ_TYPE), 0u64, Refusal::WorkQueueType)
        .refuses(receive_ring(wq::WQ_TYPE), 2u64, Refusal::WorkQueueType)
        .refuses(receive_ring(wq::LOG_WQ_STRIDE), 10u64, Refusal::WorkQueueSize);
    ring(rig, case, receive_ring)
}

fn create_rq(rig: &mut Rig) -> Case {
    let create = rq_command(rig);
    on_pages(rq_case(rig, create), receive_ring)
        .refuses(receive_ring(wq::LOG_WQ_STRIDE), 3u64, Refusal::WorkQueueSize)
        .refuses(receive_ring(wq::LOG_WQ_SZ), 9u64, Refusal::InputLength)
        .refuses(PAGE, 0x10_0008u64, Refusal::PageAddress)
}

fn create_rq_in_umem(rig: &mut Rig) -> Case {
    let (own, others) = (umem(rig), rig.as_stranger(umem));
    let create = rq_command(rig).into_umem(own, receive_ring);
    in_umem(rq_case(rig, create), others, receive_ring)
}

fn create_striding_rq(rig: &mut Rig) -> Case {
    let create = rq_command(rig).set(receive_ring(wq::WQ_TYPE), 3u64);
    on_pages(rq_case(rig, create), receive_ring)
        .refuses(receive_ring(wq::LOG_WQ_STRIDE), 4u64, Refusal::WorkQueueSize)
        .refuses(receive_ring(wq::LOG_WQ_SZ), 9u64, Refusal::InputLength)
        .refuses(PAGE, 0x10_0008u64, Refusal::PageAddress)
}

fn modify_rq(rig: &mut Rig) -> Case {
    let (from, to) = (modify_rq_in::RQ_STATE, rqc::STATE.within(modify_rq_in::CTX));
    let modify = Command::new(opcode::MODIFY_RQ, modify_rq_in::SIZE).set(to, 1u64);
    let counted = modify
        .clone()
        .set(modify_rq_in::MODIFY_BITMASK, 1u64 << 3)
        .set(rqc::COUNTER_SET_ID.within(modify_rq_in::CTX), 0xffu64);
    let case = with(rig, modify, modify_rq_in::RQN, rq, sq, Refusal::NoRq);
    let number = modify_rq_in::RQN.get(&case.accepted.0);
    moves(case, from, to)
        .refuses(modify_rq_in::MODIFY_BITMASK, 1u64, Refusal::WorkQueueFeature)
        .otherwise(counted.set(modify_rq_in::RQN, number), Refusal::NoCounters)
}

fn destroy_rq(rig: &mut Rig) -> Case {
    let number = destroy_rq_in::RQN;
    let busy = rq(rig);
    let holders = [tir_command(rig, busy), rig.create_rqt(1, &[busy])];
    let holders = holders.map(|create| rig.holder(&create));
    on(rig, opcode::DESTROY_RQ, number, rq, sq, Refusal::NoRq)
        .held(number, busy, Refusal::RqBusy, holders)
        .twice(Refusal::NoRq)
}

fn create_tis(rig: &mut Rig) -> Case {
    let field = |field: Field| field.within(create_tis_in::CTX);
    let (create, foreign) = (rig.create_tis(), rig.foreign(Rig::transport_domain));
    Case::new(create)
        .refuses(field(tisc::TLS_EN), 1u64, Refusal::WorkQueueFeature)
        .refuses(field(tisc::UNDERLAY_QPN), 1u64, Refusal::WorkQueueFeature)
        .refuses(field(tisc::LAG_TX_PORT_AFFINITY), 2u64, Refusal::Port)
        .refuses(field(tisc::TRANSPORT_DOMAIN), 0u64, Refusal::NoTransportDomain)
        .foreign(field(tisc::TRANSPORT_DOMAIN), foreign)
}

/// A command of 16 bytes that shows an object of a kind.
fn shows(rig: &mut Rig, (opcode, number): (u16, Field), make: Make, none: Refusal) -> Case {
    let (own, foreign) = (make(rig), rig.foreign(make));
    Case::new(Command::new(opcode, 0x10).set(number, own))
        .refuses(number, 5u64, none)
        .foreign(number, foreign)
}

fn modify_tis(rig: &mut Rig) -> Case {
    use modify_tis_in as m;
    let (own, foreign) = (rig.tis(), rig.foreign(Rig::tis));
    let affinity = tisc::LAG_TX_PORT_AFFINITY.within(m::CTX);
    let modify = Command::new(opcode::MODIFY_TIS, m::SIZE)
        .set(m::TISN, own)
        // Priority and port.
        .set(m::BITMASK, 0b101u64);
    Case::new(modify)
        .refuses(m::TISN, 5u64, Refusal::NoTis)
        .foreign(m::TISN, foreign)
        .refuses(m::BITMASK, 8u64, Refusal::EthernetModify)
        .refuses(m::BITMASK, 1u64 << 63, Refusal::EthernetModify)
        .refuses(affinity, 2u64, Refusal::Port)
}

/// A command that destroys an object of a kind, but for one that another holds.
fn unless_used(
    rig: &mut Rig,
    (opcode, number): (u16, Field),
    make: Make,
    (busy, holder): (u32, Command),
    (none, used): (Refusal, Refusal),
) -> Case {
    let (own, foreign) = (make(rig), rig.foreign(make));
    Case::new(Command::new(opcode, 0x10).set(number, own))
        .refuses(number, 5u64, none)
        .held(number, busy, used, [holder])
        .foreign(number, foreign)
        .twice(none)
}

fn destroy_tis(rig: &mut Rig) -> Case {
    let sq = sq_command(rig);
    let busy = (sends(sqc::TIS_NUM_0).get(&sq.0) as u32, rig.holder(&sq));
    let command = (opcode::DESTROY_TIS, destroy_tis_in::TISN);
    unless_used(rig, command, Rig::tis, busy, (Refusal::NoTis, Refusal::TisBusy))
}

/// Creates a case with the refusals common to all TIRs.
fn tir_case(rig: &mut Rig, create: Command) -> Case {
    let domain = rig.foreign(Rig::transport_domain);
    let hashed = create.clone().set(leads(tirc::RX_HASH_FN), 1u64).set(
        leads(rx_hash_field_select::SELECTED_FIELDS.within(tirc::RX_HASH_FIELD_SELECTOR_OUTER)),
        3u64,
    );
    Case::new(create)
        .otherwise(hashed, Refusal::TirType)
        .refuses(leads(tirc::TLS_EN), 1u64, Refusal::WorkQueueFeature)
        .refuses(leads(tirc::PACKET_MERGE_MASK), 1u64, Refusal::WorkQueueFeature)
        .refuses(leads(tirc::TUNNELED_OFFLOAD_EN), 1u64, Refusal::WorkQueueFeature)
        .refuses(leads(tirc::RX_HASH_FIELD_SELECTOR_INNER), 1u64, Refusal::WorkQueueFeature)
        .refuses(leads(tirc::TRANSPORT_DOMAIN), 5u64, Refusal::NoTransportDomain)
        .foreign(leads(tirc::TRANSPORT_DOMAIN), domain)
        .refuses(leads(tirc::DISP_TYPE), 2u64, Refusal::TirType)
        .refuses(leads(tirc::RX_HASH_FN), 3u64, Refusal::TirType)
}

fn create_tir(rig: &mut Rig) -> Case {
    let (own, other, foreign) = (rq(rig), sq(rig), rig.foreign(rq));
    let create = tir_command(rig, own);
    tir_case(rig, create)
        .refuses(leads(tirc::INLINE_RQN), 5u64, Refusal::NoRq)
        .refuses(leads(tirc::INLINE_RQN), other, Refusal::NoRq)
        .foreign(leads(tirc::INLINE_RQN), foreign)
}

fn create_indirect_tir(rig: &mut Rig) -> Case {
    let (own, foreign) = (rqt(rig), rig.foreign(rqt));
    let create = spreading(rig, own);
    tir_case(rig, create)
        .refuses(leads(tirc::INDIRECT_TABLE), 5u64, Refusal::NoRqt)
        .refuses(leads(tirc::DISP_TYPE), 0u64, Refusal::NoRq)
        .foreign(leads(tirc::INDIRECT_TABLE), foreign)
}

fn destroy_tir(rig: &mut Rig) -> Case {
    let busy = tir(rig);
    let holder = super::steering::holder(rig, busy);
    let command = (opcode::DESTROY_TIR, destroy_tir_in::TIRN);
    unless_used(rig, command, tir, (busy, holder), (Refusal::NoTir, Refusal::TirBusy))
}

fn modify_tir(rig: &mut Rig) -> Case {
    use modify_tir_in as m;
    let (own, foreign) = (tir(rig), rig.foreign(tir));
    // What it hashes by, and whether it shows what the port itself sends.
    let modify =
        Command::new(opcode::MODIFY_TIR, m::SIZE).set(m::TIRN, own).set(m::BITMASK, 0b1_0100u64);
    Case::new(modify)
        .refuses(m::TIRN, 5u64, Refusal::NoTir)
        .foreign(m::TIRN, foreign)
        .refuses(m::BITMASK, 1u64, Refusal::EthernetModify)
        .refuses(tirc::RX_HASH_FN.within(m::CTX), 1u64, Refusal::TirType)
        .refuses(tirc::RX_HASH_FIELD_SELECTOR_INNER.within(m::CTX), 1u64, Refusal::WorkQueueFeature)
}

fn modify_indirect_tir(rig: &mut Rig) -> Case {
    use modify_tir_in as m;
    let (own, next, foreign) = (rqt(rig), rqt(rig), rig.foreign(rqt));
    let create = spreading(rig, own);
    let tir = rig.number(&create, create_tir_out::TIRN);
    let table = tirc::INDIRECT_TABLE.within(m::CTX);
    let modify = Command::new(opcode::MODIFY_TIR, m::SIZE)
        .set(m::TIRN, tir)
        .set(m::BITMASK, 0b10u64)
        .set(table, next);
    // By a hash that there is not.
    let unhashed = modify.clone().set(m::BITMASK, 0b100u64);
    Case::new(modify)
        .refuses(m::TIRN, 5u64, Refusal::NoTir)
        .refuses(m::BITMASK, 1u64, Refusal::EthernetModify)
        .refuses(m::BITMASK, 8u64, Refusal::EthernetModify)
        .otherwise(unhashed, Refusal::TirType)
        .refuses(table, 5u64, Refusal::NoRqt)
        .foreign(table, foreign)
}

fn query_rqt(rig: &mut Rig) -> Case {
    shows(rig, (opcode::QUERY_RQT, query_rqt_in::RQTN), rqt, Refusal::NoRqt)
}

fn modify_rqt(rig: &mut Rig) -> Case {
    use modify_rqt_in as m;
    let (own, foreign, other) = (rqt(rig), rig.foreign(rqt), sq(rig));
    let size = rqtc::RQT_ACTUAL_SIZE.within(m::CTX);
    let first = Field::new(m::SIZE, 23, 24);
    let foreign_queue = rig.foreign(rq);
    let queues = [rq(rig), rq(rig)];
    let modify = Command::new(opcode::MODIFY_RQT, m::SIZE)
        .set(m::RQTN, own)
        .set(m::BITMASK, 1u64)
        .listing(m::CTX, &queues);
    let mut short = modify.clone();
    short.0.truncate(m::SIZE + rq_num::SIZE);
    Case::new(modify)
        .refuses(m::RQTN, 5u64, Refusal::NoRqt)
        .foreign(m::RQTN, foreign)
        .refuses(m::BITMASK, 2u64, Refusal::EthernetModify)
        .refuses(m::BITMASK, 3u64, Refusal::EthernetModify)
        .refuses(size, 0u64, Refusal::RqtSize)
        .refuses(size, 3u64, Refusal::RqtSize)
        .refuses(size, 4u64, Refusal::RqtSize)
        .otherwise(short, Refusal::InputLength)
        .refuses(first, 5u64, Refusal::NoRq)
        .refuses(first, other, Refusal::NoRq)
        .foreign(first, foreign_queue)
        .refuses(Field::new(m::SIZE + rq_num::SIZE, 23, 24), 5u64, Refusal::NoRq)
}

fn create_rqt(rig: &mut Rig) -> Case {
    let field = |field: Field| field.within(create_rqt_in::RQT_CONTEXT);
    let first = Field::new(create_rqt_in::SIZE, 23, 24);
    let (create, other, foreign) = (rqt_command(rig), sq(rig), rig.foreign(rq));
    let short =
        create.clone().set(field(rqtc::RQT_MAX_SIZE), 4u64).set(field(rqtc::RQT_ACTUAL_SIZE), 4u64);
    Case::new(create)
        .otherwise(short, Refusal::InputLength)
        .refuses(field(rqtc::RQT_ACTUAL_SIZE), 3u64, Refusal::RqtSize)
        .refuses(field(rqtc::RQT_ACTUAL_SIZE), 0u64, Refusal::RqtSize)
        .refuses(field(rqtc::RQT_ACTUAL_SIZE), 4u64, Refusal::RqtSize)
        .refuses(field(rqtc::RQT_MAX_SIZE), 1u64, Refusal::RqtSize)
        .refuses(field(rqtc::RQT_MAX_SIZE), 2049u64, Refusal::RqtSize)
        .refuses(field(rqtc::LIST_Q_TYPE), 1u64, Refusal::WorkQueueFeature)
        .refuses(field(rqtc::RQ_VHCA_ID_FORMAT), 1u64, Refusal::WorkQueueFeature)
        .refuses(first, 5u64, Refusal::NoRq)
        .refuses(first, other, Refusal::NoRq)
        .foreign(first, foreign)
        .refuses(Field::new(create_rqt_in::SIZE + 4, 23, 24), 5u64, Refusal::NoRq)
}

fn destroy_rqt(rig: &mut Rig) -> Case {
    let busy = rqt(rig);
    let tir = spreading(rig, busy);
    let holder = rig.holder(&tir);
    let command = (opcode::DESTROY_RQT, destroy_rqt_in::RQTN);
    unless_used(rig, command, rqt, (busy, holder), (Refusal::NoRqt, Refusal::RqtBusy))
}
