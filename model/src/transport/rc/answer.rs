//! Packets that return to the requester: acknowledges, READ and atomic responses, NAKs.

use mlx5_sys::ifc::query_q_counter_out as counter;

use super::super::{Parameters, Psn};
use super::rendezvous::Fetched;
use super::requester::{Kind, Requester};
use crate::card::Card;
use crate::cost::Detour;
use crate::queue::{Protection, Syndrome};
use crate::wire::{Acknowledge, Aeth, Header, NakCode, Opcode};

/// How far an acknowledge reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// As far as it says.
    All,
    /// Up to a READ or atomic whose answer was lost.
    Skipped,
}

impl Requester {
    /// A response packet. An error is the oldest request's.
    pub(super) fn answer(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
        now: u64,
    ) -> Result<(), Syndrome> {
        let psn = Psn::new(header.psn);
        // What was not sent cannot be answered; what is answered needs no second answer.
        if psn.after(self.unacknowledged) >= self.high.after(self.unacknowledged) {
            // Later the numbers have come round, and an answer to an old packet may look like that.
            let first = Psn::new(own.send_psn);
            if self.unacknowledged == first && psn.after(first) >= self.high.after(first) {
                self.foreign = Some(psn);
            }
            return Ok(());
        }
        let before = self.unacknowledged;
        let syndrome = header.aeth.map(|aeth| aeth.syndrome);
        if let Some(Aeth { syndrome: Acknowledge::Ack(code), msn }) = header.aeth {
            self.credit.update(msn, code);
        }
        let reach = match (header.opcode, syndrome) {
            (Opcode::Acknowledge, Some(Acknowledge::Ack(_))) => self.acknowledge(card, own, psn),
            (Opcode::Acknowledge, Some(_)) => self.acknowledge(card, own, psn.previous()),
            (Opcode::ReadResponseMiddle, None) | (_, Some(Acknowledge::Ack(_))) => {
                self.fetched(card, own, header, payload)?
            }
            _ => return Err(Syndrome::BadResponse),
        };
        if self.unacknowledged != before {
            self.progress(own, now);
        }
        if reach == Reach::Skipped {
            if self.retry_once()? {
                card.count(own.number, counter::IMPLIED_NAK_SEQ_ERR);
            }
            return Ok(());
        }
        match syndrome {
            Some(Acknowledge::Rnr(timer)) => self.not_ready(card, own, timer, now),
            Some(Acknowledge::Nak(NakCode::Sequence)) => {
                if self.retry_once()? {
                    card.port.pace.detour(Detour::Repetition);
                }
                card.count(own.number, counter::PACKET_SEQ_ERR);
                Ok(())
            }
            Some(Acknowledge::Nak(code)) => {
                self.refused = true;
                Err(match code {
                    NakCode::RemoteAccess => Syndrome::RemoteAccess,
                    NakCode::RemoteOperation => Syndrome::RemoteOperation,
                    NakCode::InvalidRequest | NakCode::Sequence => Syndrome::RemoteInvalidRequest,
                })
            }
            Some(Acknowledge::Ack(_)) | None => Ok(()),
        }
    }

    /// Everything up to and including `upto` has arrived at the peer.
    fn acknowledge(&mut self, card: &mut Card, own: &Parameters, upto: Psn) -> Reach {
        while let Some(front) = self.requests.front() {
            match front.kind {
                Kind::Nop => {}
                // Reached only when everything before it is done; its turn comes with the next
                // packet to send.
                Kind::Failed(_) | Kind::Umr | Kind::Local => break,
                _ if upto.since(front.first) < 0 => break,
                Kind::Read if front.answered > 0 && upto == self.unacknowledged.previous() => break,
                kind if kind.is_fetch() => return Reach::Skipped,
                _ if upto.since(front.last()) < 0 => {
                    let end = upto.plus(1);
                    if end.since(self.unacknowledged) > 0 {
                        self.acknowledge_partly(end);
                    }
                    break;
                }
                _ => {}
            }
            self.retire(card, own);
        }
        Reach::All
    }

    /// The answer to a READ or an atomic. Everything before it is acknowledged with it.
    fn fetched(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
    ) -> Result<Reach, Syndrome> {
        let psn = Psn::new(header.psn);
        while let Some(front) = self.requests.front() {
            let past = front.packets == 0 || psn.since(front.last()) > 0;
            match front.kind {
                Kind::Failed(_) | Kind::Umr | Kind::Local => return Ok(Reach::All),
                kind if kind.is_fetch() && past => return Ok(Reach::Skipped),
                _ if past => self.retire(card, own),
                _ => break,
            }
        }
        let Some(request) = self.requests.front_mut() else { return Ok(Reach::All) };
        let ahead = psn.after(request.first);
        let original = match request.kind {
            Kind::Read
                if !matches!(
                    header.opcode,
                    Opcode::AtomicAcknowledge | Opcode::MaskedAcknowledge
                ) =>
            {
                None
            }
            // As long as the request, which is checked below as of a READ.
            Kind::Masked { .. } if header.opcode == Opcode::MaskedAcknowledge => None,
            Kind::CompareSwap | Kind::FetchAdd if header.opcode == Opcode::AtomicAcknowledge => {
                Some(header.original.unwrap_or(0).to_le_bytes())
            }
            _ => return Err(Syndrome::BadResponse),
        };
        if ahead > request.answered {
            return Ok(Reach::Skipped);
        }
        if ahead < request.answered {
            return Ok(Reach::All);
        }
        let done = u64::from(request.answered) * u64::from(own.mtu);
        let bytes = match &original {
            Some(original) => &original[..],
            None => {
                let expected = (request.length - done).min(own.mtu.into());
                let ends = request.answered + 1 == request.packets;
                // A first packet answers a request for the rest. A middle packet may be of the request
                // before it.
                let starts = header.opcode.starts();
                let in_order = match request.answered {
                    0 => starts,
                    answered => !starts || answered == request.asked,
                };
                if payload.len() as u64 != expected || header.opcode.ends() != ends || !in_order {
                    return Err(Syndrome::BadResponse);
                }
                payload
            }
        };
        let domain = match request.fetched {
            Some(Fetched::Message(_, domain)) => domain,
            _ => own.domain(),
        };
        if let Some(inline) = &mut request.inline {
            inline.extend_from_slice(bytes);
        } else if !bytes.is_empty() {
            // Memory that is too short for an atomic's answer takes its first bytes.
            let room = bytes.len().min(request.wqe.length() as usize);
            let bytes = if original.is_some() { &bytes[..room] } else { bytes };
            if let Err(denied) = card.deliver_list(domain, &request.wqe.data, done, bytes) {
                return Err(Syndrome::LocalProtection(Protection::Scatter(denied)));
            }
        }
        request.answered += 1;
        let whole = request.answered == request.packets;
        self.unacknowledged = psn.plus(1);
        if whole {
            self.retire(card, own);
            self.retire_idle(card, own);
        }
        Ok(Reach::All)
    }
}
