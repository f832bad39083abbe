//! Signals of eventfds that never block.
//!
//! A write to an eventfd blocks while its count is at the end, unless O_NONBLOCK is set. That flag is
//! of the open file, which the client shares, so the client can clear it at any time. The kernel's
//! own signals never block. It makes one when a request of its asynchronous I/O ends, so the server
//! asks for a read of no bytes.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_long, c_ulong};

/// A request (`struct iocb` of Linux's `aio_abi.h`).
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    /// The kernel's key and the flags of the read. Their order is the processor's.
    key: [u32; 2],
    operation: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    count: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// The end of a request (`struct io_event`).
#[repr(C)]
struct Ended {
    data: u64,
    request: u64,
    result: [i64; 2],
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Ended>() == 32);

/// Reads bytes (`IOCB_CMD_PREAD`).
const READ: u16 = 0;
/// The request signals an eventfd when it ends (`IOCB_FLAG_RESFD`).
const SIGNALS: u32 = 1;

/// Signals eventfds.
#[derive(Debug)]
pub struct Signaller {
    /// The kernel's context of requests.
    context: c_ulong,
    /// An empty file.
    file: OwnedFd,
}

impl Signaller {
    /// Creates a context of requests.
    ///
    /// # Errors
    /// - The kernel refuses asynchronous I/O, or has no free context.
    /// - Those of `memfd_create`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call reads the name, a C string.
        let file = check(unsafe {
            c_long::from(libc::memfd_create(c"signals".as_ptr(), libc::MFD_CLOEXEC))
        })?;
        // SAFETY: the call above has returned this descriptor, which nothing else has.
        let file = unsafe { OwnedFd::from_raw_fd(file as libc::c_int) };
        let mut context: c_ulong = 0;
        // SAFETY: the call reads and writes `context`.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 1 as c_long, &raw mut context) };
        check(made).map_err(|error| {
            let cure = "interrupts need it; allow it, and raise the sysctl fs.aio-max-nr";
            io::Error::new(error.kind(), format!("io_setup: {error}; {cure}"))
        })?;
        Ok(Self { context, file })
    }

    /// Adds one to an eventfd. At the end of its count it stays there: the client has been told.
    ///
    /// # Errors
    /// - The descriptor is no eventfd.
    /// - The kernel has no memory for the request. The eventfd is not signalled then.
    pub fn signal(&self, event: &OwnedFd) -> io::Result<()> {
        let mut request = Request {
            operation: READ,
            file: self.file.as_raw_fd() as u32,
            flags: SIGNALS,
            eventfd: event.as_raw_fd() as u32,
            ..Request::default()
        };
        let mut list = [&raw mut request];
        let (context, list) = (self.context, list.as_mut_ptr());
        // SAFETY: the call reads the one pointer in the list, and reads and writes the request. The
        // read of an empty file ends within the call, and has no buffer.
        check(unsafe { libc::syscall(libc::SYS_io_submit, context, 1 as c_long, list) })?;
        self.forget_ended()
    }

    /// Takes the ends of requests from the kernel, which keeps a few only.
    fn forget_ended(&self) -> io::Result<()> {
        const MOST: usize = 4;
        let mut ended = MaybeUninit::<[Ended; MOST]>::uninit();
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (least, most) = (0 as c_long, MOST as c_long);
        let (to, now) = (ended.as_mut_ptr(), &raw const now);
        // SAFETY: the call writes at most `most` ends, which `ended` has the size for, and reads `now`.
        check(unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, least, most, to, now)
        })?;
        Ok(())
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        // SAFETY: `new` has made this context, and `self` is its only user.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// Returns what a system call returned, or its error.
fn check(returned: c_long) -> io::Result<c_long> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

#[cfg(test)]
mod tests;
