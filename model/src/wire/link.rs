//! The kind of link that a port is attached to.

/// The kind of link that a port is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An InfiniBand subnet: LIDs, optional GRH.
    InfiniBand,
    /// Ethernet: RoCEv2, GIDs over IP and UDP.
    Roce,
}

impl Link {
    /// log2 of the bytes of payload in the largest packet that a port sends unless a connection's
    /// path says otherwise: all that InfiniBand has, and what fits Ethernet's 1,500 bytes.
    pub fn log_mtu(self) -> u32 {
        match self {
            Self::InfiniBand => 12,
            Self::Roce => 10,
        }
    }
}
