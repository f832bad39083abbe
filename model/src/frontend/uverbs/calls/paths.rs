//! Interposed functions that take a path. Paths of the devices lead into the tree; all others go to
//! libc.

use std::ffi::{CStr, CString};

use libc::{AT_FDCWD, DIR, FILE, c_char, c_int, c_uint, c_void, mode_t, size_t, ssize_t};

use super::super::driver::counters::{self, Shown};
use super::super::process::errno::set_errno;
use super::super::process::real;
use super::super::tree::config::Node;
use super::super::tree::discovery::{Discovery, Redirect, discovery, redirect};
use super::super::tree::sysfs;
use super::super::tree::sysfs::{CONNECTIONS, NODE};
use super::open;

/// Calls with the path as it is to be looked for, or fails with `failure`.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn at<R>(path: *const c_char, failure: R, call: impl FnOnce(*const c_char) -> R) -> R {
    // SAFETY: the caller guarantees that the path is null or a C string.
    match unsafe { redirect(path) } {
        Redirect::No => call(path),
        Redirect::To(path) => call(path.as_ptr()),
        Redirect::Refused(errno) => {
            set_errno(errno);
            failure
        }
    }
}

/// Opens a counter's file with its count of now, and any other file as [`at`].
///
/// # Safety
/// `path` is null or a C string.
unsafe fn reading<R>(path: *const c_char, failure: R, call: impl FnOnce(*const c_char) -> R) -> R {
    // SAFETY: the caller guarantees that the path is null or a C string.
    match unsafe { shown(path) } {
        Some(shown) => call(shown.path.as_ptr()),
        // SAFETY: the caller guarantees that the path is null or a C string.
        None => unsafe { at(path, failure, call) },
    }
}

/// Returns what a path shows now, if it is that of a counter.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn shown(path: *const c_char) -> Option<Shown> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller guarantees a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !sysfs::concerns(path) {
        return None;
    }
    let Discovery::On(offer) = discovery() else { return None };
    counters::shown(offer, path)
}

/// Opens, and remembers the file if it is a command file.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn opening(
    path: *const c_char,
    flags: c_int,
    call: impl Fn(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: the caller guarantees that the path is null or a C string.
    let fd = unsafe { reading(path, -1, &call) };
    if fd < 0 || path.is_null() {
        return fd;
    }
    // SAFETY: not null, so the caller guarantees a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !path.starts_with(b"/dev/infiniband/") {
        return fd;
    }
    let Discovery::On(offer) = discovery() else { return fd };
    if path == CONNECTIONS {
        // The file only said that this process may.
        // SAFETY: `call` has just opened the descriptor, and the program does not know it yet.
        unsafe { real::close(fd) };
        return open::connections(flags);
    }
    match offer.tree.device(path) {
        None => fd,
        Some(device) if offer.config.node == Node::Forbidden => {
            // The file only said that this process may.
            // SAFETY: `call` has just opened the descriptor, and the program does not know it yet.
            unsafe { real::close(fd) };
            let node = CString::new(NODE).map_or(-1, |node| call(node.as_ptr()));
            if node < 0 { node } else { open::opened(node, device) }
        }
        Some(device) => open::opened(fd, device),
    }
}

/// Whether a path is absolute: only those are redirected.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn absolute(path: *const c_char) -> bool {
    // SAFETY: not null, so the caller guarantees a C string, which has a first byte.
    !path.is_null() && unsafe { *path } == b'/' as c_char
}

macro_rules! interpose {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, which the model looks at first.")]
        ///
        /// # Safety
        /// Paths are null or C strings. Other pointers are valid for what the function of the C library
        /// reads and writes.
        // In C some of these are variadic, which Rust cannot define. On x86-64 and arm64 a variadic
        // argument arrives where a plain one does.
        #[allow(
            unknown_lints,
            invalid_runtime_symbol_definitions,
            reason = "the lint is younger than the oldest Rust supported"
        )]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller keeps the C library's contract, which asks no less than the model.
            unsafe { $body }
        }
    )*};
}

interpose! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opening(path, flags, |path| real::open(path, flags, mode))
    }
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opening(path, flags, |path| real::open64(path, flags, mode))
    }
    __open_2(path: *const c_char, flags: c_int) -> c_int {
        opening(path, flags, |path| real::__open_2(path, flags))
    }
    __open64_2(path: *const c_char, flags: c_int) -> c_int {
        opening(path, flags, |path| real::__open64_2(path, flags))
    }
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        if absolute(path) {
            return opening(path, flags, |path| real::openat(AT_FDCWD, path, flags, mode));
        }
        real::openat(directory, path, flags, mode)
    }
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        if absolute(path) {
            return opening(path, flags, |path| real::openat64(AT_FDCWD, path, flags, mode));
        }
        real::openat64(directory, path, flags, mode)
    }
    __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        if absolute(path) {
            return opening(path, flags, |path| real::__openat_2(AT_FDCWD, path, flags));
        }
        real::__openat_2(directory, path, flags)
    }
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        if absolute(path) {
            return opening(path, flags, |path| real::__openat64_2(AT_FDCWD, path, flags));
        }
        real::__openat64_2(directory, path, flags)
    }
    opendir(path: *const c_char) -> *mut DIR {
        at(path, std::ptr::null_mut(), |path| real::opendir(path))
    }
    scandir(path: *const c_char, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int {
        at(path, -1, |path| real::scandir(path, list, filter, compare))
    }
    scandir64(path: *const c_char, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int {
        at(path, -1, |path| real::scandir64(path, list, filter, compare))
    }
    stat(path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::stat(path, to))
    }
    stat64(path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::stat64(path, to))
    }
    lstat(path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::lstat(path, to))
    }
    lstat64(path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::lstat64(path, to))
    }
    __xstat(_version: c_int, path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::stat(path, to))
    }
    __xstat64(_version: c_int, path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::stat64(path, to))
    }
    __lxstat(_version: c_int, path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::lstat(path, to))
    }
    __lxstat64(_version: c_int, path: *const c_char, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::lstat64(path, to))
    }
    fstatat(directory: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
        at(path, -1, |path| real::fstatat(directory, path, to, flags))
    }
    fstatat64(directory: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
        at(path, -1, |path| real::fstatat64(directory, path, to, flags))
    }
    __fxstatat(_version: c_int, directory: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
        at(path, -1, |path| real::fstatat(directory, path, to, flags))
    }
    __fxstatat64(_version: c_int, directory: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
        at(path, -1, |path| real::fstatat64(directory, path, to, flags))
    }
    statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int {
        at(path, -1, |path| real::statx(directory, path, flags, mask, to))
    }
    access(path: *const c_char, mode: c_int) -> c_int {
        at(path, -1, |path| real::access(path, mode))
    }
    faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        at(path, -1, |path| real::faccessat(directory, path, mode, flags))
    }
    readlink(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t {
        at(path, -1, |path| real::readlink(path, to, size))
    }
    __readlink_chk(path: *const c_char, to: *mut c_char, size: size_t, room: size_t) -> ssize_t {
        if room < size {
            // What the checked form is there for.
            std::process::abort();
        }
        at(path, -1, |path| real::readlink(path, to, size))
    }
    readlinkat(directory: c_int, path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t {
        at(path, -1, |path| real::readlinkat(directory, path, to, size))
    }
    realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
        resolved(at(path, std::ptr::null_mut(), |path| real::realpath(path, to)))
    }
    __realpath_chk(path: *const c_char, to: *mut c_char, size: size_t) -> *mut c_char {
        if size < libc::PATH_MAX as size_t {
            // What the checked form is there for.
            std::process::abort();
        }
        resolved(at(path, std::ptr::null_mut(), |path| real::realpath(path, to)))
    }
    getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t {
        at(path, -1, |path| real::getxattr(path, name, to, size))
    }
    lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t {
        at(path, -1, |path| real::lgetxattr(path, name, to, size))
    }
    listxattr(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t {
        at(path, -1, |path| real::listxattr(path, to, size))
    }
    llistxattr(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t {
        at(path, -1, |path| real::llistxattr(path, to, size))
    }
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        reading(path, std::ptr::null_mut(), |path| real::fopen(path, mode))
    }
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        reading(path, std::ptr::null_mut(), |path| real::fopen64(path, mode))
    }
}

/// Gives a resolved path of the tree its name in sysfs. It only becomes shorter.
///
/// # Safety
/// `path` is null or a C string that may be written to.
unsafe fn resolved(path: *mut c_char) -> *mut c_char {
    if path.is_null() {
        return path;
    }
    // Before anything of the cards was looked for, no path can lead into the tree; deciding here
    // would do so in programs that have nothing to do with them.
    // SAFETY: not null, so the caller guarantees a C string.
    let found = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !found.windows(11).any(|part| part == b"mlx5-model-") {
        return path;
    }
    let Discovery::On(offer) = discovery() else { return path };
    if let Some(shown) = offer.tree.restore(found) {
        // SAFETY: the shown path is shorter than the one in the buffer, which the caller lets be written,
        // so it fits with its zero. It is a string of its own, so the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(shown.as_ptr(), path.cast(), shown.len());
            *path.add(shown.len()) = 0;
        }
    }
    path
}
