//! The identity of a device: its names, its link, and the state of its port.

pub mod pci;
mod profile;

use crate::wire::{Link, LinkAddress, RoceVersion, Route, Tag};
pub use profile::{Feature, Profile};

/// The state of a port's link (`PortState` and `PortPhysicalState` of InfiniBand's PortInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortState {
    /// Carries traffic.
    Active,
    /// The subnet manager has configured the port and not activated it yet.
    Armed,
    /// The link is up, and no subnet manager has configured the port.
    Init,
    /// No link: the port searches for a peer.
    Polling,
    /// No link: switched off by the administrator.
    Disabled,
}

impl PortState {
    /// All, in the order of their numbers.
    pub const ALL: [PortState; 5] =
        [Self::Active, Self::Armed, Self::Init, Self::Polling, Self::Disabled];

    /// Returns the state in PortInfo.
    pub fn logical(self) -> u8 {
        match self {
            Self::Polling | Self::Disabled => 1,
            Self::Init => 2,
            Self::Armed => 3,
            Self::Active => 4,
        }
    }

    /// Returns the physical state in PortInfo.
    pub fn physical(self) -> u8 {
        match self {
            Self::Polling => 2,
            Self::Disabled => 3,
            Self::Init | Self::Armed | Self::Active => 5,
        }
    }

    /// Returns whether a subnet manager has given the port its LID.
    pub fn is_configured(self) -> bool {
        matches!(self, Self::Armed | Self::Active)
    }
}

/// The attachment of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bus {
    /// The memory of a process. Pages that are not there yet come when the device asks for them.
    Process,
    /// A PCI bus. A page that is not there is an error.
    Pci,
}

/// The law that the transport timers of a device follow: waits for acknowledges, and after RNR NAKs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Timeouts {
    /// As measured on devices, with the settings that they are delivered with. All generations have
    /// the same law; the link decides about adaptive repetitions.
    #[default]
    Measured,
    /// As measured on devices with `min_ack_timeout_limit_disabled` of the register ROCE_ACCL set:
    /// RoCE without the firmware's floor and without adaptive repetitions. On InfiniBand like
    /// [`Measured`](Self::Measured).
    FloorOff,
    /// The InfiniBand specification's: each wait is exactly as long as its code says.
    Specification {
        /// The code of the shortest wait for an acknowledge, from 0 to 31. 0 keeps every wait.
        floor: u8,
    },
}

impl Timeouts {
    /// The specification with a floor of code 12, 16.8 ms. With shorter waits, a responder that the
    /// scheduler lets wait looks like a lost packet.
    pub const SPECIFICATION: Self = Self::Specification { floor: 12 };

    /// The law of a setting: `measured`, `floor-off`, `specification`, or `specification:` and the
    /// code of the floor. `None` for another text.
    pub(crate) fn named(text: &str) -> Option<Self> {
        Some(match text {
            "measured" => Self::Measured,
            "floor-off" => Self::FloorOff,
            "specification" => Self::SPECIFICATION,
            _ => {
                let floor = text.strip_prefix("specification:")?.parse().ok()?;
                (floor < 32).then_some(Self::Specification { floor })?
            }
        })
    }

    /// Returns its byte in recordings: the floor of the specification, or what follows 31.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Specification { floor } => floor.min(31),
            Self::Measured => 32,
            Self::FloorOff => 33,
        }
    }

    /// The law that has a byte in recordings.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            floor @ 0..=31 => Self::Specification { floor },
            32 => Self::Measured,
            33 => Self::FloorOff,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Timeouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Measured => f.write_str("measured"),
            Self::FloorOff => f.write_str("floor-off"),
            Self::Specification { floor } => write!(f, "specification:{floor}"),
        }
    }
}

/// Whether programs get sets of queue counters of their own (ALLOC_Q_COUNTER). The driver always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CounterSets {
    /// The firmware refuses them, as ConnectX-6 with firmware 20.43 was seen to: evidence E063.
    #[default]
    Refused,
    /// Every user context gets them.
    Allowed,
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID; all zero in an empty entry.
    pub gid: [u8; 16],
    /// The version of RoCE that it is of. On InfiniBand it says nothing.
    pub version: RoceVersion,
    /// The Ethernet address that the driver has set with it, if that is not the port's own.
    pub mac: Option<[u8; 6]>,
    /// The VLAN whose tag its packets have, if it is of one.
    pub vlan: Option<u16>,
}

impl GidEntry {
    /// Returns the entry of a GID of this version of RoCE, with the port's Ethernet address.
    pub const fn new(gid: [u8; 16], version: RoceVersion) -> Self {
        Self { gid, version, mac: None, vlan: None }
    }

    /// Returns the same entry of a VLAN.
    pub const fn in_vlan(self, vlan: u16) -> Self {
        Self { vlan: Some(vlan), ..self }
    }

    /// Returns whether it holds no GID.
    pub fn is_empty(&self) -> bool {
        self.gid == [0; 16]
    }

    /// Returns the entries that Linux makes of the IP addresses of an interface: for each of them one
    /// of RoCE v1, then one of RoCE v2.
    pub fn pairs(addresses: &[[u8; 16]]) -> Vec<Self> {
        let pair = |gid: &[u8; 16]| Self::new(*gid, RoceVersion::V1).both();
        addresses.iter().flat_map(pair).collect()
    }

    /// Returns the entry in both versions of RoCE, in the order in which Linux adds them.
    pub fn both(self) -> [Self; 2] {
        [RoceVersion::V1, RoceVersion::V2].map(|version| Self { version, ..self })
    }
}

/// The settings that a device is created with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// EUI-64 of the node. The port's is derived from it.
    pub node_guid: u64,
    /// Link of the port.
    pub link: Link,
    /// LID of the port on an InfiniBand link.
    pub lid: u16,
    /// Ethernet address of the port on an Ethernet link.
    pub mac: [u8; 6],
    /// GID table of the port, by index. On InfiniBand entry 0 is the subnet prefix and port GUID; on
    /// Ethernet each IP address has [two](GidEntry::pairs).
    pub gids: Vec<GidEntry>,
    /// Upper bits of every QP number: `number >> 8`. Another process at the same port has another
    /// prefix, so a packet's destination QP names the process. The engine claims more prefixes when
    /// these 256 numbers are used up.
    pub qpn_prefixes: Vec<u16>,
    /// Seed of the device's randomness.
    pub seed: u64,
    /// Whether programs may have user contexts to issue commands in.
    pub user_contexts: bool,
    /// The attachment of the device.
    pub bus: Bus,
    /// The generation that the device stands for.
    pub profile: Profile,
    /// State of the port when the device starts.
    pub port: PortState,
    /// log2 of a packet's maximum payload in bytes, if it is not the link's
    /// [default](Link::log_mtu). Longer packets are then lost.
    pub log_mtu: Option<u32>,
    /// The law that transport timers follow.
    pub timeouts: Timeouts,
    /// Whether user contexts get sets of queue counters.
    pub counter_sets: CounterSets,
    /// A seed, if send WQEs that change behind their doorbell are executed in either version: as they
    /// were, or as they are when their turn comes. `None` for the latter alone.
    pub prefetch: Option<u64>,
    /// A seed, if data that arrives becomes visible in any order that the specification allows. `None`
    /// for the order of arrival.
    pub placement: Option<u64>,
}

impl Identity {
    /// Returns an entry of the GID table, which is empty where it has none.
    pub fn entry(&self, index: usize) -> GidEntry {
        self.gids.get(index).copied().unwrap_or_default()
    }

    /// Returns the Ethernet address from which packets of a GID are sent.
    pub fn source_mac(&self, gid_index: usize) -> [u8; 6] {
        self.entry(gid_index).mac.unwrap_or(self.mac)
    }

    /// Returns the VLAN tag of packets of a GID, with their priority.
    pub fn tag(&self, gid_index: usize, priority: u8) -> Option<Tag> {
        self.entry(gid_index).vlan.map(|vlan| Tag { vlan, priority })
    }

    /// Returns the port's own address on its link: its LID or MAC.
    pub fn own_address(&self) -> LinkAddress {
        match self.link {
            Link::InfiniBand => LinkAddress::Lid(self.lid),
            Link::Roce => LinkAddress::Mac(self.mac),
        }
    }

    /// Returns all addresses of the port on its link: its own, and the MACs of its GIDs.
    pub fn addresses(&self) -> impl Iterator<Item = LinkAddress> {
        let others = self.gids.iter().filter_map(|entry| entry.mac).map(LinkAddress::Mac);
        std::iter::once(self.own_address()).chain(others)
    }

    /// Returns whether an address on the link is the port's.
    pub fn has_address(&self, address: LinkAddress) -> bool {
        self.addresses().any(|own| own == address)
    }

    /// Returns whether a GID is one of the port's, of this version of RoCE and this VLAN; 0 for none.
    fn has_gid(&self, gid: &[u8; 16], version: RoceVersion, vlan: u16) -> bool {
        let is_it = |entry: &GidEntry| {
            entry.gid == *gid && entry.version == version && entry.vlan.unwrap_or(0) == vlan
        };
        *gid != [0; 16] && self.gids.iter().any(is_it)
    }

    /// Returns whether packets to groups with the VLAN tag of a route are the port's: those without a
    /// tag, and those of a VLAN that one of its GIDs is of.
    pub(crate) fn is_in_vlan_of(&self, route: &Route) -> bool {
        let vlan = route.vlan();
        vlan == 0 || self.gids.iter().any(|entry| !entry.is_empty() && entry.vlan == Some(vlan))
    }

    /// Returns whether a route leads to the port.
    pub(crate) fn is_for_port(&self, route: &Route) -> bool {
        let global = match route {
            // A GRH has to name the port as well (IBA 1.3, 8.4.4 and 9.6.1.1).
            Route::InfiniBand { global, .. } => global.as_ref(),
            Route::Ethernet { global, .. } => Some(global),
        };
        self.has_address(route.to())
            && global.is_none_or(|global| {
                self.has_gid(&global.destination, route.version().unwrap_or_default(), route.vlan())
            })
    }

    /// Returns log2 of a packet's maximum payload in bytes on the port's link.
    pub fn log_mtu(&self) -> u32 {
        self.log_mtu.unwrap_or(self.link.log_mtu())
    }
}
