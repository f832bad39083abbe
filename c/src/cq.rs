//! `struct mlx5_cq`: the calls of a completion queue.

use core::ffi::c_int;
use core::ptr::NonNull;

use mlx5::cqe::Timestamp;
use mlx5::ring::CqReader;
use mlx5_sys::verbs::ibv_cq;

use crate::claims::{Claim, Part};
use crate::completion::Completion;
use crate::error::{Failed, Result, caught, finish};
use crate::group::{Cq, Tables, on};
use crate::objects;
use crate::status::Status;
use crate::wait::{self, Channel};

/// Takes a completion queue over with completions that nothing has polled yet.
pub const CQ_UNPOLLED: u32 = 1;

impl Cq {
    /// # Safety
    /// [`CqReader::from_raw`]'s, and no other thread takes, acknowledges or requests its events.
    unsafe fn take(raw: NonNull<ibv_cq>, flags: u32) -> Result<Self> {
        if flags & !CQ_UNPOLLED != 0 {
            return Err(Failed::argument("flags has other bits than MLX5_CQ_UNPOLLED"));
        }
        objects::libraries()?;
        let claim = Claim::new(raw.as_ptr(), Part::Completions)?;
        // SAFETY: the CQ is alive, by this function's contract.
        let channel = unsafe { Channel::of(raw) };
        channel.require_no_event()?;
        // SAFETY: this function's contract.
        let mut reader = unsafe { CqReader::from_raw(raw)? };
        if flags & CQ_UNPOLLED == 0 && reader.peek()?.is_some() {
            return Err(Failed::with(
                Status::NotIdle,
                "completions are in the completion queue: call ibv_poll_cq until it returns 0, or \
                 set MLX5_CQ_UNPOLLED",
            ));
        }
        let (open, tables, queues, broken) = (None, Tables::default(), 0, false);
        Ok(Self { open, tables, reader, channel, queues, broken, raw, _claim: claim })
    }

    /// # Safety
    /// `completions` has room for `capacity` unless it is null, and so has `times` if polls are `TIMED`.
    #[inline]
    unsafe fn poll<const TIMED: bool>(
        &mut self,
        completions: *mut Completion,
        times: *mut u64,
        capacity: u32,
    ) -> Result<c_int> {
        if capacity != 0 && (completions.is_null() || (TIMED && times.is_null())) {
            return Err(Failed::argument("an array is null, and capacity is not 0"));
        }
        self.require_no_batch()?;
        let mut queues = self.tables.all();
        let capacity = capacity.min(c_int::MAX as u32);
        for count in 0..capacity {
            let at = count as usize;
            let polled = if TIMED {
                self.reader.poll_timed(&mut queues).map(|polled| {
                    polled.map(|(done, time)| {
                        // SAFETY: the array has room for `capacity`, by this function's contract.
                        unsafe { times.add(at).write(time.map_or(0, Timestamp::raw)) };
                        done
                    })
                })
            } else {
                self.reader.poll(&mut queues)
            };
            match polled {
                // SAFETY: the array has room for `capacity`, by this function's contract.
                Ok(Some(done)) => unsafe { Completion::put(done, completions.add(at)) },
                Ok(None) => return Ok(count as c_int),
                // The next call finds it again.
                Err(_) if count != 0 => return Ok(count as c_int),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(capacity as c_int)
    }
}

/// Takes a completion queue over from libibverbs. See `mlx5.h`.
///
/// # Safety
/// `mlx5.h` lists the conditions at `mlx5_cq_take`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_take(cq: *mut ibv_cq, flags: u32, taken: *mut *mut Cq) -> Status {
    finish(caught(|| {
        let (Some(raw), Some(taken)) = (NonNull::new(cq), NonNull::new(taken)) else {
            return Err(Failed::argument("cq or taken is null"));
        };
        // SAFETY: this function's contract.
        unsafe { taken.write(Box::into_raw(Box::new(Cq::take(raw, flags)?))) };
        Ok(())
    }))
}

/// Ends a handle whose queues were given back or abandoned. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_give_back(cq: *mut Cq) -> Status {
    // SAFETY: this function's contract.
    let ready = unsafe {
        on(cq, |cq| match cq.queues {
            0 => Ok(()),
            left => Err(Failed::told(
                Status::InUse,
                format_args!("{left} queues taken over complete here: give them back first"),
            )),
        })
    };
    finish(ready.and_then(|()| {
        // SAFETY: `mlx5_cq_take` made the box, and no queue has the pointer any more.
        caught(|| unsafe {
            drop(Box::from_raw(cq));
            Ok(())
        })
    }))
}

/// Ends a handle whatever state it is in. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive; no call runs on its group, and none comes: the handles of its
/// queues are ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_abandon(cq: *mut Cq) {
    let ended = caught(|| {
        if !cq.is_null() {
            // SAFETY: `mlx5_cq_take` made the box, and nothing uses it any more.
            drop(unsafe { Box::from_raw(cq) });
        }
        Ok(())
    });
    finish(ended);
}

/// Takes completions that are there. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, no other call runs on its group, and `completions` is null or has
/// room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_poll(
    cq: *mut Cq,
    completions: *mut Completion,
    capacity: u32,
) -> c_int {
    // SAFETY: this function's contract.
    let polled =
        unsafe { on(cq, |cq| cq.poll::<false>(completions, core::ptr::null_mut(), capacity)) };
    count(polled)
}

/// Takes completions that are there, with their times. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, no other call runs on its group, and `completions` and `times` are
/// null or have room for `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_poll_timed(
    cq: *mut Cq,
    completions: *mut Completion,
    times: *mut u64,
    capacity: u32,
) -> c_int {
    // SAFETY: this function's contract.
    count(unsafe { on(cq, |cq| cq.poll::<true>(completions, times, capacity)) })
}

/// Returns a count, or the negative status of a call that failed.
#[inline(always)]
pub(crate) fn count(polled: Result<c_int>) -> c_int {
    polled.unwrap_or_else(|failed| -(failed.status() as c_int))
}

/// Requests an event at the next completion. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_arm(cq: *mut Cq, solicited_only: c_int) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on(cq, |cq| {
            cq.channel.require()?;
            if solicited_only != 0 {
                cq.reader.arm_solicited()
            } else {
                cq.reader.arm()
            }
            Ok(())
        })
    })
}

/// Waits for the event of an arm, and takes it. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_wait(cq: *mut Cq, timeout_ms: c_int) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on(cq, |cq| {
            wait::for_event(&cq.channel, timeout_ms)?;
            cq.reader.event_taken();
            Ok(())
        })
    })
}

/// Counts an event that the program took by `ibv_get_cq_event`. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_event_taken(cq: *mut Cq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on(cq, |cq| {
            cq.reader.event_taken();
            Ok(())
        })
    })
}

/// Returns the descriptor that becomes readable when an event is there, or -1. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_fd(cq: *mut Cq) -> c_int {
    // SAFETY: this function's contract.
    unsafe { on(cq, |cq| cq.channel.require()) }.unwrap_or(-1)
}

/// Returns the completion queue of libibverbs. See `mlx5.h`.
///
/// # Safety
/// `cq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_cq_ibv(cq: *mut Cq) -> *mut ibv_cq {
    // SAFETY: this function's contract.
    unsafe { on(cq, |cq| Ok(cq.raw.as_ptr())) }.unwrap_or(core::ptr::null_mut())
}
