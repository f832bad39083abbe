//! The loader's calls.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
#[cfg(not(feature = "link"))]
use core::sync::atomic::{AtomicPtr, Ordering};

use super::Library;

/// The handle of a library that was opened, or null.
#[cfg(not(feature = "link"))]
type Handle = AtomicPtr<c_void>;

/// Returns the loader's name of a library, and its handle.
#[cfg(not(feature = "link"))]
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
#[cfg(not(feature = "link"))]
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

/// Returns the handle in which functions of a library are looked up. `None` without the library.
#[cfg(not(feature = "link"))]
fn handle(library: Library) -> Option<*mut c_void> {
    Some(open(library)).filter(|handle| !handle.is_null())
}

/// Returns the handle in which functions of a library are looked up: that of all libraries that are linked.
/// `None` in a program whose libraries are linked statically: it has no loader.
#[cfg(feature = "link")]
fn handle(_: Library) -> Option<*mut c_void> {
    (!cfg!(target_feature = "crt-static")).then_some(libc::RTLD_DEFAULT)
}

/// Returns the address of a function in a library, or null: `name` with the version `version`.
pub fn find(library: Library, name: &CStr, version: &CStr) -> *mut c_void {
    let Some(handle) = handle(library) else { return null_mut() };
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
#[cfg(not(feature = "link"))]
pub fn last_error() -> String {
    // SAFETY: it has no conditions. The text is valid until the thread's next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason".to_owned();
    }
    // SAFETY: a text of dlerror is a C string, and this thread makes no other call before the copy.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
