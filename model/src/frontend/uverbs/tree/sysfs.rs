//! The devices' files in `/sys` and `/dev/infiniband`: a real folder tree, to which paths are
//! redirected.
//!
//! Directory streams, relative opens, symbolic links and all other uses of sysfs work on it without
//! being imitated. The tree depends on the devices and their GIDs alone. So its folder is named after its
//! contents, and the processes of a user share it (`folder`). RDMA devices that the kernel does
//! offer stay visible through links.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::Node;
use super::counters;
use super::folder::{self, Entry};
use super::identity::{self, BOARD_ID, Device};
use super::pci;
use super::table::{GidTable, interface_of};
use crate::card::{Link, PortState};
use crate::private::{files, system};
use crate::wire::RoceVersion;

/// The kernel's own folders, by a name that is not redirected.
const CLASS: &str = "/./sys/class";
const NODES: &str = "/./dev/infiniband";

/// Character device that stands for the command file: it exists everywhere, opens for everyone,
/// and a command written to it fails loudly.
pub(crate) const NODE: &str = "/dev/full";
/// The file of connections.
pub(crate) const CONNECTIONS: &[u8] = b"/dev/infiniband/rdma_cm";
/// Number of the character device.
pub(crate) const NODE_NUMBER: (u32, u32) = (1, 7);

/// Folders and prefixes that are redirected into the tree.
const REDIRECTED: [&str; 8] = [
    "/sys/class/infiniband",
    "/dev/infiniband",
    "/sys/class/misc/rdma_cm",
    "/sys/devices/pci6d35:00",
    "/sys/bus/pci/devices",
    "/sys/bus/pci/drivers/mlx5_core",
    "/sys/class/net/mlx5view",
    "/sys/devices/virtual/net/mlx5view",
];

/// The tree of a machine with these devices.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The user's folder of trees.
    folder: PathBuf,
    /// The name in it of the tree that the process found at first.
    initial: u64,
    /// The name of the tree of now. It changes with the devices' GIDs. A thread of a process that forks may
    /// be changing it, so it is under no lock.
    name: AtomicU64,
    /// Number of the `uverbs` node of the first device.
    first: usize,
    devices: usize,
    /// Whether the kernel has RDMA devices as well.
    has_others: bool,
}

/// Whether a descriptor is one of what stands for command files.
pub(crate) fn is_node(fd: libc::c_int) -> bool {
    // SAFETY: integers, for which zeros are values.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `stat`.
    let told = unsafe { system::fstat(fd, &mut about) } == 0;
    let device = (libc::major(about.st_rdev), libc::minor(about.st_rdev));
    told && about.st_mode & libc::S_IFMT == libc::S_IFCHR && device == NODE_NUMBER
}

/// Checks that the character device that stands for command files can be opened.
///
/// # Errors
/// A sentence with the cause and the cure.
pub(super) fn check_node(path: &str) -> Result<(), String> {
    let cure = format!("make it: mknod -m 666 {path} c 1 7");
    match files::open(path, libc::O_RDWR, 0) {
        Ok(node) if is_node(node.as_raw_fd()) => Ok(()),
        Ok(_) => Err(format!("{path}, which stands for device nodes, is another file; {cure}")),
        Err(error) => {
            Err(format!("{path}, which stands for device nodes, cannot be opened: {error}; {cure}"))
        }
    }
}

/// Whether the kernel itself offers an mlx5 device.
pub(super) fn hardware() -> bool {
    let class = format!("{CLASS}/infiniband_verbs");
    files::names(&class).into_iter().flatten().any(|name| {
        let driver = files::target(Path::new(&class).join(name).join("device/driver"));
        driver.is_ok_and(|path| path.file_name() == Some(OsStr::new("mlx5_core")))
    })
}

/// Whether a path may lead into the tree. Only looks at its first bytes.
pub(crate) fn concerns(path: &[u8]) -> bool {
    REDIRECTED.iter().any(|prefix| path.starts_with(prefix.as_bytes()))
}

impl Tree {
    /// Finds or writes the tree of these devices.
    pub fn new(devices: &[Device], node: Node) -> io::Result<Self> {
        let first = files::names(format!("{CLASS}/infiniband_verbs"))
            .into_iter()
            .flatten()
            .filter_map(|name| name.to_str()?.strip_prefix("uverbs")?.parse::<usize>().ok())
            .max()
            .map_or(0, |last| last + 1);
        let tables: Vec<&GidTable> = devices.iter().map(|device| &device.table).collect();
        let (folder, name) = folder::settle(&entries(devices, &tables, node, first))?;
        Ok(Self {
            folder,
            initial: name,
            name: AtomicU64::new(name),
            first,
            devices: devices.len(),
            has_others: files::names(format!("{CLASS}/infiniband"))
                .is_ok_and(|names| !names.is_empty()),
        })
    }

    /// Finds or writes the tree of these devices with other GID tables, which replaces the tree for all paths
    /// from now on.
    pub fn renew(&self, devices: &[Device], tables: &[&GidTable], node: Node) -> io::Result<()> {
        let name = folder::settle_in(&self.folder, &entries(devices, tables, node, self.first))?;
        self.name.store(name, Ordering::Release);
        Ok(())
    }

    /// Shows the GID tables that the process found at first.
    pub fn reset(&self) {
        self.name.store(self.initial, Ordering::Release);
    }

    /// Returns whether the kernel has RDMA devices as well.
    pub fn has_others(&self) -> bool {
        self.has_others
    }

    /// Returns the name of a device's node.
    pub fn node_name(&self, index: usize) -> String {
        format!("uverbs{}", self.first + index)
    }

    /// Returns the path in the tree for a path that the tree replaces; `None` for any other path.
    pub fn redirect(&self, path: &[u8]) -> Option<PathBuf> {
        if !concerns(path) {
            return None;
        }
        let relative = OsStr::from_bytes(path.strip_prefix(b"/")?);
        let name = folder::file_name(self.name.load(Ordering::Acquire));
        Some(self.folder.join(name).join(relative))
    }

    /// Returns the path outside of the tree for a path in it.
    pub fn restore(&self, path: &[u8]) -> Option<Vec<u8>> {
        let inside = path.strip_prefix(self.folder.as_os_str().as_bytes())?.strip_prefix(b"/")?;
        // Behind the name of any of the trees.
        let name = inside.iter().position(|byte| *byte == b'/')?;
        Some(inside[name..].to_vec())
    }

    /// Which device a command file belongs to.
    pub fn device(&self, path: &[u8]) -> Option<usize> {
        let number = path.strip_prefix(b"/dev/infiniband/uverbs")?;
        let number: usize = std::str::from_utf8(number).ok()?.parse().ok()?;
        number.checked_sub(self.first).filter(|index| *index < self.devices)
    }
}

/// Returns everything in the tree. `tables` are the devices' GID tables, `first` is the number of the first
/// device's node.
fn entries(
    devices: &[Device],
    tables: &[&GidTable],
    node: Node,
    first: usize,
) -> Vec<(String, Entry)> {
    let mut entries = Vec::new();
    for (index, (device, table)) in devices.iter().zip(tables).enumerate() {
        pci::describe(&mut entries, index, device);
        describe(&mut entries, device, table, first + index);
        entries.extend(node_of(first + index, node));
    }
    let file = |entries: &mut Vec<_>, path: &str, text: &str| {
        entries.push((path.to_string(), Entry::text(text)));
    };
    file(&mut entries, "sys/class/infiniband_verbs/abi_version", "6");
    file(&mut entries, "sys/class/infiniband_mad/abi_version", "5");
    file(&mut entries, "sys/class/misc/rdma_cm/abi_version", "4");
    file(&mut entries, "sys/class/misc/rdma_cm/dev", "10:58");
    entries.push(("dev/infiniband/rdma_cm".into(), Entry::Link(NODE.into())));
    for class in ["infiniband", "infiniband_verbs"] {
        keep(&mut entries, &format!("{CLASS}/{class}"), &format!("sys/class/{class}"));
    }
    keep(&mut entries, NODES, "dev/infiniband");
    for folder in [pci::FUNCTIONS, pci::DRIVER] {
        keep(&mut entries, &format!("/./{folder}"), folder);
    }
    entries
}

/// Links to what the kernel offers.
fn keep(entries: &mut Vec<(String, Entry)>, from: &str, to: &str) {
    for name in files::names(from).into_iter().flatten() {
        let Ok(name) = name.into_string() else { continue };
        let path = format!("{to}/{name}");
        if !entries.iter().any(|(known, _)| *known == path) {
            entries.push((path, Entry::Link(format!("{from}/{name}"))));
        }
    }
}

/// Returns the device's node: a link to the stand-in for the command file. A forbidden node is a
/// file that only a process exempt from permission checks can open. Such a process is given the
/// stand-in instead (see `paths`), because libraries examine the file that they have opened.
fn node_of(number: usize, node: Node) -> Option<(String, Entry)> {
    let path = format!("dev/infiniband/uverbs{number}");
    match node {
        Node::Open => Some((path, Entry::Link(NODE.into()))),
        Node::Missing => None,
        Node::Forbidden => Some((path, Entry::Forbidden)),
    }
}

/// Everything about one device.
fn describe(entries: &mut Vec<(String, Entry)>, device: &Device, gids: &GidTable, number: usize) {
    let pci = pci::folder(device);
    let ib = format!("{pci}/infiniband/{}", device.name);
    let uverbs = format!("{pci}/infiniband_verbs/uverbs{number}");
    let guid = eui(device.guid);

    let mut file = |path: String, text: &str| entries.push((path, Entry::text(text)));
    for (name, text) in [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", "mlx5-model"),
        ("fw_ver", &device.firmware()),
        ("hw_rev", "0"),
        ("hca_type", &device.hca_type()),
        ("board_id", BOARD_ID),
    ] {
        file(format!("{ib}/{name}"), text);
    }
    port(&mut file, device, &format!("{ib}/ports/1"));
    table(&mut file, device, gids, &format!("{ib}/ports/1"));
    for (name, text) in [
        ("ibdev", device.name.as_str()),
        ("dev", node_number(NODE_NUMBER).as_str()),
        ("abi_version", "1"),
    ] {
        file(format!("{uverbs}/{name}"), text);
    }

    for (path, target) in [
        (format!("{ib}/device"), format!("../../../{}", device.pci)),
        (format!("{uverbs}/device"), format!("../../../{}", device.pci)),
        (format!("sys/class/infiniband/{}", device.name), format!("../../../{ib}")),
        (format!("sys/class/infiniband_verbs/uverbs{number}"), format!("../../../{uverbs}")),
    ] {
        entries.push((path, Entry::Link(target)));
    }
    if let Some(netdev) = &device.netdev {
        netdev.describe(entries, &pci);
        netdev.describe_vlans(entries, &gids.vlans);
    }
}

/// The port's attributes.
fn port(file: &mut dyn FnMut(String, &str), device: &Device, path: &str) {
    let ethernet = device.link == Link::Roce;
    let state = match device.port.logical() {
        1 => "1: DOWN",
        2 => "2: INIT",
        3 => "3: ARMED",
        _ => "4: ACTIVE",
    };
    let physical = match device.port {
        PortState::Polling => "2: Polling",
        PortState::Disabled => "3: Disabled",
        _ => "5: LinkUp",
    };
    let managed = !ethernet && device.port.is_configured();
    for (name, text) in [
        ("state", state.into()),
        ("phys_state", physical.into()),
        ("rate", identity::RATE.into()),
        ("lid", format!("{:#x}", device.lid)),
        ("lid_mask_count", "0".into()),
        ("sm_lid", format!("{:#x}", if managed { identity::SM_LID } else { 0 })),
        ("sm_sl", "0".into()),
        ("cap_mask", format!("{:#010x}", identity::capabilities(device.link) & !identity::IP_GIDS)),
        ("link_layer", String::from(if ethernet { "Ethernet" } else { "InfiniBand" })),
    ] {
        file(format!("{path}/{name}"), &text);
    }
    for (name, _) in counters::PORT {
        file(format!("{path}/counters/{name}"), counters::ABSENT);
    }
    for (name, _) in counters::TRANSPORT {
        file(format!("{path}/hw_counters/{name}"), counters::ABSENT);
    }
    // Milliseconds for which the kernel repeats a count; the model always counts anew.
    file(format!("{path}/hw_counters/lifespan"), "0");
    for index in 0..device.pkey_table_size() {
        file(format!("{path}/pkeys/{index}"), &format!("{:#06x}", device.pkey(index)));
    }
}

/// The number of a character device, as sysfs names it.
fn node_number((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

/// The port's GID table.
fn table(file: &mut dyn FnMut(String, &str), device: &Device, gids: &GidTable, path: &str) {
    for index in 0..device.gid_table_size() {
        let entry = gids.entry(index);
        let words: Vec<String> =
            entry.gid.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
        file(format!("{path}/gids/{index}"), &words.join(":"));
        if entry.is_empty() {
            continue;
        }
        let is_v2 = device.link == Link::Roce && entry.version == RoceVersion::V2;
        let kind = if is_v2 { "RoCE v2" } else { "IB/RoCE v1" };
        file(format!("{path}/gid_attrs/types/{index}"), kind);
        if let Some((name, _)) = interface_of(&entry, device.netdev.as_ref(), &gids.vlans) {
            file(format!("{path}/gid_attrs/ndevs/{index}"), name);
        }
    }
}

fn eui(guid: u64) -> String {
    let words: Vec<String> = guid
        .to_be_bytes()
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect();
    words.join(":")
}

#[cfg(test)]
mod tests;
