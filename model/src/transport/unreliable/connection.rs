//! Reassembly of an unreliable connection's messages. If a packet of a message is missing, the
//! whole message is dropped, and the next first packet starts a new one (IBA 1.3, 9.8.2.2).

use mlx5_sys::ifc::query_q_counter_out as counter;

use super::super::receive::{
    Write, WriteError, check_room, deliver, establish, fits, operation, received, rides_in_cqe,
};
use super::super::{Parameters, Psn};
use super::Failure;
use crate::card::Card;
use crate::cost::Detour;
use crate::queue::{Opcode as Received, ReceiveWqe, Taken};
use crate::wire::Header;
use crate::work::Reason;

/// A message that has arrived in part.
#[derive(Clone, Copy, Debug, Default)]
enum Incoming {
    /// None, or one that is being dropped.
    #[default]
    Idle,
    /// The bytes of a SEND that have arrived.
    Send(u64),
    /// A WRITE.
    Write(Write),
}

/// Receiving side of a connection.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// Whether it has been in RTR.
    pub(super) started: bool,
    /// PSN of the next packet.
    pub(super) expected: Psn,
    incoming: Incoming,
    /// The receive in use. That of a message that is dropped is the next one's.
    receive: Option<ReceiveWqe>,
    /// Whether the first packet has been announced.
    established: bool,
}

impl Receiver {
    pub(super) fn start(&mut self, own: &Parameters) {
        *self = Self { started: true, expected: Psn::new(own.receive_psn), ..Self::default() };
    }

    /// Gives up the receive in use.
    pub(super) fn take(&mut self) -> Option<Taken> {
        self.incoming = Incoming::Idle;
        self.receive.take().map(|wqe| wqe.taken())
    }

    /// A packet of the peer.
    pub(super) fn receive(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Failure> {
        if let Some(event) = establish(card, own.number, &mut self.established) {
            card.port.hold(event);
        }
        let psn = Psn::new(header.psn);
        let opcode = header.opcode;
        let incoming = std::mem::take(&mut self.incoming);
        let continues = match incoming {
            Incoming::Idle => false,
            Incoming::Send(_) => opcode.is_send() && psn == self.expected,
            Incoming::Write(_) => opcode.is_write() && psn == self.expected,
        };
        let fits = fits(own, header, payload);
        if !fits {
            card.explain(own.number, &Reason::Unfit { length: payload.len(), mtu: own.mtu });
        }
        // Packets that follow a lost one are dropped with it.
        if !(opcode.starts() || continues) || !fits {
            return Ok(());
        }
        if psn != self.expected {
            card.port.pace.detour(Detour::Jump);
        }
        self.expected = psn.plus(1);
        if opcode.is_write() && opcode.starts() {
            card.count(own.number, counter::RX_WRITE_REQUESTS);
        }
        let incoming = if opcode.starts() { Incoming::Idle } else { incoming };
        if opcode.is_send() {
            self.send(card, own, header, payload, incoming)
        } else {
            self.write(card, own, header, payload, incoming)
        }
    }

    /// Makes sure that there is a receive; `false` if none is posted.
    fn provide(&mut self, card: &mut Card, own: &Parameters) -> Result<bool, Failure> {
        if self.receive.is_none() {
            self.receive = card.take_receive(own.number).map_err(|_| {
                card.explain(own.number, &Reason::UnreadableReceive);
                Failure::Queue
            })?;
            if self.receive.is_none() {
                card.count(own.number, counter::OUT_OF_BUFFER);
                card.explain(own.number, &Reason::NoReceive);
            }
        }
        Ok(self.receive.is_some())
    }

    fn send(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
        incoming: Incoming,
    ) -> Result<(), Failure> {
        let done = match incoming {
            Incoming::Send(done) => done,
            _ => 0,
        };
        if !self.provide(card, own)? {
            return Ok(());
        }
        let Some(wqe) = self.receive.take() else { return Ok(()) };
        let total = done + payload.len() as u64;
        let inline = rides_in_cqe(card, own.number, header, payload);
        check_room(card, &wqe, total, 0)
            .and_then(|()| if inline { Ok(()) } else { deliver(card, &wqe, done, payload) })
            .map_err(|syndrome| Failure::Receive(wqe.taken(), syndrome))?;
        if header.opcode.ends() {
            let mut held = received(own, header, operation(header), wqe.taken(), total as u32);
            held.inline = inline.then(|| payload.to_vec());
            card.port.hold(held);
        } else {
            self.receive = Some(wqe);
            self.incoming = Incoming::Send(total);
        }
        Ok(())
    }

    fn write(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
        incoming: Incoming,
    ) -> Result<(), Failure> {
        let begun = match (header.reth, incoming) {
            (Some(reth), _) => Write::start(card, own, own.domain(), reth),
            (None, Incoming::Write(write)) => Ok(write),
            _ => return Ok(()),
        };
        let write = match begun.and_then(|write| write.with(header, payload)) {
            Ok(write) => write,
            Err(WriteError::Invalid(reason)) => {
                card.explain(own.number, &reason);
                return Ok(());
            }
            // Its reason was told with the key.
            Err(WriteError::Denied(_)) => return Ok(()),
        };
        if header.immediate.is_some() && !self.provide(card, own)? {
            return Ok(());
        }
        if write.put(card, own.domain(), payload).is_err() {
            return Ok(());
        }
        match write.complete() {
            None => self.incoming = Incoming::Write(write),
            Some(length) if header.immediate.is_some() => {
                if let Some(wqe) = self.receive.take() {
                    let kind = Received::WriteImmediate;
                    let held = received(own, header, kind, wqe.taken(), length);
                    card.port.hold(held);
                }
            }
            Some(_) => {}
        }
        Ok(())
    }
}
