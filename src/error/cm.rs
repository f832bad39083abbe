//! Errors of connections by librdmacm.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::Errno;
use crate::ib::debug_as_display;

/// A connection by librdmacm was not made, or a service or group not found.
///
/// The identifier is destroyed. A further attempt starts with a new one.
///
/// ```
/// use mlx5::Error;
/// use mlx5::connect::cm::CmError;
///
/// /// Returns whether a further attempt may succeed, and the server's words if it refused.
/// fn judge(error: &Error) -> (bool, Option<&[u8]>) {
///     match error {
///         Error::Cm(CmError::TimedOut { .. } | CmError::Unreachable { .. }) => (true, None),
///         Error::Cm(CmError::Rejected { private_data, .. }) => (false, Some(private_data)),
///         _ => (false, None),
///     }
/// }
/// ```
#[non_exhaustive]
pub enum CmError {
    /// The deadline of a wait passed.
    TimedOut {
        /// The awaited step.
        waiting_for: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The address leads to no RDMA device, or did not answer.
    Address {
        /// The address.
        address: Option<SocketAddr>,
        /// Why.
        errno: Errno,
    },
    /// No path leads to the address.
    Route {
        /// The address.
        address: Option<SocketAddr>,
        /// Why.
        errno: Errno,
    },
    /// The peer's host did not answer, or the answer could not be used.
    Unreachable {
        /// The address.
        address: Option<SocketAddr>,
        /// Why.
        errno: Errno,
    },
    /// The peer refused the connection.
    Rejected {
        /// The peer's address.
        address: Option<SocketAddr>,
        /// The reason.
        reason: RejectReason,
        /// The peer's private data. InfiniBand fills it with zeros to 148 bytes.
        private_data: Vec<u8>,
    },
    /// The peer has no such datagram service, or refused it.
    NoService {
        /// The address.
        address: Option<SocketAddr>,
        /// The status of SIDR: 1 and above.
        status: u32,
        /// The service's private data. InfiniBand fills it with zeros to 136 bytes.
        private_data: Vec<u8>,
    },
    /// The multicast group was not joined.
    Multicast {
        /// The group's address.
        group: Option<SocketAddr>,
        /// Why.
        errno: Errno,
    },
    /// The device went away.
    DeviceRemoved,
    /// The peer disconnected before the connection was established.
    Disconnected {
        /// The peer's address.
        address: Option<SocketAddr>,
    },
    /// The kernel reported an event that does not belong to this step.
    UnexpectedEvent {
        /// `enum rdma_cm_event_type`.
        event: u32,
        /// The awaited step.
        waiting_for: &'static str,
    },
    /// Private data is longer than the message that carries it has room for.
    PrivateData {
        /// Bytes given.
        bytes: usize,
        /// The message.
        message: &'static str,
        /// Bytes that it carries.
        limit: usize,
    },
    /// The queue pair is of another device than the one that the address belongs to.
    OtherDevice {
        /// The device of the queue pair.
        queue_pair: String,
        /// The device of the identifier.
        identifier: String,
    },
    /// Not the queue pair with which the connection was asked for.
    OtherQueuePair {
        /// The number of the given one.
        given: u32,
        /// The number that the peer was told.
        asked: u32,
    },
}

impl fmt::Display for CmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { waiting_for, after } => write!(f, "no {waiting_for} within {after:?}"),
            Self::Address { address, errno } => write!(
                f,
                "cannot resolve the address {}: {errno}{}",
                or_unknown(*address),
                address_cure(*errno)
            ),
            Self::Route { address, errno } => write!(
                f,
                "cannot resolve the route to {}: {errno}; on InfiniBand the subnet manager \
                 tells it: is opensm running?",
                or_unknown(*address)
            ),
            Self::Unreachable { address, errno } => write!(
                f,
                "cannot connect to {}: {errno}; is the peer's host up, and its port active?",
                or_unknown(*address)
            ),
            Self::Rejected { address, reason, .. } => {
                write!(f, "{} refused the connection: {reason}", or_unknown(*address))
            }
            Self::NoService { address, status, .. } => write!(
                f,
                "{} gives no datagram service: {}",
                or_unknown(*address),
                service_status(*status)
            ),
            Self::Multicast { group, errno } => write!(
                f,
                "cannot join {}: {errno}; on InfiniBand the subnet manager makes the group: is \
                 opensm running?",
                or_unknown(*group)
            ),
            Self::DeviceRemoved => f.write_str("the device was removed: drop all objects of it"),
            Self::Disconnected { address } => write!(
                f,
                "{} disconnected before the connection was established",
                or_unknown(*address)
            ),
            Self::UnexpectedEvent { event, waiting_for } => {
                write!(f, "event {event} arrived while waiting for {waiting_for}")
            }
            Self::PrivateData { bytes, message, limit } => {
                write!(f, "{bytes} bytes of private data: {message} carries at most {limit}")
            }
            Self::OtherDevice { queue_pair, identifier } => write!(
                f,
                "the queue pair is of {queue_pair}, and the address of {identifier}: make it on \
                 a context of that device (Identifier::open)"
            ),
            Self::OtherQueuePair { given, asked } => write!(
                f,
                "queue pair {given:#x} did not ask for the connection: establish it with \
                 {asked:#x}, whose number the peer has"
            ),
        }
    }
}

impl std::error::Error for CmError {}

debug_as_display!(CmError);

fn or_unknown(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "the peer".to_owned(), |address| address.to_string())
}

fn address_cure(errno: Errno) -> &'static str {
    match errno.0 {
        libc::ENODEV | libc::EADDRNOTAVAIL => {
            "; the route to it leaves by a network device without RDMA: `rdma link` lists those \
             that have it"
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => "; look at `ip route get`",
        libc::ETIMEDOUT => "; nobody answered to it (ARP, or neighbour discovery)",
        _ => "",
    }
}

/// The statuses of a SIDR reply (InfiniBand 12.11.2.2).
fn service_status(status: u32) -> String {
    let meaning = match status {
        1 => "nobody listens there (service not supported)",
        2 => "the service refused",
        3 => "the service has no queue pair",
        4 => "the service is at another address",
        5 => "the version of the request is not supported",
        _ => return format!("status {status}"),
    };
    format!("{meaning} (SIDR status {status})")
}

/// Why a connection was refused: the reason of a REJ message (InfiniBand 12.6.7.2).
///
/// ```
/// use mlx5::connect::cm::RejectReason;
///
/// assert_eq!(RejectReason::CONSUMER, RejectReason(28));
/// assert!(RejectReason(8).to_string().contains("nobody listens"));
/// ```
#[doc(alias("REJECTED", "IB_CM_REJ_CONSUMER_DEFINED"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u32);

impl RejectReason {
    /// Nobody listens at that port.
    pub const NO_SERVICE: RejectReason = RejectReason(8);
    /// The program at the other side refused.
    pub const CONSUMER: RejectReason = RejectReason(28);

    /// Returns what it means, if it is known.
    pub fn meaning(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "no queue pair left",
            2 => "no end-to-end context left",
            3 => "no resources left",
            4 => "the peer gave up waiting",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid instance of communication",
            8 => "nobody listens at that port (invalid service id)",
            9 => "invalid transport type",
            10 => "stale connection: the peer still has an older one with this queue pair",
            11 => "no reliable datagram channel there",
            12 => "invalid primary GID",
            13 => "invalid primary LID",
            14 => "invalid primary service level",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "invalid alternate GID",
            19 => "invalid alternate LID",
            20 => "invalid alternate service level",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "the peer's port is another: ask again with that one",
            25 => "the peer's port is another, and its address does not fit",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "the program at the other side refused",
            29 => "invalid RNR retry count",
            30 => "a message of the same local id is under way",
            31 => "the class version is not supported",
            32 => "invalid flow label",
            33 => "invalid alternate flow label",
            35 => "the peer does not support the vendor's options",
            _ => return None,
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{meaning} (reason {})", self.0),
            None => write!(f, "reason {}", self.0),
        }
    }
}

debug_as_display!(RejectReason);

#[cfg(test)]
mod tests;
