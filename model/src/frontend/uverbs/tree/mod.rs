//! What a program finds when it looks for devices, before it opens one.
//!
//! `config` is the environment. `discovery` decides by it whether the model offers devices, and `identity`
//! is what each is called. `sysfs` is the tree of files that programs read, with the functions of `pci` and
//! the network interfaces of `netdev`; `folder` makes it, and `counters` counts in it. `privilege` is what the process may do.

pub(super) mod config;
pub(super) mod counters;
pub(super) mod discovery;
mod folder;
pub(super) mod identity;
pub(super) mod netdev;
mod pci;
pub(super) mod privilege;
pub(super) mod sysfs;
pub(super) mod table;
