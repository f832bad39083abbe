//! The output of a stream or capture: a file, or a listening socket.

use crate::private::{OwnFd, Private, check, files, system};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

/// Before the name of a socket.
const SOCKET: &str = "unix:";
/// In the name of a file, stands for the number of the process.
const PROCESS: &str = "%p";
/// Access rights of a new file, before the process's mask.
const MODE: libc::mode_t = 0o666;

/// The descriptors of this process' stream and capture, or -1: a child that was forked closes its
/// copies.
static OPEN: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// The destination of a stream's or capture's bytes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A file or socket of this process.
    Descriptor {
        fd: Output,
        /// The process that opened it.
        process: u32,
    },
    /// Memory.
    #[cfg(test)]
    Memory(std::sync::Arc<std::sync::Mutex<Vec<u8>>>),
    /// Nowhere any more.
    Closed,
}

impl Sink {
    /// Opens what is named: `unix:` and the name of a socket to connect to, or the name of a file,
    /// in which `%p` is the number of the process. A file that another process is writing a stream
    /// to is left alone.
    ///
    /// `aside` moves a descriptor out of the way of the program's own.
    ///
    /// # Errors
    /// Those of connecting, or opening; `ResourceBusy` of a file that is being written.
    pub fn open(name: &str, aside: impl FnOnce(i32) -> io::Result<i32>) -> io::Result<Sink> {
        let fd = match name.strip_prefix(SOCKET) {
            Some(path) => connect(path)?,
            None => {
                let file = files::open(path(name), libc::O_WRONLY | libc::O_CREAT, MODE)?;
                let file = lock_alone(file)?;
                // What is no file of a disk has no length.
                if files::is(&file.about()?, libc::S_IFREG) {
                    // SAFETY: the call passes no memory.
                    check(unsafe { system::ftruncate(file.as_raw_fd(), 0) })?;
                }
                file
            }
        };
        Self::of(fd.into_raw(), aside)
    }

    /// Creates the file that is named, in whose name `%p` is the number of the process. What exists
    /// and has content is left alone. A pipe or terminal is written to.
    ///
    /// `aside` moves a descriptor out of the way of the program's own.
    ///
    /// # Errors
    /// Those of creating; `AlreadyExists` of a file; `ResourceBusy` of a pipe that is being written.
    pub fn create(name: &str, aside: impl FnOnce(i32) -> io::Result<i32>) -> io::Result<Sink> {
        let path = path(name);
        let new = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let file = match files::open(&path, new, MODE) {
            Ok(file) => file,
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) if files::is(&files::about(&path)?, libc::S_IFREG) => {
                let text = "the file exists: remove it, or put %p into its name, which stands for \
                            the process";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            Err(_) => lock_alone(files::open(&path, libc::O_WRONLY, 0)?)?,
        };
        Self::of(file.into_raw(), aside)
    }

    /// Takes a descriptor that was just opened and has no other owner.
    fn of(fd: i32, aside: impl FnOnce(i32) -> io::Result<i32>) -> io::Result<Sink> {
        let fd = aside(fd)?;
        let is_free = |place: &AtomicI32| {
            place.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let is_known = OPEN.iter().any(is_free);
        debug_assert!(is_known, "a process has one stream and one capture");
        let process = std::process::id();
        // SAFETY: the descriptor was opened by the caller, given up by its owner, and moved: nothing
        // else owns it.
        let fd = Output(Private::new(unsafe { OwnFd::new(fd) }?));
        Ok(Sink::Descriptor { fd, process })
    }
}

/// Raises no signal if the reader is gone.
impl io::Write for Sink {
    /// Writes some of the bytes, and waits until there is space.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Descriptor { fd, process } => {
                if *process != std::process::id() {
                    // A forked child works on its copy of the parent's cards. The output is not the
                    // child's, and its descriptor is closed there.
                    if let Sink::Descriptor { fd, .. } = std::mem::replace(self, Sink::Closed) {
                        std::mem::forget(fd);
                    }
                    return Ok(bytes.len());
                }
                put(&fd.0, bytes)
            }
            #[cfg(test)]
            Sink::Memory(all) => {
                let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                all.extend(bytes);
                Ok(bytes.len())
            }
            Sink::Closed => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The owner of an output's descriptor, which is in [`OPEN`].
#[derive(Debug)]
pub(crate) struct Output(Private);

impl Drop for Output {
    fn drop(&mut self) {
        let fd = self.0.as_raw_fd();
        for place in &OPEN {
            // Fails for the other output.
            let _ = place.compare_exchange(fd, -1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Connects to a socket in the file system.
fn connect(path: &str) -> io::Result<OwnFd> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    // The last byte stays zero.
    let end = address.sun_path.len() - 1;
    let path = path.as_bytes();
    let room = address.sun_path[..end].get_mut(..path.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in room.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the call passes no memory, and returns a new descriptor, which nothing else owns.
    let fd = unsafe {
        OwnFd::new(system::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))
    }?;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is an address of `length` bytes, which the call reads.
    check(unsafe { system::connect(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(fd)
}

/// The file that is named by a variable: `%p` is the number of the process.
fn path(name: &str) -> String {
    name.replace(PROCESS, &std::process::id().to_string())
}

/// Locks a file for this process.
fn lock_alone(file: OwnFd) -> io::Result<OwnFd> {
    // SAFETY: `flock` passes no memory.
    if unsafe { system::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let text =
            "another process writes to it: put %p into its name, which stands for the process";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    Ok(file)
}

/// Writes some of the bytes. Raises no signal if the reader is gone.
fn put(fd: &OwnFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the call reads `bytes`, whose length it is given.
        let mut put = unsafe {
            system::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        };
        if put < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOTSOCK) {
            put = write_unsignaled(fd, bytes);
        }
        match usize::try_from(put) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => return Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Writes some of the bytes to a file or pipe. It fails with `EFBIG` at the limit of files' sizes
/// (`RLIMIT_FSIZE`), and with `EPIPE` if a pipe's reader is gone. The kernel's signals for that would
/// end the program, so they are taken back.
fn write_unsignaled(fd: &OwnFd, bytes: &[u8]) -> isize {
    const SIGNALS: [(i32, i32); 2] = [(libc::EFBIG, libc::SIGXFSZ), (libc::EPIPE, libc::SIGPIPE)];
    // The kernel signals the thread that writes, which has the signals blocked meanwhile.
    // SAFETY: sets and times are integers, for which zeros are values. The calls access those of this
    // block, and read `bytes`, whose length is given.
    unsafe {
        let (mut blocked, mut before, mut waiting): (
            libc::sigset_t,
            libc::sigset_t,
            libc::sigset_t,
        ) = std::mem::zeroed();
        libc::sigemptyset(&mut blocked);
        for (_, signal) in SIGNALS {
            libc::sigaddset(&mut blocked, signal);
        }
        system::signal_mask(libc::SIG_BLOCK, &blocked, &mut before);
        system::rt_sigpending(&mut waiting);
        let put = system::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
        let error = *libc::__errno_location();
        for (cause, signal) in SIGNALS {
            if put < 0 && error == cause && libc::sigismember(&waiting, signal) == 0 {
                libc::sigemptyset(&mut blocked);
                libc::sigaddset(&mut blocked, signal);
                let at_once: libc::timespec = std::mem::zeroed();
                system::rt_sigtimedwait(&blocked, std::ptr::null_mut(), &at_once);
            }
        }
        system::signal_mask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        *libc::__errno_location() = error;
        put
    }
}

/// In the child of a fork: stream and capture are the parent's, and end with it.
pub(crate) fn forget() {
    for place in &OPEN {
        let fd = place.swap(-1, Ordering::AcqRel);
        if fd >= 0 {
            crate::private::release(fd);
            // SAFETY: the descriptor came over the fork. Its owner in this process is not used any
            // more, but forgotten, by `write`, which compares process numbers.
            unsafe { system::close(fd) };
        }
    }
}
