//! What two sides tell each other before they can talk RDMA: queue pair number, PSN, LID, GID, MTU,
//! and the address and key of memory, over TCP.
//!
//! The peer is not trusted. Whatever it sends, or does not send, ends in an [`Endpoint`] or in a
//! [`ConnectError`] that says which of the ways to go wrong it was, within the timeout that the
//! caller gave.

mod error;
mod local;
mod message;
mod tcp;

pub use error::ConnectError;
pub use local::LocalPort;
pub use message::{Endpoint, RemoteRegion, VERSION};
pub use tcp::{Connection, Listener};
