//! What happened to an object that was made by command, or to the device.

use std::fmt;

use mlx5_sys::ifc::{comp_event, cq_error, eqe, event_type, port_state_change_event, qp_events};

/// A type of event (`MLX5_EVENT_TYPE_*` of Linux's `device.h`).
///
/// Which of them a card has to subscribe to is in its capabilities, in the group of events.
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
        "the queue is in the error state: the card could not write its completion",
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
    /// Its number.
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

    /// Its name in Linux, without `MLX5_EVENT_TYPE_`; `None` of those that this crate does not know.
    pub fn name(self) -> Option<&'static str> {
        KINDS.iter().find(|row| row.0 == self).map(|row| row.2)
    }

    /// What it means.
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

/// An event that was [subscribed](super::EventChannel::subscribe) to.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    pub(super) kind: EventKind,
    pub(super) cookie: u64,
    pub(super) eqe: Option<[u8; eqe::SIZE]>,
}

/// What became of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortChange {
    /// It carries traffic no longer.
    Down,
    /// It is there and not yet configured.
    Initialized,
    /// It carries traffic.
    Active,
    /// Its LID is another one.
    Lid,
    /// Its table of P_Keys is another one.
    Pkeys,
    /// Its table of GIDs is another one.
    Gids,
    /// Something else, by number.
    Other(u8),
}

impl Event {
    /// What happened.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// What the program gave when it subscribed.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The 64 bytes that the card wrote to its event queue; `None` on a channel
    /// [without data](super::EventChannel::without_data).
    pub fn bytes(&self) -> Option<&[u8; eqe::SIZE]> {
        self.eqe.as_ref()
    }

    fn data(&self) -> Option<&[u8]> {
        Some(&self.eqe.as_ref()?[eqe::EVENT_DATA.bytes()])
    }

    /// The number of the queue that it is of. `None` of the port's events, and without data.
    pub fn queue(&self) -> Option<u32> {
        let data = self.data()?;
        Some(match self.kind {
            EventKind::PortChange | EventKind::XrqError | EventKind::Other(_) => return None,
            EventKind::CqError => cq_error::CQN.get(data) as u32,
            EventKind::Completion => comp_event::CQ_NUMBER.get(data) as u32,
            _ => qp_events::QPN_RQN_SQN.get(data) as u32,
        })
    }

    /// Of a CQ that failed, why: 1 is an overrun, 2 memory that cannot be reached.
    pub fn cq_syndrome(&self) -> Option<u8> {
        let of_cq = self.kind == EventKind::CqError;
        self.data().filter(|_| of_cq).map(|data| cq_error::SYNDROME.get(data) as u8)
    }

    /// Of a change of a port: which, and what became of it (`MLX5_PORT_CHANGE_SUBTYPE_*`).
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

impl fmt::Display for Event {
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

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({self}; cookie {:#x})", self.cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u8, subtype: u8, data: &[(usize, u8)]) -> Event {
        let mut eqe = [0; 64];
        (eqe[1], eqe[3]) = (kind, subtype);
        for (at, byte) in data {
            eqe[0x20 + at] = *byte;
        }
        Event { kind: EventKind::from_number(kind.into()), cookie: 7, eqe: Some(eqe) }
    }

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

    #[test]
    fn events_say_what_happened_to_what() {
        let completion = event(0, 0, &[(0x1a, 0x12), (0x1b, 0x34)]);
        assert_eq!((completion.queue(), completion.cq_syndrome()), (Some(0x1234), None));
        let overrun = event(4, 0, &[(3, 9), (11, 1)]);
        assert_eq!((overrun.queue(), overrun.cq_syndrome()), (Some(9), Some(1)));
        let access = event(0x11, 0, &[(0x1b, 0x4a)]);
        assert_eq!(
            access.to_string(),
            "queue 0x4a: WQ_ACCESS_ERROR, the responder refused a request for lack of rights"
        );
        let port = event(9, 4, &[(8, 0x10)]);
        assert_eq!((port.queue(), port.port()), (None, Some((1, PortChange::Active))));
        assert_eq!(port.to_string(), "port 1: Active");
        let bare = Event { eqe: None, ..access };
        assert_eq!((bare.queue(), bare.bytes()), (None, None));
        assert!(bare.to_string().starts_with("WQ_ACCESS_ERROR"));
    }
}
