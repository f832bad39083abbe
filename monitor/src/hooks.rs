//! Functions of libibverbs and libmlx5 that this library defines as well. The loader finds these first.
//!
//! libmlx5 calls those of libibverbs whenever a program modifies or destroys an object, whichever way the
//! program came to libibverbs. They are the interface between rdma-core's own libraries, and have
//! had these arguments in all its releases since version 15.

use std::ffi::{c_int, c_void};

use mlx5_sys::verbs::{ibv_cq, ibv_cq_ex, ibv_qp, ibv_qp_attr};

use crate::board::DRIVES_ITSELF;
use crate::function::{IBVERBS, call};
use crate::queues::{self, Change};
use crate::state::{self, Control};

type ModifyQp =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut c_void, usize) -> c_int;
type ModifyQpEx = unsafe extern "C" fn(
    *mut ibv_qp,
    *mut ibv_qp_attr,
    c_int,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
) -> c_int;
type DestroyQp = unsafe extern "C" fn(*mut ibv_qp) -> c_int;
type DestroyCq = unsafe extern "C" fn(*mut ibv_cq) -> c_int;
type InitObj = unsafe extern "C" fn(*mut c_void, u64) -> c_int;

/// Keeps `errno` as it is across what this library does for itself.
fn aside(work: impl FnOnce()) {
    // SAFETY: the address of `errno` is valid in its thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        work();
        *errno = before;
    }
}

/// Modifies a queue pair, for libmlx5.
///
/// # Safety
/// The conditions of libibverbs' function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    command: *mut c_void,
    size: usize,
) -> c_int {
    // SAFETY: libmlx5 passes a queue pair that exists, and attributes that it may read.
    let change = unsafe { Change::begin(qp, attr, mask) };
    let result = call!(IBVERBS, c"ibv_cmd_modify_qp", ModifyQp, qp, attr, mask, command, size);
    aside(|| change.end(result));
    result
}

/// Modifies a queue pair, for libmlx5.
///
/// # Safety
/// The conditions of libibverbs' function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_modify_qp_ex(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    command: *mut c_void,
    size: usize,
    response: *mut c_void,
    response_size: usize,
) -> c_int {
    // SAFETY: libmlx5 passes a queue pair that exists, and attributes that it may read.
    let change = unsafe { Change::begin(qp, attr, mask) };
    let result = call!(
        IBVERBS,
        c"ibv_cmd_modify_qp_ex",
        ModifyQpEx,
        qp,
        attr,
        mask,
        command,
        size,
        response,
        response_size
    );
    aside(|| change.end(result));
    result
}

/// Destroys a queue pair, for libmlx5.
///
/// # Safety
/// The conditions of libibverbs' function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let result = call!(IBVERBS, c"ibv_cmd_destroy_qp", DestroyQp, qp);
    if result == 0 && state::is_attached() {
        aside(|| queues::retire(qp));
    }
    result
}

/// Destroys a CQ, for libmlx5.
///
/// # Safety
/// The conditions of libibverbs' function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_cmd_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let result = call!(IBVERBS, c"ibv_cmd_destroy_cq", DestroyCq, cq);
    if result == 0 && state::is_attached() {
        aside(|| {
            if let Some(control) = Control::take() {
                control.forget_cq(cq.cast::<ibv_cq_ex>());
            }
        });
    }
    result
}

/// Hands objects over to a program that drives the device itself.
///
/// # Safety
/// The conditions of libmlx5's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5dv_init_obj(objects: *mut c_void, kinds: u64) -> c_int {
    aside(|| {
        if let Some(control) = Control::take() {
            control.note(DRIVES_ITSELF);
        }
    });
    call!(c"libmlx5.so.1", c"mlx5dv_init_obj", InitObj, objects, kinds)
}
