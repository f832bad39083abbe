//! Devices that other processes have open, and the HCA's view of their queues.
//!
//! A process that may trace another one may copy a descriptor of a device from it (`pidfd_getfd`).
//! The copy is the same opened device. This module only queries it: nothing is made, changed or
//! freed there, so the process does not notice.
//!
//! Requests go to the kernel directly, because libibverbs would make objects of its own in the
//! process's device (`ibv_import_device`). Objects have handles, small numbers that count from 0.
//! The kernel answers queries of an object only if they name its handle and its number. Netlink
//! reports the numbers of queue pairs. The contexts of queue pairs hold the numbers of their CQs and
//! shared receive queues.

mod device;
mod list;
mod request;
mod resources;
mod walk;

pub use device::{ProcessDevice, RegionKeys};
pub use list::{OpenDevice, Process, process, processes};
pub use resources::{QueuePairResource, queue_pairs};
pub use walk::{ProcessObject, ProcessObjectKind};
