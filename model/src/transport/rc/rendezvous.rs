//! Tagged messages, and rendezvous: for each rendezvous message the receiver issues a READ to fetch
//! it, and a SEND that tells the sender of the end. No WQE requests these, and no CQE of the send
//! queue reports them.

use mlx5_sys::ifc::query_q_counter_out;
use mlx5_sys::wqe::opcode;

use super::super::{Completion, Parameters, Psn};
use super::requester::{Kind, Request, Requester};
use super::responder::{Refused, Responder};
use crate::card::Card;
use crate::queue::{
    Data, Domain, Fence, HEADER, Met, QpEvent, ReceiveWqe, Remote, Rendezvous, SendWqe, Signal,
    Syndrome, TagEvent, Tagged,
};
use crate::wire::{Acknowledge, Header, NakCode};
use crate::work::Reason;

/// The purpose of a request without a WQE.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fetched {
    /// The READ of a message for this entry, and the domain that its keys are checked against.
    Message(Tagged, Domain),
    /// The SEND that ends it.
    End,
}

impl Fetched {
    /// It is done: the message is there.
    pub(super) fn done(self, card: &mut Card, qp: u32, length: u32) {
        if let Self::Message(tagged, _) = self {
            let tagged = Tagged { event: TagEvent::Expected, start: [0; HEADER], ..tagged };
            let held = Completion { length, ..Completion::tagged(qp, tagged) };
            card.port.hold(held);
        }
    }

    /// It failed, or will not be done any more.
    pub(super) fn canceled(self, card: &mut Card, qp: u32) {
        if let Self::Message(tagged, _) = self {
            let tagged = Tagged { event: TagEvent::Canceled, start: [0; HEADER], ..tagged };
            card.port.hold(Completion::tagged(qp, tagged));
        }
    }
}

impl Requester {
    /// Puts the requests for a message behind all others.
    pub(super) fn fetch_message(&mut self, own: &Parameters, rendezvous: &Rendezvous) {
        let (address, key, length) = rendezvous.from;
        let message = Fetched::Message(rendezvous.tagged, rendezvous.domain);
        let read = SendWqe {
            remote: Some(Remote { address, key }),
            data: rendezvous.data.clone(),
            ..SendWqe::bare(0, opcode::RDMA_READ, Signal::OnError)
        };
        self.push(own, read, Kind::Read, length.into(), message);
        let answer = rendezvous.answer();
        let length = answer.len() as u64;
        let end = SendWqe {
            data: vec![Data::Inline(answer)],
            fence: Fence::Full,
            ..SendWqe::bare(0, opcode::SEND, Signal::OnError)
        };
        self.push(own, end, Kind::Send { immediate: false }, length, Fetched::End);
    }

    fn push(&mut self, own: &Parameters, wqe: SendWqe, kind: Kind, length: u64, fetched: Fetched) {
        let (first, packets) = (self.next, own.packets(length));
        self.next = first.plus(packets);
        let ssn = self.number(packets);
        self.requests.push_back(Request {
            wqe,
            kind,
            first,
            packets,
            length,
            answered: 0,
            inline: None,
            asked: 0,
            fetched: Some(fetched),
            copied: 0,
            ssn,
        });
    }
}

impl Responder {
    /// Takes an entry or a receive for a message that may have a tag. `None` if the peer got an RNR
    /// NAK, or the message is fetched.
    pub(super) fn meet(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
    ) -> Result<Option<(ReceiveWqe, Tagged)>, Refused> {
        match card.meet_tag(own.number, payload) {
            Ok(Met::Receive(wqe, tagged)) => Ok(Some((wqe, tagged))),
            Ok(Met::Rendezvous(rendezvous)) => {
                // A message whose data is fetched has one packet.
                if !header.opcode.ends() {
                    let reason = Reason::Unfit { length: payload.len(), mtu: own.mtu };
                    return Err(self.invalid(card, header, &reason));
                }
                self.accept(header, 1);
                self.acknowledge(Psn::new(header.psn));
                let held = Completion {
                    length: rendezvous.from.2,
                    ..Completion::tagged(own.number, rendezvous.tagged)
                };
                self.owe(held);
                self.fetches.push_back(rendezvous);
                Ok(None)
            }
            Ok(Met::Nothing) => {
                card.count(own.number, query_q_counter_out::OUT_OF_BUFFER);
                self.told = true;
                self.nak(self.expected, Acknowledge::Rnr(own.rnr_timer));
                Ok(None)
            }
            Err(Syndrome::LocalLength) => {
                Err(self.invalid(card, header, &Reason::Length(payload.len() as u64)))
            }
            Err(_) => Err(self.refused(header, NakCode::RemoteOperation, QpEvent::Catastrophic)),
        }
    }
}
