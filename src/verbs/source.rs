//! Objects of this module as sources of queues on the direct path.

use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::verbs::ibv_qp_state;

use super::{
    CanReceive, CompletionQueue, Makes, Pair, PairObject, QpState, QueuePair, Rts, StridingQueue,
};
use crate::error::{QueueError, state_name};
use crate::ib::{Internal, Transport, TransportKind};
use crate::ring::receive::striding::{Strides, StridingView};
use crate::ring::source::handover::{Receives, Sends};
use crate::ring::source::{DomainId, Member, QueueOwner, ReceiveView, SendView};
use crate::ring::{CqReader, ReceiveSource, SendSource, StridingRq};

// SAFETY: the owner keeps the QP alive, with its register and rings, which neither libmlx5 nor an
// owner of umems moves. The claim is given after RESET or without outstanding WQEs. It keeps writers
// and RESET away. Users of the raw pointer, and callers that restart queues, guarantee the same.
unsafe impl<T: Transport, B: Makes<T>> Sends for QueuePair<T, Rts, B> {
    fn owner(&self, _: Internal) -> Arc<dyn QueueOwner> {
        Arc::<Pair<B::Object>>::clone(self.pair())
    }

    fn sends(&self) -> crate::error::Result<SendView> {
        PairObject::sends::<T>(self.pair())
    }
}

impl<T: Transport, B: Makes<T>> SendSource for QueuePair<T, Rts, B> {
    type Transport = T;
}

// SAFETY: the owner keeps the QP alive, with its rings, which neither libmlx5 nor an owner of umems
// moves. The claim of the receive queue keeps other writers and RESET away. Users of the raw
// pointer, and callers that restart queues, guarantee the same.
unsafe impl<T: crate::ib::Receives, S: CanReceive, B: Makes<T>> Receives for QueuePair<T, S, B> {
    fn owner(&self, _: Internal) -> Arc<dyn QueueOwner> {
        Arc::<Pair<B::Object>>::clone(self.pair())
    }

    fn receives(&self) -> crate::error::Result<ReceiveView> {
        if T::TRANSPORT_KIND == TransportKind::RawPacket && S::STATE == QpState::Init {
            // libmlx5 writes its own index to the doorbell record on the way to RTR.
            let (found, needed) = (ibv_qp_state::IBV_QPS_INIT, "RTR or RTS: first call rtr");
            return Err(QueueError::WrongState { found, name: state_name(found), needed }.into());
        }
        PairObject::receives(self.pair())
    }

    fn domain(&self) -> Option<DomainId> {
        QueuePair::domain(self)
    }

    fn member(&self) -> Member {
        PairObject::member(self.pair())
    }
}

impl<T: crate::ib::Receives, S: CanReceive> ReceiveSource for QueuePair<T, S> {
    type Transport = T;
}

impl StridingRq {
    /// Takes over a queue permanently, with the CQ that it completes on. Reserves one CQ slot for
    /// each stride of each WQE that may be outstanding.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// queue was taken over before, it completes on another CQ, or the CQ has fewer entries than a
    /// WQE has strides.
    pub fn new(queue: &StridingQueue, cq: &CompletionQueue) -> crate::Result<Self> {
        if cq.as_raw() != queue.cq().as_raw() {
            return Err(QueueError::CqMismatch.into());
        }
        let completions = CqReader::new(cq)?;
        let memory = queue.memory()?;
        let (Some(buffer), Some(record)) =
            (NonNull::new(memory.buf.cast::<u8>()), NonNull::new(memory.dbrec))
        else {
            return Err(QueueError::NoQueue.into());
        };
        let strides = Strides {
            number: queue.number(),
            bytes: queue.stride(),
            count: queue.strides(),
            shift: queue.shift(),
        };
        let (entries, wqe_stride) = (memory.wqe_cnt, memory.stride);
        let view = StridingView { buffer, entries, wqe_stride, record, strides };
        let owner = Box::new(queue.clone());
        // SAFETY: the queue completes on `cq`, as was checked. The clone keeps it alive, whose
        // memory libmlx5 does not move. `take` returns true once, so nothing else of this crate
        // posts to it.
        Ok(unsafe { StridingRq::take_over(&view, completions, || queue.take(), owner)? })
    }
}
