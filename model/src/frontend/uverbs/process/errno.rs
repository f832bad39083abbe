//! Error numbers of the kernel's interface.

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::frontend) struct Errno(pub i32);

/// The result of a request of the verbs interface.
pub(in crate::frontend) type Result<T> = std::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[allow(missing_docs)] pub const $name: Self = Self(libc::$name);)*
        }
    };
}

errnos! {
    EAGAIN EBADF EBUSY EEXIST EFAULT EINVAL EIO EMFILE EMSGSIZE ENOBUFS ENODATA ENODEV ENOENT ENOLINK ENOMEM
    ENETUNREACH ENOSPC ENOSYS ENOTTY EOPNOTSUPP EOVERFLOW EPERM EPROTONOSUPPORT EREMOTEIO ETIMEDOUT
}

impl Errno {
    /// The kernel's own, which is none of the C library's.
    pub const ENOTSUPP: Self = Self(524);
}

impl From<crate::memory::Fault> for Errno {
    fn from(_: crate::memory::Fault) -> Self {
        Self::EFAULT
    }
}

/// Sets the thread's errno.
pub(in crate::frontend) fn set_errno(errno: i32) {
    // SAFETY: the C library returns a place that is the calling thread's alone.
    unsafe { *libc::__errno_location() = errno };
}

/// The thread's errno.
pub(in crate::frontend) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The errno of a call to the C library that failed.
pub(in crate::frontend) fn last() -> Errno {
    Errno(errno())
}
