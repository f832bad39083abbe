//! Objects of this module as sources of queues on the direct path.

use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use mlx5_sys::verbs::{ibv_context, ibv_qp};

use super::CanReceive;
use super::{
    CompletionQueue, CompletionQueueHandle, QueuePair, QueuePairHandle, Rts, SharedReceiveQueue,
    StridingQueue,
};
use crate::error::QueueError;
use crate::ib::Transport;
use crate::ring::source::handover::{Completes, Receives, Sends, Shares};
use crate::ring::source::{
    CompletionView, CqCheck, CqObject, CqOwner, DomainId, Member, ObjectId, QpView, QueueOwner,
    ReceiveView, SendView, SharedView, SrqOwner, UserIndex, WorkQueue, check_cq, member, query,
    resume, view_cq,
};
use crate::ring::striding::{Strides, StridingView};
use crate::ring::{
    CompletionSource, CqReader, ReceiveSource, SendSource, SharedReceiveSource, StridingRq,
    shared_receive_view,
};

impl QueueOwner for QueuePairHandle {
    fn id(&self) -> ObjectId {
        ObjectId::at(self.as_raw().as_ptr())
    }

    fn claim(&self, queue: WorkQueue) -> crate::error::Result<()> {
        self.claims().claim(queue)
    }

    fn release(&self, queue: WorkQueue, idle: bool) {
        self.claims().release(queue, idle);
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        QueuePairHandle::destroyed(self)
    }

    fn state(&self) -> Result<u32, QueueError> {
        // SAFETY: the handle keeps the QP alive.
        unsafe { query(self.as_raw()) }.map(|(state, _)| state)
    }

    fn resume(&self) -> crate::error::Result<()> {
        // SAFETY: the handle keeps the QP alive.
        unsafe { resume(self.as_raw()) }
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        Some(QueuePairHandle::as_raw(self))
    }
}

// SAFETY: the handle keeps the queue pair alive, whose memory libmlx5 does not move. The claim
// keeps other writers of this crate away and forbids RESET; it is only given after RESET, or when
// nothing is outstanding. Writers that are not of this crate reach the QP by its raw pointer only,
// whose users guarantee the same.
unsafe impl<T: Transport> Sends for QueuePair<T, Rts> {
    fn owner(&self) -> Arc<dyn QueueOwner> {
        Arc::new(self.handle())
    }

    fn sends(&self) -> crate::error::Result<SendView> {
        // SAFETY: `self` keeps the queue pair alive.
        let view = unsafe { QpView::new(self.as_raw()) }?.sends::<T>()?;
        // SAFETY: libmlx5 has mapped the register, and keeps it mapped as long as the queue pair.
        unsafe { super::keep_from_children(view.register)? };
        Ok(view)
    }
}

impl<T: Transport> SendSource for QueuePair<T, Rts> {
    type Transport = T;
}

// SAFETY: the handle keeps the queue pair alive, whose memory libmlx5 does not move. The claim of
// the receive queue keeps other writers of this crate away and forbids RESET. Writers that are not
// of this crate reach the QP by its raw pointer only, whose users guarantee the same.
unsafe impl<T: crate::ib::Receives, S: CanReceive> Receives for QueuePair<T, S> {
    fn owner(&self) -> Arc<dyn QueueOwner> {
        Arc::new(self.handle())
    }

    fn receives(&self) -> crate::error::Result<ReceiveView> {
        if self.shared_receive_queue().is_some() {
            // Asked of a target of dynamic connections, libmlx5 would look where nothing is.
            return Err(QueueError::NoQueue.into());
        }
        // SAFETY: `self` keeps the queue pair alive.
        Ok(unsafe { QpView::new(self.as_raw()) }?.receives()?)
    }

    fn domain(&self) -> Option<DomainId> {
        QueuePair::domain(self)
    }

    fn member(&self) -> Member {
        // SAFETY: `self` keeps the queue pair alive, and its type says that it can receive.
        unsafe { member(self.as_raw()) }
    }
}

impl<T: crate::ib::Receives, S: CanReceive> ReceiveSource for QueuePair<T, S> {
    type Transport = T;
}

impl CqOwner for CompletionQueueHandle {
    fn claim(&self) -> crate::error::Result<()> {
        CompletionQueueHandle::claim(self)
    }

    fn release(&self) {
        CompletionQueueHandle::release(self);
    }

    fn ignores_overrun(&self) -> bool {
        CompletionQueueHandle::ignores_overrun(self)
    }

    fn events(&self) -> Arc<AtomicU32> {
        CompletionQueueHandle::events(self)
    }

    fn check(&self, cqn: u32) -> CqCheck {
        if self.has_failed() {
            return CqCheck::Failed;
        }
        // SAFETY: the handle keeps the CQ alive.
        unsafe { check_cq(self.as_raw(), cqn) }
    }
}

// SAFETY: the handle keeps the CQ alive, and this crate does not resize a claimed CQ. The claim
// keeps other readers of this crate away. Other code reaches the CQ by its raw pointer only. Its
// users guarantee that they neither read nor resize a claimed CQ.
unsafe impl Completes for CompletionQueue {
    fn owner(&self) -> Arc<dyn CqOwner> {
        Arc::new(self.handle())
    }

    fn device(&self) -> NonNull<ibv_context> {
        self.context().as_raw()
    }

    fn completions(&self) -> crate::error::Result<CompletionView> {
        // SAFETY: `self` keeps the CQ alive.
        let view = unsafe { view_cq(self.as_raw())? };
        // SAFETY: libmlx5 has mapped the page, and keeps it mapped as long as the CQ.
        unsafe { super::keep_from_children(view.page)? };
        Ok(CompletionView { compression: self.compression().unwrap_or_default(), ..view })
    }
}

impl CompletionSource for CompletionQueue {}

impl SrqOwner for SharedReceiveQueue {
    fn claim(&self) -> crate::error::Result<Option<Box<[u16]>>> {
        self.claims().claim()
    }

    fn release(&self, order: Option<Box<[u16]>>) {
        self.claims().release(order);
    }

    fn unclaim(&self, order: Option<Box<[u16]>>) {
        self.claims().unclaim(order);
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        SharedReceiveQueue::destroyed(self)
    }
}

// SAFETY: the owner keeps the SRQ alive. The claim keeps other writers of this crate away; those
// that are not of this crate reach the SRQ by its raw pointer only, whose users guarantee the same.
unsafe impl Shares for SharedReceiveQueue {
    fn owner(&self) -> Arc<dyn SrqOwner> {
        Arc::new(self.clone())
    }

    unsafe fn shared(&self, order: Option<Box<[u16]>>) -> crate::error::Result<SharedView> {
        // SAFETY: `self` keeps the SRQ alive. The caller has claimed it, which is given only where
        // no receive is outstanding; so no other code writes its list.
        let view =
            unsafe { shared_receive_view(self.as_raw(), self.xrc_domain().is_some(), order)? };
        let cq = self.cq().map(|cq| CqObject::of(cq.as_raw().as_ptr()));
        let index = view.index.or(self.list_name().map(UserIndex::Tagged));
        Ok(SharedView { cq, index, ..view })
    }

    fn number(&self) -> crate::error::Result<u32> {
        SharedReceiveQueue::number(self)
    }

    fn id(&self) -> ObjectId {
        ObjectId::at(self.as_raw().as_ptr())
    }

    fn is_plain(&self) -> bool {
        self.xrc_domain().is_none()
    }
}

impl SharedReceiveSource for SharedReceiveQueue {}

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
