//! The fabric: what carries frames between ports.
//!
//! - [`local`] connects the processes of one machine.

pub(crate) mod local;
