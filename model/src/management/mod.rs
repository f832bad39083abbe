//! Management datagrams (MADs) on queue pair 1: the communication manager's part.
//!
//! - [`mad`] is the header that all MADs have, and their packet on the link.
//! - [`message`] are the messages of the communication manager (IBA 1.3, chapter 12).
//! - [`ip`] is the IP addressing of connections in private data (IBA 1.3, annex A11).
//! - [`connection`] is one side of a connection: the protocol without addresses and memory.
//! - [`smp`] is a port's subnet management agent, which answers its own driver.
//! - [`subnet`] answers what a subnet administrator would: paths and multicast groups.
//!
//! Nothing here waits, sends or keeps time. The caller gives messages and the time, and takes
//! messages and events. Bytes come from other processes and hosts: malformed ones are refused.

pub mod connection;
pub mod ip;
pub mod mad;
pub mod message;
pub mod smp;
pub mod subnet;
#[cfg(test)]
mod tests;

pub use connection::{Connection, Event, Phase};
pub use mad::{Addressee, Mad};
pub use message::{Message, Reason};
