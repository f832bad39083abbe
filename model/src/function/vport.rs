//! What the driver has set of the function's virtual Ethernet port.

/// Entries of the longest list.
pub const LONGEST_LIST: usize = 128;

/// A list of a virtual port (`mlx5_ifc.h`, `allowed_list_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Ethernet addresses of one receiver.
    Unicast = 0,
    /// Ethernet addresses of groups.
    Multicast = 1,
    /// VLANs.
    Vlan = 2,
}

impl List {
    /// Returns the list of a number.
    pub fn numbered(number: u32) -> Option<Self> {
        [Self::Unicast, Self::Multicast, Self::Vlan].into_iter().nth(number as usize)
    }
}

/// Settings of a virtual Ethernet port. They say what its driver receives, to an embedded switch. The
/// model has none, so they have no effect on packets.
#[derive(Clone, Debug)]
pub struct Vport {
    /// Whether the driver uses RoCE.
    pub roce: bool,
    /// The longest packet that the driver has set, in bytes.
    pub mtu: Option<u16>,
    /// Whether the driver wants all packets to one receiver, all to groups, and all.
    pub promiscuous: [bool; 3],
    lists: [Vec<u64>; 3],
}

impl Default for Vport {
    fn default() -> Self {
        Self { roce: true, mtu: None, promiscuous: [false; 3], lists: Default::default() }
    }
}

impl Vport {
    /// Returns a list.
    pub fn list(&self, which: List) -> &[u64] {
        &self.lists[which as usize]
    }

    /// Replaces a list, and returns whether it is short enough.
    pub fn set_list(&mut self, which: List, entries: Vec<u64>) -> bool {
        let fits = entries.len() <= LONGEST_LIST;
        if fits {
            self.lists[which as usize] = entries;
        }
        fits
    }
}
