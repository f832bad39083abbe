//! Errors of an exchange.

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
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address to connect to cannot be resolved.
    #[error("{address:?} is no address: {error}")]
    Address {
        /// The given address.
        address: String,
        /// The error of the resolver.
        error: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// No program listens there.
    #[error("nobody listens on {address}: is the other side running?")]
    Refused {
        /// The address.
        address: SocketAddr,
    },
    /// The deadline passed.
    #[error("no {waiting_for} from the peer within {after:?}")]
    TimedOut {
        /// The message that was waited for.
        waiting_for: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The peer closed the connection in the middle.
    #[error(
        "the peer closed the connection after {got} of the {wanted} bytes of the {waiting_for}"
    )]
    ClosedEarly {
        /// The message that was waited for.
        waiting_for: &'static str,
        /// Bytes that arrived of its header, or of its body.
        got: usize,
        /// Bytes of the header, or of the body.
        wanted: usize,
    },
    /// The peer's first bytes are not this protocol's.
    #[error("the peer speaks another protocol: it began with {got:02x?}")]
    NotThisProtocol {
        /// Its first bytes.
        got: [u8; 4],
    },
    /// The peer speaks another version.
    #[error("the peer speaks version {theirs} of the protocol, this side version {ours}")]
    Version {
        /// Its version.
        theirs: u16,
        /// The version of this side.
        ours: u16,
    },
    /// The peer announces more bytes than any message has.
    #[error("the peer announces {announced} bytes; a message has at most {limit}")]
    TooLong {
        /// The number of bytes that it announces.
        announced: u32,
        /// The number of bytes that a message may have.
        limit: usize,
    },
    /// The two sides are not at the same step.
    #[error("the peer is at another step: it sent {got}, this side waits for {waiting_for}")]
    OutOfStep {
        /// The message that this side waits for.
        waiting_for: String,
        /// The message that arrived.
        got: String,
    },
    /// A field has an invalid value.
    #[error("the {field} is {value}: {rule}")]
    Malformed {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule that the value breaks.
        rule: &'static str,
    },
    /// The connection failed.
    #[error("the connection to the peer failed: {0}")]
    Io(io::Error),
}

debug_as_display!(ConnectError);
