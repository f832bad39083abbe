//! Requests of a program to an open device, as values: which structures there are, and how they are read
//! and answered. What serves them stands above.
//!
//! `abi` are the kernel's structures. `ioctl` has the attributes of the newer form, and `legacy` the
//! structures of the older one, which an ioctl carries as well. `netlink` are messages about devices, which
//! need not be open.

pub(super) mod abi;
pub(super) mod ioctl;
pub(super) mod legacy;
pub(super) mod netlink;
