//! The table of the model's file descriptors and the objects they refer to.
//!
//! A descriptor is looked up without a lock. So interposed calls on foreign descriptors cost one
//! load and may be made anywhere, even from a signal handler or in a forked child. The object
//! behind a descriptor is kept until the last copy of the descriptor is closed.
//!
//! Some closes are not seen here: those of `freopen`, and of system calls that a program makes
//! itself. So a descriptor is the model's only as long as the file behind it is the one that was
//! entered. If it is a different file, the model does late what it does on close.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use libc::{c_int, c_uint};

use super::super::driver::event::EventQueue;
use super::super::driver::running::Running;
use super::super::objects::devx::answer::AnswerFile;
use super::super::objects::devx::event::EventFile;
use super::super::objects::file::CommandFile;
use super::super::visitor::{Guest, Resources};
use super::errno::{Errno, Result, errno, set_errno};
use super::lock;
use super::real;
use crate::engine::{Shield, is_inside};
use crate::frontend::cm::CmFile;
use crate::private::{self, system};

/// Number of descriptors that can be distinguished; a command file beyond is refused.
const LIMIT: usize = 1 << 16;

/// For each descriptor, the number of its entry plus one; 0 for foreign descriptors.
static OWNED: [AtomicU32; LIMIT] = [const { AtomicU32::new(0) }; LIMIT];

/// The object behind a descriptor of the model.
#[derive(Clone)]
pub(in super::super) enum Descriptor {
    /// An open device.
    Command(Arc<CommandFile>),
    /// A completion channel.
    Completions(Arc<EventQueue>),
    /// An asynchronous event file.
    Events(Arc<EventQueue>),
    /// A file of events that the program subscribes to.
    Subscribed(Arc<EventFile>),
    /// A file of answers to commands that the program did not wait for.
    Answers(Arc<AnswerFile>),
    /// A device that another process has open.
    Guest(Arc<Guest>),
    /// A socket by which the kernel tells of queue pairs.
    Resources(Arc<Resources>),
    /// An event channel of connections.
    Connections(Arc<CmFile>),
}

/// The entries, one for each open file, however many descriptors it has.
#[derive(Default)]
pub(in super::super) struct Descriptors(Mutex<Vec<Option<(Descriptor, usize)>>>);

/// For each descriptor of the model, what file is behind it ([`identity`]).
static FILES: [AtomicU64; LIMIT] = [const { AtomicU64::new(0) }; LIMIT];

/// Whether a descriptor was entered and not left. One load.
fn entered(fd: c_int) -> bool {
    usize::try_from(fd)
        .ok()
        .and_then(|fd| OWNED.get(fd))
        .is_some_and(|entry| entry.load(Ordering::Acquire) != 0)
}

/// Whether a descriptor is the model's. For foreign descriptors this is one load.
pub(in super::super) fn owned(fd: c_int) -> bool {
    if !entered(fd) {
        return false;
    }
    if identity(fd) == Some(FILES[fd as usize].load(Ordering::Acquire)) {
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

/// A hash that distinguishes the file behind a descriptor from other files; `None` if it is not
/// open.
pub(in super::super) fn identity(fd: c_int) -> Option<u64> {
    // SAFETY: integers, for which zeros are values.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `stat`.
    if unsafe { system::fstat(fd, &mut about) } != 0 {
        return None;
    }
    let parts =
        [about.st_dev, about.st_ino, about.st_rdev, u64::from(about.st_mode & libc::S_IFMT)];
    // FNV-1a, a word at a time.
    let add = |sum: u64, part: u64| (sum ^ part).wrapping_mul(0x0100_0000_01b3);
    Some(parts.into_iter().fold(0xcbf2_9ce4_8422_2325, add))
}

/// For each descriptor of a command file, the device's number plus one, and [`CHANNEL`] for each
/// event channel of connections. Unlike [`OWNED`] it comes over a fork.
static DEVICE: [AtomicU32; LIMIT] = [const { AtomicU32::new(0) }; LIMIT];
/// An event channel, in place of a device's number plus one.
const CHANNEL: u32 = u32::MAX;

/// Returns whether a descriptor is an event channel of connections that came over a fork. It stays
/// the parent's, so commands to it fail in the child.
pub(in super::super) fn is_inherited_channel(fd: c_int) -> bool {
    let entry = usize::try_from(fd).ok().and_then(|fd| DEVICE.get(fd));
    entry.is_some_and(|entry| entry.load(Ordering::Acquire) == CHANNEL)
        && !entered(fd)
        && identity(fd) == Some(FILES[fd as usize].load(Ordering::Acquire))
}

/// Forgets every descriptor, in the child of a fork: the files stay the parent's.
pub(in super::super) fn forget() {
    for entry in &OWNED {
        if entry.load(Ordering::Relaxed) != 0 {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// Makes a command file that came over a fork the child's own at its first request: an open device
/// again, of this process's slice of the card, with a context but none of the parent's objects.
/// Gives whether the descriptor is the model's now.
pub(in super::super) fn adopt(fd: c_int) -> bool {
    let Some(entry) = usize::try_from(fd).ok().and_then(|fd| DEVICE.get(fd)) else {
        return false;
    };
    let device = match entry.load(Ordering::Acquire) {
        0 | CHANNEL => return false,
        device => device - 1,
    };
    if !super::super::tree::sysfs::is_node(fd) {
        foreign(fd);
        return false;
    }
    let adopted = Running::get().and_then(|running| {
        let file = CommandFile::new(running, device as usize);
        super::super::objects::device::open_again(&file)?;
        running.descriptors.enter(fd, Descriptor::Command(Arc::new(file)))
    });
    adopted
        .inspect_err(|error| tracing::warn!(errno = error.0, "an inherited device stays closed"))
        .is_ok()
}

impl Descriptors {
    /// Makes a descriptor the model's.
    pub fn enter(&self, fd: c_int, descriptor: Descriptor) -> Result<()> {
        let place = usize::try_from(fd).ok().and_then(|fd| OWNED.get(fd)).ok_or(Errno::EMFILE)?;
        // What had the number before was closed behind the model's back.
        left(self.leave(fd));
        FILES[fd as usize].store(identity(fd).ok_or(Errno::EBADF)?, Ordering::Release);
        let mut entries = lock(&self.0);
        let index = match entries.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                entries.push(None);
                entries.len() - 1
            }
        };
        let kind = match &descriptor {
            Descriptor::Command(file) => file.device() as u32 + 1,
            Descriptor::Connections(_) => CHANNEL,
            _ => 0,
        };
        DEVICE[fd as usize].store(kind, Ordering::Release);
        entries[index] = Some((descriptor, 1));
        place.store(index as u32 + 1, Ordering::Release);
        Ok(())
    }

    /// Returns the object behind a descriptor.
    pub fn get(&self, fd: c_int) -> Option<Descriptor> {
        let index = OWNED.get(usize::try_from(fd).ok()?)?.load(Ordering::Acquire).checked_sub(1)?;
        lock(&self.0).get(index as usize)?.as_ref().map(|(descriptor, _)| descriptor.clone())
    }

    /// The open devices.
    pub fn command_files(&self) -> Vec<Arc<CommandFile>> {
        let entries = lock(&self.0);
        let descriptors = entries.iter().flatten();
        descriptors
            .filter_map(|(descriptor, _)| match descriptor {
                Descriptor::Command(file) => Some(Arc::clone(file)),
                _ => None,
            })
            .collect()
    }

    /// A copy of a descriptor was made.
    pub fn copied(&self, original: c_int, copy: c_int) {
        left(self.leave(copy));
        let (Some(from), Some(to)) = (
            usize::try_from(original).ok().and_then(|fd| OWNED.get(fd)),
            usize::try_from(copy).ok().and_then(|fd| OWNED.get(fd)),
        ) else {
            return;
        };
        let mut entries = lock(&self.0);
        let number = from.load(Ordering::Acquire);
        let Some(index) = number.checked_sub(1) else { return };
        if let Some(Some((_, count))) = entries.get_mut(index as usize) {
            *count += 1;
            FILES[copy as usize]
                .store(FILES[original as usize].load(Ordering::Acquire), Ordering::Release);
            to.store(number, Ordering::Release);
            DEVICE[copy as usize]
                .store(DEVICE[original as usize].load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// Removes a descriptor that is about to be closed. Returns its object if it was the last
    /// descriptor.
    pub fn leave(&self, fd: c_int) -> Option<Descriptor> {
        let place = OWNED.get(usize::try_from(fd).ok()?)?;
        let mut entries = lock(&self.0);
        foreign(fd);
        let index = place.swap(0, Ordering::AcqRel).checked_sub(1)? as usize;
        let entry = entries.get_mut(index)?;
        let (_, count) = entry.as_mut()?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        entry.take().map(|(descriptor, _)| descriptor)
    }
}

/// A descriptor that may have come over a fork is about to be closed.
pub(in super::super) fn foreign(fd: c_int) {
    if let Some(entry) = usize::try_from(fd).ok().and_then(|fd| DEVICE.get(fd)) {
        if entry.load(Ordering::Relaxed) != 0 {
            entry.store(0, Ordering::Release);
        }
    }
}

/// A command file was opened as `fd`. Gives `fd`, or -1 with errno where it cannot be used.
pub(in super::super) fn opened(fd: c_int, device: usize) -> c_int {
    let made = Running::get().and_then(|running| {
        let file = CommandFile::new(running, device);
        running.descriptors.enter(fd, Descriptor::Command(Arc::new(file)))
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
pub(in super::super) fn connections(flags: c_int) -> c_int {
    let opened = Running::get().and_then(|running| {
        let (fd, file) = CmFile::open(&running.engine, running.manager(), flags)?;
        let file = Arc::new(file);
        let entered = running.descriptors.enter(fd, Descriptor::Connections(file.clone()));
        entered.map(|()| fd).inspect_err(|_| {
            file.release();
            // SAFETY: `CmFile::open` has just made the descriptor, and nothing else owns it.
            unsafe { system::close(fd) };
        })
    });
    opened.unwrap_or_else(|error| {
        set_errno(error.0);
        -1
    })
}

/// Returns the event channel behind a descriptor.
pub(in crate::frontend) fn connections_of(fd: c_int) -> Option<Arc<CmFile>> {
    match Running::current().filter(|_| owned(fd))?.descriptors.get(fd)? {
        Descriptor::Connections(file) => Some(file),
        _ => None,
    }
}

/// Opens a socket by which the kernel lists queue pairs. Returns it, or -1 with errno.
pub(in super::super) fn resources(kind: c_int) -> c_int {
    let opened = Running::get().and_then(|running| {
        let (fd, socket) = Resources::open(kind)?;
        let entered = running.descriptors.enter(fd, Descriptor::Resources(Arc::new(socket)));
        entered.map(|()| fd).inspect_err(|_| {
            // SAFETY: `Resources::open` has just made the descriptor, and nothing else owns it.
            unsafe { system::close(fd) };
        })
    });
    opened.unwrap_or_else(|error| {
        set_errno(error.0);
        -1
    })
}

/// A descriptor of the model is about to be closed by this process.
pub(in super::super) fn closing(fd: c_int) {
    // Without bookkeeping in a vfork child: its memory is the parent's, its descriptors are not.
    let Some(running) = Running::current() else { return };
    let _shield = Shield::new();
    left(running.descriptors.leave(fd));
}

/// The last descriptor of something is gone.
fn left(descriptor: Option<Descriptor>) {
    match descriptor {
        Some(Descriptor::Command(file)) => file.let_go(),
        Some(Descriptor::Completions(queue) | Descriptor::Events(queue)) => queue.abandon(),
        Some(Descriptor::Subscribed(file)) => file.close(),
        Some(Descriptor::Answers(file)) => file.close(),
        Some(Descriptor::Connections(file)) => file.release(),
        Some(Descriptor::Guest(_) | Descriptor::Resources(_)) | None => {}
    }
}

/// `close`.
///
/// # Safety
/// The descriptor is the caller's to close.
pub(in super::super) unsafe fn close(fd: c_int) -> c_int {
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
pub(in super::super) fn close_range(
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
        if entered(fd) {
            owned(fd);
        } else if DEVICE[fd as usize].load(Ordering::Relaxed) != 0 && identity(fd).is_none() {
            foreign(fd);
        }
    }
    set_errno(before);
    result
}

/// `dup2` and `dup3`, made by `kernel`.
pub(in super::super) fn duplicate(fd: c_int, to: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if private::is_private(to) {
        // What the kernel says of a number that is about to be used.
        set_errno(libc::EBUSY);
        return -1;
    }
    let ours = owned(fd);
    let copy = kernel();
    if copy >= 0 && copy != fd {
        let before = errno();
        if entered(copy) {
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

/// Closes a descriptor of the model's own.
///
/// # Safety
/// The descriptor belongs to the caller, who does not use it any more.
pub(in crate::frontend) unsafe fn shut(fd: c_int) {
    private::release(fd);
    // SAFETY: the caller guarantees that the descriptor is its own, and not used any more.
    unsafe { system::close(fd) };
}

/// A copy of a descriptor of the model was made by this process.
pub(in super::super) fn copied(from: c_int, to: c_int) {
    if let Some(running) = Running::current() {
        running.descriptors.copied(from, to);
    }
}

/// Moves a descriptor out of the way of the program's own, which programs expect to be low, and
/// closes it across exec. It is the model's own from then on, to be closed by [`shut`]. If that
/// fails, the descriptor stays open.
pub(in super::super) fn aside(fd: c_int) -> Result<c_int> {
    let moved = duplicate_aside(fd)?;
    private::claim(moved);
    // SAFETY: the caller gives the descriptor away, and uses `moved` in its place.
    unsafe { system::close(fd) };
    Ok(moved)
}

/// Duplicates a descriptor to a number out of the way of the program's own. Closed across exec.
pub(in crate::frontend) fn duplicate_aside(fd: c_int) -> Result<c_int> {
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: the call writes one `rlimit`.
    unsafe { system::prlimit(0, libc::RLIMIT_NOFILE, std::ptr::null(), &mut limit) };
    let high = (limit.rlim_cur.min(LIMIT as u64) / 4 * 3) as c_int;
    for from in [high, 64, 0] {
        // SAFETY: F_DUPFD_CLOEXEC passes no memory.
        let moved = unsafe { system::fcntl(fd, libc::F_DUPFD_CLOEXEC, from as usize) };
        if moved >= 0 {
            return Ok(moved);
        }
    }
    Err(super::errno::last())
}
