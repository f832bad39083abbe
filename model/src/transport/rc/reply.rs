//! The responder's pending replies, in order: acknowledges, READ and atomic responses, and the
//! completions that must not be visible before them.

use super::super::{Outcome, Parameters, Psn};
use super::credits::{self, NOT_COUNTED};
use super::responder::{Refused, Responder};
use super::to_peer;
use crate::card::Card;
use crate::object::Service;
use crate::queue::{Access, Denied, Domain, LARGEST, QpEvent};
use crate::wire::{Acknowledge, Aeth, NakCode, Opcode, Reth};

/// The original value that an atomic found in memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Original {
    /// Eight bytes, as a number.
    Value(u64),
    /// So many bytes, in memory order, of an atomic under masks.
    Bytes([u8; LARGEST], usize),
}

/// A reply that is due. `messages` is the MSN it carries.
#[derive(Debug)]
pub(super) enum Reply {
    /// Everything up to this packet is executed.
    Ack { psn: Psn, messages: u32 },
    /// This packet is not.
    Nak { psn: Psn, syndrome: Acknowledge, messages: u32 },
    /// The response to a READ, `sent` of its packets so far. `again` for one that was executed
    /// before: it does not count against the depth that the peer has agreed to.
    Read {
        first: Psn,
        reth: Reth,
        domain: Domain,
        sent: u32,
        packets: u32,
        messages: u32,
        again: bool,
    },
    /// The response to an atomic.
    Atomic { psn: Psn, original: Original, messages: u32, again: bool },
    /// A completion or event.
    Outcome(Outcome),
}

impl Responder {
    /// Sends the replies that are due, at most `budget` packets.
    pub(super) fn reply(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        budget: &mut usize,
    ) -> Result<(), Refused> {
        // Acknowledges and completions say that all data is there. Connections of a target share its data
        // that waits, and do not wait for each other's.
        match own.service {
            Service::Dc if !self.replies.is_empty() => card.place(own.number),
            _ if card.has_waiting_data(own.number) => return Ok(()),
            _ => {}
        }
        while let Some(reply) = self.replies.front_mut() {
            if *budget == 0 && !matches!(reply, Reply::Outcome(_)) {
                break;
            }
            let mut done = true;
            match reply {
                Reply::Ack { psn, messages } => {
                    let syndrome = Acknowledge::Ack(credit(card, own));
                    send(card, own, Opcode::Acknowledge, *psn, syndrome, *messages, None);
                }
                Reply::Nak { psn, syndrome, messages } => {
                    send(card, own, Opcode::Acknowledge, *psn, *syndrome, *messages, None);
                }
                Reply::Atomic { psn, original, messages, .. } => {
                    let syndrome = Acknowledge::Ack(credit(card, own));
                    let opcode = match original {
                        Original::Value(_) => Opcode::AtomicAcknowledge,
                        Original::Bytes(..) => Opcode::MaskedAcknowledge,
                    };
                    send(card, own, opcode, *psn, syndrome, *messages, Some(*original));
                }
                Reply::Read { first, reth, domain, sent, packets, messages, .. } => {
                    let psn = first.plus(*sent);
                    let wanted = (*reth, *domain);
                    if !read_response(card, own, *first, wanted, (*sent, *packets), *messages) {
                        // The region went away while it was read.
                        self.replies.pop_front();
                        return Err(Refused {
                            psn,
                            code: NakCode::RemoteAccess,
                            receive: None,
                            event: QpEvent::AccessError,
                            denied: Some(Denied::Key),
                        });
                    }
                    *sent += 1;
                    done = sent == packets;
                }
                Reply::Outcome(_) => {
                    if let Some(Reply::Outcome(outcome)) = self.replies.pop_front() {
                        card.port.hold(outcome);
                    }
                    continue;
                }
            }
            *budget -= 1;
            if done {
                self.replies.pop_front();
            }
        }
        Ok(())
    }
}

/// The credit code for a queue pair: its posted receives. Those of shared receive queues are no
/// one connection's and are not counted.
fn credit(card: &Card, own: &Parameters) -> u8 {
    if own.shared_receive || own.service != Service::Rc {
        return NOT_COUNTED;
    }
    card.posted_receives(own.number).map_or(NOT_COUNTED, credits::code)
}

fn send(
    card: &mut Card,
    own: &Parameters,
    opcode: Opcode,
    psn: Psn,
    syndrome: Acknowledge,
    messages: u32,
    original: Option<Original>,
) {
    let mut header = to_peer(own, opcode, psn);
    header.aeth = Some(Aeth { syndrome, msn: messages });
    let frame = match original {
        Some(Original::Bytes(bytes, size)) => {
            let Ok(frame) = header.frame(size, |to| {
                to.copy_from_slice(&bytes[..size]);
                Ok::<_, std::convert::Infallible>(())
            });
            frame
        }
        Some(Original::Value(original)) => {
            header.original = Some(original);
            header.bare()
        }
        None => {
            let Ok(frame) =
                header.frame_in(card.spare(), 0, |_| Ok::<_, std::convert::Infallible>(()));
            frame
        }
    };
    card.respond(frame);
}

/// Sends packet `index` of the response to a READ; `false` if its memory is not there.
fn read_response(
    card: &mut Card,
    own: &Parameters,
    first: Psn,
    (reth, domain): (Reth, Domain),
    (index, packets): (u32, u32),
    messages: u32,
) -> bool {
    let opcode = match (index == 0, index + 1 == packets) {
        (true, true) => Opcode::ReadResponseOnly,
        (true, false) => Opcode::ReadResponseFirst,
        (false, false) => Opcode::ReadResponseMiddle,
        (false, true) => Opcode::ReadResponseLast,
    };
    let done = u64::from(index) * u64::from(own.mtu);
    let length = (u64::from(reth.length) - done).min(own.mtu.into()) as usize;
    let mut header = to_peer(own, opcode, first.plus(index));
    header.aeth = opcode
        .has_aeth()
        .then(|| Aeth { syndrome: Acknowledge::Ack(credit(card, own)), msn: messages });
    let address = reth.address.wrapping_add(done);
    let frame = header.frame_in(card.spare(), length, |to| match to.is_empty() {
        true => Ok(()),
        false => card.read_key(domain, reth.key, address, Access::RemoteRead, to),
    });
    match frame {
        Ok(frame) => {
            card.respond(frame);
            true
        }
        Err(denied) => {
            tracing::debug!(qp = own.number, ?denied, "cannot read for the peer");
            false
        }
    }
}
