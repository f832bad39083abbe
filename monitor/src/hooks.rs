//! Functions of libibverbs and libmlx5 that this library defines as well. The loader finds these first.
//!
//! libmlx5 calls those of libibverbs whenever a program modifies or destroys an object, whichever way the
//! program came to libibverbs. They are the interface between rdma-core's own libraries, and have
//! had these arguments in all its releases since version 15.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use mlx5_sys::verbs::{ibv_cq, ibv_cq_ex, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

use crate::board::DRIVES_ITSELF;
use crate::queues::{self, Change};
use crate::state::{self, Control};

/// A function of another library.
struct Function {
    name: &'static CStr,
    library: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Function {
    const fn new(library: &'static CStr, name: &'static CStr) -> Function {
        Function { name, library, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns its address; null if the library is not there.
    fn find(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: names end with a zero. The library is already open: it is the caller, or what that
        // needs. Only one that the program opened itself is not behind RTLD_NEXT.
        let found = unsafe {
            let next = libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr());
            let handle =
                || libc::dlopen(self.library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            match next.is_null().then(handle).filter(|handle| !handle.is_null()) {
                None => next,
                Some(handle) => {
                    let found = libc::dlsym(handle, self.name.as_ptr());
                    // Its other users keep it open.
                    libc::dlclose(handle);
                    found
                }
            }
        };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

const IBVERBS: &CStr = c"libibverbs.so.1";

/// Calls the function that one of this library stands for; `ENOSYS` if it is not found.
macro_rules! call {
    ($library:expr, $name:literal, $type:ty, $($argument:expr),*) => {{
        static FUNCTION: Function = Function::new($library, $name);
        let found = FUNCTION.find();
        if found.is_null() {
            libc::ENOSYS
        } else {
            // SAFETY: the function has this type, and gets the caller's arguments.
            unsafe { std::mem::transmute::<*mut c_void, $type>(found)($($argument),*) }
        }
    }};
}

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
type QueryQp =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
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

/// Queries a queue pair's initial attributes; `None` if that fails.
///
/// # Safety
/// The queue pair exists.
pub(crate) unsafe fn query(qp: *mut ibv_qp) -> Option<ibv_qp_init_attr> {
    const STATE: c_int = 1;
    // SAFETY: zeros are valid in both structures, which the call fills.
    let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let result = call!(IBVERBS, c"ibv_query_qp", QueryQp, qp, &mut attr, STATE, &mut init);
    (result == 0).then_some(init)
}

/// Returns the extended part of a queue pair; null if it has none.
pub(crate) fn extended(qp: *mut ibv_qp) -> *mut mlx5_sys::verbs::ibv_qp_ex {
    static FUNCTION: Function = Function::new(IBVERBS, c"ibv_qp_to_qp_ex");
    type ToEx = unsafe extern "C" fn(*mut ibv_qp) -> *mut mlx5_sys::verbs::ibv_qp_ex;
    let found = FUNCTION.find();
    if found.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the function has this type, and the queue pair exists.
    unsafe { std::mem::transmute::<*mut c_void, ToEx>(found)(qp) }
}
