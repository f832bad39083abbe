//! What the kernel's driver keeps of a process's devices, below the objects that programs make.
//!
//! `running` is the whole of it, from the first open of a device on. `function` is one device after `boot`,
//! which issues each `command` as the kernel does. It has the device's `clock`, its flow tables (`steering`),
//! the `window` of its memory, the GID table of its port (`gids`) and its event queues. `event` brings events
//! to the program, and `subscriptions` those that it subscribes to. `counters` are what files of counters
//! show, and `watch` has ports follow the addresses of their interfaces.
//!
//! `registers` are the pages that programs store to; `poll` looks at those in plain memory. `umem` is memory
//! that a device may reach, which `pins` keeps at hand whatever the program maps in its place. `mapping`
//! is such memory behind a descriptor, and `exports` are pages of devices behind one.

mod boot;
pub(super) mod clock;
pub(super) mod command;
pub(super) mod counters;
pub(super) mod event;
pub(super) mod exports;
pub(super) mod function;
pub(super) mod gids;
pub(super) mod mapping;
pub(super) mod pins;
pub(super) mod poll;
pub(super) mod rates;
pub(super) mod registers;
pub(super) mod running;
pub(super) mod steering;
pub(super) mod subscriptions;
pub(super) mod umem;
mod watch;
mod window;
