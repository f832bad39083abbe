//! The side of a shared receive queue that a poll uses.

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::SharedReceives;
use crate::cqe::{CqeRef, UnexpectedCqeReason};
use crate::ring::scatter;
use crate::ring::source::CqId;

/// How a CQE named a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum Member {
    /// By the number of a queue pair that takes from it.
    Qpn(u32),
    /// By its own user index.
    Index(u32),
}

/// A shared receive queue that a CQE names.
pub(in crate::ring) struct SharedSide<'a> {
    pub(in crate::ring) queue: &'a mut SharedReceives,
    /// Only one that has it makes a side.
    pub(super) member: Member,
}

impl SharedSide<'_> {
    #[inline(always)]
    fn is_of(&self, cq: CqId, qpn: u32, cqe: &CqeRef<'_>) -> bool {
        self.names(qpn, cqe) && self.queue.completes_on(cq)
    }

    #[inline(always)]
    fn names(&self, qpn: u32, cqe: &CqeRef<'_>) -> bool {
        match self.member {
            Member::Qpn(number) => number == qpn,
            Member::Index(index) => index == cqe.user_index(),
        }
    }

    /// See [`ReceiveSide::retire_plain`](crate::ring::ReceiveSide::retire_plain).
    #[inline(always)]
    pub(in crate::ring) fn retire_plain(
        &mut self,
        cq: CqId,
        qpn: u32,
        cqe: &CqeRef<'_>,
    ) -> Option<u64> {
        if !self.is_of(cq, qpn, cqe) {
            return None;
        }
        self.queue.list.retire(cqe.wqe_counter())
    }

    /// See [`ReceiveSide::retire_short`](crate::ring::ReceiveSide::retire_short).
    #[inline(always)]
    pub(in crate::ring) fn retire_short(
        &mut self,
        cq: CqId,
        qpn: u32,
        cqe: &CqeRef<'_>,
    ) -> Option<u64> {
        if cqe.has_inline_data() {
            let slot = cqe.wqe_counter();
            if !self.is_of(cq, qpn, cqe) || !self.queue.list.is_outstanding(slot) {
                return None;
            }
            // SAFETY: the first entry of a WQE of this queue's memory: the list has a WQE with this
            // index.
            let segment = unsafe { scatter::Segment::read(self.queue.wqe(slot).add(SEGMENT_SIZE)) };
            let (bytes, length) = cqe.short_data()?;
            // SAFETY: if a QP puts payload into CQEs, the contract of posting guarantees that the
            // entry's memory is mapped at its address and unused until this completion is reported.
            if !unsafe { segment.put_short(&bytes, length) } {
                return None;
            }
        }
        self.retire_plain(cq, qpn, cqe)
    }

    /// Retires the receive that any responder's CQE completes. Returns the id, and whether a
    /// message in the CQE was copied to the memory that the receive names.
    pub(in crate::ring) fn take(
        self,
        cq: CqId,
        cqe: &CqeRef<'_>,
    ) -> Result<(u64, bool), UnexpectedCqeReason> {
        if !self.is_of(cq, cqe.qpn(), cqe) {
            return self.take_of_ring(cq, cqe);
        }
        let slot = cqe.wqe_counter();
        let id = self.queue.list.retire(slot).ok_or(UnexpectedCqeReason::NotOutstanding)?;
        self.queue.note(slot, cqe);
        let inside = cqe.opcode() != cqe_opcode::RESP_ERR && cqe.has_inline_data();
        Ok((id, !inside || self.queue.scatter(slot, cqe)))
    }

    /// Retires a receive like [`take`](Self::take) for a cyclic queue, whose CQEs name the
    /// position.
    #[cold]
    fn take_of_ring(self, cq: CqId, cqe: &CqeRef<'_>) -> Result<(u64, bool), UnexpectedCqeReason> {
        if !self.queue.is_cyclic() || !self.names(cqe.qpn(), cqe) || !self.queue.has_promise_of(cq)
        {
            return Err(UnexpectedCqeReason::UnknownQueue);
        }
        let list = &mut self.queue.list;
        let counter = cqe.wqe_counter();
        let slot = list.place_in_ring(counter).ok_or(UnexpectedCqeReason::NotOutstanding)?;
        let id = list.retire_in_ring(counter).ok_or(UnexpectedCqeReason::NotOutstanding)?;
        self.queue.note(slot, cqe);
        let inside = cqe.opcode() != cqe_opcode::RESP_ERR && cqe.has_inline_data();
        Ok((id, !inside || self.queue.scatter(slot, cqe)))
    }
}

impl SharedReceives {
    /// Copies a message that came in the CQE to the memory that the receive names.
    #[cold]
    fn scatter(&self, slot: u16, cqe: &CqeRef<'_>) -> bool {
        let Some(data) = cqe.inline_data(cqe.byte_count()) else { return false };
        let segments = (1..=self.max_sge as usize).map(|unit| {
            // SAFETY: a segment of this WQE.
            unsafe { scatter::Segment::read(self.wqe(slot).add(unit * SEGMENT_SIZE)) }
        });
        // SAFETY: if a QP puts payload into CQEs, the contract of posting guarantees that the
        // entries' memory is mapped at their addresses and unused until this completion is
        // reported.
        unsafe { scatter::scatter(data.bytes(), segments) }
    }
}
