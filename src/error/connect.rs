//! Errors of an exchange.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::ib::debug_as_display;

/// An exchange with a peer failed.
///
/// ```
/// use std::time::Duration;
/// use mlx5::connect::{ConnectError, Listener};
///
/// let listener = Listener::bind("127.0.0.1:0")?;
/// // Nobody connects.
/// let error = listener.accept(Duration::from_millis(1)).err();
/// assert!(matches!(error, Some(ConnectError::TimedOut { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub enum ConnectError {
    /// The address to connect to cannot be resolved.
    Address {
        /// The given address.
        address: String,
        /// The error of the resolver.
        error: io::Error,
    },
    /// The address cannot be listened on.
    Listen {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// No program listens there.
    Refused {
        /// The address.
        address: SocketAddr,
    },
    /// The deadline passed.
    TimedOut {
        /// The message that was waited for.
        waiting_for: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The peer closed the connection in the middle.
    ClosedEarly {
        /// The message that was waited for.
        waiting_for: &'static str,
        /// Bytes that arrived of its header, or of its body.
        got: usize,
        /// Bytes of the header, or of the body.
        wanted: usize,
    },
    /// The peer's first bytes are not this protocol's.
    NotThisProtocol {
        /// Its first bytes.
        got: [u8; 4],
    },
    /// The peer speaks another version.
    Version {
        /// Its version.
        theirs: u16,
        /// The version of this side.
        ours: u16,
    },
    /// The peer announces more bytes than any message has.
    TooLong {
        /// The number of bytes that it announces.
        announced: u32,
        /// The number of bytes that a message may have.
        limit: usize,
    },
    /// The two sides are not at the same step.
    OutOfStep {
        /// The message that this side waits for.
        waiting_for: String,
        /// The message that arrived.
        got: String,
    },
    /// A field has an invalid value.
    Malformed {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule that the value breaks.
        rule: &'static str,
    },
    /// The connection failed.
    Io(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, error } => write!(f, "{address:?} is no address: {error}"),
            Self::Listen { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::Refused { address } => {
                write!(f, "nobody listens on {address}: is the other side running?")
            }
            Self::TimedOut { waiting_for, after } => {
                write!(f, "no {waiting_for} from the peer within {after:?}")
            }
            Self::ClosedEarly { waiting_for, got, wanted } => write!(
                f,
                "the peer closed the connection after {got} of the {wanted} bytes of the \
                 {waiting_for}"
            ),
            Self::NotThisProtocol { got } => {
                write!(f, "the peer speaks another protocol: it began with {got:02x?}")
            }
            Self::Version { theirs, ours } => write!(
                f,
                "the peer speaks version {theirs} of the protocol, this side version {ours}"
            ),
            Self::TooLong { announced, limit } => {
                write!(f, "the peer announces {announced} bytes; a message has at most {limit}")
            }
            Self::OutOfStep { waiting_for, got } => write!(
                f,
                "the peer is at another step: it sent {got}, this side waits for {waiting_for}"
            ),
            Self::Malformed { field, value, rule } => write!(f, "the {field} is {value}: {rule}"),
            Self::Io(value) => write!(f, "the connection to the peer failed: {value}"),
        }
    }
}

impl std::error::Error for ConnectError {}

debug_as_display!(ConnectError);
