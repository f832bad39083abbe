//! The machine's devices, as sysfs names them.

use std::ffi::{CString, c_int};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::process::real;
use crate::card::{GidEntry, Identity, Link};
use crate::engine::identities;
use crate::private::{OwnFd, files};

/// Most devices that a recording has.
const MOST: usize = 16;

/// The devices that a program may open, in the order of their names.
pub(super) struct Devices(Vec<Device>);

struct Device {
    name: String,
    /// Number of its character device: `MAJOR:MINOR`.
    node: String,
    identity: Identity,
}

impl Devices {
    /// Reads sysfs. A device that cannot be read is left out.
    pub fn of_the_machine() -> Self {
        let mut devices = Vec::new();
        let class = Path::new("/sys/class/infiniband_verbs");
        let folder = open(class, libc::O_RDONLY | libc::O_DIRECTORY);
        let names = folder.and_then(|folder| files::names_in(&folder));
        for name in names.into_iter().flatten() {
            let text = |file: &str| {
                let text = read(&class.join(&name).join(file)).ok()?;
                Some(text.trim().to_owned())
            };
            if let (Some(name), Some(node)) = (text("ibdev"), text("dev")) {
                let identity = identity(&name);
                devices.push(Device { name, node, identity });
            }
        }
        devices.sort_by(|one, other| one.name.cmp(&other.name));
        devices.truncate(MOST);
        Self(devices)
    }

    /// Returns what a recording says of them: at least one.
    pub fn identities(&self) -> Vec<Identity> {
        let known: Vec<_> = self.0.iter().map(|device| device.identity.clone()).collect();
        if known.is_empty() { identities(1, Link::InfiniBand, 0) } else { known }
    }

    /// Returns the number of the device that a descriptor is open for: 0 for one that sysfs does not
    /// name.
    pub fn of_descriptor(&self, fd: c_int) -> u8 {
        // SAFETY: integers, for which zeros are values.
        let mut about: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes one `stat`.
        if unsafe { real::fstat(fd, &mut about) } != 0 {
            return 0;
        }
        let node = format!("{}:{}", libc::major(about.st_rdev), libc::minor(about.st_rdev));
        self.0.iter().position(|device| device.node == node).unwrap_or(0) as u8
    }

    /// Returns the link of a device.
    pub fn link(&self, card: u8) -> Link {
        self.0.get(usize::from(card)).map_or(Link::InfiniBand, |device| device.identity.link)
    }
}

/// Opens a file as a call of the program's that is passed on: the devices may be those of another
/// library.
fn open(path: &Path, flags: c_int) -> io::Result<OwnFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a C string. The call returns a new descriptor, which nothing else owns.
    unsafe { OwnFd::new(real::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0)) }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    (&open(path, libc::O_RDONLY)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads what sysfs says of a device. What it does not say is that of a model's device.
fn identity(name: &str) -> Identity {
    let class = Path::new("/sys/class/infiniband").join(name);
    let text = |file: &str| read(&class.join(file)).unwrap_or_default();
    let is_ethernet = text("ports/1/link_layer").trim() == "Ethernet";
    let link = if is_ethernet { Link::Roce } else { Link::InfiniBand };
    let guid = u64::from_str_radix(&text("node_guid").trim().replace(':', ""), 16);
    let lid = text("ports/1/lid");
    let lid = u16::from_str_radix(lid.trim().trim_start_matches("0x"), 16);
    let mut identity = identities(1, link, 0).remove(0);
    identity.node_guid = guid.unwrap_or(identity.node_guid);
    identity.lid = lid.unwrap_or(identity.lid);
    if let Some(gid) = gid(&text("ports/1/gids/0")) {
        identity.gids = vec![GidEntry { gid, ..GidEntry::default() }];
    }
    identity
}

/// Reads a GID as sysfs writes it: eight groups of four hexadecimal digits.
fn gid(text: &str) -> Option<[u8; 16]> {
    let digits = text.trim().replace(':', "");
    let gid = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    Some(gid.to_be_bytes())
}

#[cfg(test)]
mod tests;
