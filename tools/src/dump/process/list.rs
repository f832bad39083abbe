//! Processes that have devices open.

use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use mlx5::Result;
use mlx5::verbs::Errno;

use super::{failed, last};

/// A process with open devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dump) struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The descriptors that may be devices.
    pub devices: Vec<OpenDevice>,
}

/// A descriptor of a process that is open on the character device of an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dump) struct OpenDevice {
    /// The process.
    pub pid: u32,
    /// The descriptor, there.
    pub descriptor: RawFd,
}

/// Returns the processes with open devices that this user may access, without this process. It
/// looks at each descriptor of each process. It copies the descriptors that have the number of an
/// RDMA device, because the number alone does not prove that they are RDMA devices.
///
/// # Errors
/// [`Error::Call`](mlx5::Error::Call) if `/proc` cannot be read.
pub(in crate::dump) fn processes() -> Result<Vec<Process>> {
    let nodes = nodes();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(|_| failed("opendir", last(), None))?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if pid != std::process::id() {
            // Processes of other users cannot be read, and processes end meanwhile.
            found.extend(look(pid, &nodes).ok().filter(|process| !process.devices.is_empty()));
        }
    }
    found.sort_by_key(|process| process.pid);
    Ok(found)
}

/// Returns one process with its open devices.
///
/// # Errors
/// [`Error::Call`](mlx5::Error::Call) if there is no such process, or this user may not access it.
pub(in crate::dump) fn process(pid: u32) -> Result<Process> {
    look(pid, &nodes()).map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0);
        failed("opendir", Errno(errno), super::device::why(errno))
    })
}

/// The numbers of the character devices of RDMA devices.
fn nodes() -> Vec<(u32, u32)> {
    let class = "/sys/class/infiniband_verbs";
    fs::read_dir(class)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = fs::read_to_string(entry.path().join("dev")).ok()?;
            let (major, minor) = number.trim().split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .collect()
}

impl OpenDevice {
    /// Returns false if the descriptor takes no RDMA requests, true if it does or if that is
    /// unknown.
    fn may_be(&self) -> bool {
        match self.copy() {
            Ok(_) => true,
            Err(error) => error.errno() != Some(Errno(libc::ENOTTY)),
        }
    }
}

fn look(pid: u32, nodes: &[(u32, u32)]) -> std::io::Result<Process> {
    let mut devices = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let Some(descriptor) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(about) = fs::metadata(entry.path()) else { continue };
        let number = (libc::major(about.rdev()), libc::minor(about.rdev()));
        let device = OpenDevice { pid, descriptor };
        if about.file_type().is_char_device() && nodes.contains(&number) && device.may_be() {
            devices.push(device);
        }
    }
    devices.sort_by_key(|device| device.descriptor);
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Ok(Process { pid, name: name.trim().to_owned(), devices })
}
