//! Retiring requests of a send queue: handles a requester's CQEs.

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::{SEGMENT_SIZE, WQEBB_SIZE, opcode};

use super::ring::SendRing;
use super::shadow::Entry;
use super::shared::Sequencer;
use super::state::SendState;
use crate::cqe::{
    Completion, CqeRef, Failure, QueueKind, SendDone, SendOperation, Status, UnexpectedCqe,
    UnexpectedCqeReason,
};
use crate::ib::Counter;
use crate::ring::completion::scatter;
use crate::ring::source::CqId;

/// The side of a send queue that a poll uses, see [`Queues`](crate::ring::Queues).
pub struct SendSide<'a> {
    pub(in crate::ring) ring: &'a mut SendRing,
    /// The sequencer of a shared queue, in which its producers read the retired position.
    pub(super) shared: Option<&'a Sequencer>,
}

impl<'a> SendSide<'a> {
    /// Returns the state of the queue.
    #[inline(always)]
    pub(crate) fn into_state(self) -> &'a mut SendState {
        &mut self.ring.state
    }
}

impl SendSide<'_> {
    /// Number of the queue pair.
    #[inline(always)]
    pub fn qpn(&self) -> u32 {
        self.ring.qpn()
    }

    /// Retires the plain request that a CQE of the CQ `cq` reports. The CQE is a success without
    /// data in it. Without `ANY`, the request must be the oldest one, and `cq` is the queue's.
    /// `None`, and nothing changes, if it is another request or of another queue. The caller
    /// publishes the consumer index, then calls [`release`](Self::release).
    #[inline(always)]
    pub(in crate::ring) fn retire_plain<const ANY: bool>(
        &mut self,
        cq: CqId,
        cqe: &CqeRef<'_>,
    ) -> Option<Entry> {
        self.ring.retire_plain::<ANY>(cq, cqe.end())
    }

    /// Builds the completion of a request that was retired.
    #[inline(always)]
    pub(in crate::ring) fn done(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> SendDone {
        self.ring.done(entry, cqe)
    }

    /// Retires requests like [`complete`](Self::complete), for a success without data in the CQE.
    /// `None`, and nothing changes, if the CQE is not of this queue.
    #[inline(always)]
    pub(in crate::ring) fn complete_plain(
        &mut self,
        cq: CqId,
        qpn: u32,
        cqe: &CqeRef<'_>,
    ) -> Option<SendDone> {
        let ring = &mut *self.ring;
        if ring.cq != cq || ring.qpn() != qpn {
            return None;
        }
        let entry = match ring.retire_plain::<true>(cq, cqe.end()) {
            Some(entry) => entry,
            None => {
                let counter = ring.state.retire(cqe.wqe_counter())?;
                ring.state.entry(counter)
            }
        };
        Some(ring.done(&entry, cqe))
    }

    /// Retires the request that a requester's CQE of the CQ `cq` completes. The caller publishes
    /// the consumer index, then calls [`release`](Self::release).
    pub(in crate::ring) fn complete(&mut self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let completion = self.ring.complete(cq, cqe);
        self.stop_producers();
        completion
    }

    /// Stops the producers of a shared queue after a failure.
    #[inline(always)]
    pub(super) fn stop_producers(&self) {
        if let Some(shared) = self.shared.filter(|_| self.ring.state.is_stopped()) {
            shared.stop();
        }
    }

    /// Releases the ring slots and CQ slots of retired requests to the producers of a shared queue.
    /// To be called after the consumer index was published: a producer on another thread may post
    /// at once, and the HCA must know by then that the CQEs of the retired requests were taken.
    #[inline(always)]
    pub(in crate::ring) fn release(&self) {
        if let Some(shared) = self.shared {
            let mark = self.ring.mark();
            let tail = mark.at.since(Counter::default());
            shared.retire(tail, tail.wrapping_sub(mark.silent) as u16);
        }
    }
}

impl SendRing {
    /// Retires the outstanding plain WQE that a CQE of the CQ `cq` with these last eight bytes
    /// reports, and all before it. Without `ANY`, the WQE must be the oldest, and `cq` is the
    /// queue's.
    #[inline(always)]
    fn retire_plain<const ANY: bool>(&mut self, cq: CqId, end: u64) -> Option<Entry> {
        if ANY && self.cq != cq {
            return None;
        }
        match self.state.retire_oldest(end) {
            None if ANY => self.state.retire_other(end),
            oldest => oldest,
        }
    }

    /// Copies the data of a READ or atomic from the CQE to the memory that the WQE names.
    #[cold]
    fn scatter(&self, entry: &Entry, counter: Counter, cqe: &CqeRef<'_>, length: u32) -> bool {
        let before = self.units_before_payload as usize;
        let first = match entry.operation() {
            SendOperation::Read => before,
            // Behind the operands.
            SendOperation::CompareSwap | SendOperation::FetchAdd => before + 1,
            // One segment, behind operands of any size.
            SendOperation::MaskedCompareSwap | SendOperation::MaskedFetchAdd => {
                (entry.key.ds() as usize).saturating_sub(1)
            }
            _ => return false,
        };
        let Some(data) = cqe.inline_data(length) else { return false };
        // The answer of an atomic of eight bytes is most significant byte first in a CQE, and in the
        // host's order where the HCA writes it to memory (UCX, `rc_mlx5_iface.c`).
        let is_number = length == 8 && entry.operation() != SendOperation::Read;
        let data = if is_number { data.in_host_order() } else { data };
        let shape = self.shape();
        let size = shape.entries() as usize * WQEBB_SIZE;
        let start = shape.slot(counter) * WQEBB_SIZE;
        let segments = (first..entry.key.ds() as usize).map(|unit| {
            let offset = (start + unit * SEGMENT_SIZE) % size;
            // SAFETY: a multiple of 16 within the ring.
            unsafe { scatter::Segment::read(self.buffer.as_ptr().add(offset)) }
        });
        // SAFETY: if the QP puts payload into CQEs, the contract of posting guarantees that the
        // entries' memory is mapped at their addresses and unused until this completion is
        // reported.
        unsafe { scatter::scatter(data.bytes(), segments) }
    }

    #[inline(always)]
    fn complete(&mut self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let ring = self;
        if ring.cq != cq || cqe.qpn() != ring.qpn() {
            return Completion::UnexpectedCqe(UnexpectedCqe::new(
                UnexpectedCqeReason::UnknownQueue,
                cqe,
            ));
        }
        let Some(counter) = ring.state.retire(cqe.wqe_counter()) else {
            return Completion::UnexpectedCqe(UnexpectedCqe::new(
                UnexpectedCqeReason::NotOutstanding,
                cqe,
            ));
        };
        let entry = ring.state.entry(counter);
        if cqe.opcode() != cqe_opcode::REQ {
            // SAFETY: the ring's own memory. The WQE was outstanding until now, and nothing was
            // posted since.
            unsafe { ring.doorbell.flight.found_send(ring.buffer, ring.shape(), counter) }
            return ring.fail(&entry, cqe);
        }
        let done = ring.done(&entry, cqe);
        if cqe.has_inline_data() && !ring.scatter(&entry, counter, cqe, done.byte_len) {
            let failure = Failure {
                id: entry.id,
                qpn: done.qpn,
                queue: QueueKind::Send,
                status: Status::LocalLength,
                vendor_error: 0,
                wqe_index: counter.low16(),
                opcode: entry.key.opcode(),
            };
            return Completion::Failed(failure);
        }
        Completion::Send(done)
    }

    #[inline(always)]
    fn done(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> SendDone {
        let end = self.state.retired_up_to(entry);
        self.doorbell.timing.arrived(end, cqe.seen());
        self.doorbell.flight.cqe(cqe);
        let code = entry.key.opcode();
        // Requests that fetch nothing are checked first. Most of them have lower opcodes.
        let byte_len = match code {
            ..opcode::RDMA_READ => 0,
            opcode::RDMA_READ => cqe.byte_count(),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => 8,
            opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => cqe.byte_count(),
            _ => 0,
        };
        SendDone { id: entry.id, qpn: self.qpn(), operation: entry.operation(), byte_len }
    }

    #[cold]
    fn fail(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> Completion {
        self.doorbell.flight.cqe(cqe);
        self.state.stop();
        Completion::Failed(Failure {
            id: entry.id,
            qpn: self.qpn(),
            queue: QueueKind::Send,
            status: Status::from_syndrome(cqe.syndrome()),
            vendor_error: cqe.vendor_syndrome(),
            wqe_index: cqe.wqe_counter(),
            opcode: entry.key.opcode(),
        })
    }
}
