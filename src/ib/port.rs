//! The state of a port.

use std::fmt;

/// Whether a port carries traffic (`enum ibv_port_state`).
///
/// See the example on [`PortAttributes`](crate::verbs::attr::PortAttributes).
#[doc(alias = "ibv_port_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortState {
    /// No link.
    #[doc(alias = "IBV_PORT_DOWN")]
    Down,
    /// Link, but not configured by a subnet manager.
    #[doc(alias = "IBV_PORT_INIT")]
    Init,
    /// Configured, about to be made active.
    #[doc(alias = "IBV_PORT_ARMED")]
    Armed,
    /// Carries traffic.
    #[doc(alias = "IBV_PORT_ACTIVE")]
    Active,
    /// Carries traffic while the link recovers.
    #[doc(alias = "IBV_PORT_ACTIVE_DEFER")]
    ActiveDefer,
    /// A value this crate does not know.
    Unknown(u32),
}

impl PortState {
    pub(crate) fn new(raw: u32) -> PortState {
        match raw {
            1 => PortState::Down,
            2 => PortState::Init,
            3 => PortState::Armed,
            4 => PortState::Active,
            5 => PortState::ActiveDefer,
            other => PortState::Unknown(other),
        }
    }

    /// Returns whether packets pass, or will once the subnet manager activates the port.
    pub fn usable(self) -> bool {
        matches!(self, PortState::Armed | PortState::Active | PortState::ActiveDefer)
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortState::Down => f.write_str("DOWN"),
            PortState::Init => f.write_str("INIT"),
            PortState::Armed => f.write_str("ARMED"),
            PortState::Active => f.write_str("ACTIVE"),
            PortState::ActiveDefer => f.write_str("ACTIVE_DEFER"),
            PortState::Unknown(raw) => write!(f, "in unknown state {raw}"),
        }
    }
}
