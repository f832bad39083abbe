//! Functions that are newer than the bindings, also with the feature `link`. Where the library has them,
//! `tests/devx/exports.rs` of the driver calls them.

use std::ffi::{CStr, c_int};
use std::io;
use std::ptr::null_mut;

use mlx5_sys::dv::mlx5dv_devx_uar_export_dmabuf_fd;
use mlx5_sys::load::Library;
use mlx5_sys::verbs::ibv_dm_export_dmabuf_fd;

/// Calls a function that the installed library lacks.
fn refuses(library: Library, name: &CStr, version: &CStr, call: impl FnOnce() -> c_int) {
    let file = std::ffi::CString::new(library.file()).unwrap();
    // SAFETY: all three are C strings, and the library is never closed.
    let is_there = unsafe {
        let handle = libc::dlopen(file.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{file:?} is not installed");
        !libc::dlvsym(handle, name.as_ptr(), version.as_ptr()).is_null()
    };
    if !is_there {
        assert_eq!(call(), -1, "{name:?}");
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS), "{name:?}");
    }
}

#[test]
fn functions_that_the_library_lacks_fail_with_enosys() {
    let name = c"mlx5dv_devx_uar_export_dmabuf_fd";
    // SAFETY: the library has no such function, so nothing is called.
    refuses(Library::Mlx5, name, c"MLX5_1.26", || unsafe {
        mlx5dv_devx_uar_export_dmabuf_fd(null_mut())
    });
    // SAFETY: the library has no such function, so nothing is called.
    refuses(Library::Verbs, c"ibv_dm_export_dmabuf_fd", c"IBVERBS_1.16", || unsafe {
        ibv_dm_export_dmabuf_fd(null_mut())
    });
}
