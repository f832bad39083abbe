//! Common parts of Ethernet send and receive queues: memory, state, and claims.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_sys::ifc::{
    Field, modify_rq_in, modify_sq_in, opcode, query_rq_in, query_rq_out, query_sq_in,
    query_sq_out, rqc, sqc, wq,
};
use mlx5_sys::verbs::{ibv_qp, ibv_qp_state};

use super::super::ring_spec::RingSpec;
use super::super::umem::{Memory, Part};
use super::super::{Command, Object};
use crate::error::{Error, QueueError, Result};
use crate::ring::source::{CqObject, CqOwner, ObjectId, QueueOwner, WorkQueue};
use crate::verbs::{Claims, Context};

/// States (`mlx5_ifc.h`, `MLX5_SQC_STATE_*`, `MLX5_RQC_STATE_*`).
const RST: u64 = 0;
const RDY: u64 = 1;
const ERR: u64 = 3;

/// A queue, with the objects it depends on.
pub(super) struct Queue {
    /// `Some` until it is dropped.
    object: Option<Object>,
    number: u32,
    kind: WorkQueue,
    claims: Claims,
    /// Set when the queue is destroyed, so that no completion is expected any more.
    destroyed: Arc<AtomicBool>,
    cq: (CqObject, Arc<dyn CqOwner>),
    /// The memory of the queue, released after the HCA has destroyed the queue.
    memory: Memory,
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        // A queue that the HCA does not destroy stays until its context is closed.
        self.destroyed.store(object.destroy().is_ok(), Ordering::Release);
    }
}

/// A ring of WQEs (`mlx5_ifc.h`, `MLX5_WQ_TYPE_CYCLIC`).
const CYCLIC: u64 = 1;

/// Returns the fields of a WQ that give the size of its ring, and the place of its memory.
pub(super) fn ring(spec: RingSpec, memory: &Memory) -> [(Field, u64); 9] {
    let umem = |part: &Part| u64::from(part.umem());
    [
        (wq::WQ_TYPE, CYCLIC),
        (wq::LOG_WQ_STRIDE, spec.log_stride().into()),
        (wq::LOG_WQ_SZ, spec.log_entries().into()),
        (wq::DBR_UMEM_VALID, 1),
        (wq::DBR_UMEM_ID, umem(&memory.record)),
        (wq::DBR_ADDR, memory.record.offset()),
        (wq::WQ_UMEM_VALID, 1),
        (wq::WQ_UMEM_ID, umem(&memory.ring)),
        (wq::WQ_UMEM_OFFSET, memory.ring.offset()),
    ]
}

impl Queue {
    /// Makes a newly created queue ready.
    pub(super) fn new(
        object: Object,
        number: u32,
        kind: WorkQueue,
        cq: (CqObject, Arc<dyn CqOwner>),
        memory: Memory,
    ) -> Result<Queue> {
        let (claims, destroyed) = (Claims::default(), Arc::default());
        let object = Some(object);
        let queue = Queue { object, number, kind, claims, destroyed, cq, memory };
        // SAFETY: no other code has the queue yet.
        unsafe { queue.modify(RST, RDY)? };
        Ok(queue)
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn cq(&self) -> CqObject {
        self.cq.0
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn object(&self) -> &Object {
        self.object.as_ref().expect("it goes with the queue")
    }

    pub(super) fn context(&self) -> &Context {
        self.object().context()
    }

    /// Returns the whole context, as the HCA shows it.
    pub(super) fn query(&self) -> Result<Vec<u8>> {
        let (command, at) = match self.kind {
            WorkQueue::Send => (
                Command::new(opcode::QUERY_SQ, query_sq_in::SIZE)
                    .set(query_sq_in::SQN, self.number)
                    .reply(query_sq_out::SIZE),
                query_sq_out::SQ_CONTEXT,
            ),
            WorkQueue::Receive => (
                Command::new(opcode::QUERY_RQ, query_rq_in::SIZE)
                    .set(query_rq_in::RQN, self.number)
                    .reply(query_rq_out::SIZE),
                query_rq_out::RQ_CONTEXT,
            ),
        };
        Ok(self.object().query(&command)?.bytes(at).to_vec())
    }

    fn code(&self) -> Result<u64> {
        let context = self.query()?;
        Ok(match self.kind {
            WorkQueue::Send => sqc::STATE.get(&context),
            WorkQueue::Receive => rqc::STATE.get(&context),
        })
    }

    /// Moves the queue from one state to another.
    ///
    /// # Safety
    /// If one of the states is RST, no queue of this crate posts to the queue: its claims are
    /// reserved, or no other code has the queue yet.
    unsafe fn modify(&self, from: u64, to: u64) -> Result<()> {
        let command = match self.kind {
            WorkQueue::Send => Command::new(opcode::MODIFY_SQ, modify_sq_in::SIZE)
                .set(modify_sq_in::SQN, self.number)
                .set(modify_sq_in::SQ_STATE, from)
                .set(sqc::STATE.within(modify_sq_in::CTX), to),
            WorkQueue::Receive => Command::new(opcode::MODIFY_RQ, modify_rq_in::SIZE)
                .set(modify_rq_in::RQN, self.number)
                .set(modify_rq_in::RQ_STATE, from)
                .set(rqc::STATE.within(modify_rq_in::CTX), to),
        };
        // SAFETY: only the state changes. The caller guarantees that no queue of this crate posts
        // to a queue that goes through RST.
        unsafe { self.object().modify(&command) }.map(|_| ())
    }

    /// Restarts the queue from any state, through RST, with nothing posted.
    pub(super) fn restart(&self) -> Result<()> {
        let reserved = self.claims.reserve()?;
        // SAFETY: the claims are reserved until the end of this block. In RST the HCA does not read
        // the doorbell record.
        unsafe {
            if self.code()? == RDY {
                self.modify(RDY, ERR)?;
            }
            if self.code()? == ERR {
                self.modify(ERR, RST)?;
            }
            self.memory.record.fill(0);
            self.modify(RST, RDY)?;
        }
        reserved.was_reset();
        Ok(())
    }

    /// Checks that the queue is ready.
    pub(super) fn require_ready(&self) -> Result<(), QueueError> {
        let found = self.state()?;
        let ready = ibv_qp_state::IBV_QPS_RTS;
        crate::ring::source::require(found, &[ready], "RDY (which is RTS)")
    }
}

impl QueueOwner for Queue {
    fn id(&self) -> ObjectId {
        ObjectId::at(self)
    }

    fn claim(&self, queue: WorkQueue) -> Result<()> {
        self.claims.claim(queue)
    }

    fn release(&self, queue: WorkQueue, idle: bool) {
        self.claims.release(queue, idle);
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.destroyed)
    }

    fn state(&self) -> Result<u32, QueueError> {
        match self.code() {
            Ok(RST) => Ok(ibv_qp_state::IBV_QPS_RESET),
            Ok(RDY) => Ok(ibv_qp_state::IBV_QPS_RTS),
            Ok(_) => Ok(ibv_qp_state::IBV_QPS_ERR),
            Err(Error::Refused(refused)) => {
                let (status, syndrome) = (refused.status(), refused.syndrome());
                Err(QueueError::QueryRefused { status, syndrome })
            }
            Err(error) => Err(QueueError::QueryQp(error.errno().map_or(libc::EIO, |e| e.0))),
        }
    }

    fn resume(&self) -> Result<()> {
        let rule = "a queue of Ethernet that has failed starts anew by `restart`";
        Err(Error::attribute("state", "ERR", rule))
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        None
    }
}
