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

/// Settings of a virtual Ethernet port. They say which Ethernet frames reach its driver, other than
/// packets of RoCE.
#[derive(Clone, Debug)]
pub struct Vport {
    /// Whether the driver uses RoCE.
    pub roce: bool,
    /// The longest packet that the driver has set, in bytes.
    pub mtu: Option<u16>,
    /// Whether the driver has switched local loopback off: to one receiver, and to groups. The device
    /// stores that, and loops packets of RoCE to its own port anyway (evidence F063).
    pub no_local_loopback: [bool; 2],
    promiscuous: [bool; 3],
    lists: [Vec<u64>; 3],
    /// Whether the driver has said what it wants.
    filters: bool,
}

impl Default for Vport {
    fn default() -> Self {
        Self {
            roce: true,
            mtu: None,
            no_local_loopback: [false; 2],
            promiscuous: [false; 3],
            lists: Default::default(),
            filters: false,
        }
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
            self.filters |= matches!(which, List::Unicast | List::Multicast);
        }
        fits
    }

    /// Returns whether the driver wants all packets to one receiver, all to groups, and all.
    pub fn promiscuous(&self) -> [bool; 3] {
        self.promiscuous
    }

    /// Sets what [`Vport::promiscuous`] returns.
    pub fn set_promiscuous(&mut self, promiscuous: [bool; 3]) {
        self.promiscuous = promiscuous;
        self.filters = true;
    }

    /// Returns whether the driver has said which packets it wants. Until then it gets all.
    pub fn filters(&self) -> bool {
        self.filters
    }

    /// Returns whether the driver wants packets to an address. Broadcast is an address of a group.
    pub fn wants(&self, to: [u8; 6]) -> bool {
        const ADDRESS: u64 = (1 << 48) - 1;
        let [unicast, multicast, all] = self.promiscuous;
        let (list, every) =
            if to[0] & 1 == 1 { (List::Multicast, multicast) } else { (List::Unicast, unicast) };
        let to = to.iter().fold(0, |address, byte| address << 8 | u64::from(*byte));
        all || every || self.list(list).iter().any(|entry| entry & ADDRESS == to)
    }
}
