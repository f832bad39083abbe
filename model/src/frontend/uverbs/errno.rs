//! Error numbers of the kernel's interface.

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(pub i32);

/// The result of a request of the verbs interface.
pub(super) type Result<T> = std::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[allow(missing_docs)] pub const $name: Self = Self(libc::$name);)*
        }
    };
}

errnos! {
    EAGAIN EBADF EBUSY EEXIST EFAULT EINVAL EIO EMFILE ENODATA ENODEV ENOENT ENOLINK ENOMEM ENOSPC
    ENOTTY EOPNOTSUPP EOVERFLOW EPERM EPROTONOSUPPORT EREMOTEIO ETIMEDOUT
}

impl From<crate::memory::Fault> for Errno {
    fn from(_: crate::memory::Fault) -> Self {
        Self::EFAULT
    }
}

/// Sets the thread's errno.
pub(super) fn set_errno(errno: i32) {
    // SAFETY: the C library returns a place that is the calling thread's alone.
    unsafe { *libc::__errno_location() = errno };
}

/// The thread's errno.
pub(super) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The errno of a call to the C library that failed.
pub(super) fn last() -> Errno {
    Errno(errno())
}
