//! Error numbers of the kernel's interface, and why they were given.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{fmt, ptr};

use crate::card::Explaining;

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::frontend) struct Errno(pub i32);

/// The result of a request of the verbs interface.
pub(in crate::frontend) type Result<T> = std::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(#[allow(missing_docs)] pub const $name: Self = Self(libc::$name);)*

            /// Its name.
            fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::ENOTSUPP => "ENOTSUPP",
                    _ => "an error without a name",
                }
            }
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

/// The writer of reasons of refusals; null for none.
static EXPLAINING: AtomicPtr<Explaining> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// The reason that the thread's current request told.
    static LAST: Cell<Option<String>> = const { Cell::new(None) };
}

/// Returns the reason that the thread told since the last call. `None` without one, and in a thread that ends
/// and whose variables are gone: recordings lack reasons of its requests.
pub(in crate::frontend) fn take_reason() -> Option<String> {
    LAST.try_with(Cell::take).ok().flatten()
}

/// Writes reasons of refusals to standard error from now on.
pub(in crate::frontend) fn explain_to(explaining: &'static Explaining) {
    EXPLAINING.store(ptr::from_ref(explaining).cast_mut(), Ordering::Release);
}

/// Reasons go nowhere from now on: in the child of a fork, whose parent may have been writing one.
pub(in crate::frontend) fn forget() {
    EXPLAINING.store(ptr::null_mut(), Ordering::Release);
}

impl Errno {
    /// Tells why a request is refused, with cause and cure. Returns the errno.
    #[cold]
    #[track_caller]
    pub fn because(self, why: fmt::Arguments<'_>) -> Self {
        let why = why.to_string();
        // SAFETY: it is null, or of a reference without an end to shared data.
        if let Some(explaining) = unsafe { EXPLAINING.load(Ordering::Acquire).as_ref() } {
            explaining.call(Location::caller(), &why, self.name());
        }
        // See `take_reason`.
        let _ = LAST.try_with(|last| last.set(Some(why)));
        self
    }
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
