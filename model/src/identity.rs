//! The identity of a device: its names, its link, and the state of its port.

use crate::wire::Link;

/// How far the link of a port has come (`PortState` and `PortPhysicalState` of InfiniBand's PortInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortState {
    /// Carries traffic.
    Active,
    /// The subnet manager has configured it and not made it active yet.
    Armed,
    /// The link is up, and no subnet manager has come by.
    Init,
    /// No link: the port looks for somebody at the other end.
    Polling,
    /// No link: switched off by whoever administers it.
    Disabled,
}

impl PortState {
    /// All, in the order of their numbers.
    pub const ALL: [PortState; 5] =
        [Self::Active, Self::Armed, Self::Init, Self::Polling, Self::Disabled];

    /// The state in PortInfo.
    pub fn logical(self) -> u8 {
        match self {
            Self::Polling | Self::Disabled => 1,
            Self::Init => 2,
            Self::Armed => 3,
            Self::Active => 4,
        }
    }

    /// The physical state in PortInfo.
    pub fn physical(self) -> u8 {
        match self {
            Self::Polling => 2,
            Self::Disabled => 3,
            Self::Init | Self::Armed | Self::Active => 5,
        }
    }

    /// Whether a subnet manager has given the port its LID.
    pub fn is_configured(self) -> bool {
        matches!(self, Self::Armed | Self::Active)
    }
}

/// What a card is told when it is made.
#[derive(Clone, Debug)]
pub struct Identity {
    /// EUI-64 of the node; the port's follows from it.
    pub node_guid: u64,
    /// Link of the port.
    pub link: Link,
    /// LID of the port on an InfiniBand link.
    pub lid: u16,
    /// GID table of the port, by index. Empty entries are all zero. On InfiniBand entry 0 is the
    /// subnet prefix and port GUID; on Ethernet the entries are IPv6 link-local and mapped IPv4
    /// addresses of RoCEv2.
    pub gids: Vec<[u8; 16]>,
    /// Upper bits of every QP number: `number >> 8`. Another process of the same fabric has
    /// another prefix, so that a packet's destination QP also names the process. More prefixes
    /// are claimed by the engine when these 256 numbers are used up.
    pub qpn_prefixes: Vec<u16>,
    /// Seed of the card's randomness.
    pub seed: u64,
    /// Whether programs may have user contexts, in whose name they give commands.
    pub user_contexts: bool,
    /// How far the port has come when the card starts.
    pub port: PortState,
    /// log2 of the bytes of payload that a packet may have on this link, where it is not what is
    /// [usual](Link::log_mtu): then longer packets are lost.
    pub log_mtu: Option<u32>,
}

impl Identity {
    /// log2 of the bytes of payload that a packet may have on the port's link.
    pub fn log_mtu(&self) -> u32 {
        self.log_mtu.unwrap_or(self.link.log_mtu())
    }
}
