//! Interposed functions that take a descriptor. Calls on the model's descriptors are served here;
//! all others go to libc.

use std::sync::Arc;

use libc::{FILE, c_int, c_long, c_uint, c_ulong, c_void, off_t, size_t, ssize_t};

use super::super::driver::running::Running;
use super::super::netlink::Socket;
use super::super::objects::map;
use super::super::observe;
use super::super::process::descriptors::{self, Descriptors, OpenFile};
use super::super::process::errno::{Errno, errno, set_errno};
use super::super::process::real;
use super::super::request::ioctl;
use super::super::tree::discovery::observes;
use super::super::visitor;
use super::interfaces;
use super::memory::{self, Door};
use super::open::{self, owned};
use super::sockets;
use crate::frontend::cm::{self, CmFile};

/// Returns the file behind a descriptor of the model, if it is one of this type.
pub(super) fn file<T: OpenFile>(fd: c_int) -> Option<Arc<T>> {
    Descriptors::current()?.get_as(fd)
}

/// Has an open file serve a request of verbs, and returns the system call's result.
fn serve(file: Option<Arc<dyn OpenFile>>, argument: u64) -> c_int {
    let before = errno();
    match file.ok_or(Errno::EBADF).and_then(|file| file.ioctl(argument)) {
        Ok(()) => {
            set_errno(before);
            0
        }
        Err(error) => {
            set_errno(error.0);
            -1
        }
    }
}

/// `fstat`: an event channel is a character device.
///
/// # Safety
/// `to` may be written to.
unsafe fn described(fd: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: the caller guarantees that `to` may be written to.
    let result = unsafe { real::fstat(fd, to) };
    if result == 0 && owned(fd) && file::<CmFile>(fd).is_some() {
        // SAFETY: the call above has written the structure, and the caller lets it be written.
        CmFile::describe(unsafe { &mut *to });
    }
    result
}

interpose! {
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        if request == ioctl::RDMA_VERBS_IOCTL && (owned(fd) || open::adopt(fd)) {
            if let Some(descriptors) = Descriptors::current() {
                return serve(descriptors.get(fd), argument as u64);
            }
        }
        if request == ioctl::RDMA_VERBS_IOCTL && observes() {
            return observe::ioctl(fd, argument);
        }
        match interfaces::asked(request, argument as u64) {
            None => real::ioctl(fd, request, argument),
            Some(Ok(())) => 0,
            Some(Err(error)) => {
                set_errno(error.0);
                -1
            }
        }
    }
    mmap(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        if fd >= 0 && owned(fd) {
            if let Some(running) = Running::current() {
                return map::map(running, address, length, protection, flags, fd, offset);
            }
        }
        if let Some(mapped) = observe::map(address, length, protection, flags, fd, offset) {
            return mapped;
        }
        memory::map(Door::Library, address, length, protection, flags, fd, offset)
    }
    mmap64(address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        if fd >= 0 && owned(fd) {
            if let Some(running) = Running::current() {
                return map::map(running, address, length, protection, flags, fd, offset);
            }
        }
        if let Some(mapped) = observe::map(address, length, protection, flags, fd, offset) {
            return mapped;
        }
        memory::map(Door::Library, address, length, protection, flags, fd, offset)
    }
    // Libraries that watch mappings (UCX) put a jump into the `mmap` and `munmap` that they find.
    // These may be the functions here, and such a library goes on to the kernel this way. In C it
    // is variadic: the kernel does not look at arguments that a caller does not pass.
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
        match number {
            libc::SYS_mmap => {
                let (at, length, flags, fd) = (a as *mut c_void, b as size_t, d as c_int, e as c_int);
                if owned(fd) {
                    if let Some(running) = Running::current() {
                        return map::map(running, at, length, c as c_int, flags, fd, f) as c_long;
                    }
                }
                if let Some(mapped) = observe::map(at, length, c as c_int, flags, fd, f) {
                    return mapped as c_long;
                }
                return memory::map(Door::Kernel, at, length, c as c_int, flags, fd, f) as c_long;
            }
            libc::SYS_munmap => {
                return memory::unmap(Door::Kernel, a as *mut c_void, b as size_t).into();
            }
            libc::SYS_mremap => {
                let (at, to) = (a as *mut c_void, e as *mut c_void);
                let (old, new, flags) = (b as size_t, c as size_t, d as c_int);
                return memory::remap(Door::Kernel, at, old, new, flags, to) as c_long;
            }
            libc::SYS_madvise => {
                return memory::advise(Door::Kernel, a as *mut c_void, b as size_t, c as c_int).into();
            }
            libc::SYS_close => {
                observe::closing(a as c_int);
                return open::close(a as c_int).into();
            }
            libc::SYS_close_range => {
                let (first, last) = (a as c_uint, b as c_uint);
                let kernel = |first: c_uint, last: c_uint| {
                    real::syscall(number, first.into(), last.into(), c, 0, 0, 0) as c_int
                };
                return open::close_range(first, last, kernel).into();
            }
            libc::SYS_dup3 => {
                let kernel = || real::syscall(number, a, b, c, d, e, f) as c_int;
                return open::duplicate(a as c_int, b as c_int, kernel).into();
            }
            libc::SYS_pidfd_getfd => {
                let copy = real::syscall(number, a, b, c, d, e, f);
                if copy >= 0 {
                    visitor::copied(a as c_int, b as c_int, copy as c_int);
                }
                return copy;
            }
            _ => {}
        }
        real::syscall(number, a, b, c, d, e, f)
    }
    munmap(address: *mut c_void, length: size_t) -> c_int {
        memory::unmap(Door::Library, address, length)
    }
    mremap(address: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
        memory::remap(Door::Library, address, old, new, flags, to)
    }
    madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int {
        memory::advise(Door::Library, address, length, advice)
    }
    close(fd: c_int) -> c_int {
        observe::closing(fd);
        open::close(fd)
    }
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        open::close_range(first, last, |first, last| real::close_range(first, last, flags))
    }
    closefrom(first: c_int) -> () {
        let Ok(first) = c_uint::try_from(first) else { return real::closefrom(first) };
        open::close_range(first, c_uint::MAX, |first, last| {
            if last == c_uint::MAX {
                real::closefrom(first as c_int);
                return 0;
            }
            (first..=last).for_each(|fd| {
                real::close(fd as c_int);
            });
            0
        });
    }
    fclose(stream: *mut FILE) -> c_int {
        let fd = if stream.is_null() { -1 } else { libc::fileno(stream) };
        let before = errno();
        if owned(fd) {
            open::closing(fd);
        } else {
            descriptors::foreign(fd);
        }
        set_errno(before);
        real::fclose(stream)
    }
    read(fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
        if owned(fd) {
            let file = Descriptors::current().and_then(|descriptors| descriptors.get(fd));
            if let Some(read) = file.and_then(|file| file.read(fd, to, length)) {
                return read;
            }
        } else if descriptors::is_inherited_channel(fd) {
            set_errno(libc::EINVAL);
            return -1;
        }
        real::read(fd, to, length)
    }
    write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t {
        if owned(fd) {
            if let Some(file) = file::<CmFile>(fd) {
                return cm::write(&file, from as u64, length, open::connections_of).map_or_else(
                    |error| {
                        set_errno(error.0);
                        -1
                    },
                    |written| written as ssize_t,
                );
            }
            if let Some(socket) = file::<Socket>(fd) {
                return sockets::written(&socket, from, length);
            }
        } else if descriptors::is_inherited_channel(fd) {
            // What Linux says to a process with other credentials than the one that opened it.
            set_errno(libc::EACCES);
            return -1;
        }
        real::write(fd, from, length)
    }
    // Libraries check that the event channel they have opened is a character device.
    fstat(fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to)
    }
    fstat64(fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to)
    }
    __fxstat(_version: c_int, fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to)
    }
    __fxstat64(_version: c_int, fd: c_int, to: *mut libc::stat) -> c_int {
        described(fd, to)
    }
    dup(fd: c_int) -> c_int {
        let copy = real::dup(fd);
        if copy >= 0 && owned(fd) {
            open::copied(fd, copy);
        }
        copy
    }
    dup2(fd: c_int, to: c_int) -> c_int {
        open::duplicate(fd, to, || real::dup2(fd, to))
    }
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        open::duplicate(fd, to, || real::dup3(fd, to, flags))
    }
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        let result = real::fcntl(fd, command, argument);
        if result >= 0 && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && owned(fd) {
            open::copied(fd, result);
        }
        result
    }
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        let result = real::fcntl64(fd, command, argument);
        if result >= 0 && matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && owned(fd) {
            open::copied(fd, result);
        }
        result
    }
}
