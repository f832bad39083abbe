//! The model's own descriptors and system calls.
//!
//! On a machine with a real device the program would not have the descriptors, so the model keeps the
//! program from closing or replacing them. A program that closes every descriptor it does not know, as
//! daemons do, would otherwise close the sockets between devices, and its next file would get the
//! number.
//!
//! [`system`] has the calls, which no preloaded library can intercept, and [`files`] what is made of
//! them.

pub(crate) mod files;
pub(crate) mod system;

use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of descriptors that can be distinguished. Higher ones are not protected.
const LIMIT: usize = 1 << 16;

/// A bit for each descriptor.
static PRIVATE: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((PRIVATE.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether a descriptor is the model's own. One load.
pub(crate) fn is_private(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Makes a descriptor the model's own, until [`release`].
pub(crate) fn claim(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

/// The descriptor is about to be closed by the model.
pub(crate) fn release(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// The lowest private descriptor from this one on.
pub(crate) fn next(from: RawFd) -> Option<RawFd> {
    let mut fd = from.max(0);
    while (fd as usize) < LIMIT {
        // Most words have none.
        if PRIVATE[fd as usize / 64].load(Ordering::Acquire) == 0 {
            fd = (fd / 64 + 1) * 64;
        } else if is_private(fd) {
            return Some(fd);
        } else {
            fd += 1;
        }
    }
    None
}

/// The owner of a descriptor that only the model uses. Unlike [`std::os::fd::OwnedFd`], it is closed
/// by a call that no library can intercept.
#[derive(Debug)]
pub(crate) struct OwnFd(RawFd);

impl OwnFd {
    /// Takes ownership of a descriptor that a system call has just created. A negative `result` means
    /// that the call failed.
    ///
    /// # Safety
    /// A `result` that is not negative is an open descriptor without another owner.
    pub unsafe fn new(result: RawFd) -> io::Result<Self> {
        check(result).map(Self)
    }

    /// Gives the descriptor to the caller, who closes it.
    pub fn into_raw(self) -> RawFd {
        let fd = self.0;
        std::mem::forget(self);
        fd
    }
}

impl AsRawFd for OwnFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor, and is not used afterwards.
        unsafe { system::close(self.0) };
    }
}

/// The owner of a private descriptor.
#[derive(Debug)]
pub(crate) struct Private(OwnFd);

impl Private {
    /// Makes a descriptor private.
    pub fn new(owner: OwnFd) -> Self {
        claim(owner.as_raw_fd());
        Self(owner)
    }

    /// Moves a descriptor out of the way of the program's own, and makes it private. Where the limit of open
    /// files is too low for that, it keeps its number.
    pub fn aside(low: OwnFd) -> Self {
        /// Programs expect their own to be low, and `select` takes none from 1024 on.
        const HIGH: usize = 512;
        // SAFETY: F_DUPFD_CLOEXEC passes no memory. It creates a descriptor, which has no other owner.
        let high =
            unsafe { OwnFd::new(system::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH)) };
        Self::new(high.unwrap_or(low))
    }
}

impl Deref for Private {
    type Target = OwnFd;

    fn deref(&self) -> &OwnFd {
        &self.0
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The field is dropped afterwards, which closes the descriptor.
        release(self.0.as_raw_fd());
    }
}

/// Returns a system call's result, or its error if it is negative.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns whether standard error takes a line: a pipe that nobody reads would raise SIGPIPE or, full, stop
/// the program, which may never have written to it.
fn takes_lines() -> bool {
    /// How long a reader may be behind, in milliseconds.
    const PATIENCE: libc::c_int = 100;
    static STUCK: AtomicBool = AtomicBool::new(false);
    let patience = if STUCK.load(Ordering::Relaxed) { 0 } else { PATIENCE };
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the call reads and writes the one entry.
    let found = unsafe { system::poll(&mut stderr, 1, patience) };
    let takes = found == 1 && stderr.revents == libc::POLLOUT;
    STUCK.store(!takes, Ordering::Relaxed);
    takes
}

/// Writes a line to standard error, by a call that no library can intercept. The line is lost where nobody
/// reads.
pub(crate) fn write_line(line: std::fmt::Arguments<'_>) {
    if !takes_lines() {
        return;
    }
    let text = format!("mlx5-model: {line}\n");
    let stderr = std::mem::ManuallyDrop::new(OwnFd(libc::STDERR_FILENO));
    // A program without standard error is told nothing.
    let _ = (&*stderr).write_all(text.as_bytes());
}

/// Writes a line to standard error that begins with `mlx5-model: `.
macro_rules! complain {
    ($($part:tt)*) => { $crate::private::write_line(format_args!($($part)*)) };
}
pub(crate) use complain;
