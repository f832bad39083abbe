//! The loader's calls.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::Library;

/// The handle of a library that was opened, or null.
type Handle = AtomicPtr<c_void>;

/// Returns the loader's name of a library, and its handle.
fn of(library: Library) -> (&'static CStr, &'static Handle) {
    static VERBS: Handle = Handle::new(null_mut());
    static MLX5: Handle = Handle::new(null_mut());
    #[cfg(feature = "cm")]
    static CM: Handle = Handle::new(null_mut());
    match library {
        Library::Verbs => (c"libibverbs.so.1", &VERBS),
        Library::Mlx5 => (c"libmlx5.so.1", &MLX5),
        #[cfg(feature = "cm")]
        Library::Cm => (c"librdmacm.so.1", &CM),
    }
}

/// Opens a library, if it is not open yet. Returns its handle, or null.
///
/// Threads that open it at the same time get the same handle from the loader.
pub fn open(library: Library) -> *mut c_void {
    let (name, handle) = of(library);
    let opened = handle.load(Ordering::Acquire);
    if !opened.is_null() {
        return opened;
    }
    // SAFETY: the name is a C string. Constructors of the libraries of rdma-core have no conditions.
    let opened = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !opened.is_null() {
        handle.store(opened, Ordering::Release);
    }
    opened
}

/// Returns the address of a function in a library, or null: `name` with the version `version`.
pub fn find(library: Library, name: &CStr, version: &CStr) -> *mut c_void {
    let handle = open(library);
    if handle.is_null() {
        return null_mut();
    }
    // SAFETY: the handle is of a library that stays open, and both names are C strings.
    #[cfg(target_env = "gnu")]
    return unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    // Only glibc's loader knows versions.
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = version;
        // SAFETY: the handle is of a library that stays open, and the name is a C string.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    }
}

/// Returns the words of the loader about the last call of this thread that failed.
pub fn last_error() -> String {
    // SAFETY: it has no conditions. The text is valid until the thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason".to_owned();
    }
    // SAFETY: a text of dlerror is a C string, and this thread makes no other call before the copy.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
