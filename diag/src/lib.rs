//! Diagnostics for NVIDIA ConnectX HCAs: what the bytes of its queues say, and what is wrong with
//! them.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`text`] | bytes of WQEs, CQEs, EQEs, doorbell records, firmware structures | readable text |
//! | [`explain`] | statuses, vendor syndromes, command syndromes, health syndromes | meanings, causes, cures |
//! | [`lint`] | the WQEs of a send queue | defects: WQEs that no HCA executes as they were meant |
//! | [`flight`] | dumps of the driver's flight recorder, in any log | typed events |
//! | [`decode`] | logs and dumps of libmlx5, Linux, DPDK, UCX, NCCL and others | typed records with explained codes |
//! | [`sysfs`] | the folders of a machine | PCI function, network interfaces, port counters |
//!
//! All but [`sysfs`] work on bytes, from wherever they come: a ring in memory, a dump, a log, a
//! recording. Nothing here opens a device, and no bytes make it panic.

pub mod decode;
pub mod explain;
pub mod flight;
pub mod lint;
#[cfg(test)]
mod random;
pub mod sysfs;
pub mod text;
