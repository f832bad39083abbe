//! Objects of this module as sources of queues on the direct path.

use core::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv::mlx5dv_striding_rq_init_attr;
use mlx5_sys::ifc::{rqc, wq};
use mlx5_sys::verbs::{ibv_qp_state, ibv_wq};

use super::wq::{context_of, memory_of};
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
/// log2 of the bytes of a stride that the HCA calls 0 (`mlx5_ifc.h`, `log_wqe_stride_size`).
const STRIDE_LOG: u32 = 6;
/// log2 of the strides of a WQE that the HCA calls 0, in four bits with a sign (`mlx5_ifc.h`,
/// `log_wqe_num_of_strides`).
const STRIDES_LOG: u32 = 9;
/// `wq_type` of striding queues (`mlx5_ifc.h`, `MLX5_WQC_WQ_TYPE_CYCLIC_STRIDING_RQ`).
const CYCLIC_STRIDING: u64 = 3;
/// The state of a queue that receives (`mlx5_ifc.h`, `MLX5_RQC_STATE_RDY`).
const READY: u64 = 1;

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
    /// If the context of the queue may give firmware commands, the HCA is queried for the strides.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute): strides that no queue has, or others than the
    /// queue has. [`Error::Queue`](crate::Error::Queue): the queue is not one of libmlx5
    /// ([`InitObj`](QueueError::InitObj)), [not striding](QueueError::NotStriding) or [not
    /// ready](QueueError::NotReady); the CQ has fewer entries than a WQE has strides; the errors of
    /// [`CqReader::from_raw`]. Nothing is changed then.
    ///
    /// # Safety
    /// - The queue was made with these attributes, and is ready. No WQE of it is outstanding.
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
            if let Some(context) = context_of(wq) {
                require(&context, attributes)?;
            }
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

/// Fails unless a queue with this context (`rqc`) is ready, and has the strides of these attributes.
fn require(context: &[u8], attributes: &mlx5dv_striding_rq_init_attr) -> crate::Result<()> {
    let &mlx5dv_striding_rq_init_attr {
        single_stride_log_num_of_bytes: bytes,
        single_wqe_log_num_of_strides: count,
        two_byte_shift_en: shift,
    } = attributes;
    let field = |field: mlx5_sys::ifc::Field| field.within(rqc::WQ).get(context);
    if field(wq::WQ_TYPE) != CYCLIC_STRIDING {
        return Err(QueueError::NotStriding.into());
    }
    let own_bytes = field(wq::LOG_WQE_STRIDE_SIZE) as u32 + STRIDE_LOG;
    let own_count = match field(wq::LOG_WQE_NUM_OF_STRIDES) as u32 {
        lowered @ 8.. => STRIDES_LOG + lowered - 16,
        raised => STRIDES_LOG + raised,
    };
    let own_shift = field(wq::TWO_BYTE_SHIFT_EN) as u32;
    for (name, given, own) in [
        ("single_stride_log_num_of_bytes", bytes, own_bytes),
        ("single_wqe_log_num_of_strides", count, own_count),
        ("two_byte_shift_en", u32::from(shift != 0), own_shift),
    ] {
        if given != own {
            return Err(Error::attribute(name, given, format!("the queue was made with {own}")));
        }
    }
    if rqc::STATE.get(context) != READY {
        return Err(QueueError::NotReady.into());
    }
    Ok(())
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
