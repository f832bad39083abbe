//! Errors of both paths as plain values, with cause and cure where they are known.

#[cfg(feature = "cm")]
mod cm;
mod command;
mod connect;
mod data;
mod queue;
mod system;
mod text;

use std::fmt;

use crate::cqe::{Failure, UnexpectedCqe};
use crate::ib::capability::MissingCapability;
use crate::ib::{GidType, PortState, debug_as_display};

#[cfg(feature = "cm")]
pub use cm::{CmError, RejectReason};
pub(crate) use command::{Asked, Hex, Name};
pub use command::{CommandError, Sent, WithheldCommand};
pub use connect::ConnectError;
pub use data::{DrainError, PollError, ProbeError, TagError};
pub use queue::QueueError;
pub(crate) use queue::state_name;
pub use system::{Cause, Errno};

pub use crate::wqe::error::{Excess, PostError};

/// The result of the control path, and of programs that post and poll with `?`.
///
/// See the example on [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of any call. Its text names the call, the errno, and, if known, the cause with its cure.
///
/// Calls of the control path return it. Calls that post and poll return small errors of their own,
/// and `?` converts each of them to its variant here: [`PostError`](crate::ring::PostError) to
/// [`Post`](Self::Post), and so on. A [`Refused`](crate::endpoint::Refused) request becomes
/// [`Post`](Self::Post), and its memory is dropped.
///
/// `Debug` prints the same text as `Display`, so that a `main` which returns it prints a sentence.
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, Outcome};
/// # use mlx5::wqe::{Inline, SendMessage};
/// fn send(endpoint: &mut Endpoint, text: &[u8]) -> mlx5::Result<()> {
///     endpoint.post(1, SendMessage::new(Inline(text)).signaled())?;
///     loop {
///         let Some(returned) = endpoint.poll().next() else { continue };
///         return match returned?.outcome {
///             Outcome::Failed(failure) => Err(failure.into()),
///             _ => Ok(()),
///         };
///     }
/// }
/// ```
#[non_exhaustive]
pub enum Error {
    /// The system has no RDMA device.
    NoDevices {
        /// The missing part of the system.
        why: &'static str,
    },
    /// A C library is not installed, or the loader cannot use it. The text names its package.
    Library(mlx5_sys::load::MissingLibrary),
    /// No device has that name.
    DeviceNotFound {
        /// The name asked for.
        name: String,
        /// The names of the devices that are there.
        present: Vec<String>,
    },
    /// The device is not driven by libmlx5, so its queues have another format.
    NotMlx5 {
        /// The device's name.
        name: String,
    },
    /// A call failed.
    Call {
        /// The C function.
        call: &'static str,
        /// The errno that the function reported.
        errno: Errno,
        /// The cause, if known.
        cause: Option<Cause>,
    },
    /// The HCA refused a firmware command.
    Refused(Box<CommandError>),
    /// The kernel did not pass a firmware command to the HCA.
    Withheld(Box<WithheldCommand>),
    /// The context gives no firmware commands.
    NoDevx {
        /// The device's name.
        device: String,
        /// Why.
        why: Devx,
    },
    /// The HCA lacks a capability.
    NoCapability(Box<MissingCapability>),
    /// No register page of any kind that was asked for.
    NoUar {
        /// The device's name.
        device: String,
        /// The kinds, each with why it was refused.
        tried: Vec<String>,
    },
    /// An attribute was refused before the call, because libibverbs would have said EINVAL only.
    Attribute {
        /// The attribute's name.
        attribute: &'static str,
        /// The value given.
        value: String,
        /// The rule that the value breaks.
        rule: String,
    },
    /// The device has no port of that number.
    NoSuchPort {
        /// The device's name.
        device: String,
        /// The port asked for.
        port: u8,
        /// How many ports there are.
        ports: u8,
    },
    /// The port carries no traffic.
    PortNotActive {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// A GID index beyond the port's table.
    GidIndexRange {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// The index asked for.
        index: u32,
        /// Entries of the table.
        length: u32,
    },
    /// A GID index whose entry is empty.
    GidEmpty {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// The index asked for.
        index: u32,
        /// The entries that are in use.
        valid: Vec<u32>,
    },
    /// The port has no GID of that type.
    NoGidOfType {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// The type asked for.
        wanted: GidType,
        /// The entries that are in use, as text.
        present: Vec<String>,
    },
    /// The source and the destination GID cannot reach each other.
    GidKind {
        /// The source GID's index.
        index: u32,
        /// The source GID.
        source_gid: String,
        /// The destination GID.
        destination: String,
        /// The rule that the two GIDs break.
        rule: &'static str,
    },
    /// A port that needs a GID was given an address without one.
    GidRequired {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// Why the port needs a GID.
        why: &'static str,
    },
    /// Too few huge pages are free.
    HugePages {
        /// The errno that mmap reported.
        errno: Errno,
        /// Pages wanted.
        wanted: usize,
        /// Size of one, in KiB.
        page_kib: usize,
        /// The kernel's count of free pages of this size, or why there is none.
        free: String,
    },
    /// The queue already has an owner on the direct path.
    QueueInUse {
        /// Which queue.
        queue: &'static str,
    },
    /// A queue could not be taken over by the direct path.
    Queue(QueueError),
    /// The exchange with the peer failed.
    Connect(ConnectError),
    /// A connection by librdmacm was not made.
    #[cfg(feature = "cm")]
    Cm(CmError),
    /// A request or a receive was not posted.
    Post(PostError),
    /// A CQ cannot be polled further.
    Poll(PollError),
    /// A poll of an [`Endpoint`](crate::endpoint::Endpoint) found a CQE of none of its requests.
    UnexpectedCqe(Box<UnexpectedCqe>),
    /// A request failed. Polls return [`Failure`] as a completion; programs convert it with `?`.
    Failed(Failure),
    /// A queue was not drained.
    Drain(DrainError),
    /// The list of a tag-matching queue was not changed.
    Tag(TagError),
    /// The ways of copying to a BlueFlame register were not timed.
    Probe(ProbeError),
}

debug_as_display!(Error);

impl Error {
    /// Returns the errno of the call that failed, where a call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Call { errno, .. } | Error::HugePages { errno, .. } => Some(*errno),
            Error::Withheld(command) => Some(command.errno()),
            _ => None,
        }
    }

    pub(crate) fn attribute(
        attribute: &'static str,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Error {
        Error::Attribute { attribute, value: value.to_string(), rule: rule.into() }
    }

    /// The error of a call that left its reason in `errno`.
    pub(crate) fn last(call: &'static str) -> Error {
        Error::from_errno(call, Errno::last())
    }

    pub(crate) fn from_errno(call: &'static str, errno: Errno) -> Error {
        Error::Call { call, errno, cause: Cause::of(errno) }
    }

    /// Replaces the cause of a failed call by one that the caller knows better.
    pub(crate) fn because(self, cause: Option<Cause>) -> Error {
        match (self, cause) {
            (Error::Call { call, errno, .. }, Some(cause)) => {
                Error::Call { call, errno, cause: Some(cause) }
            }
            (error, _) => error,
        }
    }
}

/// Checks the result of a verb that returns 0, or an errno, or −1 with `errno` set.
pub(crate) fn check(call: &'static str, result: libc::c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        errno if errno > 0 => Err(Error::from_errno(call, Errno(errno))),
        _ => Err(Error::last(call)),
    }
}

/// Checks the result of a verb that returns a pointer, or null with `errno` set.
pub(crate) fn non_null<T>(call: &'static str, pointer: *mut T) -> Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(pointer).ok_or_else(|| Error::last(call))
}

/// Whether a context accepts firmware commands.
///
/// See the example on [`Context`](crate::verbs::Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devx {
    /// Opened with the DEVX flag: firmware commands are accepted.
    Open,
    /// The device refused the DEVX flag and was opened without it. Verbs work; objects made by
    /// firmware command do not.
    Refused(Errno),
}

impl fmt::Display for Devx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Devx::Open => f.write_str("DevX"),
            Devx::Refused(errno) => write!(
                f,
                "no DevX: {errno}; it takes CAP_NET_RAW and an HCA whose firmware allows user \
                 contexts (ConnectX-4 or newer)"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
