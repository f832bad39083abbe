//! The output of a stream: a file, or a listening socket.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::private::Private;

/// Before the name of a socket.
const SOCKET: &str = "unix:";
/// In the name of a file, stands for the number of the process.
const PROCESS: &str = "%p";

/// The descriptor of this process' stream, or -1: a child that was forked closes its copy.
static OPEN: AtomicI32 = AtomicI32::new(-1);

/// The destination of a stream's bytes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A file or socket of this process.
    Descriptor {
        fd: Private<OwnedFd>,
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
        let process = std::process::id();
        let fd = match name.strip_prefix(SOCKET) {
            Some(path) => UnixStream::connect(path)?.into_raw_fd(),
            None => {
                let path = name.replace(PROCESS, &process.to_string());
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).truncate(false).open(path)?;
                // SAFETY: `flock` passes no memory.
                if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
                    let text = "another process writes to it: put %p into its name, which stands \
                                for the process";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
                }
                // What is no file of a disk has no length.
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                file.into_raw_fd()
            }
        };
        let fd = aside(fd)?;
        OPEN.store(fd, Ordering::Release);
        // SAFETY: the descriptor was opened above, given up by its owner, and moved: nothing else owns it.
        Ok(Sink::Descriptor { fd: Private::new(unsafe { OwnedFd::from_raw_fd(fd) }), process })
    }

    /// Writes all bytes, and waits until there is space.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::Descriptor { fd, process } => {
                if *process != std::process::id() {
                    // A forked child works on its copy of the parent's cards. The stream is not the
                    // child's, and its descriptor is closed here.
                    let Sink::Descriptor { fd, .. } = std::mem::replace(self, Sink::Closed) else {
                        return Ok(());
                    };
                    std::mem::forget(fd);
                    return Ok(());
                }
                while !bytes.is_empty() {
                    bytes = &bytes[put(fd, bytes)?..];
                }
                Ok(())
            }
            #[cfg(test)]
            Sink::Memory(all) => {
                let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                all.extend(bytes);
                Ok(())
            }
            Sink::Closed => Ok(()),
        }
    }
}

/// Writes some of the bytes. Raises no signal if the reader is gone.
fn put(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the call reads `bytes`, whose length it is given.
        let mut put = unsafe {
            libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
        };
        if put < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOTSOCK) {
            put = write_below_limit(fd, bytes);
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

/// Writes some of the bytes to a file. At the limit of files' sizes (`RLIMIT_FSIZE`) it fails with
/// `EFBIG`. The kernel's signal for that would end the program, so it is taken back.
fn write_below_limit(fd: &OwnedFd, bytes: &[u8]) -> isize {
    // The kernel sends SIGXFSZ to the thread that writes, which has it blocked meanwhile.
    // SAFETY: sets and times are integers, for which zeros are values. The calls access those of this
    // block, and read `bytes`, whose length is given.
    unsafe {
        let (mut limit, mut before, mut waiting): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            std::mem::zeroed();
        libc::sigemptyset(&mut limit);
        libc::sigaddset(&mut limit, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &limit, &mut before);
        libc::sigpending(&mut waiting);
        let put = libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
        let error = *libc::__errno_location();
        if put < 0 && error == libc::EFBIG && libc::sigismember(&waiting, libc::SIGXFSZ) == 0 {
            let at_once: libc::timespec = std::mem::zeroed();
            libc::sigtimedwait(&limit, std::ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        *libc::__errno_location() = error;
        put
    }
}

/// In the child of a fork: the stream is the parent's, and ends with it.
pub(crate) fn forget() {
    let fd = OPEN.swap(-1, Ordering::AcqRel);
    if fd >= 0 {
        crate::private::release(fd);
        // SAFETY: the descriptor came over the fork. Its owner in this process is not used any more, but
        // forgotten, by `Sink::write`, which compares process numbers.
        unsafe { libc::close(fd) };
    }
}
