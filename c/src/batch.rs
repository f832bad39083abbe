//! Batches: requests that are appended by one call each, and rung together.

use mlx5::ring::Batch;

use crate::error::{Failed, Result, finish};
use crate::group::{Grouped, Open, with_batch, with_transport};
use crate::operation::Carries;
use crate::request::Request;
use crate::sq::{Sq, on_sq};
use crate::status::Status;

/// Appends a request.
///
/// # Safety
/// The request's lists, inline bytes and address are readable. Until it is retired, its memory is the HCA's.
unsafe fn put<T: Carries>(batch: &mut Batch<'static, T>, request: &Request) -> Result {
    // SAFETY: this function's contract.
    unsafe { T::put(batch, request) }
}

/// Opens a batch. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_begin(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            sq.require_free(cq)?;
            let (tables, qpn) = (&raw mut cq.tables, sq.qpn);
            // SAFETY (of the lifetimes): the tables' queues are on the heap, and stay where they are. Every
            // call that touches the tables fails while `open` is there; `open` is dropped before them.
            let batch = with_transport!(sq.transport, |T| {
                T::filled(T::queue(&mut *tables, qpn)?.batch())
            });
            cq.open = Some(Open { qpn, batch });
            Ok(())
        })
    })
}

/// Appends a request to the open batch. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group. `request` is null or
/// readable, and what it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_append(sq: *mut Sq, request: *const Request) -> Status {
    // SAFETY: this function's contract. The memory of requests is the HCA's from `mlx5_sq_ring` on.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            let [request] = Request::list(request, 1)? else { return Err(Failed::gone()) };
            with_batch!(&mut Open::of(&mut cq.open, sq.qpn)?.batch, |batch| put(batch, request))
        })
    })
}

/// Posts the open batch with one doorbell. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group. The memory of the batch's
/// requests is the HCA's until they are complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_ring(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            Open::of(&mut cq.open, sq.qpn)?;
            let Some(open) = cq.open.take() else { return Err(Failed::gone()) };
            Ok(with_batch!(open.batch, |batch| batch.try_ring())?)
        })
    })
}

/// Discards the open batch: nothing is posted. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_discard(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            Open::of(&mut cq.open, sq.qpn)?;
            cq.open = None;
            Ok(())
        })
    })
}
