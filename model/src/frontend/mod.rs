//! The interfaces through which software reaches a device.
pub mod uverbs;
