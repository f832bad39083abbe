//! An open event channel: its descriptor, and waiting for events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void, size_t, ssize_t};

use super::super::uverbs::process::descriptors::{self, Inherited, OpenFile};
use super::super::uverbs::process::errno::{Errno, Result, last, set_errno};
use super::state::Manager;
use crate::engine::Engine;
use crate::private::{self, system};

/// An open event channel.
pub(in super::super) struct CmFile {
    /// Number of the file, never used again.
    pub(super) number: u64,
    /// The process's ids, files and connections.
    pub(super) manager: &'static Manager,
    /// Runs the process's devices.
    pub(super) engine: Arc<Engine>,
    /// A descriptor of the eventfd, which is not zero while events wait.
    signal: c_int,
}

impl CmFile {
    /// Number of the character device, major and minor.
    pub(in super::super) const NUMBER: (libc::c_uint, libc::c_uint) = (10, 58);

    /// Opens an event channel. Returns the program's descriptor, and the file to enter for it.
    pub(in super::super) fn open(
        engine: &Arc<Engine>,
        manager: &'static Manager,
        flags: c_int,
    ) -> Result<(c_int, Self)> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut kind = 0;
        for (of_open, of_event) in
            [(libc::O_CLOEXEC, libc::EFD_CLOEXEC), (libc::O_NONBLOCK, libc::EFD_NONBLOCK)]
        {
            if flags & of_open != 0 {
                kind |= of_event;
            }
        }
        // SAFETY: the call passes no memory.
        let user = unsafe { system::eventfd(0, kind) };
        if user < 0 {
            return Err(last());
        }
        let signal = descriptors::duplicate_aside(user).inspect_err(|_| {
            // SAFETY: the descriptor was made above, and the program does not know it yet.
            unsafe { system::close(user) };
        })?;
        private::claim(signal);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        manager.open(number, signal);
        Ok((user, Self { number, manager, engine: engine.clone(), signal }))
    }

    /// Waits until an event may be there. Returns at once if the descriptor does not block.
    ///
    /// # Errors
    /// `EAGAIN` if the descriptor does not block; `EINTR` after a signal.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: F_GETFL passes no memory.
        let flags = unsafe { system::fcntl(self.signal, libc::F_GETFL, 0) };
        if flags & libc::O_NONBLOCK != 0 {
            return Err(Errno::EAGAIN);
        }
        let mut wait = libc::pollfd { fd: self.signal, events: libc::POLLIN, revents: 0 };
        // SAFETY: the call reads and writes one pollfd, which lives through it. Null asks for no end
        // of time.
        let ready = unsafe { system::ppoll(&raw mut wait, 1, std::ptr::null_mut()) };
        if ready < 0 { Err(last()) } else { Ok(()) }
    }

    /// Makes what `fstat` says of the eventfd what it says of the device.
    pub(in super::super) fn describe(status: &mut libc::stat) {
        status.st_mode = libc::S_IFCHR | 0o666;
        let (major, minor) = Self::NUMBER;
        status.st_rdev = libc::makedev(major, minor);
    }
}

impl OpenFile for CmFile {
    /// Destroys the ids.
    fn release(&self) {
        let withdrawn = self.engine.enter(0, |_| self.manager.lock().close(self.number));
        withdrawn.into_iter().for_each(|listening| self.engine.withdraw(&listening));
    }

    /// Fails: the device has no `read`.
    unsafe fn read(&self, _fd: c_int, _to: *mut c_void, _length: size_t) -> Option<ssize_t> {
        set_errno(libc::EINVAL);
        Some(-1)
    }

    fn inherited(&self) -> Inherited {
        Inherited::Channel
    }
}

impl Drop for CmFile {
    fn drop(&mut self) {
        // SAFETY: `open` has made the descriptor for the file, which is gone after this.
        unsafe { descriptors::shut(self.signal) };
    }
}
