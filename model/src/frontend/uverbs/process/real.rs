//! The libc functions behind the interposed ones, found with `dlsym(RTLD_NEXT)`.
//!
//! Each is looked up at its first use and kept. No function here allocates or calls an interposed
//! function, so they are safe to use at any time after the program was loaded.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    DIR, FILE, c_char, c_int, c_long, c_uint, c_void, mode_t, msghdr, off_t, sighandler_t,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t,
};

/// One function, once found.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static str) -> Self {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => Self { name, address: AtomicPtr::new(std::ptr::null_mut()) },
            Err(_) => panic!("the name has no terminating zero"),
        }
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string; RTLD_NEXT asks for the definition after this object's.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // A C library without this function cannot have been asked for it by the program.
            std::process::abort();
        }
        self.address.store(found, Ordering::Release);
        found
    }
}

macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),* $(; $variadic:tt)?) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// The contract of that function holds: pointers are valid for what it reads and writes,
        /// descriptors are the caller's to change, and memory that it unmaps is not used any more.
        pub(in crate::frontend) unsafe fn $name($($argument: $type),*) -> $result {
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            next!(@call NEXT; $($argument: $type),*; $result; $($variadic)?)
        }
    )*};
    (@call $next:ident; $($argument:ident: $type:ty),*; $result:ty; ) => {{
        // SAFETY: the address is that of the function of this name, which has this type in every C
        // library of Linux.
        let next = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(
                $next.address(),
            )
        };
        // SAFETY: the caller guarantees the contract of the function.
        unsafe { next($($argument),*) }
    }};
    // The last argument is the variable one.
    (@call $next:ident; $first:ident: $ft:ty, $second:ident: $st:ty, $third:ident: $tt:ty; $result:ty; variadic) => {{
        // SAFETY: the address is that of the function of this name, which has this type in every C
        // library of Linux.
        let next = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($ft, $st, ...) -> $result>(
                $next.address(),
            )
        };
        // SAFETY: the caller guarantees the contract of the function.
        unsafe { next($first, $second, $third) }
    }};
    (@call $next:ident; $first:ident: $ft:ty, $second:ident: $st:ty, $third:ident: $tt:ty, $fourth:ident: $qt:ty, $fifth:ident: $pt:ty; $result:ty; variadic) => {{
        // SAFETY: the address is that of the function of this name, which has this type in every C
        // library of Linux.
        let next = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($ft, $st, $tt, $qt, ...) -> $result>(
                $next.address(),
            )
        };
        // SAFETY: the caller guarantees the contract of the function.
        unsafe { next($first, $second, $third, $fourth, $fifth) }
    }};
    (@call $next:ident; $first:ident: $ft:ty, $second:ident: $st:ty, $third:ident: $tt:ty, $fourth:ident: $qt:ty; $result:ty; variadic) => {{
        // SAFETY: the address is that of the function of this name, which has this type in every C
        // library of Linux.
        let next = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($ft, $st, $tt, ...) -> $result>(
                $next.address(),
            )
        };
        // SAFETY: the caller guarantees the contract of the function.
        unsafe { next($first, $second, $third, $fourth) }
    }};
}

next! {
    if_nametoindex(name: *const c_char) -> c_uint;
    if_indextoname(index: c_uint, to: *mut c_char) -> *mut c_char;
    open(path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t; variadic) -> c_int;
    __open_2(path: *const c_char, flags: c_int) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    opendir(path: *const c_char) -> *mut DIR;
    scandir(path: *const c_char, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int;
    scandir64(path: *const c_char, list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int;
    stat(path: *const c_char, to: *mut c_void) -> c_int;
    stat64(path: *const c_char, to: *mut c_void) -> c_int;
    lstat(path: *const c_char, to: *mut c_void) -> c_int;
    lstat64(path: *const c_char, to: *mut c_void) -> c_int;
    fstatat(directory: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int;
    fstatat64(directory: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int;
    statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int;
    access(path: *const c_char, mode: c_int) -> c_int;
    faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    readlink(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t;
    readlinkat(directory: c_int, path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t;
    realpath(path: *const c_char, to: *mut c_char) -> *mut c_char;
    getxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    lgetxattr(path: *const c_char, name: *const c_char, to: *mut c_void, size: size_t) -> ssize_t;
    listxattr(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t;
    llistxattr(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t;
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void; variadic) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: usize; variadic) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: usize; variadic) -> c_int;
    mmap(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    munmap(address: *mut c_void, length: size_t) -> c_int;
    madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int;
    mremap(address: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void; variadic) -> *mut c_void;
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    fclose(stream: *mut FILE) -> c_int;
    read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t;
    write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t;
    fstat(fd: c_int, to: *mut libc::stat) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, option: c_int, value: *const c_void, length: socklen_t) -> c_int;
    send(fd: c_int, from: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, from: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, room: socklen_t) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    recv(fd: c_int, to: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, to: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr, room: *mut socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t;
    pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
}
