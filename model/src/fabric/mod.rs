//! The fabric: what carries frames between ports.
//!
//! - [`local`] connects the processes of one machine.
//! - [`udp`] connects machines and network namespaces: RoCEv2 over UDP.

pub(crate) mod local;
pub(crate) mod udp;
