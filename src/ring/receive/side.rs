//! The side of a receive queue that a poll uses.

use mlx5_sys::cqe::opcode as cqe_opcode;

use super::ReceiveQueue;
use super::core::failure;
use crate::cqe::{
    Completion, CqeRef, Failure, ReceiveDone, ReceiveKind, Status, UnexpectedCqe,
    UnexpectedCqeReason,
};
use crate::ring::Srq;
use crate::ring::source::CqId;

/// A receive queue that a poll found for a CQE, see [`Queues`](crate::ring::Queues).
pub enum ReceiveSide<'a> {
    /// A queue pair's own.
    Own(&'a mut ReceiveQueue),
    /// A shared one, and the name by which it was found.
    Shared(&'a mut Srq, Member),
}

/// How a CQE names a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// By the number of a queue pair that takes from it.
    Qpn(u32),
    /// By its own user index.
    Index(u32),
}

impl Member {
    #[inline(always)]
    fn is_in(self, qpn: u32, cqe: &CqeRef<'_>) -> bool {
        match self {
            Self::Qpn(number) => number == qpn,
            Self::Index(index) => index == cqe.user_index(),
        }
    }
}

impl ReceiveSide<'_> {
    /// Retires the receive that a CQE of the CQ `cq` and the queue pair `qpn` completes, and
    /// returns its id. The CQE reports success, and the message is in the receive's memory.
    ///
    /// The receive must be the one that the CQE names. Unless the queue is shared, this is the
    /// oldest one. `None`, and nothing changes, if the CQE names another receive or another queue,
    /// or only [`complete`](Self::complete) finds the receive.
    #[inline(always)]
    pub(in crate::ring) fn retire_plain(
        &mut self,
        cq: CqId,
        qpn: u32,
        cqe: &CqeRef<'_>,
    ) -> Option<u64> {
        match self {
            Self::Own(queue) if queue.completes(cq, qpn) => queue.ring.retire_plain(cqe),
            Self::Shared(queue, member) if member.is_in(qpn, cqe) && queue.completes_on(cq) => {
                queue.ring.retire_plain(cqe)
            }
            _ => None,
        }
    }

    /// Copies the message of up to 32 bytes that a CQE of the CQ `cq` and the queue pair `qpn`
    /// holds to the memory of the receive that [`retire_plain`](Self::retire_plain) would retire.
    /// Returns false, and copies nothing, if that would retire none, or the receive is not one
    /// entry that is long enough.
    #[inline(always)]
    pub(in crate::ring) fn deliver(self, cq: CqId, qpn: u32, cqe: &CqeRef<'_>) -> bool {
        match self {
            Self::Own(queue) if queue.completes(cq, qpn) => queue.ring.deliver(cqe),
            Self::Shared(queue, member) if member.is_in(qpn, cqe) && queue.completes_on(cq) => {
                queue.ring.deliver(cqe)
            }
            _ => false,
        }
    }

    /// Returns the completion for a responder's CQE of the CQ `cq`. Nothing is retired if it is
    /// unexpected.
    pub(in crate::ring) fn complete(self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let unexpected = |reason| Completion::UnexpectedCqe(UnexpectedCqe::new(reason, cqe));
        let kind = ReceiveKind::decode(cqe);
        if kind.is_none() && cqe.opcode() != cqe_opcode::RESP_ERR {
            return unexpected(UnexpectedCqeReason::UnknownOpcode);
        }
        let qpn = cqe.qpn();
        let taken = match self {
            Self::Own(queue) if queue.completes(cq, qpn) => queue.ring.take(cqe),
            Self::Shared(queue, member) if member.is_in(qpn, cqe) && queue.has_slots_on(cq) => {
                queue.ring.take(cqe)
            }
            _ => Err(UnexpectedCqeReason::UnknownQueue),
        };
        let (id, fits) = match taken {
            Ok(taken) => taken,
            Err(reason) => return unexpected(reason),
        };
        match kind {
            None => Completion::Failed(failure(id, qpn, cqe)),
            Some(_) if !fits => Completion::Failed(Failure {
                status: Status::LocalLength,
                vendor_error: 0,
                ..failure(id, qpn, cqe)
            }),
            Some(kind) => Completion::Receive(ReceiveDone::decode(id, qpn, cqe, kind)),
        }
    }
}
