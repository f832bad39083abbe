//! Messages that their receiver fetches: a READ for each, and a SEND that tells its sender of the end.
//! No WQE asks for them, and no CQE of the send queue reports them.

use super::super::{Held, Outcome, Parameters};
use super::requester::{Kind, Request, Requester};
use crate::card::Card;
use crate::queue::{
    Data, Domain, Fence, HEADER, Remote, Rendezvous, SendWqe, Signal, TagEvent, Tagged,
};

/// What a request that no WQE asked for is of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fetched {
    /// The READ of a message for this entry, and what its keys are checked against.
    Message(Tagged, Domain),
    /// The SEND that ends it.
    End,
}

impl Fetched {
    /// It is done: the message is there.
    pub(super) fn done(self, card: &mut Card, qp: u32, length: u32) {
        if let Self::Message(tagged, _) = self {
            let tagged = Tagged { event: TagEvent::Expected, start: [0; HEADER], ..tagged };
            let held = Held { length, ..Held::tagged(qp, tagged) };
            card.port.hold(Outcome::Completion(held));
        }
    }

    /// It failed, or will not be done any more.
    pub(super) fn canceled(self, card: &mut Card, qp: u32) {
        if let Self::Message(tagged, _) = self {
            let tagged = Tagged { event: TagEvent::Canceled, start: [0; HEADER], ..tagged };
            card.port.hold(Outcome::Completion(Held::tagged(qp, tagged)));
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
            ..SendWqe::bare(0, 0x10, Signal::OnError)
        };
        self.push(own, read, Kind::Read, length.into(), message);
        let answer = rendezvous.answer();
        let length = answer.len() as u64;
        let end = SendWqe {
            data: vec![Data::Inline(answer)],
            fence: Fence::Full,
            ..SendWqe::bare(0, 0x0a, Signal::OnError)
        };
        self.push(own, end, Kind::Send { immediate: false }, length, Fetched::End);
    }

    fn push(&mut self, own: &Parameters, wqe: SendWqe, kind: Kind, length: u64, fetched: Fetched) {
        let (first, packets) = (self.next, own.packets(length));
        self.next = first.plus(packets);
        self.messages = (self.messages + 1) & 0xff_ffff;
        self.requests.push_back(Request {
            wqe,
            kind,
            first,
            packets,
            length,
            answered: 0,
            inline: None,
            fetched: Some(fetched),
        });
    }
}
