//! Commands on the queues themselves: send queues (SQ) and receive queues (RQ).

use mlx5_sys::ifc::{
    Field, create_rq_in, create_rq_out, create_sq_in, create_sq_out, destroy_rq_in, destroy_sq_in,
    modify_rq_in, modify_sq_in, qpc, query_rq_in, query_rq_out, query_sq_in, query_sq_out, rqc,
    sqc, tirc, wq,
};

use super::super::buffer::{self, Geometry};
use super::super::capability::{LOG_MAX_MESSAGE, LOG_MAX_WORK_QUEUE, MAX_RQ_WQE, may_stamp};
use super::super::umem::{self, RecordFields};
use super::super::{Refusal, context, counter, get, owned, qp, rate, transition, uid};
use crate::card::{Card, Link};
use crate::object::{
    DIRECT, Pages, Qp, ReceiveQueue, Role, SendQueue, Service, State, Strides, Tir,
};
use crate::transport::QueuePair;

/// Types of a work queue (`mlx5_ifc.h`, `wq_type`): a ring, and a ring of WQEs of strides.
const CYCLIC: u32 = 1;
const CYCLIC_STRIDING: u32 = 3;

/// States of a queue (`mlx5_ifc.h`, `MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
const RST: u32 = 0;
const RDY: u32 = 1;
const ERR: u32 = 3;

/// The segment before the pointer of a WQE of strides, and that pointer.
const STRIDING_WQE: usize = 32;

/// Fields of a queue's context that locate its doorbell record; `outer` is the WQ in the context.
const fn record(outer: Field) -> RecordFields {
    RecordFields {
        valid: wq::DBR_UMEM_VALID.within(outer),
        number: wq::DBR_UMEM_ID.within(outer),
        address: wq::DBR_ADDR.within(outer),
    }
}

/// A queue's ring as its context describes it.
struct Ring {
    pages: Pages,
    entries: u32,
    stride: u32,
}

/// Refuses queues of packets on an InfiniBand port.
fn on_ethernet(card: &Card) -> Result<(), Refusal> {
    if card.identity.link == Link::Roce { Ok(()) } else { Err(Refusal::NotRoce) }
}

/// Checks the ring of a queue and finds its pages and doorbell record, whose bus address `context`
/// has from then on; `outer` is the WQ in it.
fn ring(card: &Card, input: &[u8], context: &mut [u8], outer: Field) -> Result<Ring, Refusal> {
    let field = |field: Field| get(context, field.within(outer));
    if field(wq::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    // The driver lets the device pad to whole cache lines, which the device need not do.
    if field(wq::END_PADDING_MODE) > u32::from(uid(input) == 0) {
        return Err(Refusal::QpPadding);
    }
    if field(wq::LOG_WQ_SZ) > LOG_MAX_WORK_QUEUE {
        return Err(Refusal::WorkQueueSize);
    }
    // The driver's queue that drops all packets reaches no memory, and has no protection domain.
    if uid(input) != 0 || field(wq::PD) != 0 {
        let pd = card.objects.pds.get(field(wq::PD)).ok_or(Refusal::NoPd)?;
        owned(pd.uid, uid(input))?;
    }
    let (entries, stride) = (1u32 << field(wq::LOG_WQ_SZ), 1u32 << field(wq::LOG_WQ_STRIDE));
    let geometry = Geometry {
        log_page_size: field(wq::LOG_WQ_PG_SZ),
        page_offset: field(wq::PAGE_OFFSET),
        length: entries as usize * stride as usize,
        alignment: 64,
    };
    let mut pages = if field(wq::WQ_UMEM_VALID) == 1 {
        let offset = wq::WQ_UMEM_OFFSET.within(outer).get(context);
        umem::buffer(card, uid(input), field(wq::WQ_UMEM_ID), offset, &geometry)?
    } else {
        buffer::queue(card, input, &geometry)?
    };
    umem::place(card, uid(input), context, &record(outer), &mut pages)?;
    Ok(Ring { pages, entries, stride })
}

/// The context that a queue would have as a queue pair's half: what rings, doorbells and
/// completions read of it.
fn pair_context(values: &[(Field, u64)]) -> Box<[u8; qpc::SIZE]> {
    let mut context = Box::new([0; qpc::SIZE]);
    qpc::LOG_MSG_MAX.set(&mut context[..], LOG_MAX_MESSAGE.into());
    for (field, value) in values {
        field.set(&mut context[..], *value);
    }
    context
}

fn enter(
    card: &mut Card,
    role: Role,
    user: u16,
    context: Box<[u8; qpc::SIZE]>,
    queues: (SendQueue, ReceiveQueue),
) -> Result<u32, Refusal> {
    let number = qp::free_number(card).ok_or(Refusal::Exhausted)?;
    card.objects.enter_qp(Qp {
        number,
        uid: user,
        state: State::Reset,
        service: Service::Ethernet,
        context,
        sq: queues.0,
        rq: queues.1,
        transport: Some(QueuePair::boxed(Service::Ethernet)),
        role,
        failure: [0; 4],
    });
    Ok(number)
}

pub fn create_sq(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut sqc: Box<[u8; sqc::SIZE]> = context(input, create_sq_in::CTX)?;
    let field = |field: Field| get(&sqc[..], field);
    let user = uid(input);
    if field(sqc::STATE) != RST {
        return Err(Refusal::WorkQueueState);
    }
    if field(sqc::HAIRPIN) == 1 || field(sqc::ALLOW_SWP) == 1 || field(sqc::REG_UMR) == 1 {
        return Err(Refusal::WorkQueueFeature);
    }
    rate::may_name(card, field(sqc::PACKET_PACING_RATE_LIMIT_INDEX))?;
    if !may_stamp(card, field(sqc::TS_FORMAT)) {
        return Err(Refusal::WorkQueueTimestamp);
    }
    let inner = |field: Field| get(&sqc[..], field.within(sqc::WQ));
    if inner(wq::WQ_TYPE) != CYCLIC {
        return Err(Refusal::WorkQueueType);
    }
    if inner(wq::LOG_WQ_STRIDE) != 6 {
        return Err(Refusal::WorkQueueSize);
    }
    let cq = card.objects.cqs.get(field(sqc::CQN)).ok_or(Refusal::NoCq)?;
    owned(cq.uid, user)?;
    let uar = card.objects.uars.get(inner(wq::UAR_PAGE)).ok_or(Refusal::NoUar)?;
    owned(uar.uid, user)?;
    match field(sqc::TIS_LST_SZ) {
        // A queue of the driver's for operations on its own queues. It sends no packets.
        0 if user == 0 => {}
        1 => {
            on_ethernet(card)?;
            let tis = card.objects.tises.get(field(sqc::TIS_NUM_0)).ok_or(Refusal::NoTis)?;
            owned(tis.uid, user)?;
        }
        _ => return Err(Refusal::NoTis),
    }
    let ring = ring(card, input, &mut sqc[..], sqc::WQ)?;
    let field = |field: Field| field.get(&sqc[..]);
    let inner = |inner: Field| field(inner.within(sqc::WQ));
    let context = pair_context(&[
        (qpc::PD, inner(wq::PD)),
        (qpc::UAR_PAGE, inner(wq::UAR_PAGE)),
        (qpc::CQN_SND, field(sqc::CQN)),
        (qpc::TS_FORMAT, field(sqc::TS_FORMAT)),
        (qpc::USER_INDEX, field(sqc::USER_INDEX)),
        (qpc::DBR_ADDR, inner(wq::DBR_ADDR)),
    ]);
    let sq = SendQueue { pages: ring.pages, blocks: ring.entries, ..SendQueue::default() };
    let queues = (sq, ReceiveQueue::default());
    let number = enter(card, Role::EthernetSend(sqc), user, context, queues)?;
    create_sq_out::SQN.set(output, number.into());
    Ok(())
}

/// How a WQE is cut, where it is.
fn strides(field: &dyn Fn(Field) -> u32, wqe: u32) -> Result<Option<Strides>, Refusal> {
    match field(wq::WQ_TYPE) {
        CYCLIC if wqe as usize <= MAX_RQ_WQE && wqe >= 16 => Ok(None),
        CYCLIC_STRIDING if wqe as usize >= STRIDING_WQE && wqe as usize <= MAX_RQ_WQE => {
            // `mlx5_ifc.h`: 512 strides times two to the power of a number of four bits with a sign,
            // and 64 bytes times two to the power of one without.
            let count = match field(wq::LOG_WQE_NUM_OF_STRIDES) {
                raised @ 0..=7 => 512 << raised,
                lowered => 512 >> (16 - lowered),
            };
            Ok(Some(Strides {
                size: 64 << field(wq::LOG_WQE_STRIDE_SIZE),
                count,
                shift: field(wq::TWO_BYTE_SHIFT_EN) == 1,
                current: None,
            }))
        }
        CYCLIC | CYCLIC_STRIDING => Err(Refusal::WorkQueueSize),
        _ => Err(Refusal::WorkQueueType),
    }
}

pub fn create_rq(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut rqc: Box<[u8; rqc::SIZE]> = context(input, create_rq_in::CTX)?;
    let field = |field: Field| get(&rqc[..], field);
    let user = uid(input);
    if field(rqc::STATE) != RST {
        return Err(Refusal::WorkQueueState);
    }
    if field(rqc::HAIRPIN) == 1
        || field(rqc::MEM_RQ_TYPE) != 0
        || field(rqc::SCATTER_FCS) == 1
        || field(rqc::DELAY_DROP_EN) == 1
    {
        return Err(Refusal::WorkQueueFeature);
    }
    if !may_stamp(card, field(rqc::TS_FORMAT)) {
        return Err(Refusal::WorkQueueTimestamp);
    }
    let inner = |field: Field| get(&rqc[..], field.within(rqc::WQ));
    let strides = strides(&inner, 1 << inner(wq::LOG_WQ_STRIDE))?;
    let cq = card.objects.cqs.get(field(rqc::CQN)).ok_or(Refusal::NoCq)?;
    owned(cq.uid, user)?;
    counter::may_name(card, field(rqc::COUNTER_SET_ID), user)?;
    on_ethernet(card)?;
    let ring = ring(card, input, &mut rqc[..], rqc::WQ)?;
    let field = |field: Field| field.get(&rqc[..]);
    let inner = |inner: Field| field(inner.within(rqc::WQ));
    let context = pair_context(&[
        (qpc::PD, inner(wq::PD)),
        (qpc::CQN_RCV, field(rqc::CQN)),
        (qpc::TS_FORMAT, field(rqc::TS_FORMAT)),
        (qpc::USER_INDEX, field(rqc::USER_INDEX)),
        (qpc::COUNTER_SET_ID, field(rqc::COUNTER_SET_ID)),
        (qpc::DBR_ADDR, inner(wq::DBR_ADDR)),
    ]);
    let rq = ReceiveQueue {
        pages: ring.pages,
        wqes: ring.entries,
        stride: ring.stride,
        ..ReceiveQueue::default()
    };
    let queues = (SendQueue::default(), rq);
    let number = enter(card, Role::EthernetReceive(rqc, strides), user, context, queues)?;
    create_rq_out::RQN.set(output, number.into());
    Ok(())
}

/// The kind of an Ethernet queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// A send queue.
    Send,
    /// A receive queue.
    Receive,
}

/// Looks up a queue of this kind that a command may touch. Returns its state.
pub(super) fn find_queue(
    card: &Card,
    number: u32,
    kind: QueueKind,
    input: &[u8],
) -> Result<State, Refusal> {
    let none = match kind {
        QueueKind::Send => Refusal::NoSq,
        QueueKind::Receive => Refusal::NoRq,
    };
    let qp = card.objects.qps.get(&number).ok_or(none)?;
    match (&qp.role, kind) {
        (Role::EthernetSend(_), QueueKind::Send)
        | (Role::EthernetReceive(..), QueueKind::Receive) => {}
        _ => return Err(none),
    }
    owned(qp.uid, uid(input))?;
    Ok(qp.state)
}

/// The state of a queue as its context says it.
fn code(state: State) -> u32 {
    match state {
        State::Reset => RST,
        State::Error | State::SqError => ERR,
        _ => RDY,
    }
}

/// Moves a queue from the state it is said to be in to another.
fn modify(
    card: &mut Card,
    number: u32,
    kind: QueueKind,
    states: (u32, u32),
) -> Result<(), Refusal> {
    let ready = match kind {
        QueueKind::Send => State::Rts,
        QueueKind::Receive => State::Rtr,
    };
    let qp = card.objects.qps.get_mut(&number).ok_or(Refusal::NoSq)?;
    let (from, to) = states;
    let now = code(qp.state);
    // Linux resets the send queue of a raw packet queue pair from the last state that it asked for. DPDK
    // 19.08 recovers so from an error, without a query that would tell Linux of it.
    let stale = kind == QueueKind::Send && (now, from, to) == (ERR, RDY, RST);
    if now != from && !stale {
        return Err(Refusal::WorkQueueState);
    }
    let state = match (from, to) {
        (RST | RDY, RDY) => ready,
        (RST | RDY | ERR, ERR) => State::Error,
        (RST | RDY | ERR, RST) => State::Reset,
        _ => return Err(Refusal::WorkQueueState),
    };
    if state == State::Reset {
        transition::reset(card, number);
    } else {
        qp.state = state;
        card.state_changed(number);
    }
    Ok(())
}

pub fn modify_sq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    /// `modify_sq_in_bitmask`, `packet_pacing_rate_limit_index` (Linux `qp.c`).
    const RATE: u64 = 1 << 0;
    let number = get(input, modify_sq_in::SQN);
    find_queue(card, number, QueueKind::Send, input)?;
    let mask = modify_sq_in::MODIFY_BITMASK.get(input);
    if mask & !RATE != 0 {
        return Err(Refusal::WorkQueueFeature);
    }
    let index = get(input, sqc::PACKET_PACING_RATE_LIMIT_INDEX.within(modify_sq_in::CTX));
    if mask & RATE != 0 {
        rate::may_name(card, index)?;
    }
    let to = get(input, sqc::STATE.within(modify_sq_in::CTX));
    modify(card, number, QueueKind::Send, (get(input, modify_sq_in::SQ_STATE), to))?;
    let role = card.objects.qps.get_mut(&number).map(|qp| &mut qp.role);
    if let (Some(Role::EthernetSend(context)), true) = (role, mask & RATE != 0) {
        sqc::PACKET_PACING_RATE_LIMIT_INDEX.set(&mut context[..], index.into());
    }
    Ok(())
}

pub fn modify_rq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    /// `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD`: whether VLAN tags are left in packets.
    const VSD: u64 = 1 << 1;
    /// `…_COUNTER_SET_ID`: where its packets are counted.
    const COUNTER_SET: u64 = 1 << 3;
    let number = get(input, modify_rq_in::RQN);
    find_queue(card, number, QueueKind::Receive, input)?;
    let mask = modify_rq_in::MODIFY_BITMASK.get(input);
    if mask & !(VSD | COUNTER_SET) != 0 {
        return Err(Refusal::WorkQueueFeature);
    }
    let counters = rqc::COUNTER_SET_ID.within(modify_rq_in::CTX).get(input);
    if mask & COUNTER_SET != 0 {
        counter::may_name(card, counters as u32, uid(input))?;
    }
    let to = get(input, rqc::STATE.within(modify_rq_in::CTX));
    modify(card, number, QueueKind::Receive, (get(input, modify_rq_in::RQ_STATE), to))?;
    let vsd = rqc::VSD.within(modify_rq_in::CTX).get(input);
    let Some(qp) = card.objects.qps.get_mut(&number) else { return Ok(()) };
    if let Role::EthernetReceive(context, _) = &mut qp.role {
        if mask & VSD != 0 {
            rqc::VSD.set(&mut context[..], vsd);
        }
        if mask & COUNTER_SET != 0 {
            rqc::COUNTER_SET_ID.set(&mut context[..], counters);
            qpc::COUNTER_SET_ID.set(&mut qp.context[..], counters);
        }
    }
    Ok(())
}

pub fn query_sq(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_sq_in::SQN);
    let state = find_queue(card, number, QueueKind::Send, input)?;
    if let Some(Role::EthernetSend(context)) = card.objects.qps.get(&number).map(|qp| &qp.role) {
        output[query_sq_out::SQ_CONTEXT.bytes()].copy_from_slice(&context[..]);
    }
    sqc::STATE.within(query_sq_out::SQ_CONTEXT).set(output, code(state).into());
    Ok(())
}

pub fn query_rq(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_rq_in::RQN);
    let state = find_queue(card, number, QueueKind::Receive, input)?;
    if let Some(qp) = card.objects.qps.get(&number) {
        if let Role::EthernetReceive(context, _) = &qp.role {
            output[query_rq_out::RQ_CONTEXT.bytes()].copy_from_slice(&context[..]);
        }
        // Seen on a ConnectX-5: evidence F081.
        for (counter, value) in [(wq::HW_COUNTER, qp.rq.taken), (wq::SW_COUNTER, qp.rq.producer)] {
            let counter = counter.within(rqc::WQ).within(query_rq_out::RQ_CONTEXT);
            counter.set(output, value.into());
        }
    }
    rqc::STATE.within(query_rq_out::RQ_CONTEXT).set(output, code(state).into());
    Ok(())
}

fn destroy(card: &mut Card, number: u32) {
    transition::reset(card, number);
    card.objects.remove_qp(number);
}

pub fn destroy_sq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_sq_in::SQN);
    find_queue(card, number, QueueKind::Send, input)?;
    destroy(card, number);
    Ok(())
}

pub fn destroy_rq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_rq_in::RQN);
    find_queue(card, number, QueueKind::Receive, input)?;
    let direct =
        |tir: &Tir| tir.get(tirc::DISP_TYPE) == DIRECT && tir.get(tirc::INLINE_RQN) == number;
    if card.objects.tirs.iter().any(|(_, tir)| direct(tir))
        || card.objects.rqts.iter().any(|(_, rqt)| rqt.queues.contains(&number))
    {
        return Err(Refusal::RqBusy);
    }
    destroy(card, number);
    Ok(())
}
