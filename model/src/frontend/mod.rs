//! The interfaces through which software reaches a device.
pub(crate) mod cm;
pub mod uverbs;
