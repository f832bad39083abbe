//! Commands on queues of Ethernet: send queues (SQ) with the interface they send by (TIS), receive
//! queues (RQ), and what leads packets to them: TIRs, and tables of receive queues (RQT).

use mlx5_sys::ifc::{
    Field, create_rq_in, create_rq_out, create_rqt_in, create_rqt_out, create_sq_in, create_sq_out,
    create_tir_in, create_tir_out, create_tis_in, create_tis_out, destroy_rq_in, destroy_rqt_in,
    destroy_sq_in, destroy_tir_in, destroy_tis_in, modify_rq_in, modify_sq_in, qpc, query_rq_in,
    query_rq_out, query_sq_in, query_sq_out, rq_num, rqc, rqtc, sqc, tirc, tisc, wq,
};

use super::buffer::{self, Geometry};
use super::capability::{LOG_MAX_MESSAGE, LOG_MAX_RQT, MAX_RQ_WQE};
use super::{Refusal, context, get, owned, qp, uid};
use crate::card::{Card, Link};
use crate::object::{Half, Qp, ReceiveQueue, Rqt, SendQueue, Service, State, Strides, Tir, Tis};
use crate::transport::ethernet::Ethernet;
use crate::transport::rc::Rc;
use crate::transport::unreliable::Unreliable;

/// Types of a work queue (`mlx5_ifc.h`, `wq_type`): a ring, and a ring of WQEs of strides.
const CYCLIC: u32 = 1;
const CYCLIC_STRIDING: u32 = 3;

/// States of a queue (`mlx5_ifc.h`, `MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
const RST: u32 = 0;
const RDY: u32 = 1;
const ERR: u32 = 3;

/// The segment before the pointer of a WQE of strides, and that pointer.
const STRIDING_WQE: usize = 32;

/// A queue's ring as its context describes it.
struct Ring {
    pages: crate::object::Pages,
    entries: u32,
    stride: u32,
}

/// Checks the ring of a queue and reads its pages.
fn ring(card: &Card, input: &[u8], field: &dyn Fn(Field) -> u32) -> Result<Ring, Refusal> {
    if card.identity.link != Link::Roce {
        return Err(Refusal::NotRoce);
    }
    if field(wq::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    if field(wq::END_PADDING_MODE) != 0 {
        return Err(Refusal::QpPadding);
    }
    if field(wq::DBR_UMEM_VALID) == 1 || field(wq::WQ_UMEM_VALID) == 1 {
        return Err(Refusal::Umem);
    }
    if field(wq::LOG_WQ_SZ) > 15 {
        return Err(Refusal::WorkQueueSize);
    }
    let pd = card.objects.pds.get(field(wq::PD)).ok_or(Refusal::NoPd)?;
    owned(pd.uid, uid(input))?;
    let (entries, stride) = (1u32 << field(wq::LOG_WQ_SZ), 1u32 << field(wq::LOG_WQ_STRIDE));
    let geometry = Geometry {
        log_page_size: field(wq::LOG_WQ_PG_SZ),
        page_offset: field(wq::PAGE_OFFSET),
        length: entries as usize * stride as usize,
        alignment: 64,
    };
    Ok(Ring { pages: buffer::queue(input, &geometry)?, entries, stride })
}

/// The context that a queue would have as a queue pair's half: what rings, doorbells and
/// completions read of it.
fn half_context(values: &[(Field, u64)]) -> Box<[u8; qpc::SIZE]> {
    let mut context = Box::new([0; qpc::SIZE]);
    qpc::LOG_MSG_MAX.set(&mut context[..], LOG_MAX_MESSAGE.into());
    for (field, value) in values {
        field.set(&mut context[..], *value);
    }
    context
}

fn enter(
    card: &mut Card,
    half: Half,
    user: u16,
    context: Box<[u8; qpc::SIZE]>,
    queues: (SendQueue, ReceiveQueue),
) -> Result<u32, Refusal> {
    let number = qp::free_number(card).ok_or(Refusal::Exhausted)?;
    card.objects.next_qpn = number + 1;
    card.objects.qps.insert(
        number,
        Qp {
            number,
            uid: user,
            state: State::Reset,
            service: Service::Ethernet,
            context,
            sq: queues.0,
            rq: queues.1,
            rc: Rc::default(),
            unreliable: Unreliable::default(),
            target: None,
            half: Some(half),
            ethernet: Ethernet::default(),
        },
    );
    Ok(number)
}

pub fn create_sq(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let sqc: Box<[u8; sqc::SIZE]> = context(input, create_sq_in::CTX)?;
    let field = |field: Field| get(&sqc[..], field);
    let user = uid(input);
    if field(sqc::STATE) != RST {
        return Err(Refusal::WorkQueueState);
    }
    if field(sqc::HAIRPIN) == 1
        || field(sqc::ALLOW_SWP) == 1
        || field(sqc::REG_UMR) == 1
        || field(sqc::TS_FORMAT) > 1
        || field(sqc::PACKET_PACING_RATE_LIMIT_INDEX) != 0
    {
        return Err(Refusal::WorkQueueFeature);
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
    // A list of one.
    if field(sqc::TIS_LST_SZ) != 1 {
        return Err(Refusal::NoTis);
    }
    let tis = card.objects.tises.get(field(sqc::TIS_NUM_0)).ok_or(Refusal::NoTis)?;
    owned(tis.uid, user)?;
    let record = wq::DBR_ADDR.within(sqc::WQ).get(&sqc[..]);
    if record % 8 != 0 {
        return Err(Refusal::Record);
    }
    let ring = ring(card, input, &inner)?;
    let context = half_context(&[
        (qpc::PD, inner(wq::PD).into()),
        (qpc::UAR_PAGE, inner(wq::UAR_PAGE).into()),
        (qpc::CQN_SND, field(sqc::CQN).into()),
        (qpc::USER_INDEX, field(sqc::USER_INDEX).into()),
        (qpc::DBR_ADDR, record),
    ]);
    let sq = SendQueue { pages: ring.pages, blocks: ring.entries, ..SendQueue::default() };
    let queues = (sq, ReceiveQueue::default());
    let number = enter(card, Half::Send(sqc), user, context, queues)?;
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
    let rqc: Box<[u8; rqc::SIZE]> = context(input, create_rq_in::CTX)?;
    let field = |field: Field| get(&rqc[..], field);
    let user = uid(input);
    if field(rqc::STATE) != RST {
        return Err(Refusal::WorkQueueState);
    }
    if field(rqc::HAIRPIN) == 1
        || field(rqc::MEM_RQ_TYPE) != 0
        || field(rqc::SCATTER_FCS) == 1
        || field(rqc::DELAY_DROP_EN) == 1
        || field(rqc::TS_FORMAT) > 1
    {
        return Err(Refusal::WorkQueueFeature);
    }
    let inner = |field: Field| get(&rqc[..], field.within(rqc::WQ));
    let strides = strides(&inner, 1 << inner(wq::LOG_WQ_STRIDE))?;
    let cq = card.objects.cqs.get(field(rqc::CQN)).ok_or(Refusal::NoCq)?;
    owned(cq.uid, user)?;
    let record = wq::DBR_ADDR.within(rqc::WQ).get(&rqc[..]);
    if record % 8 != 0 {
        return Err(Refusal::Record);
    }
    let ring = ring(card, input, &inner)?;
    let context = half_context(&[
        (qpc::PD, inner(wq::PD).into()),
        (qpc::CQN_RCV, field(rqc::CQN).into()),
        (qpc::USER_INDEX, field(rqc::USER_INDEX).into()),
        (qpc::DBR_ADDR, record),
    ]);
    let rq = ReceiveQueue {
        pages: ring.pages,
        wqes: ring.entries,
        stride: ring.stride,
        ..ReceiveQueue::default()
    };
    let queues = (SendQueue::default(), rq);
    let number = enter(card, Half::Receive(rqc, strides), user, context, queues)?;
    create_rq_out::RQN.set(output, number.into());
    Ok(())
}

/// Looks up a send queue (or else a receive queue) that a command may touch.
fn half(card: &Card, number: u32, sends: bool, input: &[u8]) -> Result<State, Refusal> {
    let none = if sends { Refusal::NoSq } else { Refusal::NoRq };
    let qp = card.objects.qps.get(&number).ok_or(none)?;
    match (&qp.half, sends) {
        (Some(Half::Send(_)), true) | (Some(Half::Receive(..)), false) => {}
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
fn modify(card: &mut Card, number: u32, sends: bool, states: (u32, u32)) -> Result<(), Refusal> {
    let ready = if sends { State::Rts } else { State::Rtr };
    let qp = card.objects.qps.get_mut(&number).ok_or(Refusal::NoSq)?;
    let (from, to) = states;
    if code(qp.state) != from {
        return Err(Refusal::WorkQueueState);
    }
    let state = match (from, to) {
        (RST | RDY, RDY) => ready,
        (RST | RDY | ERR, ERR) => State::Error,
        (RST | RDY | ERR, RST) => State::Reset,
        _ => return Err(Refusal::WorkQueueState),
    };
    if state == State::Reset {
        qp.reset();
    } else {
        qp.state = state;
    }
    card.state_changed(number);
    Ok(())
}

pub fn modify_sq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, modify_sq_in::SQN);
    half(card, number, true, input)?;
    // Of the rest only rates can be changed, which no queue has.
    if modify_sq_in::MODIFY_BITMASK.get(input) != 0 {
        return Err(Refusal::WorkQueueFeature);
    }
    let to = get(input, sqc::STATE.within(modify_sq_in::CTX));
    modify(card, number, true, (get(input, modify_sq_in::SQ_STATE), to))
}

pub fn modify_rq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    /// `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD`: whether VLAN tags are left in packets.
    const VSD: u64 = 1 << 1;
    let number = get(input, modify_rq_in::RQN);
    half(card, number, false, input)?;
    let mask = modify_rq_in::MODIFY_BITMASK.get(input);
    if mask & !VSD != 0 {
        return Err(Refusal::WorkQueueFeature);
    }
    let to = get(input, rqc::STATE.within(modify_rq_in::CTX));
    modify(card, number, false, (get(input, modify_rq_in::RQ_STATE), to))?;
    let vsd = rqc::VSD.within(modify_rq_in::CTX).get(input);
    if let Some(Half::Receive(context, _)) =
        card.objects.qps.get_mut(&number).and_then(|qp| qp.half.as_mut())
    {
        if mask & VSD != 0 {
            rqc::VSD.set(&mut context[..], vsd);
        }
    }
    Ok(())
}

pub fn query_sq(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_sq_in::SQN);
    let state = half(card, number, true, input)?;
    if let Some(Half::Send(context)) = card.objects.qps.get(&number).and_then(|qp| qp.half.as_ref())
    {
        output[query_sq_out::SQ_CONTEXT.bytes()].copy_from_slice(&context[..]);
    }
    sqc::STATE.within(query_sq_out::SQ_CONTEXT).set(output, code(state).into());
    Ok(())
}

pub fn query_rq(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_rq_in::RQN);
    let state = half(card, number, false, input)?;
    if let Some(Half::Receive(context, _)) =
        card.objects.qps.get(&number).and_then(|qp| qp.half.as_ref())
    {
        output[query_rq_out::RQ_CONTEXT.bytes()].copy_from_slice(&context[..]);
    }
    rqc::STATE.within(query_rq_out::RQ_CONTEXT).set(output, code(state).into());
    Ok(())
}

fn destroy(card: &mut Card, number: u32) {
    if let Some(qp) = card.objects.qps.get_mut(&number) {
        qp.reset();
        card.state_changed(number);
        card.objects.qps.remove(&number);
    }
}

pub fn destroy_sq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_sq_in::SQN);
    half(card, number, true, input)?;
    destroy(card, number);
    Ok(())
}

pub fn destroy_rq(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_rq_in::RQN);
    half(card, number, false, input)?;
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

pub fn create_tis(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let field = |field: Field| get(input, field.within(create_tis_in::CTX));
    if field(tisc::TLS_EN) == 1 || field(tisc::UNDERLAY_QPN) != 0 {
        return Err(Refusal::WorkQueueFeature);
    }
    let number = field(tisc::TRANSPORT_DOMAIN);
    let domain = card.objects.transport_domains.get(number).ok_or(Refusal::NoTransportDomain)?;
    owned(domain.uid, uid(input))?;
    let tis = Tis { uid: uid(input), domain: number };
    let number = card.objects.tises.add(tis).ok_or(Refusal::Exhausted)?;
    create_tis_out::TISN.set(output, number.into());
    Ok(())
}

pub fn destroy_tis(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_tis_in::TISN);
    owned(card.objects.tises.get(number).ok_or(Refusal::NoTis)?.uid, uid(input))?;
    let sends = |qp: &Qp| match &qp.half {
        Some(Half::Send(context)) => get(&context[..], sqc::TIS_NUM_0) == number,
        _ => false,
    };
    if card.objects.qps.values().any(sends) {
        return Err(Refusal::TisBusy);
    }
    card.objects.tises.remove(number);
    Ok(())
}

/// Ways of a TIR (`mlx5_ifc.h`, `MLX5_TIRC_DISP_TYPE_*`): to one queue, or through a table.
pub const DIRECT: u32 = 0;
pub const INDIRECT: u32 = 1;
/// `MLX5_RX_HASH_FN_*`: by XOR (which is not public), by Toeplitz.
const NO_HASH: u32 = 0;
const TOEPLITZ: u32 = 2;

pub fn create_tir(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let tirc: Box<[u8; tirc::SIZE]> = context(input, create_tir_in::CTX)?;
    let field = |field: Field| get(&tirc[..], field);
    let user = uid(input);
    if field(tirc::TLS_EN) == 1
        || field(tirc::PACKET_MERGE_MASK) != 0
        || field(tirc::TUNNELED_OFFLOAD_EN) == 1
        || field(tirc::RX_HASH_FIELD_SELECTOR_INNER) != 0
    {
        return Err(Refusal::WorkQueueFeature);
    }
    let domain = card.objects.transport_domains.get(field(tirc::TRANSPORT_DOMAIN));
    owned(domain.ok_or(Refusal::NoTransportDomain)?.uid, user)?;
    match (field(tirc::DISP_TYPE), field(tirc::RX_HASH_FN)) {
        (DIRECT, NO_HASH | TOEPLITZ) => {
            half(card, field(tirc::INLINE_RQN), false, input)?;
        }
        (INDIRECT, TOEPLITZ) => {
            let rqt = card.objects.rqts.get(field(tirc::INDIRECT_TABLE)).ok_or(Refusal::NoRqt)?;
            owned(rqt.uid, user)?;
        }
        _ => return Err(Refusal::TirType),
    }
    let tir = Tir { uid: user, context: tirc };
    let number = card.objects.tirs.add(tir).ok_or(Refusal::Exhausted)?;
    create_tir_out::TIRN.set(output, number.into());
    Ok(())
}

pub fn destroy_tir(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_tir_in::TIRN);
    owned(card.objects.tirs.get(number).ok_or(Refusal::NoTir)?.uid, uid(input))?;
    if card.objects.steering.uses_tir(number) {
        return Err(Refusal::TirBusy);
    }
    card.objects.tirs.remove(number);
    Ok(())
}

pub fn create_rqt(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let field = |field: Field| get(input, field.within(create_rqt_in::RQT_CONTEXT));
    let (size, room) = (field(rqtc::RQT_ACTUAL_SIZE), field(rqtc::RQT_MAX_SIZE));
    if !size.is_power_of_two() || size > room || size > 1 << LOG_MAX_RQT {
        return Err(Refusal::RqtSize);
    }
    let start = create_rqt_in::RQT_CONTEXT.bytes().start + rqtc::SIZE;
    let list =
        input.get(start..start + size as usize * rq_num::SIZE).ok_or(Refusal::InputLength)?;
    let queues: Vec<u32> =
        list.chunks_exact(rq_num::SIZE).map(|entry| get(entry, rq_num::RQ_NUM)).collect();
    for queue in &queues {
        half(card, *queue, false, input)?;
    }
    let number =
        card.objects.rqts.add(Rqt { uid: uid(input), queues }).ok_or(Refusal::Exhausted)?;
    create_rqt_out::RQTN.set(output, number.into());
    Ok(())
}

pub fn destroy_rqt(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_rqt_in::RQTN);
    owned(card.objects.rqts.get(number).ok_or(Refusal::NoRqt)?.uid, uid(input))?;
    let used =
        |tir: &Tir| tir.get(tirc::DISP_TYPE) == INDIRECT && tir.get(tirc::INDIRECT_TABLE) == number;
    if card.objects.tirs.iter().any(|(_, tir)| used(tir)) {
        return Err(Refusal::RqtBusy);
    }
    card.objects.rqts.remove(number);
    Ok(())
}
