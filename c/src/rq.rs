//! `struct mlx5_rq`: the receive queue that a queue pair has of its own.

use core::ptr::NonNull;

use mlx5::ring::{
    Excess, PacketRq, PostError, ReceiveBatch, ReceiveConfig, ReceiveQueue, Srq, StridingBatch,
    StridingRq,
};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::{ibv_qp, ibv_qp_type};

use crate::claims::{Claim, Part};
use crate::error::{Failed, Result, caught, finish};
use crate::group::{Cq, on};
use crate::objects::{self, QpParts};
use crate::request::{Receive, append_all};
use crate::status::Status;

/// `struct mlx5_rq`. Its fields do not change.
pub struct Rq {
    cq: *mut Cq,
    qpn: u32,
    raw: NonNull<ibv_qp>,
    _claim: Claim,
}

impl Rq {
    /// # Safety
    /// [`ReceiveQueue::from_raw`]'s, and `handle` is the handle of `cq`.
    unsafe fn take(
        raw: NonNull<ibv_qp>,
        cq: &mut Cq,
        handle: *mut Cq,
        receives: u32,
    ) -> Result<Self> {
        cq.require_no_batch()?;
        objects::libraries()?;
        // SAFETY: the QP is alive, and these fields do not change.
        let (qpn, qp_type) = unsafe { ((*raw.as_ptr()).qp_num, (*raw.as_ptr()).qp_type) };
        let instead = match qp_type {
            ibv_qp_type::IBV_QPT_RC | ibv_qp_type::IBV_QPT_UC | ibv_qp_type::IBV_QPT_UD => None,
            ibv_qp_type::IBV_QPT_RAW_PACKET => {
                Some("RAW_PACKET is taken over by mlx5_packets_take")
            }
            ibv_qp_type::IBV_QPT_DRIVER => Some(
                "targets of dynamic connections receive from a shared receive queue: mlx5_srq_take, then \
                 mlx5_srq_attach",
            ),
            ibv_qp_type::IBV_QPT_XRC_RECV => Some(
                "targets of XRC receive from the shared receive queues of their domain: \
                 mlx5_srq_take_xrc",
            ),
            _ => Some("RC, UC and UD can be taken over"),
        };
        if let Some(instead) = instead {
            return Err(Failed::told(
                Status::NotOnTransport,
                format_args!(
                    "the QP of type {qp_type} has no receive queue of RC, UC or UD: {instead}"
                ),
            ));
        }
        let claim = Claim::new(raw.as_ptr(), Part::Receives)?;
        // SAFETY: the QP is alive.
        unsafe { QpParts::of(raw)? }.require_no_receive()?;
        let config = ReceiveConfig { receives: if receives == 0 { u32::MAX } else { receives } };
        // SAFETY: this function's contract.
        let queue = unsafe { ReceiveQueue::from_raw(raw, &mut cq.reader, config)? };
        drop(cq.tables.rc.insert_receive(queue));
        cq.queues += 1;
        Ok(Self { cq: handle, qpn, raw, _claim: claim })
    }

    fn queue<'a>(&self, cq: &'a mut Cq) -> Result<&'a mut ReceiveQueue> {
        cq.require_no_batch()?;
        cq.tables.rc.receive(self.qpn).ok_or_else(Failed::gone)
    }

    /// Takes the queue out of its group, and drops it. Discards the group's open batch, which borrows
    /// the tables.
    fn end(&self, cq: &mut Cq) {
        cq.open = None;
        drop(cq.tables.rc.remove_receive(self.qpn));
        cq.queues -= 1;
    }
}

/// Runs a body with a receive queue's handle and its group.
///
/// # Safety
/// `rq` is null or a handle that is alive, and no other call runs on its group.
#[inline(always)]
unsafe fn on_rq<R>(rq: *const Rq, body: impl FnOnce(&mut Cq, &Rq) -> Result<R>) -> Result<R> {
    // SAFETY: null or alive, and its fields do not change.
    let Some(rq) = (unsafe { rq.as_ref() }) else {
        return Err(Failed::argument("the handle is null"));
    };
    // SAFETY: this function's contract. A group lives longer than the handles of its queues.
    unsafe { on(rq.cq, |cq| body(cq, rq)) }
}

/// The result of a post by the crate `mlx5`.
type Posted = core::result::Result<(), PostError>;

/// A queue of receives.
pub(crate) trait Receives {
    type Batch<'q>: Appends
    where
        Self: 'q;

    /// Posts one receive.
    ///
    /// # Safety
    /// The memory is the HCA's until the receive completes.
    unsafe fn post(&mut self, id: u64, list: &[Sge]) -> Posted;

    fn batch(&mut self) -> Self::Batch<'_>;

    /// Returns how many receives may be outstanding.
    fn limit(&self) -> u32;
}

/// A batch of receives.
pub(crate) trait Appends {
    fn append(&mut self, id: u64, list: &[Sge]) -> Posted;

    fn len(&self) -> u32;

    /// Posts the batch.
    ///
    /// # Safety
    /// The memory is the HCA's until the receives complete.
    unsafe fn ring(self);
}

macro_rules! appends {
    ($($queue:ty)*) => { $(
        impl Appends for ReceiveBatch<'_, $queue> {
            #[inline(always)]
            fn append(&mut self, id: u64, list: &[Sge]) -> Posted {
                match list {
                    [one] => self.append(id, *one),
                    list => self.append(id, list),
                }
            }

            #[inline(always)]
            fn len(&self) -> u32 {
                self.len()
            }

            #[inline(always)]
            unsafe fn ring(self) {
                // SAFETY: this function's contract.
                unsafe { self.ring() }
            }
        }
    )* };
}

appends! { ReceiveQueue Srq }

macro_rules! receives {
    ($($queue:ty, $batch:ty, |$self:ident| $parts:expr;)*) => { $(
        impl Receives for $queue {
            type Batch<'q> = ReceiveBatch<'q, $batch>;

            #[inline(always)]
            unsafe fn post(&mut self, id: u64, list: &[Sge]) -> Posted {
                // SAFETY: this function's contract.
                unsafe {
                    match list {
                        [one] => self.post(id, *one),
                        list => self.post(id, list),
                    }
                }
            }

            #[inline(always)]
            fn batch(&mut self) -> Self::Batch<'_> {
                self.batch()
            }

            fn limit(&self) -> u32 {
                let $self = self;
                let queue = $parts;
                queue.free() + queue.outstanding()
            }
        }
    )* };
}

receives! {
    ReceiveQueue, ReceiveQueue, |queue| queue;
    PacketRq, ReceiveQueue, |packets| packets.queue();
    Srq, Srq, |queue| queue;
}

impl Receives for StridingRq {
    type Batch<'q> = StridingBatch<'q>;

    unsafe fn post(&mut self, id: u64, list: &[Sge]) -> Posted {
        let memory = only(list, self.wqe_bytes())?;
        // SAFETY: this function's contract.
        unsafe { self.post(id, memory) }
    }

    fn batch(&mut self) -> Self::Batch<'_> {
        self.batch()
    }

    fn limit(&self) -> u32 {
        self.free() + self.outstanding()
    }
}

impl Appends for StridingBatch<'_> {
    fn append(&mut self, id: u64, list: &[Sge]) -> Posted {
        self.append(id, only(list, self.wqe_bytes())?)
    }

    fn len(&self) -> u32 {
        self.len()
    }

    unsafe fn ring(self) {
        // SAFETY: this function's contract.
        unsafe { self.ring() }
    }
}

/// Returns the one entry of a receive that takes so many bytes.
fn only(list: &[Sge], needed: u32) -> core::result::Result<Sge, PostError> {
    match list {
        [one] => Ok(*one),
        [] => Err(PostError::ReceiveTooShort { needed }),
        more => Err(PostError::TooManySges(Excess::new(more.len(), 1))),
    }
}

/// Posts receives, with one store to the record for all. Returns how many were posted, and why no more.
///
/// # Safety
/// The lists are readable, and their memory is the HCA's until the receives complete.
#[inline]
pub(crate) unsafe fn post(queue: &mut impl Receives, receives: &[Receive]) -> (u32, Result) {
    if receives.len() == 1 {
        // SAFETY: this function's contract.
        let result = unsafe { append_all(receives, |id, list| queue.post(id, list)) };
        return (u32::from(result.is_ok()), result);
    }
    let mut batch = queue.batch();
    // SAFETY: this function's contract.
    let result = unsafe { append_all(receives, |id, list| batch.append(id, list)) };
    let count = batch.len();
    // SAFETY: this function's contract.
    unsafe { batch.ring() };
    (count, result)
}

/// Takes the receive queue of a queue pair over from libibverbs. See `mlx5.h`.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_rq_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_rq_take(
    qp: *mut ibv_qp,
    cq: *mut Cq,
    receives: u32,
    taken: *mut *mut Rq,
) -> Status {
    let (Some(raw), Some(taken)) = (NonNull::new(qp), NonNull::new(taken)) else {
        return finish(Err(Failed::argument("qp or taken is null")));
    };
    // SAFETY: this function's contract.
    finish(unsafe {
        on(cq, |group| {
            taken.write(Box::into_raw(Box::new(Rq::take(raw, group, cq, receives)?)));
            Ok(())
        })
    })
}

/// Gives an idle receive queue back. See `mlx5.h`.
///
/// # Safety
/// `rq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_rq_give_back(rq: *mut Rq) -> Status {
    // SAFETY: this function's contract.
    let ended = unsafe {
        on_rq(rq, |cq, rq| {
            let outstanding = rq.queue(cq)?.outstanding();
            if outstanding != 0 {
                return Err(Failed::told(
                    Status::NotIdle,
                    format_args!(
                        "{outstanding} receives are outstanding: move the QP to ERROR and poll for \
                         them, or abandon the queue and reset the QP"
                    ),
                ));
            }
            rq.end(cq);
            Ok(())
        })
    };
    finish(ended.and_then(|()| {
        // SAFETY: `mlx5_rq_take` made the box, and the caller does not use it again.
        caught(|| unsafe {
            drop(Box::from_raw(rq));
            Ok(())
        })
    }))
}

/// Ends a receive queue's handle whatever is outstanding. See `mlx5.h`.
///
/// # Safety
/// `rq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_rq_abandon(rq: *mut Rq) {
    if rq.is_null() {
        return;
    }
    let ended = caught(|| {
        // SAFETY: the handle is alive, and so is its group, even if a call on it has panicked.
        unsafe {
            let handle = Box::from_raw(rq);
            let cq = handle.cq;
            handle.end(&mut *cq);
        }
        Ok(())
    });
    finish(ended);
}

/// Posts receives. See `mlx5.h`.
///
/// # Safety
/// `rq` is null or a handle that is alive, and no other call runs on its group. `receives` is null or has
/// `count` readable receives, whose lists are readable. `posted` is null or writable. The memory of receives
/// is the HCA's until they are complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_rq_post(
    rq: *mut Rq,
    receives: *const Receive,
    count: u32,
    posted: *mut u32,
) -> Status {
    let mut done = 0;
    // SAFETY: this function's contract.
    let result = unsafe {
        on_rq(rq, |cq, rq| {
            let receives = Receive::list(receives, count)?;
            let result;
            (done, result) = post(rq.queue(cq)?, receives);
            result
        })
    };
    // SAFETY: null or writable, by this function's contract.
    if let Some(posted) = unsafe { posted.as_mut() } {
        *posted = done;
    }
    finish(result)
}

/// Returns how many receives may be outstanding, or 0 for null. See `mlx5.h`.
///
/// # Safety
/// `rq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_rq_capacity(rq: *mut Rq) -> u32 {
    // SAFETY: this function's contract.
    let capacity = unsafe { on_rq(rq, |cq, rq| Ok(rq.queue(cq)?.limit())) };
    capacity.unwrap_or(0)
}

/// Returns the queue pair of libibverbs. See `mlx5.h`.
///
/// # Safety
/// `rq` is null or a handle that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_rq_ibv(rq: *const Rq) -> *mut ibv_qp {
    // SAFETY: null or alive, by this function's contract; the field does not change.
    unsafe { rq.as_ref() }.map_or(core::ptr::null_mut(), |rq| rq.raw.as_ptr())
}
