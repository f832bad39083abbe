//! The rings of queues that programs make by command. Their memory is in umems.

use mlx5_sys::ifc::{
    Field, cqc, create_cq_in, create_qp_in, create_rmp_in, create_rq_in, create_sq_in, qpc, rmpc,
    rqc, sqc, wq,
};

use super::queues::{Pair, Receive};
use super::rings::{CqRing, ReceiveRing, SendRing, SharedRing};
use crate::object::{Layout, Service};
use crate::queue::asked_for;

/// Returns the ring of a CQ by the command that made it. `at` gives the address of an offset in a umem.
/// `None` for a CQ of another layout than the basic one, or whose memory is not known.
pub(super) fn cq(input: &[u8], at: impl Fn(u64, u64) -> Option<u64>) -> Option<CqRing> {
    if input.len() < create_cq_in::SIZE {
        return None;
    }
    let of = |field: Field| field.within(create_cq_in::CQ_CONTEXT).get(input);
    let compression = asked_for(&input[create_cq_in::CQ_CONTEXT.bytes()]).ok()?;
    let format = match &compression {
        Some(compression) if compression.layout() != Layout::Basic => return None,
        Some(compression) => Some(compression.format()),
        None => None,
    };
    let (umem, offset) = (create_cq_in::CQ_UMEM_ID, create_cq_in::CQ_UMEM_OFFSET);
    let base = at(umem.get(input), offset.get(input))?;
    let record = at(of(cqc::DBR_UMEM_ID), of(cqc::DBR_ADDR))?;
    let size = if of(cqc::CQE_SZ) == 0 { 64 } else { 128 };
    let ring = CqRing::new(base, 1 << of(cqc::LOG_CQ_SIZE).min(31), size, record)?;
    Some(match format {
        Some(format) => ring.compressed(format),
        None => ring,
    })
}

/// Returns the rings of a queue pair by the command that made it.
pub(super) fn queue_pair(
    input: &[u8],
    number: u32,
    at: impl Fn(u64, u64) -> Option<u64>,
) -> Option<Pair> {
    /// `MLX5_SRQ_RQ`, and no shared receive queue.
    const SHARED: u64 = 1;
    const OWN: u64 = 0;
    if input.len() < create_qp_in::SIZE {
        return None;
    }
    let of = |field: Field| field.within(create_qp_in::QPC).get(input);
    let service = match of(qpc::ST) {
        0 => Service::Rc,
        1 => Service::Uc,
        2 => Service::Ud,
        3 => Service::Xrc,
        5 => Service::Dc,
        _ => return None,
    };
    // The first WQE's place in the first page.
    if of(qpc::PAGE_OFFSET) != 0 {
        return None;
    }
    let (umem, offset) = (create_qp_in::WQ_UMEM_ID, create_qp_in::WQ_UMEM_OFFSET);
    let base = at(umem.get(input), offset.get(input))?;
    let record = at(of(qpc::DBR_UMEM_ID), of(qpc::DBR_ADDR))?;
    let (log, shift) = (of(qpc::LOG_RQ_SIZE) as u32, of(qpc::LOG_RQ_STRIDE) as u32 + 4);
    let (receive, before) = match of(qpc::RQ_TYPE) {
        OWN => (
            ReceiveRing::new(base, 1 << log, shift, record).map_or(Receive::None, Receive::Own),
            1 << (log + shift),
        ),
        SHARED => (Receive::Shared(of(qpc::SRQN_RMPN_XRQN) as u32), 0),
        _ => (Receive::None, 0),
    };
    let send = match of(qpc::NO_SQ) {
        0 => {
            let blocks = 1 << of(qpc::LOG_SQ_SIZE);
            SendRing::new(base.checked_add(before)?, blocks, record.checked_add(4)?)
        }
        _ => None,
    };
    let cqs = [of(qpc::CQN_SND) as u32, of(qpc::CQN_RCV) as u32];
    Some(Pair { number, service, send, receive, cqs })
}

/// A work queue, as the context of a queue that is made by command describes it.
struct WorkQueue {
    kind: u64,
    base: u64,
    wqes: u32,
    /// Binary logarithm of the bytes of a WQE.
    shift: u32,
    record: u64,
}

/// Kinds of work queues (`mlx5_ifc.h`, `MLX5_WQ_TYPE_*`).
const LINKED: u64 = 0;
const CYCLIC: u64 = 1;

impl WorkQueue {
    /// Reads the part `context` of a command.
    fn of(input: &[u8], context: Field, at: impl Fn(u64, u64) -> Option<u64>) -> Option<Self> {
        if input.len() < context.bytes().end {
            return None;
        }
        let of = |field: Field| field.within(context).get(input);
        // The first WQE's place in the first page.
        if of(wq::PAGE_OFFSET) != 0 {
            return None;
        }
        Some(Self {
            kind: of(wq::WQ_TYPE),
            base: at(of(wq::WQ_UMEM_ID), of(wq::WQ_UMEM_OFFSET))?,
            wqes: 1 << of(wq::LOG_WQ_SZ),
            shift: of(wq::LOG_WQ_STRIDE) as u32,
            record: at(of(wq::DBR_UMEM_ID), of(wq::DBR_ADDR))?,
        })
    }
}

/// Returns the ring of a send queue for packets by the command that made it.
pub(super) fn send_queue(
    input: &[u8],
    number: u32,
    at: impl Fn(u64, u64) -> Option<u64>,
) -> Option<Pair> {
    let queue = WorkQueue::of(input, sqc::WQ.within(create_sq_in::CTX), at)?;
    let send = SendRing::new(queue.base, queue.wqes, queue.record.checked_add(4)?);
    let cqs = [sqc::CQN.within(create_sq_in::CTX).get(input) as u32, 0];
    Some(Pair { number, service: Service::Ethernet, send, receive: Receive::None, cqs })
}

/// Returns the ring of a receive queue by the command that made it. `None` for a queue of strides, whose
/// CQEs name no WQE.
pub(super) fn receive_queue(
    input: &[u8],
    number: u32,
    at: impl Fn(u64, u64) -> Option<u64>,
) -> Option<Pair> {
    let queue = WorkQueue::of(input, rqc::WQ.within(create_rq_in::CTX), at)?;
    let ring = ReceiveRing::new(queue.base, queue.wqes, queue.shift, queue.record)?;
    let receive = Receive::Own(ring);
    let cqs = [0, rqc::CQN.within(create_rq_in::CTX).get(input) as u32];
    let pair = Pair { number, service: Service::Ethernet, send: None, receive, cqs };
    (queue.kind == CYCLIC).then_some(pair)
}

/// Returns the ring of a shared receive queue (a receive memory pool) by the command that made it.
/// `None` for one whose WQEs are not linked.
pub(super) fn shared_queue(
    input: &[u8],
    at: impl Fn(u64, u64) -> Option<u64>,
) -> Option<SharedRing> {
    let queue = WorkQueue::of(input, rmpc::WQ.within(create_rmp_in::CTX), at)?;
    let stride = 1usize.checked_shl(queue.shift)?;
    SharedRing::of(queue.base, queue.wqes, stride).filter(|_| queue.kind == LINKED)
}

#[cfg(test)]
mod tests;
