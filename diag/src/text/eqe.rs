//! Entries of event queues as text.

use core::fmt;

use mlx5_sys::ifc::{comp_event, cq_error, eqe, event_type, port_state_change_event, qp_events};

use super::{EventKind, Hex};

/// An entry of an event queue: 64 bytes, as they lie in memory.
#[derive(Clone, Copy, Debug)]
pub struct Eqe<'a>(pub &'a [u8; eqe::SIZE]);

impl Eqe<'_> {
    /// Returns the kind of the event.
    pub fn kind(&self) -> EventKind {
        EventKind::from_number(eqe::EVENT_TYPE.get(self.0) as u16)
    }

    /// Returns the number of the queue that it is of: a CQ's of completions and CQ errors, else a
    /// queue pair's, receive queue's or target's. `None` of a port's events, and of kinds without a
    /// name.
    pub fn queue(&self) -> Option<u32> {
        let data = &self.0[eqe::EVENT_DATA.bytes()];
        let field = match eqe::EVENT_TYPE.get(self.0) as u8 {
            event_type::PORT_CHANGE | event_type::XRQ_ERROR => return None,
            _ if self.kind().name().is_none() => return None,
            event_type::COMP => comp_event::CQ_NUMBER,
            event_type::CQ_ERROR => cq_error::CQN,
            _ => qp_events::QPN_RQN_SQN,
        };
        Some(field.get(data) as u32)
    }
}

/// Returns the change of a port (`device.h`, `MLX5_PORT_CHANGE_SUBTYPE_*`).
fn port_change(subtype: u8) -> Option<&'static str> {
    Some(match subtype {
        1 => "down",
        4 => "active",
        5 => "initialized",
        6 => "its LID changed",
        7 => "its P_Keys changed",
        8 => "its GIDs changed",
        9 => "a client has to register again",
        _ => return None,
    })
}

impl fmt::Display for Eqe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subtype, owner) = (eqe::EVENT_SUB_TYPE.get(self.0), eqe::OWNER.get(self.0));
        let data = &self.0[eqe::EVENT_DATA.bytes()];
        let kind = self.kind();
        match kind.name() {
            Some(name) => write!(f, "EQE {name} owner {owner}")?,
            None => {
                return write!(
                    f,
                    "EQE type {:#04x} (unknown), subtype {subtype:#04x} owner {owner}: {}",
                    kind.number(),
                    Hex(data)
                );
            }
        }
        match (kind, self.queue()) {
            (EventKind::PortChange, _) => {
                write!(f, " port {}: ", port_state_change_event::PORT_NUM.get(data))?;
                match port_change(subtype as u8) {
                    Some(what) => f.write_str(what)?,
                    None => write!(f, "change {subtype:#04x} (unknown)")?,
                }
                return Ok(());
            }
            (EventKind::Completion, Some(queue)) => write!(f, " CQ {queue:#x}")?,
            (EventKind::CqError, Some(queue)) => {
                write!(f, " CQ {queue:#x}")?;
                // `device.h`, `mlx5_eqe_cq_err`: the syndromes are verbs' causes of a CQ error.
                match cq_error::SYNDROME.get(data) {
                    1 => f.write_str(", overrun")?,
                    2 => f.write_str(", its memory cannot be reached")?,
                    other => write!(f, ", syndrome {other:#x}")?,
                }
            }
            (_, Some(queue)) => write!(f, " queue {queue:#x}")?,
            (_, None) => {}
        }
        match kind.explanation() {
            Some(explanation) => write!(f, ": {explanation}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{any_input, entry_bytes};

    fn entry(kind: u8, subtype: u8, data: &[(usize, u8)]) -> [u8; 64] {
        let mut eqe = [0; 64];
        (eqe[1], eqe[3]) = (kind, subtype);
        for (at, byte) in data {
            eqe[0x20 + at] = *byte;
        }
        eqe
    }

    #[test]
    fn events_say_what_happened_to_what() {
        let mut eqe = entry(event_type::COMP, 0, &[(0x1a, 0x12), (0x1b, 0x34)]);
        assert_eq!(Eqe(&eqe).queue(), Some(0x1234));
        assert_eq!(
            Eqe(&eqe).to_string(),
            "EQE COMP owner 0 CQ 0x1234: an armed completion queue has completions"
        );
        eqe[63] = 1;
        assert!(Eqe(&eqe).to_string().starts_with("EQE COMP owner 1"));
        let eqe = entry(event_type::CQ_ERROR, 0, &[(3, 9), (11, 1)]);
        assert!(Eqe(&eqe).to_string().contains("CQ 0x9, overrun: "), "{}", Eqe(&eqe));
        let eqe = entry(event_type::WQ_ACCESS_ERROR, 0, &[(0x1b, 0x4a)]);
        assert!(
            Eqe(&eqe).to_string().contains("WQ_ACCESS_ERROR owner 0 queue 0x4a: the responder")
        );
        let eqe = entry(event_type::PORT_CHANGE, 4, &[(8, 0x10)]);
        assert_eq!(Eqe(&eqe).to_string(), "EQE PORT_CHANGE owner 0 port 1: active");
        assert_eq!(Eqe(&eqe).queue(), None);
        let eqe = entry(0x27, 2, &[(0, 0xab)]);
        assert!(
            Eqe(&eqe).to_string().contains("type 0x27 (unknown), subtype 0x02 owner 0: ab000000")
        );
    }

    #[test]
    fn prints_any_bytes() {
        any_input(entry_bytes(), |raw| assert!(Eqe(&raw).to_string().starts_with("EQE ")));
    }
}
