//! Reliable connections made by rdma_cm (`--cm`), in place of addresses told over TCP.
//!
//! The session over TCP stays, for plans and results. A server has one listener of rdma_cm, its
//! [`Service`], from the first plan that wants it. For each point, the server tells its client an
//! [`Invitation`]: the listener's port, and a random token. The client [`Asks`] for one connection
//! after the other. The private data of a request names the token and the connection's number. The
//! service hands the request to the thread that [`Expected`] it, and refuses all others.
//!
//! The feature `cm` binds librdmacm. Without it, a service refuses such plans, and says why.

#[cfg(not(feature = "cm"))]
mod absent;
#[cfg(feature = "cm")]
mod answer;
#[cfg(feature = "cm")]
mod ask;
#[cfg(feature = "cm")]
mod desk;
#[cfg(feature = "cm")]
mod ready;
#[cfg(feature = "cm")]
mod request;
#[cfg(feature = "cm")]
mod service;

use serde::{Deserialize, Serialize};

#[cfg(not(feature = "cm"))]
pub use self::absent::{Answers, Asks, Connections, Expected, Service, check_build};
#[cfg(feature = "cm")]
pub use self::answer::{Answers, Expected};
#[cfg(feature = "cm")]
pub use self::ask::Asks;
#[cfg(feature = "cm")]
pub use self::ready::{Connections, check_build};
#[cfg(feature = "cm")]
pub use self::service::Service;

/// Bytes of a [`Token`].
const TOKEN: usize = 16;

/// A random number that names one point of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token([u8; TOKEN]);

/// The data that a client needs to ask for the connections of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// The port of the server's listener, in the space of rdma_cm's reliable connections.
    pub port: u16,
    /// The token that names the point.
    pub token: Token,
}
