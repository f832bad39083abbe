//! Exchange of connection data over TCP, before RDMA: queue pair number, PSN, LID, GID, MTU, and
//! the address and key of memory. [`EndpointBuilder`] makes an endpoint from it.
//!
//! With the feature `cm`, the module `cm` connects by librdmacm instead, without TCP.
//!
//! The peer is not trusted. All that it sends, or does not send, ends in an [`ConnectionData`] or
//! in a specific [`ConnectError`], within the caller's timeout.

mod builder;
#[cfg(feature = "cm")]
pub mod cm;
mod local;
mod message;
mod tcp;

pub use crate::error::ConnectError;
pub use builder::{EndpointBuilder, Unconnected};
pub use local::LocalPort;
pub use message::{ConnectionData, RemoteRegion, VERSION};
pub use tcp::{Connection, Listener};
