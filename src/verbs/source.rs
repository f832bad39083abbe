//! Objects of this module as sources of queues on the direct path.

use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::mlx5dv_striding_rq_init_attr;
use mlx5_sys::verbs::{ibv_qp_state, ibv_wq};

use super::wq::memory_of;
use super::{
    CanReceive, CompletionQueue, Makes, Pair, PairObject, QpState, QueuePair, Rts, StridingQueue,
};
use crate::error::{Error, QueueError, state_name};
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

/// log2 of the bytes of the largest stride that any device has.
const LARGEST_STRIDE_LOG: u32 = 13;
/// log2 of the most strides of a WQE that any device has.
const MOST_STRIDES_LOG: u32 = 16;

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
        let strides = Strides {
            number: queue.number(),
            bytes: queue.stride(),
            count: queue.strides(),
            shift: queue.shift(),
        };
        // SAFETY: the queue is alive.
        let view = unsafe { view_of(queue.as_raw(), strides)? };
        let owner = Box::new(queue.clone());
        // SAFETY: the queue completes on `cq`, as was checked. The clone keeps it alive, whose
        // memory libmlx5 does not move. `take` returns true once, so nothing else of this crate
        // posts to it.
        Ok(unsafe { StridingRq::take_over(&view, completions, || queue.take(), owner)? })
    }

    /// Takes over a queue that other code made by `mlx5dv_create_wq` with these attributes, and the
    /// CQ that it completes on. Reserves CQ slots as [`new`](Self::new) does.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): strides that no queue has.
    /// [`Error::Queue`](crate::Error::Queue): the CQ has fewer entries than a WQE has strides; the
    /// errors of [`CqReader::from_raw`]. [`Error::Call`](crate::Error::Call): the queue is not one of
    /// libmlx5. Nothing is changed then.
    ///
    /// # Safety
    /// - The queue was made with these attributes. No WQE of it is outstanding.
    /// - As long as the value exists, the queue is alive, nothing else posts to it, and it is not
    ///   moved to RESET.
    /// - The contract of [`CqReader::from_raw`] for its CQ, on which no other queue completes.
    #[doc(alias("mlx5dv_init_obj", "mlx5dv_create_wq"))]
    pub unsafe fn from_raw(
        wq: NonNull<ibv_wq>,
        attributes: &mlx5dv_striding_rq_init_attr,
    ) -> crate::Result<Self> {
        // SAFETY: the queue is alive, by this function's contract.
        unsafe {
            let ibv_wq { cq, wq_num: number, .. } = *wq.as_ptr();
            let strides = strides_of(number, attributes)?;
            let view = view_of(wq, strides)?;
            let completions = CqReader::from_raw(NonNull::new(cq).ok_or(QueueError::NoQueue)?)?;
            // Nothing keeps the queue alive but the caller.
            Ok(StridingRq::take_over(&view, completions, || true, Box::new(()))?)
        }
    }
}

/// Returns the strides of a queue with this number that was made with these attributes.
///
/// # Errors
/// [`Error::Attribute`](crate::Error::Attribute): strides that no queue has.
fn strides_of(number: u32, attributes: &mlx5dv_striding_rq_init_attr) -> crate::Result<Strides> {
    let &mlx5dv_striding_rq_init_attr {
        single_stride_log_num_of_bytes: bytes,
        single_wqe_log_num_of_strides: count,
        two_byte_shift_en: shift,
    } = attributes;
    for (name, log, most) in [
        ("single_stride_log_num_of_bytes", bytes, LARGEST_STRIDE_LOG),
        ("single_wqe_log_num_of_strides", count, MOST_STRIDES_LOG),
    ] {
        if log > most {
            return Err(Error::attribute(name, log, format!("at most {most}")));
        }
    }
    let shift = if shift == 0 { 0 } else { 2 };
    Ok(Strides { number, bytes: 1 << bytes, count: 1 << count, shift })
}

/// Returns the view of a queue whose WQEs have these strides.
///
/// # Safety
/// The queue is alive.
unsafe fn view_of(wq: NonNull<ibv_wq>, strides: Strides) -> crate::Result<StridingView> {
    // SAFETY: this function's contract.
    let memory = unsafe { memory_of(wq)? };
    let (Some(buffer), Some(record)) =
        (NonNull::new(memory.buf.cast::<u8>()), NonNull::new(memory.dbrec))
    else {
        return Err(QueueError::NoQueue.into());
    };
    let (entries, wqe_stride) = (memory.wqe_cnt, memory.stride);
    Ok(StridingView { buffer, entries, wqe_stride, record, strides })
}
