//! Events of objects that were made by command, and of the device.

use std::fmt;

use mlx5_diag::text::EventKind;
use mlx5_sys::ifc::{comp_event, cq_error, eqe, port_state_change_event, qp_events};

/// An event that was [subscribed](super::EventChannel::subscribe) to.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::{EventChannel, EventKind};
///
/// let channel = EventChannel::new(&context)?;
/// channel.subscribe_device(EventKind::PortChange, 3)?;
/// // No port has changed yet. If one does:
/// let event = channel.try_event()?;
/// assert!(event.is_none_or(|event| event.cookie() == 3 && event.port().is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_devx_async_event_hdr")]
#[derive(Clone, PartialEq, Eq)]
pub struct DevxEvent {
    pub(super) kind: EventKind,
    pub(super) cookie: u64,
    pub(super) eqe: Option<[u8; eqe::SIZE]>,
}

/// A change of a port.
///
/// See the example on [`DevxEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortChange {
    /// The port no longer carries traffic.
    Down,
    /// The port is up but not configured yet.
    Initialized,
    /// The port carries traffic.
    Active,
    /// The LID has changed.
    Lid,
    /// The P_Key table has changed.
    Pkeys,
    /// The GID table has changed.
    Gids,
    /// Another change, by number.
    Other(u8),
}

impl DevxEvent {
    /// Returns the kind of the event.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Returns the cookie that was passed when subscribing.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Returns the 64 bytes that the HCA wrote to its event queue; `None` on a channel
    /// [without data](super::EventChannel::without_data).
    pub fn bytes(&self) -> Option<&[u8; eqe::SIZE]> {
        self.eqe.as_ref()
    }

    fn data(&self) -> Option<&[u8]> {
        Some(&self.eqe.as_ref()?[eqe::EVENT_DATA.bytes()])
    }

    /// Returns the number of the queue; `None` for port events, and without data.
    pub fn queue(&self) -> Option<u32> {
        let data = self.data()?;
        Some(match self.kind {
            EventKind::PortChange | EventKind::XrqError | EventKind::Other(_) => return None,
            EventKind::CqError => cq_error::CQN.get(data) as u32,
            EventKind::Completion => comp_event::CQ_NUMBER.get(data) as u32,
            _ => qp_events::QPN_RQN_SQN.get(data) as u32,
        })
    }

    /// Returns the error of a CQ that failed: 1 is an overrun, 2 inaccessible memory.
    pub fn cq_syndrome(&self) -> Option<u8> {
        let of_cq = self.kind == EventKind::CqError;
        self.data().filter(|_| of_cq).map(|data| cq_error::SYNDROME.get(data) as u8)
    }

    /// Returns the port and its change (`MLX5_PORT_CHANGE_SUBTYPE_*`), for a port event.
    pub fn port(&self) -> Option<(u8, PortChange)> {
        let eqe = self.eqe.as_ref().filter(|_| self.kind == EventKind::PortChange)?;
        let change = match eqe::EVENT_SUB_TYPE.get(eqe) as u8 {
            1 => PortChange::Down,
            4 => PortChange::Active,
            5 => PortChange::Initialized,
            6 => PortChange::Lid,
            7 => PortChange::Pkeys,
            8 => PortChange::Gids,
            other => PortChange::Other(other),
        };
        Some((port_state_change_event::PORT_NUM.get(self.data()?) as u8, change))
    }
}

impl fmt::Display for DevxEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((port, change)) = self.port() {
            return write!(f, "port {port}: {change:?}");
        }
        if let Some(queue) = self.queue() {
            write!(f, "queue {queue:#x}: ")?;
        }
        write!(f, "{}", self.kind)?;
        match self.kind.explanation() {
            Some(explanation) => write!(f, ", {explanation}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for DevxEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevxEvent({self}; cookie {:#x})", self.cookie)
    }
}

#[cfg(test)]
mod tests;
