//! Requests from other processes. A device's descriptor may be copied into another process, by
//! `pidfd_getfd`, and is the same open device there.
//!
//! In the model, the device is in the process that opened it. So each such process listens (`host`)
//! under a name that vanishes with it. A process with a copied descriptor (`guest`) sends its
//! requests there. The host serves only queries: others would have to reach the guest's memory.
//! `resources` lists the objects of all processes, as the kernel does, gathered from the same hosts.
//!
//! Host and guest use a Unix stream socket: a length of four bytes, then the message.

mod guest;
mod host;
mod message;
pub(super) mod resources;

use std::time::Duration;

use crate::fabric::local::socket::user_names;

pub(super) use guest::copied;
pub(super) use host::open;
pub(super) use resources::Resource;

/// How long either side waits for the other; a process that is stopped does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the prefix of this user's host names. The number of the process and an unguessable
/// suffix follow, so no other process can take the name first.
fn names() -> String {
    format!("{}process/", user_names())
}
