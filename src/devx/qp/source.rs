//! How rings take over the queues of a pair.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mlx5_sys::doorbell::UAR_RECORDLESS;
use mlx5_sys::verbs::ibv_qp;

use super::{DevxQp, QpInner, context};
use crate::error::{Error, QueueError, Result};
use crate::ib::Transport;
use crate::ring::source::handover::{Receives, Sends};
use crate::ring::source::{
    DomainId, Member, ObjectId, POSTABLE, QueueOwner, ReceiveView, SENDABLE, SendView, WorkQueue,
    require,
};
use crate::ring::{ReceiveSource, SendSource};
use crate::verbs::{CanReceive, Rts};
use crate::wqe::Limits;

impl QueueOwner for QpInner {
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
        match self.query() {
            Ok(qpc) => Ok(context::state(&qpc).raw()),
            Err(Error::Refused(refused)) => Err(QueueError::QueryRefused {
                status: refused.status(),
                syndrome: refused.syndrome(),
            }),
            Err(error) => Err(QueueError::QueryQp(error.errno().map_or(0, |errno| errno.0))),
        }
    }

    fn resume(&self) -> Result<()> {
        QpInner::resume(self)
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        None
    }
}

// SAFETY: the owner keeps the register, the CQs and the pair's parts of umems, which no other queue
// or key can take meanwhile. The claim keeps other writers away. It forbids RESET, except by a
// caller who guarantees to restart the queues.
unsafe impl<T: Transport> Sends for DevxQp<T, Rts> {
    fn owner(&self) -> Arc<dyn QueueOwner> {
        Arc::<QpInner>::clone(&self.inner)
    }

    fn sends(&self) -> Result<SendView> {
        let inner = &self.inner;
        require(inner.state()?, &SENDABLE, "RTS")?;
        if inner.geometry.blocks == 0 {
            return Err(QueueError::NoQueue.into());
        }
        Ok(SendView {
            // SAFETY: the offset is within the ring.
            buffer: unsafe { inner.memory.ring.start().add(inner.geometry.sends_at()) },
            blocks: inner.geometry.blocks,
            record: inner.memory.record.start().cast(),
            register: match inner.recordless {
                false => inner.uar.register(),
                // SAFETY: the offset is within the page.
                true => unsafe { inner.uar.page().add(UAR_RECORDLESS) },
            },
            half: if inner.recordless { 0 } else { inner.uar.blue_flame() },
            recordless: inner.recordless,
            number: inner.number,
            limits: Limits {
                max_sge: inner.capacities.max_send_sge,
                max_inline: inner.capacities.max_inline_data,
            },
            max_wr: inner.capacities.max_send_wr,
            signal_all: inner.signal_all,
            cq: inner.send_cq.0,
        })
    }
}

impl<T: Transport> SendSource for DevxQp<T, Rts> {
    type Transport = T;
}

// SAFETY: the owner keeps the CQs and the pair's parts of umems, which no other queue or key can
// take meanwhile. The claim keeps other writers away. It forbids RESET, except by a caller who
// guarantees to restart the queues.
unsafe impl<T: crate::ib::Receives, S: CanReceive> Receives for DevxQp<T, S> {
    fn owner(&self) -> Arc<dyn QueueOwner> {
        Arc::<QpInner>::clone(&self.inner)
    }

    fn receives(&self) -> Result<ReceiveView> {
        let inner = &self.inner;
        require(inner.state()?, &POSTABLE, "INIT or later")?;
        if inner.geometry.receives == 0 {
            return Err(QueueError::NoQueue.into());
        }
        Ok(ReceiveView {
            buffer: inner.memory.ring.start(),
            entries: inner.geometry.receives,
            stride: inner.geometry.stride,
            record: inner.memory.record.start().cast(),
            number: inner.number,
            cq: inner.receive_cq.0,
        })
    }

    fn domain(&self) -> Option<DomainId> {
        Some(self.inner.pd)
    }

    fn member(&self) -> Member {
        let inner = &self.inner;
        let srq = inner.shared.as_ref().map(|(srq, _)| *srq);
        Member { number: inner.number, cq: inner.receive_cq.0, srq }
    }
}

impl<T: crate::ib::Receives, S: CanReceive> ReceiveSource for DevxQp<T, S> {
    type Transport = T;
}
