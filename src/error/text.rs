//! The text of [`Error`], its source, and the errors that convert to it.

use std::fmt;

use mlx5_sys::load::MissingLibrary;

#[cfg(feature = "cm")]
use super::CmError;
use super::{
    Cause, ConnectError, DrainError, Error, PollError, PostError, ProbeError, QueueError, TagError,
};
use crate::cqe::Failure;
use crate::ib::PortState;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevices { why } => write!(f, "no RDMA device found: {why}"),
            Self::Library(error) => fmt::Display::fmt(error, f),
            Self::DeviceNotFound { name, present } => {
                write!(f, "no RDMA device is named {name:?}; present: {}", list(present))
            }
            Self::NotMlx5 { name } => write!(
                f,
                "device {name} is not a ConnectX that libmlx5 drives: its queues have another \
                 format (is the package ibverbs-providers installed?)"
            ),
            Self::Call { call, errno, cause } => {
                write!(f, "{call} failed: {errno}{}", because(cause))
            }
            Self::Refused(error) => fmt::Display::fmt(error, f),
            Self::Withheld(error) => fmt::Display::fmt(error, f),
            Self::NoDevx { device, why } => write!(f, "{device} was opened with {why}"),
            Self::NoCapability(error) => fmt::Display::fmt(error, f),
            Self::NoUar { device, tried } => {
                write!(f, "{device} gives no doorbell register: {}", tried.join("; "))
            }
            Self::Attribute { attribute, value, rule } => {
                write!(f, "{attribute} is {value}: {rule}")
            }
            Self::NoSuchPort { device, port, ports } => {
                write!(f, "device {device} has no port {port}: it has ports 1 to {ports}")
            }
            Self::PortNotActive { device, port, state } => {
                write!(f, "port {port} of {device} is {state}: {}", port_cure(*state))
            }
            Self::GidIndexRange { device, port, index, length } => write!(
                f,
                "GID index {index} is beyond the table of port {port} of {device}, which has \
                 {length}"
            ),
            Self::GidEmpty { device, port, index, valid } => write!(
                f,
                "GID index {index} of port {port} of {device} is empty; entries in use: {}",
                list(valid)
            ),
            Self::NoGidOfType { device, port, wanted, present } => write!(
                f,
                "port {port} of {device} has no {wanted} GID; entries in use: {}",
                list(present)
            ),
            Self::GidKind { index, source_gid, destination, rule } => write!(
                f,
                "GID index {index} ({source_gid}) is of the wrong kind for the destination \
                 {destination}: {rule}"
            ),
            Self::GidRequired { device, port, why } => write!(
                f,
                "port {port} of {device} takes addresses with a GID only (AddressVector::gid, \
                 or a GID index for LocalPort): {why}"
            ),
            Self::HugePages { errno, wanted, page_kib, free } => write!(
                f,
                "mmap failed: {errno}: {wanted} huge pages of {page_kib} KiB are wanted and \
                 {free} are free; reserve more with `echo {wanted} > /proc/sys/vm/nr_hugepages` \
                 (2 MiB pages), `echo {wanted} > \
                 /sys/kernel/mm/hugepages/hugepages-{page_kib}kB/nr_hugepages` (this size), or \
                 hugepagesz= and hugepages= on the kernel's command line"
            ),
            Self::QueueInUse { queue } => write!(
                f,
                "the {queue} is taken: drop the queue or endpoint of this crate that drives it \
                 first"
            ),
            Self::Queue(error) => fmt::Display::fmt(error, f),
            Self::Connect(error) => fmt::Display::fmt(error, f),
            #[cfg(feature = "cm")]
            Self::Cm(error) => fmt::Display::fmt(error, f),
            Self::Post(error) => fmt::Display::fmt(error, f),
            Self::Poll(error) => fmt::Display::fmt(error, f),
            Self::UnexpectedCqe(value) => {
                write!(f, "a completion is of no request of the endpoint: {value:?}")
            }
            Self::Failed(error) => fmt::Display::fmt(error, f),
            Self::Drain(error) => fmt::Display::fmt(error, f),
            Self::Tag(error) => fmt::Display::fmt(error, f),
            Self::Probe(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Library(error) => std::error::Error::source(error),
            Self::Refused(error) => std::error::Error::source(error),
            Self::Withheld(error) => std::error::Error::source(error),
            Self::NoCapability(error) => std::error::Error::source(error),
            Self::Queue(error) => std::error::Error::source(error),
            Self::Connect(error) => std::error::Error::source(error),
            #[cfg(feature = "cm")]
            Self::Cm(error) => std::error::Error::source(error),
            Self::Post(error) => std::error::Error::source(error),
            Self::Poll(error) => std::error::Error::source(error),
            Self::Failed(error) => std::error::Error::source(error),
            Self::Drain(error) => std::error::Error::source(error),
            Self::Tag(error) => std::error::Error::source(error),
            Self::Probe(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<MissingLibrary> for Error {
    #[inline]
    fn from(error: MissingLibrary) -> Self {
        Self::Library(error)
    }
}

impl From<QueueError> for Error {
    #[inline]
    fn from(error: QueueError) -> Self {
        Self::Queue(error)
    }
}

impl From<ConnectError> for Error {
    #[inline]
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

#[cfg(feature = "cm")]
impl From<CmError> for Error {
    #[inline]
    fn from(error: CmError) -> Self {
        Self::Cm(error)
    }
}

impl From<PostError> for Error {
    #[inline]
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

impl From<PollError> for Error {
    #[inline]
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

impl From<Failure> for Error {
    #[inline]
    fn from(error: Failure) -> Self {
        Self::Failed(error)
    }
}

impl From<DrainError> for Error {
    #[inline]
    fn from(error: DrainError) -> Self {
        Self::Drain(error)
    }
}

impl From<TagError> for Error {
    #[inline]
    fn from(error: TagError) -> Self {
        Self::Tag(error)
    }
}

impl From<ProbeError> for Error {
    #[inline]
    fn from(error: ProbeError) -> Self {
        Self::Probe(error)
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
