//! Functions of other libraries.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use mlx5_sys::verbs::{ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr};

/// A function of another library.
pub(crate) struct Function {
    name: &'static CStr,
    library: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new(library: &'static CStr, name: &'static CStr) -> Function {
        Function { name, library, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns its address; null if the library is not there.
    pub(crate) fn find(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: names end with a zero. The library is already open: it is the caller, or what that
        // needs. The handle is kept, so that the library stays where it is. A program that opened it
        // itself has it behind no RTLD_NEXT, and one that is linked otherwise has no such file.
        let found = unsafe {
            let handle = libc::dlopen(self.library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            let within = if handle.is_null() { libc::RTLD_NEXT } else { handle };
            libc::dlsym(within, self.name.as_ptr())
        };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// libibverbs.
pub(crate) const IBVERBS: &CStr = c"libibverbs.so.1";

/// Calls the function that one of this library stands for; `ENOSYS` if it is not found.
macro_rules! call {
    ($library:expr, $name:literal, $type:ty, $($argument:expr),*) => {{
        static FUNCTION: $crate::function::Function =
            $crate::function::Function::new($library, $name);
        let found = FUNCTION.find();
        if found.is_null() {
            libc::ENOSYS
        } else {
            // SAFETY: the function has this type, and gets the caller's arguments.
            unsafe { std::mem::transmute::<*mut c_void, $type>(found)($($argument),*) }
        }
    }};
}

pub(crate) use call;

type QueryQp =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;

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
pub(crate) fn extended(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    static FUNCTION: Function = Function::new(IBVERBS, c"ibv_qp_to_qp_ex");
    type ToEx = unsafe extern "C" fn(*mut ibv_qp) -> *mut ibv_qp_ex;
    let found = FUNCTION.find();
    if found.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the function has this type, and the queue pair exists.
    unsafe { std::mem::transmute::<*mut c_void, ToEx>(found)(qp) }
}
