//! Commands that create, query and destroy queue pairs. [`super::transition`] changes their states.

use mlx5_sys::ifc::{
    Field, create_qp_in, create_qp_out, destroy_qp_in, qpc, qpc_ext, query_qp_in, query_qp_out,
};

use super::buffer::{self, Geometry};
use super::capability::{LOG_MAX_RECORDLESS_SQ, LOG_MAX_STREAMS, MAX_RQ_WQE, may_stamp};
use super::umem::{self, RecordFields};
use super::{Refusal, context, counter, get, owned, transition, uid};
use crate::card::{Card, Feature};
use crate::object::{Qp, ReceiveQueue, Role, SendQueue, Service, Special, Srq, State};
use crate::transport::QueuePair;

/// Receive queue types (`qp.h`): a ring of its own, a shared one, and none.
const RQ_REGULAR: u32 = 0;
const RQ_SHARED: u32 = 1;
const RQ_NONE: u32 = 3;

/// Fields of the context that locate the doorbell record.
const RECORD: RecordFields =
    RecordFields { valid: qpc::DBR_UMEM_VALID, number: qpc::DBR_UMEM_ID, address: qpc::DBR_ADDR };

/// The service that QPC's `st` names (`qp.h`, `MLX5_QP_ST_*`), and the special queue pair.
fn service(st: u32) -> Option<(Service, Role)> {
    match st {
        0 => Some((Service::Rc, Role::Pair)),
        1 => Some((Service::Uc, Role::Pair)),
        2 => Some((Service::Ud, Role::Pair)),
        3 => Some((Service::Xrc, Role::Pair)),
        5 => Some((Service::Dc, Role::Pair)),
        7 => Some((Service::Ud, Role::Special(Special::Smi))),
        8 => Some((Service::Ud, Role::Special(Special::Gsi))),
        // It sends nothing; of the services that know UMR, this one needs no peer.
        0xc => Some((Service::Uc, Role::Special(Special::Umr))),
        _ => None,
    }
}

/// Checks that a queue pair may have this role, or this number in its datagrams: the driver alone
/// makes such queue pairs, and a port has one of each number.
fn check_role(card: &Card, role: &Role, source: u32, user: u16) -> Result<(), Refusal> {
    let special = match role {
        Role::Special(special) => Some(*special),
        _ => None,
    };
    if user != 0 && (special.is_some() || source != 0) {
        return Err(Refusal::QpOfDriver);
    }
    match special.and_then(Special::wire_number) {
        Some(number) if card.objects.at_wire_number(number).is_some() => Err(Refusal::QpSpecial),
        _ => Ok(()),
    }
}

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let mut qpc: Box<[u8; qpc::SIZE]> = context(input, create_qp_in::QPC)?;
    let field = |field| get(&qpc[..], field);
    let user = uid(input);
    if get(input, create_qp_in::INPUT_QPN) != 0 {
        return Err(Refusal::QpNumber);
    }
    let (service, role) = service(field(qpc::ST)).ok_or(Refusal::QpService)?;
    check_role(card, &role, field(qpc::DETH_SQPN), user)?;
    check_modes(card, field)?;
    // The driver's queue for UMR changes keys of all protection domains, and has none.
    if !matches!(role, Role::Special(Special::Umr)) || field(qpc::PD) != 0 {
        let pd = card.objects.pds.get(field(qpc::PD)).ok_or(Refusal::NoPd)?;
        owned(pd.uid, user)?;
    }
    let queues = Queues::of(field, service)?;
    queues.check_completions(card, field, user, service)?;
    counter::may_name(card, field(qpc::COUNTER_SET_ID), user)?;
    if service == Service::Xrc && !queues.sends {
        let domain = card.objects.xrcds.get(field(qpc::XRCD)).ok_or(Refusal::NoXrcd)?;
        owned(domain.uid, user)?;
    }
    if queues.sends {
        let uar = card.objects.uars.get(field(qpc::UAR_PAGE)).ok_or(Refusal::NoUar)?;
        owned(uar.uid, user)?;
    }
    let profile = card.identity.profile;
    let streams = if profile.has(Feature::DciStreams) { LOG_MAX_STREAMS } else { 0 };
    if field(qpc::LOG_NUM_DCI_STREAM_CHANNELS) > streams
        || field(qpc::LOG_NUM_DCI_ERRORED_STREAMS) > streams
    {
        return Err(Refusal::QpStreams);
    }
    match field(qpc::SEND_DBR_MODE) {
        0 => {}
        1 if queues.sends
            && profile.has(Feature::Recordless)
            && field(qpc::LOG_SQ_SIZE) <= LOG_MAX_RECORDLESS_SQ => {}
        _ => return Err(Refusal::QpRecordless),
    }
    let stride = 16usize << field(qpc::LOG_RQ_STRIDE);
    if queues.receives && stride > MAX_RQ_WQE {
        return Err(Refusal::QpReceiveStride);
    }
    let rq_wqes = if queues.receives { 1u32 << field(qpc::LOG_RQ_SIZE) } else { 0 };
    let sq_blocks = if queues.sends { 1u32 << field(qpc::LOG_SQ_SIZE) } else { 0 };
    let rq_bytes = rq_wqes as usize * stride;
    let sq_bytes = sq_blocks as usize * 64;
    let geometry = Geometry {
        log_page_size: field(qpc::LOG_PAGE_SIZE),
        page_offset: field(qpc::PAGE_OFFSET),
        length: rq_bytes + sq_bytes,
        alignment: 64,
    };
    let mut pages = if get(input, create_qp_in::WQ_UMEM_VALID) == 1 {
        let number = get(input, create_qp_in::WQ_UMEM_ID);
        let offset = create_qp_in::WQ_UMEM_OFFSET.get(input);
        umem::buffer(card, user, number, offset, &geometry)?
    } else {
        buffer::queue(card, input, &geometry).map_err(|refusal| match refusal {
            Refusal::InputLength => Refusal::QpPages,
            other => other,
        })?
    };
    umem::place(card, user, &mut qpc[..], &RECORD, &mut pages)?;
    let rq = pages.part(0, rq_bytes).ok_or(Refusal::InputLength)?;
    let sq = pages.part(rq_bytes, sq_bytes).ok_or(Refusal::InputLength)?;

    let number = free_number(card).ok_or(Refusal::Exhausted)?;
    qpc::STATE.set(&mut qpc[..], 0);
    card.objects.enter_qp(Qp {
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
        transport: Some(QueuePair::boxed(service)),
        role,
        failure: [0; 4],
    });
    create_qp_out::QPN.set(output, number.into());
    Ok(())
}

/// Checks the modes of a new queue pair.
fn check_modes(card: &Card, field: impl Fn(Field) -> u32) -> Result<(), Refusal> {
    if field(qpc::PM_STATE) == 2 {
        return Err(Refusal::QpMigration);
    }
    if field(qpc::WQ_SIGNATURE) == 1 {
        return Err(Refusal::QpSignature);
    }
    if field(qpc::END_PADDING_MODE) != 0 {
        return Err(Refusal::QpPadding);
    }
    if !may_stamp(card, field(qpc::TS_FORMAT)) {
        return Err(Refusal::QpTimestamp);
    }
    Ok(())
}

/// The queues of a new queue pair.
struct Queues {
    sends: bool,
    /// Whether it has a receive queue of its own.
    receives: bool,
    /// Whether it takes from a shared receive queue.
    shares: bool,
}

impl Queues {
    fn of(field: impl Fn(Field) -> u32, service: Service) -> Result<Self, Refusal> {
        let (receives, shares) = match field(qpc::RQ_TYPE) {
            // Targets of extended reliable connections receive from the SRQ that each request
            // names. Initiators receive nothing, and neither do initiators of dynamic connections.
            RQ_SHARED | RQ_NONE if matches!(service, Service::Xrc | Service::Dc) => (false, false),
            _ if matches!(service, Service::Xrc | Service::Dc) => {
                return Err(Refusal::QpReceiveType);
            }
            RQ_REGULAR => (true, false),
            RQ_SHARED => (false, true),
            RQ_NONE => (false, false),
            _ => return Err(Refusal::QpReceiveType),
        };
        Ok(Self { sends: field(qpc::NO_SQ) == 0, receives, shares })
    }

    /// Checks the CQs, the shared receive queue, and payload in CQEs.
    fn check_completions(
        &self,
        card: &Card,
        field: impl Fn(Field) -> u32,
        user: u16,
        service: Service,
    ) -> Result<(), Refusal> {
        let cqe_size = |used: bool, cqn| match card.objects.cqs.get(cqn) {
            Some(cq) => owned(cq.uid, user).map(|()| cq.cqe_size),
            None if used => Err(Refusal::NoCq),
            None => Ok(0),
        };
        let sender = cqe_size(self.sends, field(qpc::CQN_SND))?;
        let receiver = cqe_size(self.receives || self.shares, field(qpc::CQN_RCV))?;
        if self.shares {
            let srq = card.objects.srqs.get(field(qpc::SRQN_RMPN_XRQN));
            // Tags are matched on reliable connections alone.
            let fits =
                |srq: &&Srq| srq.xrc().is_none() && (srq.tags.is_none() || service == Service::Rc);
            let srq = srq.filter(fits).ok_or(Refusal::NoSrq)?;
            owned(srq.uid, user)?;
        }
        match (field(qpc::CS_REQ), sender) {
            (0 | 0x11, _) | (0x22, 128) => {}
            _ => return Err(Refusal::QpScatter),
        }
        match (field(qpc::CS_RES), receiver) {
            (0 | 0x1, _) | (0x2, 128) => Ok(()),
            _ => Err(Refusal::QpScatter),
        }
    }
}

/// Number of a new queue pair, or of a queue that shares their numbers: the first free one at or
/// after the one that was given last, within this card's prefixes.
pub(super) fn free_number(card: &Card) -> Option<u32> {
    let mut prefixes: Vec<u32> =
        card.identity.qpn_prefixes.iter().map(|prefix| u32::from(*prefix) << 8).collect();
    prefixes.sort_unstable();
    let next = card.objects.next_qpn;
    // What lies before `next` is tried last. Whole prefixes are passed over at once.
    let behind = prefixes.iter().flat_map(|first| (*first).max(next)..(*first + 256).max(next));
    let before = prefixes.iter().flat_map(|first| *first..(*first + 256).min(next).max(*first));
    // Numbers 0 and 1 are the management queue pairs of every port.
    let usable = |number: &u32| *number > 1;
    let free = |number: &u32| !card.objects.qps.contains_key(number);
    behind.chain(before).filter(usable).find(free)
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, query_qp_in::QPN);
    let qp = card.objects.queue_pair(number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    output[query_qp_out::QPC.bytes()].copy_from_slice(&qp.query());
    if get(input, query_qp_in::QPC_EXT) == 1 {
        // The extension takes the place of the list of pages.
        let at = query_qp_out::PAS.bytes().start;
        let extension = output.get_mut(at..at + qpc_ext::SIZE).ok_or(Refusal::OutputLength)?;
        extension[qpc_ext::ERROR_SYNDROME.bytes()].copy_from_slice(&qp.failure);
    }
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_qp_in::QPN);
    let attached = card.objects.groups.has(number);
    let qp = card.objects.queue_pair_mut(number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    if attached {
        return Err(Refusal::QpAttached);
    }
    // What the transport holds for it must go first: timers, packets waiting for memory.
    if qp.state != State::Reset {
        transition::reset(card, number);
    }
    card.objects.remove_qp(number);
    Ok(())
}

#[cfg(test)]
mod tests;
