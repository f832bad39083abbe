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

use mlx5::Error;
use mlx5::verbs::{Cause, Errno};

pub(super) use device::ProcessDevice;
pub(super) use list::{Process, process, processes};
pub(super) use resources::{QueuePairResource, queue_pairs};
pub(super) use walk::{ProcessObject, ProcessObjectKind};

/// The error of a call. `cause` is a sentence with cause and cure, if known.
fn failed(call: &'static str, errno: Errno, cause: Option<&'static str>) -> Error {
    Error::Call { call, errno, cause: cause.map(Cause::Known) }
}

/// The errno of the last call of this thread.
fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Returns why a device does not answer; `None` if it did, with another errno.
fn gone(errno: Errno) -> Option<&'static str> {
    let gone = matches!(errno.0, libc::EIO | libc::ENODEV);
    gone.then_some("the device is gone or in a fatal error: look into the kernel's log")
}
