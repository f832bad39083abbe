//! Counters of flows.

/// A counter that entries of flow tables name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCounter {
    /// User context that created it.
    pub uid: u16,
    /// Number of the first counter that was created by the same command.
    pub first: u32,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes, from the Ethernet header to the end of the payload.
    pub octets: u64,
}

impl FlowCounter {
    /// Creates a counter at zero.
    pub fn new(uid: u16, first: u32) -> Self {
        Self { uid, first, packets: 0, octets: 0 }
    }

    /// Counts a packet.
    pub fn count(&mut self, bytes: usize) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(bytes as u64);
    }
}
