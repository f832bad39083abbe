//! Errors of both paths as plain values, with cause and cure where they are known.

#[cfg(feature = "cm")]
mod cm;
mod command;
mod connect;
mod data;
mod queue;
mod system;

use std::fmt;

use crate::cqe::{Failure, UnexpectedCqe};
use crate::ib::capability::MissingCapability;
use crate::ib::{GidType, PortState, debug_as_display};
use crate::wqe::EncodeError;

#[cfg(feature = "cm")]
pub use cm::{CmError, RejectReason};
pub(crate) use command::{Asked, Hex, Name};
pub use command::{CommandError, Sent, WithheldCommand};
pub use connect::ConnectError;
pub use data::{DrainError, PollError, PostError, ProbeError, TagError};
pub use queue::QueueError;
pub(crate) use queue::state_name;
pub use system::{Cause, Errno};

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
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system has no RDMA device.
    #[error("no RDMA device found: {why}")]
    NoDevices {
        /// The missing part of the system.
        why: &'static str,
    },
    /// A C library is not installed, or the loader cannot use it. The text names its package.
    #[error(transparent)]
    Library(#[from] mlx5_sys::load::MissingLibrary),
    /// No device has that name.
    #[error("no RDMA device is named {name:?}; present: {}", list(present))]
    DeviceNotFound {
        /// The name asked for.
        name: String,
        /// The names of the devices that are there.
        present: Vec<String>,
    },
    /// The device is not driven by libmlx5, so its queues have another format.
    #[error(
        "device {name} is not a ConnectX that libmlx5 drives: its queues have another format \
         (is the package ibverbs-providers installed?)"
    )]
    NotMlx5 {
        /// The device's name.
        name: String,
    },
    /// A call failed.
    #[error("{call} failed: {errno}{}", because(cause))]
    Call {
        /// The C function.
        call: &'static str,
        /// The errno that the function reported.
        errno: Errno,
        /// The cause, if known.
        cause: Option<Cause>,
    },
    /// The HCA refused a firmware command.
    #[error(transparent)]
    Refused(Box<CommandError>),
    /// The kernel did not pass a firmware command to the HCA.
    #[error(transparent)]
    Withheld(Box<WithheldCommand>),
    /// The context gives no firmware commands.
    #[error("{device} was opened with {why}")]
    NoDevx {
        /// The device's name.
        device: String,
        /// Why.
        why: Devx,
    },
    /// The HCA lacks a capability.
    #[error(transparent)]
    NoCapability(Box<MissingCapability>),
    /// No register page of any kind that was asked for.
    #[error("{device} gives no doorbell register: {}", tried.join("; "))]
    NoUar {
        /// The device's name.
        device: String,
        /// The kinds, each with why it was refused.
        tried: Vec<String>,
    },
    /// An attribute was refused before the call, because libibverbs would have said EINVAL only.
    #[error("{attribute} is {value}: {rule}")]
    Attribute {
        /// The attribute's name.
        attribute: &'static str,
        /// The value given.
        value: String,
        /// The rule that the value breaks.
        rule: String,
    },
    /// The device has no port of that number.
    #[error("device {device} has no port {port}: it has ports 1 to {ports}")]
    NoSuchPort {
        /// The device's name.
        device: String,
        /// The port asked for.
        port: u8,
        /// How many ports there are.
        ports: u8,
    },
    /// The port carries no traffic.
    #[error("port {port} of {device} is {state}: {}", port_cure(*state))]
    PortNotActive {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// A GID index beyond the port's table.
    #[error("GID index {index} is beyond the table of port {port} of {device}, which has {length}")]
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
    #[error(
        "GID index {index} of port {port} of {device} is empty; entries in use: {}",
        list(valid)
    )]
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
    #[error("port {port} of {device} has no {wanted} GID; entries in use: {}", list(present))]
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
    #[error(
        "GID index {index} ({source_gid}) is of the wrong kind for the destination {destination}: \
         {rule}"
    )]
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
    #[error(
        "port {port} of {device} takes addresses with a GID only (AddressVector::gid, or a GID \
         index for LocalPort): {why}"
    )]
    GidRequired {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// Why the port needs a GID.
        why: &'static str,
    },
    /// Too few huge pages are free.
    #[error(
        "mmap failed: {errno}: {wanted} huge pages of {page_kib} KiB are wanted and {free} are free; \
         reserve more with `echo {wanted} > /proc/sys/vm/nr_hugepages` (2 MiB pages), \
         `echo {wanted} > /sys/kernel/mm/hugepages/hugepages-{page_kib}kB/nr_hugepages` (this size), \
         or hugepagesz= and hugepages= on the kernel's command line"
    )]
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
    #[error("the {queue} is taken: drop the queue or endpoint of this crate that drives it first")]
    QueueInUse {
        /// Which queue.
        queue: &'static str,
    },
    /// A queue could not be taken over by the direct path.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The exchange with the peer failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A connection by librdmacm was not made.
    #[cfg(feature = "cm")]
    #[error(transparent)]
    Cm(#[from] CmError),
    /// A request or a receive was not posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A CQ cannot be polled further.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// A poll of an [`Endpoint`](crate::endpoint::Endpoint) found a CQE of none of its requests.
    #[error("a completion is of no request of the endpoint: {0:?}")]
    UnexpectedCqe(Box<UnexpectedCqe>),
    /// A request failed. Polls return [`Failure`] as a completion; programs convert it with `?`.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A queue was not drained.
    #[error(transparent)]
    Drain(#[from] DrainError),
    /// The list of a tag-matching queue was not changed.
    #[error(transparent)]
    Tag(#[from] TagError),
    /// The ways of copying to a BlueFlame register were not timed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

debug_as_display!(Error);

impl From<EncodeError> for Error {
    /// Returns [`Error::Post`]: the operation cannot be posted.
    fn from(error: EncodeError) -> Error {
        PostError::from(error).into()
    }
}

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

fn because(cause: &Option<Cause>) -> String {
    cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default()
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn port_cure(state: PortState) -> &'static str {
    match state {
        PortState::Down => "check the cable and the link of the peer",
        PortState::Init => "the link is up but no subnet manager has configured it: start opensm",
        _ => "wait until the subnet manager has made it active",
    }
}

#[cfg(test)]
mod tests;
