//! Versions of the functions in the installed libraries.

use std::ffi::CString;

use mlx5_sys::load::Library;

/// Newest version of an interface that is looked for: `IBVERBS_1.99`.
const NEWEST: u32 = 99;

/// Returns the version that a linker gives a program: the newest one that the library has.
pub fn default_version(library: Library, function: &str) -> String {
    let prefix = match library {
        Library::Verbs => "IBVERBS",
        Library::Mlx5 => "MLX5",
        Library::Cm => "RDMACM",
        _ => panic!("{library:?} has no versions"),
    };
    let file = CString::new(library.file()).unwrap();
    // SAFETY: the name is a C string, and the library is never closed.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{file:?} is not installed");
    let name = CString::new(function).unwrap();
    let has = |version: &String| {
        let version = CString::new(version.as_str()).unwrap();
        // SAFETY: the handle is open, and both names are C strings.
        !unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) }.is_null()
    };
    let mut versions = (0..=NEWEST).rev().map(|minor| format!("{prefix}_1.{minor}"));
    versions.find(has).unwrap_or_else(|| panic!("{file:?} has no {function}"))
}
