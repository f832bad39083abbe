//! The table of the model's file descriptors and the objects they refer to.
//!
//! A descriptor is looked up without a lock. So interposed calls on foreign descriptors cost one
//! load and may be made anywhere, even from a signal handler or in a forked child. The object
//! behind a descriptor is kept until the last copy of the descriptor is closed.
//!
//! Some closes are not seen here: those of `freopen`, and of system calls that a program makes
//! itself. So a descriptor is the model's only as long as the file behind it is the one that was
//! entered. If it is a different file, the model does late what it does on close.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use libc::{c_int, c_void, pid_t, size_t, ssize_t};

use super::errno::{Errno, Result};
use super::{in_children, lock, own_process};
use crate::private::{self, system};

/// Number of descriptors that can be distinguished; a command file beyond is refused.
pub(crate) const LIMIT: usize = 1 << 16;

/// For each descriptor, the number of its entry plus one; 0 for foreign descriptors.
static OWNED: [AtomicU32; LIMIT] = [const { AtomicU32::new(0) }; LIMIT];
/// For each descriptor of the model, what file is behind it ([`identity`]).
static FILES: [AtomicU64; LIMIT] = [const { AtomicU64::new(0) }; LIMIT];
/// For each descriptor, what a forked child inherits ([`Inherited::word`]). Unlike [`OWNED`] it comes
/// over a fork.
static INHERITED: [AtomicU32; LIMIT] = [const { AtomicU32::new(0) }; LIMIT];

/// Returns the entry of a descriptor in one of the tables.
fn entry<T>(table: &[T; LIMIT], fd: c_int) -> Option<&T> {
    table.get(usize::try_from(fd).ok()?)
}

/// An open file of the model: what the calls on its descriptors do, as `file_operations` in the kernel.
pub(in crate::frontend) trait OpenFile: Shared {
    /// The last descriptor was closed.
    fn release(&self) {}

    /// The command file that it was opened through is closed.
    fn hang_up(&self) {}

    /// Serves a request of verbs, whose header is at this address.
    ///
    /// # Errors
    /// `ENOTTY` if the file has no such requests; the error of the request.
    fn ioctl(&self, _argument: u64) -> Result<()> {
        Err(Errno::ENOTTY)
    }

    /// Serves `read` of a descriptor. `None` leaves it to the kernel's file behind the descriptor.
    ///
    /// # Safety
    /// `to` is valid for writes of `length` bytes.
    unsafe fn read(&self, _fd: c_int, _to: *mut c_void, _length: size_t) -> Option<ssize_t> {
        None
    }

    /// Returns what a forked child inherits with a descriptor of the file.
    fn inherited(&self) -> Inherited {
        Inherited::Nothing
    }
}

/// A value that may be shared by threads, and whose type may be asked for.
pub(in crate::frontend) trait Shared: Any + Send + Sync {
    /// Returns the value as one of any type.
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: Any + Send + Sync> Shared for T {
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// What a forked child inherits with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::frontend) enum Inherited {
    /// A file that is not the model's.
    Nothing,
    /// A device, by its number: the child opens it again.
    Device(usize),
    /// An event channel of connections, which stays the parent's.
    Channel,
    /// A socket of RDMA netlink: the child gets one of its own at its first use.
    Netlink,
}

impl Inherited {
    const CHANNEL: u32 = u32::MAX;
    const NETLINK: u32 = u32::MAX - 1;

    fn word(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Device(device) => device as u32 + 1,
            Self::Channel => Self::CHANNEL,
            Self::Netlink => Self::NETLINK,
        }
    }
}

/// Returns what a descriptor was before a fork, or still is.
pub(crate) fn inherited(fd: c_int) -> Inherited {
    match entry(&INHERITED, fd).map_or(0, |entry| entry.load(Ordering::Acquire)) {
        0 => Inherited::Nothing,
        Inherited::CHANNEL => Inherited::Channel,
        Inherited::NETLINK => Inherited::Netlink,
        device => Inherited::Device(device as usize - 1),
    }
}

/// The open files of a process, one entry for each, however many descriptors it has.
pub(crate) struct Descriptors {
    process: pid_t,
    files: Mutex<Vec<Option<Open>>>,
}

/// The table of this process, or of the one that it was forked from. Never freed.
static TABLE: AtomicPtr<Descriptors> = AtomicPtr::new(std::ptr::null_mut());

/// An open file, and how many descriptors it has.
type Open = (Arc<dyn OpenFile>, usize);

/// Returns whether a descriptor was entered and not left. One load.
pub(crate) fn is_entered(fd: c_int) -> bool {
    entry(&OWNED, fd).is_some_and(|entry| entry.load(Ordering::Acquire) != 0)
}

/// Returns whether the file behind a descriptor is the one that was entered for it.
pub(crate) fn is_same_file(fd: c_int) -> bool {
    identity(fd).is_some_and(|now| {
        entry(&FILES, fd).is_some_and(|entered| entered.load(Ordering::Acquire) == now)
    })
}

/// Returns whether a descriptor is an event channel of connections that came over a fork. It stays
/// the parent's, so commands to it fail in the child.
pub(crate) fn is_inherited_channel(fd: c_int) -> bool {
    inherited(fd) == Inherited::Channel && !is_entered(fd) && is_same_file(fd)
}

/// A hash that distinguishes the file behind a descriptor from other files; `None` if it is not
/// open.
pub(crate) fn identity(fd: c_int) -> Option<u64> {
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

/// Forgets every descriptor, in the child of a fork: the files stay the parent's.
extern "C" fn forget() {
    TABLE.store(std::ptr::null_mut(), Ordering::Release);
    for entry in &OWNED {
        if entry.load(Ordering::Relaxed) != 0 {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

impl Descriptors {
    /// Returns this process's table, if it has one.
    pub fn current() -> Option<&'static Self> {
        // SAFETY: the pointer is null, or it comes from a box that `own` has leaked.
        let table = unsafe { TABLE.load(Ordering::Acquire).as_ref() }?;
        (table.process == own_process()).then_some(table)
    }

    /// Returns this process's table, making it at the first call.
    pub fn own() -> &'static Self {
        static ASKED: AtomicBool = AtomicBool::new(false);
        loop {
            let others = TABLE.load(Ordering::Acquire);
            // SAFETY: the pointer is null, or it comes from a box that this function has leaked.
            match unsafe { others.as_ref() } {
                Some(table) if table.process == own_process() => return table,
                _ => {}
            }
            in_children(&ASKED, forget);
            let table = Self { process: own_process(), files: Mutex::default() };
            let table = Box::into_raw(Box::new(table));
            if TABLE.compare_exchange(others, table, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: the box was made above, and was not stored: another thread was faster.
                drop(unsafe { Box::from_raw(table) });
            }
        }
    }

    /// Makes a descriptor the model's.
    pub fn enter(&self, fd: c_int, file: Arc<dyn OpenFile>) -> Result<()> {
        let place = entry(&OWNED, fd).ok_or(Errno::EMFILE)?;
        // What had the number before was closed behind the model's back.
        self.close(fd);
        FILES[fd as usize].store(identity(fd).ok_or(Errno::EBADF)?, Ordering::Release);
        let mut entries = lock(&self.files);
        let index = match entries.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                entries.push(None);
                entries.len() - 1
            }
        };
        INHERITED[fd as usize].store(file.inherited().word(), Ordering::Release);
        entries[index] = Some((file, 1));
        place.store(index as u32 + 1, Ordering::Release);
        Ok(())
    }

    /// Returns the file behind a descriptor.
    pub fn get(&self, fd: c_int) -> Option<Arc<dyn OpenFile>> {
        let index = entry(&OWNED, fd)?.load(Ordering::Acquire).checked_sub(1)?;
        lock(&self.files).get(index as usize)?.as_ref().map(|(file, _)| file.clone())
    }

    /// Returns the file behind a descriptor, if it is one of this type.
    pub fn get_as<T: OpenFile>(&self, fd: c_int) -> Option<Arc<T>> {
        self.get(fd)?.any().downcast().ok()
    }

    /// Returns all files of a type.
    pub fn all<T: OpenFile>(&self) -> Vec<Arc<T>> {
        let entries = lock(&self.files);
        let files = entries.iter().flatten();
        files.filter_map(|(file, _)| file.clone().any().downcast().ok()).collect()
    }

    /// A copy of a descriptor was made.
    pub fn copied(&self, original: c_int, copy: c_int) {
        self.close(copy);
        let (Some(from), Some(to)) = (entry(&OWNED, original), entry(&OWNED, copy)) else { return };
        let mut entries = lock(&self.files);
        let number = from.load(Ordering::Acquire);
        let Some(index) = number.checked_sub(1) else { return };
        if let Some(Some((_, count))) = entries.get_mut(index as usize) {
            *count += 1;
            FILES[copy as usize]
                .store(FILES[original as usize].load(Ordering::Acquire), Ordering::Release);
            to.store(number, Ordering::Release);
            INHERITED[copy as usize]
                .store(INHERITED[original as usize].load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// Removes a descriptor that is about to be closed, and releases its file if it was the last one.
    pub fn close(&self, fd: c_int) {
        if let Some(file) = self.leave(fd) {
            file.release();
        }
    }

    fn leave(&self, fd: c_int) -> Option<Arc<dyn OpenFile>> {
        let place = entry(&OWNED, fd)?;
        let mut entries = lock(&self.files);
        foreign(fd);
        let index = place.swap(0, Ordering::AcqRel).checked_sub(1)? as usize;
        let entry = entries.get_mut(index)?;
        let (_, count) = entry.as_mut()?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        entry.take().map(|(file, _)| file)
    }
}

/// A descriptor that may have come over a fork is about to be closed.
pub(crate) fn foreign(fd: c_int) {
    if let Some(entry) = entry(&INHERITED, fd) {
        if entry.load(Ordering::Relaxed) != 0 {
            entry.store(0, Ordering::Release);
        }
    }
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

/// Moves a descriptor out of the way of the program's own, which programs expect to be low, and
/// closes it across exec. It is the model's own from then on, to be closed by [`shut`]. If that
/// fails, the descriptor stays open.
pub(crate) fn aside(fd: c_int) -> Result<c_int> {
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
