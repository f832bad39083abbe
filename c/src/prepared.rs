//! Prepared requests: written ahead to the ring of their queue, and posted by one call each.

use core::slice;

use mlx5::expert;
use mlx5::ring::SendQueue;

use crate::error::{Failed, Result, finish};
use crate::group::{Cq, Grouped, with_transport};
use crate::operation::{Carries, Written};
use crate::request::{Change, Request};
use crate::sq::{Sq, on_sq};
use crate::status::Status;

impl Change {
    /// Returns whether the change has no bytes, and needs some.
    #[inline(always)]
    fn lacks_bytes(&self) -> bool {
        self.bytes.is_null() && self.length != 0
    }

    /// Returns the bytes with their place.
    ///
    /// # Safety
    /// The bytes are readable as long as the result is used, or null and none.
    #[inline(always)]
    unsafe fn read<'a>(&self) -> expert::Change<'a> {
        let bytes = match self.length {
            0 => &[],
            // SAFETY: readable by this function's contract, and a byte is always aligned.
            length => unsafe { slice::from_raw_parts(self.bytes.cast(), length as usize) },
        };
        expert::Change::new(self.offset as usize, bytes)
    }
}

/// Writes a request behind those that are prepared.
///
/// # Safety
/// The request's lists, inline bytes and address are readable. From its fire until it is retired, its memory is
/// the HCA's.
unsafe fn prepare<T: Carries>(queue: &mut SendQueue<T>, sq: &Sq, request: &Request) -> Result {
    // SAFETY: this function's contract.
    sq.with_ahead(|ahead| unsafe { T::put(&mut Written { ahead, queue }, request) })
}

/// Posts the oldest prepared request, with these changes.
///
/// # Safety
/// The changes' bytes are readable. Until the request is retired, its memory is the HCA's.
#[inline(always)]
unsafe fn fire(cq: &mut Cq, sq: &Sq, changes: &[Change]) -> Result {
    if changes.iter().any(Change::lacks_bytes) {
        return Err(Failed::argument("bytes of a change is null, and its length is not 0"));
    }
    // SAFETY: this function's contract.
    let changes = changes.iter().map(|change| unsafe { change.read() });
    with_transport!(sq.transport, |T| {
        let queue = T::queue(&mut cq.tables, sq.qpn)?;
        // SAFETY: this function's contract.
        sq.with_ahead(|ahead| Ok(unsafe { ahead.fire(queue, changes) }?))
    })
}

/// Writes a request ahead. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group. `request` is null or
/// readable, and what it names. From the request's fire until it is complete, its memory is the HCA's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_prepare(sq: *mut Sq, request: *const Request) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            sq.require_ahead(cq)?;
            let [request] = Request::list(request, 1)? else { return Err(Failed::gone()) };
            with_transport!(sq.transport, |T| {
                prepare::<T>(T::queue(&mut cq.tables, sq.qpn)?, sq, request)
            })
        })
    })
}

/// Posts the oldest prepared request. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group. `changes` is null or has
/// `count` readable changes, whose bytes are readable. The request's memory is the HCA's until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_fire(sq: *mut Sq, changes: *const Change, count: u32) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            sq.require_ahead(cq)?;
            fire(cq, sq, Change::list(changes, count)?)
        })
    })
}

/// Forgets all prepared requests. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_cancel(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe { on_sq(sq, |cq, sq| sq.forget(cq)) })
}

/// Brings what the next fire needs into the caches. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_warm(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            sq.require_ahead(cq)?;
            with_transport!(sq.transport, |T| {
                let queue = T::queue(&mut cq.tables, sq.qpn)?;
                sq.with_ahead(|ahead| {
                    ahead.warm(queue);
                    Ok(())
                })
            })
        })
    })
}

/// Returns how many requests are prepared, or 0 for null. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_prepared(sq: *mut Sq) -> u32 {
    // SAFETY: this function's contract.
    unsafe { on_sq(sq, |_, sq| Ok(sq.prepared())) }.unwrap_or(0)
}
