//! Transport services.

/// Transport service of a queue pair, from QPC's `st`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection: an initiator alone, or a target alone, whose receives come from
    /// the SRQ that each request names.
    Xrc,
    /// Dynamic connections: an initiator, whose WQEs each name their destination, or a target,
    /// which any initiator that shows its key may connect to.
    Dc,
    /// Frames of Ethernet: a send queue alone, or a receive queue alone.
    Ethernet,
}

impl Service {
    /// Whether a requester and a responder keep account of each other's packets.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Dc)
    }
}
