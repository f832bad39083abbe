//! Commands that make, show and free queue pairs. Their states are in [`super::transition`].

use mlx5_sys::ifc::{create_qp_in, create_qp_out, destroy_qp_in, qpc, query_qp_in, query_qp_out};

use super::buffer::{self, Geometry};
use super::capability::MAX_RQ_WQE;
use super::{Refusal, context, get, owned, uid};
use crate::card::Card;
use crate::object::{Qp, ReceiveQueue, SendQueue, Service, State};
use crate::transport::rc::Rc;

/// Receive queue types (`qp.h`): a ring of its own, and none.
const RQ_REGULAR: u32 = 0;
const RQ_NONE: u32 = 3;

/// The service that QPC's `st` names.
fn service(st: u32) -> Option<Service> {
    match st {
        0 => Some(Service::Rc),
        1 => Some(Service::Uc),
        2 => Some(Service::Ud),
        _ => None,
    }
}

/// QPC's `st` of a service.
pub fn code(service: Service) -> u32 {
    match service {
        Service::Rc => 0,
        Service::Uc => 1,
        Service::Ud => 2,
    }
}

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut qpc: Box<[u8; qpc::SIZE]> = context(input, create_qp_in::QPC)?;
    let field = |field| get(&qpc[..], field);
    let user = uid(input);
    if get(input, create_qp_in::INPUT_QPN) != 0 {
        return Err(Refusal::QpNumber);
    }
    if get(input, create_qp_in::WQ_UMEM_VALID) == 1 || field(qpc::DBR_UMEM_VALID) == 1 {
        return Err(Refusal::Umem);
    }
    let service = service(field(qpc::ST)).ok_or(Refusal::QpService)?;
    if field(qpc::PM_STATE) == 2 {
        return Err(Refusal::QpMigration);
    }
    if field(qpc::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    if field(qpc::END_PADDING_MODE) != 0 {
        return Err(Refusal::QpPadding);
    }
    if field(qpc::TS_FORMAT) > 1 {
        return Err(Refusal::QpTimestamp);
    }
    let pd = card.objects.pds.get(field(qpc::PD)).ok_or(Refusal::NoPd)?;
    owned(pd.uid, user)?;

    let has_sq = field(qpc::NO_SQ) == 0;
    let has_rq = match field(qpc::RQ_TYPE) {
        RQ_REGULAR => true,
        RQ_NONE => false,
        _ => return Err(Refusal::QpReceiveType),
    };
    let cqe_size = |used: bool, cqn| match card.objects.cqs.get(cqn) {
        Some(cq) => owned(cq.uid, user).map(|()| cq.cqe_size),
        None if used => Err(Refusal::NoCq),
        None => Ok(0),
    };
    let sender = cqe_size(has_sq, field(qpc::CQN_SND))?;
    let receiver = cqe_size(has_rq, field(qpc::CQN_RCV))?;
    match (field(qpc::CS_REQ), sender) {
        (0 | 0x11, _) | (0x22, 128) => {}
        _ => return Err(Refusal::QpScatter),
    }
    match (field(qpc::CS_RES), receiver) {
        (0 | 0x1, _) | (0x2, 128) => {}
        _ => return Err(Refusal::QpScatter),
    }
    if has_sq {
        let uar = card.objects.uars.get(field(qpc::UAR_PAGE)).ok_or(Refusal::NoUar)?;
        owned(uar.uid, user)?;
    }
    if qpc::DBR_ADDR.get(&qpc[..]) % 8 != 0 {
        return Err(Refusal::Record);
    }

    let stride = 16usize << field(qpc::LOG_RQ_STRIDE);
    if has_rq && stride > MAX_RQ_WQE {
        return Err(Refusal::QpReceiveStride);
    }
    let rq_wqes = if has_rq { 1u32 << field(qpc::LOG_RQ_SIZE) } else { 0 };
    let sq_blocks = if has_sq { 1u32 << field(qpc::LOG_SQ_SIZE) } else { 0 };
    let rq_bytes = rq_wqes as usize * stride;
    let sq_bytes = sq_blocks as usize * 64;
    let geometry = Geometry {
        log_page_size: field(qpc::LOG_PAGE_SIZE),
        page_offset: field(qpc::PAGE_OFFSET),
        length: rq_bytes + sq_bytes,
        alignment: 64,
    };
    let pages = buffer::queue(input, &geometry)?;
    let rq = pages.part(0, rq_bytes).ok_or(Refusal::InputLength)?;
    let sq = pages.part(rq_bytes, sq_bytes).ok_or(Refusal::InputLength)?;

    let number = free_number(card).ok_or(Refusal::Exhausted)?;
    qpc::STATE.set(&mut qpc[..], 0);
    card.objects.next_qpn = number + 1;
    card.objects.qps.insert(
        number,
        Qp {
            number,
            uid: user,
            state: State::Reset,
            service,
            context: qpc,
            sq: SendQueue { pages: sq, blocks: sq_blocks, ..SendQueue::default() },
            rq: ReceiveQueue {
                pages: rq,
                wqes: rq_wqes,
                stride: stride as u32,
                ..ReceiveQueue::default()
            },
            rc: Rc::default(),
        },
    );
    create_qp_out::QPN.set(output, number.into());
    Ok(())
}

/// The first free number at or after the one that was given last, within this card's prefixes.
fn free_number(card: &Card) -> Option<u32> {
    let mut prefixes: Vec<u32> =
        card.identity.qpn_prefixes.iter().map(|prefix| u32::from(*prefix) << 8).collect();
    prefixes.sort_unstable();
    let all = || prefixes.iter().flat_map(|first| *first..*first + 256);
    let next = card.objects.next_qpn;
    let free = |number: &u32| !card.objects.qps.contains_key(number);
    // Numbers 0 and 1 are the management queue pairs of every port.
    let usable = |number: &u32| *number > 1;
    all()
        .filter(|number| *number >= next)
        .chain(all().filter(|number| *number < next))
        .filter(usable)
        .find(free)
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_qp_in::QPN);
    let qp = card.objects.qps.get(&number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    output[query_qp_out::QPC.bytes()].copy_from_slice(&qp.query());
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_qp_in::QPN);
    let qp = card.objects.qps.get_mut(&number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    // What the transport holds for it must go first: timers, packets waiting for memory.
    if qp.state != State::Reset {
        qp.reset();
        card.state_changed(number);
    }
    card.objects.qps.remove(&number);
    Ok(())
}
