//! Userspace data path for NVIDIA ConnectX cards.
//!
//! libibverbs makes the queues and moves them to RTS ([`verbs`]); two sides tell each other where
//! to send ([`connect`]); from then on the program writes WQEs into the send queue itself, rings
//! the card itself and reads CQEs itself.

pub mod connect;
pub mod verbs;

pub use verbs::{Error, Result};
