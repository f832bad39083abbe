//! The system's error numbers, with their causes and cures.

use std::fmt;
use std::path::PathBuf;

use crate::ib::debug_as_display;

/// An error number of the system.
///
/// ```
/// use mlx5::Error;
/// use mlx5::verbs::Errno;
///
/// /// Whether a call failed because memory may not be pinned (`ulimit -l`).
/// fn is_memory(error: &Error) -> bool {
///     error.errno() == Some(Errno(12))
/// }
/// assert_eq!(Errno(12).name(), Some("ENOMEM"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Returns the errno of the calling thread's last failed call.
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Returns whether the kernel reports by it that the device is gone or in a fatal error. ENOLINK
    /// and ENXIO come from Linux's `mlx5_core` (`cmd.c`), EIO from its older versions, and from
    /// uverbs for a device that was removed.
    pub(crate) fn is_device_gone(self) -> bool {
        matches!(self.0, libc::EIO | libc::ENODEV | libc::ENXIO | libc::ENOLINK)
    }

    /// Returns its name in `errno.h`, where verbs calls are known to report it.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            libc::EPERM => "EPERM",
            libc::ELIBACC => "ELIBACC",
            libc::ENOENT => "ENOENT",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::ENXIO => "ENXIO",
            libc::EBADF => "EBADF",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::EBUSY => "EBUSY",
            libc::EEXIST => "EEXIST",
            libc::ENODEV => "ENODEV",
            libc::EINVAL => "EINVAL",
            libc::ENFILE => "ENFILE",
            libc::EMFILE => "EMFILE",
            libc::ENOTTY => "ENOTTY",
            libc::ENOSPC => "ENOSPC",
            libc::EROFS => "EROFS",
            libc::ERANGE => "ERANGE",
            libc::ENOSYS => "ENOSYS",
            libc::ENODATA => "ENODATA",
            libc::ENOLINK => "ENOLINK",
            libc::EPROTO => "EPROTO",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::EOVERFLOW => "EOVERFLOW",
            libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
            libc::ENETUNREACH => "ENETUNREACH",
            libc::EHOSTUNREACH => "EHOSTUNREACH",
            libc::ETIMEDOUT => "ETIMEDOUT",
            libc::EREMOTEIO => "EREMOTEIO",
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The system's text ends in "(os error N)"; the number is said here once, with its name.
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        match self.name() {
            Some(name) => write!(f, "{text} ({name}, errno {})", self.0),
            None => write!(f, "{text} (errno {})", self.0),
        }
    }
}

debug_as_display!(Errno);

/// The cause of a failed call, and its cure.
///
/// ```
/// use mlx5::Error;
/// use mlx5::verbs::Cause;
///
/// /// What a program asks its user to do.
/// fn advice(error: &Error) -> Option<&'static str> {
///     let Error::Call { cause: Some(cause), .. } = error else { return None };
///     matches!(cause, Cause::MemlockLimit { .. }).then_some("raise `ulimit -l`")
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The process may not lock as much memory as the call pins.
    MemlockLimit {
        /// RLIMIT_MEMLOCK in bytes.
        limit: u64,
        /// Bytes the call wanted to pin, where known.
        wanted: Option<usize>,
    },
    /// The character device is missing.
    NoDeviceNode {
        /// Its path.
        path: PathBuf,
    },
    /// The character device may not be opened by this user.
    NoPermission {
        /// Its path.
        path: PathBuf,
    },
    /// Another cause, as a sentence.
    Known(&'static str),
}

impl Cause {
    /// Returns the meaning of an errno that holds for any verb.
    pub(super) fn of(errno: Errno) -> Option<Cause> {
        Some(Cause::Known(match errno.0 {
            libc::EIO | libc::ENODEV | libc::ENOLINK => {
                "the device is gone or in a fatal error; look into the kernel's log and reopen it"
            }
            libc::EMFILE => "the process has no file descriptor left: raise it with `ulimit -n`",
            libc::EACCES | libc::EPERM => {
                "this user lacks the permission; check /dev/infiniband/uverbs* and CAP_NET_RAW"
            }
            libc::ENOSYS => "the kernel's driver does not implement it",
            libc::EOPNOTSUPP => "this device or its driver does not support it",
            libc::ENODATA => {
                "the GID table has no entry at the source's index (sgid_index): the index is wrong, or the \
                 address was removed; see `mlx5 info`"
            }
            libc::ENETUNREACH | libc::EHOSTUNREACH => {
                "no route leads to the destination GID from the network device of the source GID"
            }
            libc::ETIMEDOUT => {
                "nobody answers for the destination GID (ARP, neighbour discovery; look at `ip neigh`), \
                 or the firmware did not answer a command; look into the kernel's log"
            }
            _ => return None,
        }))
    }

    /// The cause of an ENOMEM of a call that pins memory, if a limit is set.
    pub(crate) fn memlock(errno: Option<Errno>, wanted: Option<usize>) -> Option<Cause> {
        if errno != Some(Errno(libc::ENOMEM)) {
            return None;
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a live rlimit that the call fills.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
        (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY)
            .then_some(Cause::MemlockLimit { limit: limit.rlim_cur, wanted })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::MemlockLimit { limit, wanted } => {
                write!(f, "the process may lock {} KiB of memory", limit / 1024)?;
                if let Some(wanted) = wanted {
                    write!(f, " and {} KiB are to be pinned", wanted.div_ceil(1024))?;
                }
                write!(
                    f,
                    "; raise it with `ulimit -l unlimited`, a line `* - memlock unlimited` in \
                     /etc/security/limits.conf, or LimitMEMLOCK=infinity for a systemd service \
                     (DefaultLimitMEMLOCK for all)"
                )
            }
            Cause::NoDeviceNode { path } => write!(
                f,
                "{} is missing: load the module ib_uverbs (`modprobe ib_uverbs`), and in a \
                 container pass the device in (`--device /dev/infiniband`)",
                path.display()
            ),
            Cause::NoPermission { path } => write!(
                f,
                "this user may not open {}: give it read and write permission, or add the user to \
                 the group `rdma` where the system's udev rules use it",
                path.display()
            ),
            Cause::Known(text) => f.write_str(text),
        }
    }
}
