//! Processes that fork: which memory the child shares, and what it must leave alone.

use std::ptr::NonNull;

use mlx5_sys::load::Library;
use mlx5_sys::verbs::{ibv_fork_init, ibv_is_fork_initialized};

use super::pages::page_size;
use crate::error::{Cause, Errno, Error, Result};

/// How memory that the HCA reaches is kept apart from forked children.
///
/// A fork shares the memory of the process with the child until one of them writes: then the writer
/// gets a copy. If the parent writes first, the HCA goes on with the old page, and the parent no
/// longer sees what the HCA writes. See [`fork_init`] for what prevents that, and for an example.
#[doc(alias = "ibv_fork_status")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkStatus {
    /// Nothing is done: if the process forks, its traffic may go wrong silently.
    Disabled,
    /// Registered memory, rings and doorbell records do not follow into children, which get SIGSEGV
    /// where they touch them.
    Enabled,
    /// The kernel copies such memory for the child at the fork (Linux 5.12 and later). Nothing is
    /// to be done.
    Unneeded,
}

/// Returns how memory that the HCA reaches is kept apart from forked children. One or two system
/// calls.
#[doc(alias = "ibv_is_fork_initialized")]
pub fn fork_status() -> ForkStatus {
    // `enum ibv_fork_status` of `verbs.h`
    const ENABLED: u32 = 1;
    const UNNEEDED: u32 = 2;
    // SAFETY: it asks the kernel and reads a variable of libibverbs. Without libibverbs it returns 0.
    match unsafe { ibv_is_fork_initialized() } {
        UNNEEDED => ForkStatus::Unneeded,
        ENABLED => ForkStatus::Enabled,
        _ => ForkStatus::Disabled,
    }
}

/// Prepares the process for forks, and returns how: by `ibv_fork_init`.
///
/// Call it before anything else of this crate, and before other threads use libibverbs. The
/// environment variable `RDMAV_FORK_SAFE=1` does the same without a call. From then on each
/// registration and each queue costs a call of `madvise` and an entry in a tree of libibverbs', and
/// memory on huge pages needs `RDMAV_HUGEPAGES_SAFE=1` as well. Posts and polls cost nothing. Where
/// the kernel does the job itself ([`ForkStatus::Unneeded`]), nothing changes.
///
/// `std::process::Command` needs none of this if it has no `pre_exec`: its child executes the new
/// program at once.
///
/// # The child
/// The parent goes on as if nothing had happened. The child leaves everything alone that the parent
/// has made with this crate, until it ends or executes another program; it may open the device anew
/// and make objects of its own. The child has no use for the parent's objects:
///
/// | the child | what happens |
/// |---|---|
/// | posts to a queue, or arms a CQ | SIGSEGV at the latest where it rings: doorbell registers do not follow into children |
/// | polls | [`ForkStatus::Enabled`]: SIGSEGV; otherwise it sees what was there at the fork, and never anything new |
/// | reads or writes registered memory | [`ForkStatus::Enabled`]: SIGSEGV; otherwise it has a copy |
/// | drops, resets or changes an object | the kernel may do so with the parent's object, since both have the same open file |
///
/// So the child ends by `exec`, `_exit`, or `std::process::exit` (which runs no destructors of
/// variables), and does not return from the function that holds the objects. An error instead of
/// SIGSEGV would cost each post and each poll a question.
///
/// ```no_run
/// use mlx5::verbs::{Context, ForkStatus, fork_init};
///
/// assert_ne!(fork_init()?, ForkStatus::Disabled);
/// let context = Context::open_first()?;
/// # Ok::<(), mlx5::Error>(())
/// ```
///
/// # Errors
/// - [`Error::Library`]: libibverbs is not installed.
/// - [`Error::Call`]: where it is needed, EINVAL if memory was registered before, ENOSYS if the kernel
///   cannot keep memory from children.
#[doc(alias = "ibv_fork_init")]
pub fn fork_init() -> Result<ForkStatus> {
    Library::Verbs.open()?;
    // libibverbs 44 would take memory from children all the same. Later versions do so only if asked to.
    if fork_status() == ForkStatus::Unneeded && std::env::var_os("RDMAV_USE_MADVISE").is_none() {
        return Ok(ForkStatus::Unneeded);
    }
    // SAFETY: it sets libibverbs up, and changes no memory of the program's. libibverbs takes its
    // own locks.
    match unsafe { ibv_fork_init() } {
        0 => Ok(fork_status()),
        errno => {
            let error = Error::from_errno("ibv_fork_init", Errno(errno));
            Err(error.because(match errno {
                libc::EINVAL => Some(Cause::Known(
                    "memory was registered before: call fork_init first of all, or set \
                     RDMAV_FORK_SAFE=1",
                )),
                libc::ENOSYS => Some(Cause::Known("the kernel has no MADV_DONTFORK")),
                _ => None,
            }))
        }
    }
}

/// Keeps the page of doorbell registers around `register` from following into forked children: what
/// a child rings would be executed from the parent's ring. One system call.
///
/// # Errors
/// [`Error::Call`].
///
/// # Safety
/// `register` lies on a page of registers that is mapped.
pub(crate) unsafe fn keep_from_children(register: NonNull<u8>) -> Result<()> {
    let page = page_size();
    let start = register.as_ptr().map_addr(|address| address & !(page - 1));
    // SAFETY: the page is mapped, as the caller guarantees, and does not change for this process.
    if unsafe { libc::madvise(start.cast(), page, libc::MADV_DONTFORK) } != 0 {
        return Err(Error::last("madvise"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
