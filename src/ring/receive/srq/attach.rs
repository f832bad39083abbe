//! Queue pairs that take receives from a shared receive queue: attaching and detaching.

use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_sys::cqe::opcode;
use mlx5_sys::verbs::{ibv_qp, ibv_qp_state};

use super::Srq;
use super::queue::{AllDetached, Attached, Detached};
use crate::cqe::QueueKind;
use crate::error::{QueueError, state_name};
use crate::ib::INTERNAL;
use crate::ring::ReceiveSource;
use crate::ring::completion::members::{Membership, Name};
use crate::ring::completion::reader::CqReader;
use crate::ring::completion::slots::Demand;
use crate::ring::receive::core::Layout;
use crate::ring::source::claims::QueueKeep;
use crate::ring::source::{CqId, Member as Joining, member, require_named};

impl Srq {
    /// Attaches a queue pair that takes receives from this queue, and keeps the queue pair alive.
    /// Polls then find this queue by its number. Call it before its peer sends: completions that a
    /// poll meets earlier are [unexpected](crate::cqe::Completion::UnexpectedCqe). The queue pair
    /// cannot be reset until it is [detached](Self::detach).
    ///
    /// `completions` is the reader of its receive CQ. Queue pairs may complete on different CQs. On
    /// each further CQ, as many slots are reserved, too.
    ///
    /// CQEs with its number that are still in the CQ are dropped. They may be of an earlier queue
    /// pair with the same number, which took from another queue, so the receives that they complete
    /// stay outstanding as long as this queue lives. If the same queue pair was attached to this
    /// queue before, the CQEs are its own, and their receives are free again, see
    /// [`reclaimed`](Self::reclaimed).
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// queue pair takes from another queue or completes on another CQ, the CQ has no free slot to
    /// reserve, or it is a target of dynamic connections before RTR, or a queue pair for packets,
    /// whose CQEs do not name it; [`QueueError::IndexTaken`]. Nothing is changed then.
    pub fn attach<Q: ReceiveSource>(
        &mut self,
        qp: &Q,
        completions: &mut CqReader,
    ) -> crate::error::Result<()> {
        require_named::<Q::Transport>()?;
        let keep = QueueKeep::receive(qp.owner(INTERNAL))?;
        let life = keep.destroyed();
        let number = self.join(qp.member(), completions, Some(keep))?;
        self.begin(number, Some(&life), completions);
        Ok(())
    }

    /// Drops the CQEs of a newly attached queue pair's receives that are in the CQ.
    fn begin(&mut self, qpn: u32, life: Option<&Arc<AtomicBool>>, completions: &mut CqReader) {
        let cq = completions.id();
        let detached = &mut self.detached.queue_pairs;
        let before = detached.iter().position(|qp| qp.qpn == qpn && qp.cq == cq);
        let before = before.map(|at| detached.swap_remove(at));
        if before.is_some_and(|qp| life.is_some_and(|life| Arc::ptr_eq(life, &qp.life))) {
            // The detach dropped all CQEs of earlier queue pairs, and this one takes from no other
            // queue.
            self.sweep(qpn, completions);
        }
        completions.discard(qpn, QueueKind::Receive);
    }

    /// Attaches a queue pair to a tag-matching queue, see [`attach`](Self::attach). Drops no CQEs:
    /// tag-matching CQEs are not of the queue pair alone.
    pub(in crate::ring) fn attach_tagged<Q: ReceiveSource>(
        &mut self,
        qp: &Q,
        completions: &mut CqReader,
    ) -> crate::error::Result<()> {
        let keep = QueueKeep::receive(qp.owner(INTERNAL))?;
        self.join(qp.member(), completions, Some(keep))?;
        Ok(())
    }

    /// Detaches a queue pair from a tag-matching queue. Returns whether it was attached.
    pub(in crate::ring) fn detach_tagged(&mut self, qpn: u32) -> bool {
        let Some(at) = self.attached.iter().position(|qp| qp.qpn == qpn) else { return false };
        self.members.remove(qpn);
        self.attached.swap_remove(at);
        true
    }

    /// Attaches a queue pair that this crate did not make, see [`attach`](Self::attach).
    ///
    /// # Errors
    /// [`QueueError`]: the queue pair takes from another queue or completes on another CQ, or the
    /// CQ has no free slot to reserve; [`QueueError::IndexTaken`]. Nothing is changed then.
    ///
    /// # Safety
    /// `qp` stays alive and is not reset, until it is detached or this queue is dropped.
    pub unsafe fn attach_raw(
        &mut self,
        qp: NonNull<ibv_qp>,
        completions: &mut CqReader,
    ) -> Result<(), QueueError> {
        // SAFETY: the caller keeps the QP alive.
        let number = self.join(unsafe { member(qp) }, completions, None)?;
        self.begin(number, None, completions);
        Ok(())
    }

    /// Adds a queue pair, and reserves slots on its CQ. Returns its number.
    pub(in crate::ring) fn join(
        &mut self,
        qp: Joining,
        completions: &mut CqReader,
        keep: Option<QueueKeep>,
    ) -> Result<u32, QueueError> {
        if qp.number == 0 {
            // Targets of dynamic connections are the only ones without a number.
            let (found, needed) =
                (ibv_qp_state::IBV_QPS_INIT, "RTR, from which on it has a number");
            return Err(QueueError::WrongState { found, name: state_name(found), needed });
        }
        if qp.srq != Some(self.id) {
            return Err(QueueError::SrqMismatch);
        }
        if !completions.reads(qp.cq) {
            return Err(QueueError::CqMismatch);
        }
        let name = Name::Queue(qp.number, QueueKind::Receive);
        // Polls give CQEs of its own index to this queue, as they should.
        if self.index.is_none() {
            completions.check_index(name, qp.index)?;
        }
        let cq = completions.id();
        completions.collect();
        if !self.has_slots_on(cq) {
            let needed = self.ring.layout.most();
            let cq_slots = completions.reserve_shared(Demand::up_to(needed))?;
            let free = cq_slots.entries();
            if !self.ring.layout.limit_to(free) {
                return Err(QueueError::CqFull { cqes: completions.capacity(), free, needed });
            }
            self.slots.push((cq, cq_slots));
        }
        let member = completions.admit(name, Some(qp.index));
        self.enter(qp.number, cq, keep, member);
        Ok(qp.number)
    }

    /// Makes the queue found by a queue pair's number.
    pub(in crate::ring) fn enter(
        &mut self,
        qpn: u32,
        cq: CqId,
        keep: Option<QueueKeep>,
        member: Option<Membership>,
    ) {
        self.members.insert(qpn, 0);
        self.attached.push(Attached { qpn, cq, keep, _member: member });
    }

    /// Moves an attached queue pair to ERROR, if a message may have begun to fill a receive: the HCA
    /// then completes that receive. Returns whether it does; if not, the queue pair can be detached.
    ///
    /// Gives two firmware commands.
    pub(crate) fn fail(&self, qpn: u32, completions: &CqReader) -> bool {
        let id = completions.id();
        let attached = self.attached.iter().find(|qp| qp.qpn == qpn && qp.cq == id);
        let Some(keep) = attached.and_then(|qp| qp.keep.as_ref()) else { return false };
        let owner = keep.owner();
        let before = [ibv_qp_state::IBV_QPS_RESET, ibv_qp_state::IBV_QPS_INIT];
        owner.state().is_ok_and(|state| !before.contains(&state)) && owner.fail().is_ok()
    }

    /// Detaches a queue pair. Returns false, and changes nothing, if it is not attached or
    /// `completions` is not the reader of its receive CQ.
    ///
    /// To lose no completion: move the queue pair to ERROR, wait for its `QP_LAST_WQE_REACHED`
    /// event, poll until the CQ is empty, then detach it. CQEs of its receives that are still in
    /// the CQ are dropped, see [`reclaimed`](Self::reclaimed). CQEs that come later are of no
    /// queue, and their receives stay outstanding as long as this queue lives.
    pub fn detach(&mut self, qpn: u32, completions: &mut CqReader) -> bool {
        let id = completions.id();
        let Some(at) = self.attached.iter().position(|qp| qp.qpn == qpn && qp.cq == id) else {
            return false;
        };
        self.sweep(qpn, completions);
        self.members.remove(qpn);
        let Attached { cq, keep, .. } = self.attached.swap_remove(at);
        if self.outstanding() != 0 {
            let AllDetached { of, queue_pairs } = &mut *self.detached;
            completions.slots.stray(qpn, *of);
            queue_pairs.retain(|qp| !qp.life.load(Ordering::Acquire));
            if let Some(keep) = keep {
                queue_pairs.push(Detached { qpn, cq, life: keep.destroyed() });
            }
        }
        true
    }

    /// Drops the CQEs of receives that have come since their queue pair was
    /// [detached](Self::detach), and retires these receives. The queue pair still exists, or has
    /// just been destroyed.
    pub(crate) fn sweep_detached(&mut self, qpn: u32, completions: &mut CqReader) {
        let cq = completions.id();
        if self.detached.queue_pairs.iter().any(|qp| qp.qpn == qpn && qp.cq == cq) {
            self.sweep(qpn, completions);
        }
    }

    /// Drops the CQEs of a queue pair in ERROR, and retires the receives among them. Returns whether
    /// its request with the index `last` was flushed.
    pub(crate) fn take_flushed(&mut self, qpn: u32, last: u16, completions: &mut CqReader) -> bool {
        self.sweep(qpn, completions);
        let mut flushed = false;
        completions.sweep(|cqe| {
            let its = cqe.qpn() == qpn && cqe.queue() == Some(QueueKind::Send);
            let failed = cqe.opcode() == opcode::REQ_ERR;
            flushed |= its && failed && cqe.wqe_counter() == last;
            its
        });
        flushed
    }

    /// Drops the CQEs of a queue pair's receives, and retires these receives.
    fn sweep(&mut self, qpn: u32, completions: &mut CqReader) {
        let Self { ring, reclaimed, .. } = self;
        completions.sweep(|cqe| {
            let its = cqe.qpn() == qpn && cqe.queue() == Some(QueueKind::Receive);
            if its {
                let retired = ring.layout.retire_any(cqe.wqe_counter());
                reclaimed.extend(retired.map(|receive| receive.id));
            }
            its
        });
    }
}
