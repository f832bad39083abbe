//! Types of events.

use std::fmt;

use mlx5_sys::ifc::event_type;

/// A type of event (`MLX5_EVENT_TYPE_*` of Linux's `device.h`).
///
/// Which of them an HCA has to subscribe to is in its capabilities, in the group of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "`explanation` says what each means")]
pub enum EventKind {
    Completion,
    PathMigrated,
    CommunicationEstablished,
    SendQueueDrained,
    CqError,
    QueueFailed,
    PathMigrationFailed,
    PortChange,
    InvalidRequest,
    AccessError,
    SrqFailed,
    LastWqeReached,
    LimitReached,
    XrqError,
    TargetDrained,
    TargetKeyViolation,
    /// One that this crate does not know, by number.
    Other(u16),
}

/// Kind, number, name and meaning.
const KINDS: [(EventKind, u8, &str, &str); 16] = [
    (EventKind::Completion, event_type::COMP, "COMP", "an armed completion queue has completions"),
    (
        EventKind::PathMigrated,
        event_type::PATH_MIG,
        "PATH_MIG",
        "the connection has moved to its alternate path",
    ),
    (
        EventKind::CommunicationEstablished,
        event_type::COMM_EST,
        "COMM_EST",
        "the first packet arrived before the queue pair was moved to RTS",
    ),
    (
        EventKind::SendQueueDrained,
        event_type::SQ_DRAINED,
        "SQ_DRAINED",
        "the send queue has finished what it had begun",
    ),
    (
        EventKind::CqError,
        event_type::CQ_ERROR,
        "CQ_ERROR",
        "the completion queue was overrun or its memory cannot be reached",
    ),
    (
        EventKind::QueueFailed,
        event_type::WQ_CATAS_ERROR,
        "WQ_CATAS_ERROR",
        "the queue is in the error state: the HCA could not write its completion",
    ),
    (
        EventKind::PathMigrationFailed,
        event_type::PATH_MIG_FAILED,
        "PATH_MIG_FAILED",
        "the connection could not move to its alternate path",
    ),
    (
        EventKind::PortChange,
        event_type::PORT_CHANGE,
        "PORT_CHANGE",
        "the state of the port changed",
    ),
    (
        EventKind::InvalidRequest,
        event_type::WQ_INVAL_REQ_ERROR,
        "WQ_INVAL_REQ_ERROR",
        "the responder refused a request as invalid",
    ),
    (
        EventKind::AccessError,
        event_type::WQ_ACCESS_ERROR,
        "WQ_ACCESS_ERROR",
        "the responder refused a request for lack of rights",
    ),
    (
        EventKind::SrqFailed,
        event_type::SRQ_CATAS_ERROR,
        "SRQ_CATAS_ERROR",
        "the shared receive queue failed",
    ),
    (
        EventKind::LastWqeReached,
        event_type::SRQ_LAST_WQE,
        "SRQ_LAST_WQE",
        "the queue pair takes no more from its shared receive queue",
    ),
    (
        EventKind::LimitReached,
        event_type::SRQ_RQ_LIMIT,
        "SRQ_RQ_LIMIT",
        "the receive queue holds fewer receives than its limit",
    ),
    (EventKind::XrqError, event_type::XRQ_ERROR, "XRQ_ERROR", "the queue that matches tags failed"),
    (
        EventKind::TargetDrained,
        event_type::DCT_DRAINED,
        "DCT_DRAINED",
        "no message is on its way to the target any more",
    ),
    (
        EventKind::TargetKeyViolation,
        event_type::DCT_KEY_VIOLATION,
        "DCT_KEY_VIOLATION",
        "an initiator has shown the target a wrong access key",
    ),
];

impl EventKind {
    /// Returns its number.
    pub fn number(self) -> u16 {
        match self {
            EventKind::Other(number) => number,
            known => KINDS.iter().find(|row| row.0 == known).map_or(0, |row| row.1.into()),
        }
    }

    /// Which has that number.
    pub fn from_number(number: u16) -> EventKind {
        let row = KINDS.iter().find(|row| u16::from(row.1) == number);
        row.map_or(EventKind::Other(number), |row| row.0)
    }

    /// Returns its name in Linux, without `MLX5_EVENT_TYPE_`; `None` for kinds that this crate does
    /// not know.
    pub fn name(self) -> Option<&'static str> {
        KINDS.iter().find(|row| row.0 == self).map(|row| row.2)
    }

    /// Returns its meaning.
    pub fn explanation(self) -> Option<&'static str> {
        KINDS.iter().find(|row| row.0 == self).map(|row| row.3)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "event {:#x}", self.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_kinds_and_back() {
        for (kind, number, name, explanation) in KINDS {
            assert_eq!(EventKind::from_number(number.into()), kind);
            assert_eq!(kind.number(), u16::from(number));
            assert_eq!((kind.name(), kind.explanation()), (Some(name), Some(explanation)));
        }
        assert_eq!(EventKind::from_number(0x27), EventKind::Other(0x27));
        assert_eq!(EventKind::Other(0x127).number(), 0x127);
        assert_eq!(EventKind::Other(0x27).to_string(), "event 0x27");
    }
}
