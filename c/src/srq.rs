//! `struct mlx5_srq`: a shared receive queue.

use core::ptr::NonNull;

use mlx5::ring::{QueueError, ReceiveConfig, SharedKey, Srq as Queue};
use mlx5_sys::verbs::{ibv_qp, ibv_qp_type, ibv_srq};

use crate::claims::{Claim, Part};
use crate::error::{Failed, Result, caught, finish};
use crate::group::{Cq, on};
use crate::objects::{self, SharedKind};
use crate::request::Receive;
use crate::rq::{self, Receives};
use crate::status::Status;

/// How receives of a shared receive queue are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// By the number of the queue pair, which is attached.
    ByQueuePair,
    /// By the user index of the queue, which is one of XRC.
    ByIndex,
}

impl Found {
    /// Fails if the queue is of another kind, or completes on another CQ, as far as the device tells.
    ///
    /// # Safety
    /// `raw` is a live SRQ.
    unsafe fn require(self, raw: NonNull<ibv_srq>, cqn: u32) -> Result {
        // SAFETY: this function's contract.
        let Some(kind) = (unsafe { SharedKind::of(raw)? }) else { return Ok(()) };
        let text = match (self, kind) {
            (Self::ByQueuePair, SharedKind::Plain) => return Ok(()),
            (Self::ByIndex, SharedKind::Xrc { cqn: own }) if own == cqn => return Ok(()),
            (Self::ByIndex, SharedKind::Xrc { .. }) => return Err(Failed::of(Status::WrongCq)),
            (Self::ByQueuePair, SharedKind::Xrc { .. }) => {
                "the shared receive queue is one of XRC (IBV_SRQT_XRC): take it over by mlx5_srq_take_xrc"
            }
            (Self::ByIndex, SharedKind::Plain) => {
                "the shared receive queue is not one of XRC (IBV_SRQT_XRC): take it over by \
                 mlx5_srq_take, and attach its queue pairs by mlx5_srq_attach"
            }
            (_, SharedKind::Tags) => {
                "the shared receive queue matches tags (IBV_SRQT_TM): post and poll by libibverbs, or \
                 make it without tags"
            }
        };
        Err(Failed::with(Status::WrongKind, text))
    }
}

/// `struct mlx5_srq`.
pub struct Srq {
    cq: *mut Cq,
    key: SharedKey,
    found: Found,
    raw: NonNull<ibv_srq>,
    /// The queue pairs that receive from it.
    attached: Vec<(u32, Claim)>,
    /// Ids of receives whose completions were dropped by a detach, and that the program has not fetched.
    reclaimed: Vec<u64>,
    _claim: Claim,
}

impl Srq {
    /// # Safety
    /// [`Queue::from_raw`]'s, and `handle` is the handle of `cq`.
    unsafe fn take(
        raw: NonNull<ibv_srq>,
        found: Found,
        cq: &mut Cq,
        handle: *mut Cq,
        receives: u32,
    ) -> Result<Self> {
        cq.require_no_batch()?;
        objects::libraries()?;
        let claim = Claim::new(raw.as_ptr(), Part::Shared)?;
        // SAFETY: the SRQ is alive.
        unsafe { found.require(raw, cq.reader.cqn())? };
        let config = ReceiveConfig { receives: if receives == 0 { u32::MAX } else { receives } };
        // SAFETY: this function's contract.
        let queue =
            unsafe { Queue::from_raw(raw, found == Found::ByIndex, &mut cq.reader, config) };
        let queue = queue.map_err(|error| match error {
            QueueError::NotIdle => Failed::with(
                Status::NotIdle,
                "receives are outstanding, or were not polled: take the shared receive queue over before \
                 any is posted, or poll all by ibv_poll_cq before mlx5_cq_take",
            ),
            other => other.into(),
        })?;
        let Ok(key) = cq.tables.rc.insert_shared(queue) else { return Err(Failed::gone()) };
        cq.queues += 1;
        let (attached, reclaimed) = (Vec::new(), Vec::new());
        Ok(Self { cq: handle, key, found, raw, attached, reclaimed, _claim: claim })
    }

    fn queue<'a>(&self, cq: &'a mut Cq) -> Result<&'a mut Queue> {
        cq.require_no_batch()?;
        cq.tables.rc.shared(self.key).ok_or_else(Failed::gone)
    }

    /// # Safety
    /// The queue pair is alive, and stays so until it is detached, without a move to RESET.
    unsafe fn attach(&mut self, cq: &mut Cq, qp: NonNull<ibv_qp>) -> Result {
        cq.require_no_batch()?;
        if self.found == Found::ByIndex {
            return Err(Failed::with(
                Status::WrongKind,
                "the shared receive queue is one of XRC: messages name it by its number, so that no \
                 queue pair is attached",
            ));
        }
        // SAFETY: the QP is alive, and the field does not change.
        let qp_type = unsafe { (*qp.as_ptr()).qp_type };
        match qp_type {
            ibv_qp_type::IBV_QPT_RC | ibv_qp_type::IBV_QPT_UC | ibv_qp_type::IBV_QPT_UD => {}
            // SAFETY: the QP is alive.
            ibv_qp_type::IBV_QPT_DRIVER if unsafe { objects::is_dc_target(qp) } => {}
            ibv_qp_type::IBV_QPT_DRIVER => {
                return Err(Failed::with(
                    Status::NotOnTransport,
                    "the QP is an initiator of dynamic connections, which receives nothing: attach the \
                     targets (MLX5DV_DCTYPE_DCT)",
                ));
            }
            ibv_qp_type::IBV_QPT_XRC_RECV => {
                return Err(Failed::with(
                    Status::NotOnTransport,
                    "the QP is a target of XRC, whose messages name a shared receive queue of its \
                     domain: take that over by mlx5_srq_take_xrc, and attach nothing",
                ));
            }
            _ => {
                return Err(Failed::told(
                    Status::NotOnTransport,
                    format_args!(
                        "the QP's type is {qp_type}: RC, UC, UD and targets of dynamic connections \
                         can be attached"
                    ),
                ));
            }
        }
        let claim = Claim::new(qp.as_ptr(), Part::Receives)?;
        // SAFETY: this function's contract.
        unsafe { cq.tables.rc.attach_raw(self.key, qp, &mut cq.reader)? };
        // SAFETY: the QP is alive. One that can be attached has its number for good.
        let qpn = unsafe { (*qp.as_ptr()).qp_num };
        self.attached.push((qpn, claim));
        Ok(())
    }

    fn detach(&mut self, cq: &mut Cq, qpn: u32) -> Result {
        cq.require_no_batch()?;
        if !cq.tables.rc.detach(self.key, qpn, &mut cq.reader) {
            return Err(Failed::argument("the queue pair is not attached to this queue"));
        }
        self.attached.retain(|(number, _)| *number != qpn);
        self.reclaimed.extend(self.queue(cq)?.reclaimed());
        Ok(())
    }

    /// Takes the queue out of its group, and drops it. Discards the group's open batch, which borrows
    /// the tables.
    fn end(&self, cq: &mut Cq) {
        cq.open = None;
        drop(cq.tables.rc.remove_shared(self.key));
        cq.queues -= 1;
    }
}

/// Runs a body with a shared receive queue's handle and its group.
///
/// # Safety
/// `srq` is null or a handle that is alive, and no other call runs on its group.
#[inline(always)]
unsafe fn on_srq<R>(srq: *mut Srq, body: impl FnOnce(&mut Cq, &mut Srq) -> Result<R>) -> Result<R> {
    // SAFETY: null or alive, and used by nothing else, by this function's contract.
    let Some(srq) = (unsafe { srq.as_mut() }) else {
        return Err(Failed::argument("the handle is null"));
    };
    // SAFETY: this function's contract. A group lives longer than the handles of its queues.
    unsafe { on(srq.cq, |cq| body(cq, srq)) }
}

/// Takes a shared receive queue over, and writes its handle.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_srq_take` and `mlx5_srq_take_xrc`.
unsafe fn take(
    srq: *mut ibv_srq,
    found: Found,
    cq: *mut Cq,
    receives: u32,
    taken: *mut *mut Srq,
) -> Status {
    let (Some(raw), Some(taken)) = (NonNull::new(srq), NonNull::new(taken)) else {
        return finish(Err(Failed::argument("srq or taken is null")));
    };
    // SAFETY: this function's contract.
    finish(unsafe {
        on(cq, |group| {
            taken.write(Box::into_raw(Box::new(Srq::take(raw, found, group, cq, receives)?)));
            Ok(())
        })
    })
}

/// Takes a shared receive queue over from libibverbs. See `mlx5.h`.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_srq_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_take(
    srq: *mut ibv_srq,
    cq: *mut Cq,
    receives: u32,
    taken: *mut *mut Srq,
) -> Status {
    // SAFETY: this function's contract.
    unsafe { take(srq, Found::ByQueuePair, cq, receives, taken) }
}

/// Takes a shared receive queue of an XRC domain over from libibverbs. See `mlx5.h`.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_srq_take_xrc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_take_xrc(
    srq: *mut ibv_srq,
    cq: *mut Cq,
    receives: u32,
    taken: *mut *mut Srq,
) -> Status {
    // SAFETY: this function's contract.
    unsafe { take(srq, Found::ByIndex, cq, receives, taken) }
}

/// Lets polls find the receives of a queue pair that receives from the queue. See `mlx5.h`.
///
/// # Safety
/// `srq` is null or a handle that is alive, and no other call runs on its group. `qp` is null or alive, and
/// stays so until it is detached, without a move to RESET.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_attach(srq: *mut Srq, qp: *mut ibv_qp) -> Status {
    let Some(qp) = NonNull::new(qp) else {
        return finish(Err(Failed::argument("qp is null")));
    };
    // SAFETY: this function's contract.
    finish(unsafe { on_srq(srq, |cq, srq| srq.attach(cq, qp)) })
}

/// Ends what `mlx5_srq_attach` began. See `mlx5.h`.
///
/// # Safety
/// `srq` is null or a handle that is alive, and no other call runs on its group. `qp` is null or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_detach(srq: *mut Srq, qp: *mut ibv_qp) -> Status {
    let Some(qp) = NonNull::new(qp) else {
        return finish(Err(Failed::argument("qp is null")));
    };
    // SAFETY: this function's contract; the field does not change.
    finish(unsafe { on_srq(srq, |cq, srq| srq.detach(cq, (*qp.as_ptr()).qp_num)) })
}

/// Returns ids of receives whose completions a detach has dropped. See `mlx5.h`.
///
/// # Safety
/// `srq` is null or a handle that is alive, and no other call runs on its group. `ids` is null or has room for
/// `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_reclaimed(srq: *mut Srq, ids: *mut u64, capacity: u32) -> u32 {
    // SAFETY: this function's contract.
    let fetched = unsafe {
        on_srq(srq, |_, srq| {
            if ids.is_null() && capacity != 0 {
                return Err(Failed::argument("ids is null, and capacity is not 0"));
            }
            let count = srq.reclaimed.len().min(capacity as usize);
            for (at, id) in srq.reclaimed.drain(..count).enumerate() {
                ids.add(at).write(id);
            }
            Ok(count as u32)
        })
    };
    fetched.unwrap_or(0)
}

/// Ends a shared receive queue's handle whatever is outstanding. See `mlx5.h`.
///
/// # Safety
/// `srq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_abandon(srq: *mut Srq) {
    if srq.is_null() {
        return;
    }
    let ended = caught(|| {
        // SAFETY: the handle is alive, and so is its group, even if a call on it has panicked.
        unsafe {
            let handle = Box::from_raw(srq);
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
/// `srq` is null or a handle that is alive, and no other call runs on its group. `receives` is null or has
/// `count` readable receives, whose lists are readable. `posted` is null or writable. The memory of receives
/// is the HCA's until they are complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_post(
    srq: *mut Srq,
    receives: *const Receive,
    count: u32,
    posted: *mut u32,
) -> Status {
    let mut done = 0;
    // SAFETY: this function's contract.
    let result = unsafe {
        on_srq(srq, |cq, srq| {
            let receives = Receive::list(receives, count)?;
            let result;
            (done, result) = rq::post(srq.queue(cq)?, receives);
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
/// `srq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_capacity(srq: *mut Srq) -> u32 {
    // SAFETY: this function's contract.
    let capacity = unsafe { on_srq(srq, |cq, srq| Ok(srq.queue(cq)?.limit())) };
    capacity.unwrap_or(0)
}

/// Returns the shared receive queue of libibverbs. See `mlx5.h`.
///
/// # Safety
/// `srq` is null or a handle that is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_srq_ibv(srq: *const Srq) -> *mut ibv_srq {
    // SAFETY: null or alive, by this function's contract; the field does not change.
    unsafe { srq.as_ref() }.map_or(core::ptr::null_mut(), |srq| srq.raw.as_ptr())
}
