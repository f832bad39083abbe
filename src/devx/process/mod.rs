//! Devices that other processes have open: what the HCA knows of their queues.
//!
//! A descriptor of a device may be copied from a process by whoever may trace it (`pidfd_getfd`); the
//! copy is the same open device. Here it is only asked: nothing is made, changed or freed there, so the
//! process does not notice. Requests go to the kernel directly (`request`), since libibverbs would make
//! objects of its own in the other's device (`ibv_import_device`). Objects have handles, small numbers
//! that count from 0; the kernel answers questions about an object only if they name handle and number.
//! The numbers of queue pairs are told by netlink (`resources`), and those of the queues that these
//! complete on and take from by their contexts (`walk`).

mod device;
mod list;
mod request;
mod resources;
mod walk;

pub use device::{ProcessDevice, RegionKeys};
pub use list::{OpenDevice, Process, process, processes};
pub use resources::{QueuePairResource, queue_pairs};
pub use walk::{ProcessObject, ProcessObjectKind};
