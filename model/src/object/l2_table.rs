//! Entries of the table of Ethernet addresses that lead packets to the function.

/// An entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2Entry {
    /// Destination of the packets.
    pub mac: [u8; 6],
    /// The VLAN whose packets alone are meant, if there is one.
    pub vlan: Option<u16>,
}

impl L2Entry {
    /// Returns whether packets to an address, with this VLAN, are meant.
    pub fn covers(&self, mac: [u8; 6], vlan: Option<u16>) -> bool {
        self.mac == mac && (self.vlan.is_none() || self.vlan == vlan)
    }
}
