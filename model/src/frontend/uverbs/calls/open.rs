//! Opening, copying and closing the model's files.

use std::sync::Arc;

use libc::{c_int, c_uint};

use super::super::dispatch;
use super::super::driver::running::Running;
use super::super::netlink::Socket;
use super::super::objects::device;
use super::super::objects::file::CommandFile;
use super::super::process::descriptors::{
    self, Descriptors, Inherited, LIMIT, OpenFile, foreign, inherited, is_entered, is_same_file,
};
use super::super::process::errno::{Result, errno, last, set_errno};
use super::super::process::real;
use super::super::settings;
use super::super::tree::sysfs;
use super::super::visitor;
use crate::engine::{Shield, is_inside};
use crate::frontend::cm::CmFile;
use crate::private::{self, system};

/// Whether a descriptor is the model's. For foreign descriptors this is one load.
pub(super) fn owned(fd: c_int) -> bool {
    if !is_entered(fd) {
        return false;
    }
    if is_same_file(fd) {
        return true;
    }
    // The descriptor was closed without the model's knowledge. Closing the file takes locks, which
    // this thread may hold if the call is the model's own. A later call of the program closes it.
    if is_inside() {
        return false;
    }
    let before = errno();
    closing(fd);
    set_errno(before);
    false
}

/// Makes a command file that came over a fork the child's own at its first request: an open device
/// again, of this process's slice of the card, with a context but none of the parent's objects.
/// Gives whether the descriptor is the model's now.
pub(super) fn adopt(fd: c_int) -> bool {
    let Inherited::Device(device) = inherited(fd) else { return false };
    if !sysfs::is_node(fd) {
        foreign(fd);
        return false;
    }
    let adopted = Running::get().and_then(|running| {
        let file = CommandFile::new(running, device, settings::mode());
        device::open_again(&file)?;
        visitor::open(running);
        Descriptors::own().enter(fd, Arc::new(file))
    });
    adopted
        .inspect_err(|error| tracing::warn!(errno = error.0, "an inherited device stays closed"))
        .is_ok()
}

/// A command file was opened as `fd`. Gives `fd`, or -1 with errno where it cannot be used.
pub(super) fn opened(fd: c_int, device: usize) -> c_int {
    let made = Running::get().and_then(|running| {
        let file = CommandFile::new(running, device, settings::mode());
        Descriptors::own().enter(fd, Arc::new(file))
    });
    match made {
        Ok(()) => fd,
        Err(error) => {
            // SAFETY: the caller has just opened the descriptor, and the program does not know it yet.
            unsafe { real::close(fd) };
            set_errno(error.0);
            -1
        }
    }
}

/// Opens an event channel of connections. Returns it, or -1 with errno.
pub(super) fn connections(flags: c_int) -> c_int {
    made(|| {
        let running = Running::get()?;
        let (fd, file) = CmFile::open(&running.engine, running.manager(), flags)?;
        Ok((fd, Arc::new(file)))
    })
}

/// Opens a socket of RDMA netlink. Returns it, or -1 with errno.
pub(super) fn netlink(kind: c_int) -> c_int {
    made(|| Socket::open(kind).map(|(fd, socket)| (fd, Arc::new(socket) as _)))
}

/// Gives a child that has a parent's socket of RDMA netlink one of its own under the same number.
pub(super) fn netlink_again(fd: c_int) -> Option<Arc<Socket>> {
    let before = errno();
    let again = Socket::open(libc::SOCK_RAW).and_then(|(new, socket)| {
        let socket = Arc::new(socket);
        // SAFETY: the numbers are those of the new socket, and of the one that it replaces. The new one is
        // closed once.
        let replaced = unsafe {
            // FD_CLOEXEC is a flag of the number, which the program has set.
            let flags = system::fcntl(fd, libc::F_GETFD, 0);
            let flags = if flags == libc::FD_CLOEXEC { libc::O_CLOEXEC } else { 0 };
            let replaced = real::dup3(new, fd, flags);
            system::close(new);
            replaced
        };
        if replaced < 0 {
            return Err(last());
        }
        Descriptors::own().enter(fd, socket.clone()).map(|()| socket)
    });
    set_errno(before);
    again.ok()
}

/// Makes a file, with its first descriptor. Returns the descriptor, or -1 with errno.
fn made(make: impl FnOnce() -> Result<(c_int, Arc<dyn OpenFile>)>) -> c_int {
    let made = make().and_then(|(fd, file)| {
        let entered = Descriptors::own().enter(fd, file.clone());
        entered.map(|()| fd).inspect_err(|_| {
            file.release();
            // SAFETY: `make` has just made the descriptor, and nothing else owns it.
            unsafe { system::close(fd) };
        })
    });
    made.unwrap_or_else(|error| {
        set_errno(error.0);
        -1
    })
}

/// Returns the event channel behind a descriptor.
pub(super) fn connections_of(fd: c_int) -> Option<Arc<CmFile>> {
    Descriptors::current().filter(|_| owned(fd))?.get_as(fd)
}

impl OpenFile for CommandFile {
    fn release(&self) {
        self.let_go();
    }

    fn ioctl(&self, argument: u64) -> Result<()> {
        let _shield = Shield::new();
        let served = dispatch::request(self, argument);
        if self.state().context().is_ok() {
            visitor::open(self.running);
        }
        served
    }

    fn inherited(&self) -> Inherited {
        Inherited::Device(self.device())
    }
}

/// A descriptor of the model is about to be closed by this process.
pub(super) fn closing(fd: c_int) {
    // Without bookkeeping in a vfork child: its memory is the parent's, its descriptors are not.
    let Some(descriptors) = Descriptors::current() else { return };
    let _shield = Shield::new();
    descriptors.close(fd);
}

/// `close`.
///
/// # Safety
/// The descriptor is the caller's to close.
pub(super) unsafe fn close(fd: c_int) -> c_int {
    if private::is_private(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    let before = errno();
    if owned(fd) {
        closing(fd);
    } else {
        foreign(fd);
    }
    set_errno(before);
    // SAFETY: the caller guarantees that the descriptor is its own to close.
    unsafe { real::close(fd) }
}

/// `close_range` and similar calls: `kernel` is called for each part of the range that has none of
/// the model's own descriptors. A closed descriptor is recognized because it is not open any more,
/// so flags that close nothing need no care.
pub(super) fn close_range(
    first: c_uint,
    last: c_uint,
    mut kernel: impl FnMut(c_uint, c_uint) -> c_int,
) -> c_int {
    let mut result = 0;
    let mut from = first;
    loop {
        let barrier = c_int::try_from(from).ok().and_then(private::next);
        let barrier = barrier.map(|fd| fd as c_uint).filter(|fd| *fd <= last);
        match barrier {
            // A range that is refused is refused whole.
            None if from <= last || from == first => result = kernel(from, last),
            Some(fd) if fd > from => result = kernel(from, fd - 1),
            _ => {}
        }
        match barrier {
            Some(fd) if result == 0 => from = fd + 1,
            _ => break,
        }
    }
    let before = errno();
    let end = last.min(LIMIT as c_uint - 1);
    for fd in first..=end {
        let fd = fd as c_int;
        // Asking whether it is ours finds out.
        if is_entered(fd) {
            owned(fd);
        } else if inherited(fd) != Inherited::Nothing && descriptors::identity(fd).is_none() {
            foreign(fd);
        }
    }
    set_errno(before);
    result
}

/// `dup2` and `dup3`, made by `kernel`.
pub(super) fn duplicate(fd: c_int, to: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if private::is_private(to) {
        // What the kernel says of a number that is about to be used.
        set_errno(libc::EBUSY);
        return -1;
    }
    let ours = owned(fd);
    let copy = kernel();
    if copy >= 0 && copy != fd {
        let before = errno();
        if is_entered(copy) {
            closing(copy);
        } else {
            foreign(copy);
        }
        if ours {
            copied(fd, copy);
        }
        set_errno(before);
    }
    copy
}

/// A copy of a descriptor of the model was made by this process.
pub(super) fn copied(from: c_int, to: c_int) {
    if let Some(descriptors) = Descriptors::current() {
        descriptors.copied(from, to);
    }
}
