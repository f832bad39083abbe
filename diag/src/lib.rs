//! Diagnostics for NVIDIA ConnectX HCAs: what the bytes of its queues say, and what is wrong with
//! them.
//!
//! Everything here works on bytes, from wherever they come: a ring in memory, a dump, a log, a
//! recording. Nothing here opens a device, and no bytes make it panic.
//!
//! - [`text`]: WQEs, CQEs, EQEs, doorbell records and firmware structures as readable text;
//! - [`explain`]: what statuses, vendor syndromes, command syndromes and health syndromes mean, and
//!   what to do about them;
//! - [`lint`]: rules for send queues, which find WQEs that no HCA executes as they were meant;
//! - [`flight`]: flight records as the driver's flight recorder writes them, found again in a log;
//! - [`sysfs`]: the machine around the HCA: PCI function, network interfaces, port counters.

pub mod explain;
pub mod flight;
pub mod lint;
#[cfg(test)]
mod random;
pub mod sysfs;
pub mod text;
