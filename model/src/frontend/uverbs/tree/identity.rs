//! The names and addresses of this machine's devices, in sysfs and in verbs.
//!
//! Every process of the machine sees the same devices, as with hardware. So everything here follows
//! from the device's number and its identity alone.

use super::netdev::Netdev;
use super::table::GidTable;
use crate::card::{GidEntry, Identity, Link, PortState, Profile};
use crate::fabric::udp::{Addresses, Interface};
use crate::transport::p_key;
use crate::wire::gid;

/// The names of a device and the addresses of its port.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// `mlx5_<index>`.
    pub name: String,
    /// PCI address; the domain is one that no machine uses.
    pub pci: String,
    /// EUI-64 of node and port.
    pub guid: u64,
    /// The kind of link that the port is attached to.
    pub link: Link,
    /// LID; 0 on Ethernet.
    pub lid: u16,
    /// How far the port has come when the card starts.
    pub port: PortState,
    /// log2 of the link's MTU.
    pub log_mtu: u32,
    /// The generation that it stands for.
    pub profile: Profile,
    /// The GID table when the process looked for devices, as far as it had entries.
    pub table: GidTable,
    /// The default GID of a RoCE port, which is not an address that can be removed.
    pub default_gid: Option<[u8; 16]>,
    /// The network interface of a RoCE port.
    pub netdev: Option<Netdev>,
}

/// PCI domain and bus of every card, and the folder of `/sys/devices` they are in.
pub(super) const BUS: &str = "pci6d35:00";

/// The board id by which users recognize the model: in sysfs, and from there in `ibv_devinfo`.
pub(super) const BOARD_ID: &str = "MLX5-MODEL";

impl Device {
    /// Device number `index` of the machine, which has this identity, and is on this interface if it is
    /// on one.
    pub fn new(index: usize, identity: &Identity, interface: Option<&Interface>) -> Self {
        let is_roce = identity.link == Link::Roce;
        let netdev = || Netdev::new(index, identity, interface);
        let default_gid = match interface {
            Some(interface) => interface.default_gid(),
            None => is_roce.then(|| gid::link_local(identity.mac)),
        };
        Self {
            name: format!("mlx5_{index}"),
            pci: format!("6d35:00:{index:02x}.0"),
            guid: identity.node_guid,
            link: identity.link,
            lid: if identity.port.is_configured() { identity.lid } else { 0 },
            port: identity.port,
            log_mtu: identity.log_mtu(),
            profile: identity.profile,
            table: table(identity, interface),
            default_gid,
            netdev: is_roce.then(netdev),
        }
    }

    /// Entries in the GID table.
    pub fn gid_table_size(&self) -> usize {
        match self.link {
            Link::InfiniBand => 8,
            Link::Roce => 16,
        }
    }

    /// Entries in the P_Key table.
    pub fn pkey_table_size(&self) -> usize {
        match self.link {
            Link::InfiniBand => 128,
            Link::Roce => 1,
        }
    }

    /// P_Key by index; 0 where the table is empty.
    pub fn pkey(&self, index: usize) -> u16 {
        p_key(self.link, index as u32).unwrap_or(0)
    }

    /// Firmware version as text.
    pub fn firmware(&self) -> String {
        let [major, minor, number] = self.profile.firmware();
        format!("{major}.{minor}.{number:04}")
    }

    /// Name of the device by its PCI device number, such as MT4123.
    pub fn hca_type(&self) -> String {
        format!("MT{}", self.profile.device())
    }
}

/// Returns the GID table that a port begins with. The device itself has the entries of VLANs only when the
/// driver has set them.
fn table(identity: &Identity, interface: Option<&Interface>) -> GidTable {
    let vlans = interface.map_or_else(Vec::new, |interface| interface.vlans.clone());
    let of_vlans = Addresses { own: Vec::new(), vlans };
    let mut entries = identity.gids.clone();
    entries.extend(of_vlans.entries(identity.mac).flat_map(GidEntry::both));
    GidTable { entries, vlans: of_vlans.vlans }
}

/// Width and speed, as sysfs shows them.
pub(crate) const RATE: &str = "200 Gb/sec (4X HDR)";
/// LID of the subnet manager, which is not a port of the model.
pub(crate) const SM_LID: u16 = 0xbfff;

/// Capability flags of a port (`ib_uverbs_query_port_cap_flags`): on InfiniBand traps, path
/// migration, SL mapping, extended speeds, communication management and client reregistration; on
/// Ethernet communication management and GIDs made of IP addresses.
pub(crate) const fn capabilities(link: Link) -> u32 {
    match link {
        Link::InfiniBand => {
            1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 11 | 1 << 14 | 1 << 16 | 1 << 25
        }
        Link::Roce => 1 << 16 | IP_GIDS,
    }
}

/// GIDs are made of IP addresses. The kernel tells programs of libibverbs, and not in sysfs.
pub(super) const IP_GIDS: u32 = 1 << 26;
