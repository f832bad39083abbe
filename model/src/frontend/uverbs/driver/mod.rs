//! What the kernel's driver keeps of a process's devices, below the objects that programs make.
//!
//! `running` is the whole of it, from the first open of a device on. `function` is one device after `boot`,
//! which issues each `command` as the kernel does. `event` brings events to the program. `clock` is the
//! device's clock, and `poll` looks at register pages in plain memory. `umem` is memory that a device may
//! reach, which `pins` keeps at hand whatever the program maps in its place.

pub(super) mod boot;
pub(super) mod clock;
pub(super) mod command;
pub(super) mod counters;
pub(super) mod event;
pub(super) mod function;
pub(super) mod mapping;
pub(super) mod pins;
pub(super) mod poll;
pub(super) mod registers;
pub(super) mod running;
pub(super) mod steering;
pub(super) mod subscriptions;
pub(super) mod umem;
pub(super) mod window;
