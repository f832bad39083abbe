//! Batches: requests that are appended by one call each, and rung together.

use mlx5::ib::{Rc, Uc, Ud};

use crate::error::finish;
use crate::group::{Filled, GONE, Open};
use crate::operation::Carries;
use crate::request::Request;
use crate::sq::{Carried, Sq, on_sq};
use crate::status::Status;

/// Opens a batch. See `mlx5.h`.
///
/// # Safety
/// `sq` is null or a handle that is alive, and no other call runs on its group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_sq_begin(sq: *mut Sq) -> Status {
    // SAFETY: this function's contract.
    finish(unsafe {
        on_sq(sq, |cq, sq| {
            cq.require_no_batch()?;
            let (tables, qpn) = (&raw mut cq.tables, sq.qpn);
            // SAFETY (of the lifetimes): the tables' queues are on the heap, and stay where they are. Every
            // call that touches the tables fails while `open` is there; `open` is dropped before them.
            let batch = match sq.transport {
                Carried::Rc => Filled::Rc((*tables).rc.send(qpn).ok_or(GONE)?.batch()),
                Carried::Uc => {
                    let table = (*tables).uc.as_mut().ok_or(GONE)?;
                    Filled::Uc(table.send(qpn).ok_or(GONE)?.batch())
                }
                Carried::Ud => {
                    let table = (*tables).ud.as_mut().ok_or(GONE)?;
                    Filled::Ud(table.send(qpn).ok_or(GONE)?.batch())
                }
            };
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
            let [request] = Request::list(request, 1)? else { return Err(GONE) };
            match &mut Open::of(&mut cq.open, sq.qpn)?.batch {
                Filled::Rc(batch) => Rc::put(batch, request),
                Filled::Uc(batch) => Uc::put(batch, request),
                Filled::Ud(batch) => Ud::put(batch, request),
            }
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
            let Some(open) = cq.open.take() else { return Err(GONE) };
            match open.batch {
                Filled::Rc(batch) => batch.try_ring(),
                Filled::Uc(batch) => batch.try_ring(),
                Filled::Ud(batch) => batch.try_ring(),
            }?;
            Ok(())
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
