//! The kernel's verbs interface, implemented inside the process.
//!
//! Unmodified libibverbs and libmlx5 look for devices in sysfs, open `/dev/infiniband/uverbs0`,
//! issue ioctls on it and map register pages from it. This module serves all of that:
//!
//! - `process` is what the model needs of the process: descriptors, memory, signals, trapped stores.
//! - `tree` decides whether the model offers devices, and is what programs read of them in sysfs.
//! - `request` has the structures of requests, and `driver` what the kernel's driver keeps of a device.
//! - `objects` are what programs make, one file per kind, and `dispatch` finds the one that serves a request.
//! - `visitor` serves processes that were given a device's descriptor.
//! - `netlink` tells of devices and of what processes have made on them.
//! - `observe` leaves the devices to the kernel, and records what a program does with them.
//! - `settings` are for programs that have the model linked in, and `calls` are interposed functions of the
//!   C library.
//!
//! A folder uses those before it in this list, and none after it.
//!
//! Locks are taken in this order: a file's state, the addresses of ports, a GID table, the engine, event
//! rings, listeners, an event queue.

mod calls;
mod dispatch;
mod driver;
mod netlink;
mod objects;
mod observe;
pub(super) mod process;
mod request;
mod settings;
mod tree;
mod visitor;

pub use settings::{
    FixedAddresses, Unavailable, fault_tallies, offered, profile, refusal, run, set_addresses,
    set_counter_sets, set_faults, set_mode, set_port, set_timeouts, set_vlan_addresses,
};
pub use tree::config::Mode;
pub use tree::discovery::mlx5_model_yield;
