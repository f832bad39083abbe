//! Reassembly of an unreliable connection's messages. If a packet of a message is missing, the
//! whole message is dropped, and the next first packet starts a new one (IBA 1.3, 9.8.2.2).

use mlx5_sys::ifc::query_q_counter_out as counter;

use super::super::{Outcome, Parameters, Psn};
use super::{Failure, kind, received};
use crate::card::Card;
use crate::object::State;
use crate::queue::{Access, Data, Opcode as Received, QpEvent, ReceiveWqe, Syndrome};
use crate::wire::{Header, Reth};

/// Longest message of the transport.
const LONGEST: u32 = 1 << 31;

/// A message that has arrived in part.
#[derive(Clone, Copy, Debug, Default)]
enum Incoming {
    /// None, or one that is being dropped.
    #[default]
    Idle,
    /// The bytes of a SEND that have arrived.
    Send(u64),
    /// A WRITE of which so many bytes are there.
    Write(Reth, u32),
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

    /// Gives up the receive in use: its counter.
    pub(super) fn take(&mut self) -> Option<u16> {
        self.incoming = Incoming::Idle;
        self.receive.take().map(|wqe| wqe.index)
    }

    /// A packet of the peer.
    pub(super) fn receive(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Failure> {
        if !self.established {
            self.established = true;
            if card.objects.qps.get(&own.number).is_some_and(|qp| qp.state == State::Rtr) {
                let event = QpEvent::CommunicationEstablished;
                card.port.hold(Outcome::Event(own.number, event));
            }
        }
        let psn = Psn::new(header.psn);
        let opcode = header.opcode;
        let incoming = std::mem::take(&mut self.incoming);
        let continues = match incoming {
            Incoming::Idle => false,
            Incoming::Send(_) => opcode.is_send() && psn == self.expected,
            Incoming::Write(..) => opcode.is_write() && psn == self.expected,
        };
        let mtu = own.mtu as usize;
        let fits = match (opcode.starts(), opcode.ends()) {
            (_, false) => payload.len() == mtu,
            (true, true) => payload.len() <= mtu,
            (false, true) => (1..=mtu).contains(&payload.len()),
        };
        if !(opcode.starts() || continues) || !fits {
            tracing::debug!(qp = own.number, ?header, "a message is dropped");
            return Ok(());
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
            self.receive = card.take_receive(own.number).map_err(|_| Failure::Queue)?;
            if self.receive.is_none() {
                card.count(own.number, counter::OUT_OF_BUFFER);
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
        let room: u64 = wqe.data.iter().map(Data::len).sum();
        if total > room || total > LONGEST.into() {
            return Err(Failure::Receive(wqe.index, Syndrome::LocalLength));
        }
        let whole = header.opcode.starts() && header.opcode.ends();
        let inline =
            whole && !payload.is_empty() && payload.len() <= card.inline_room(own.number, false);
        if !inline {
            if let Err(denied) = card.scatter(wqe.domain, &wqe.data, done, payload) {
                tracing::debug!(qp = own.number, ?denied, "cannot scatter");
                return Err(Failure::Receive(wqe.index, Syndrome::LocalProtection));
            }
        }
        if header.opcode.ends() {
            let mut held = received(own, header, kind(header), wqe.index, total as u32);
            held.inline = inline.then(|| payload.to_vec());
            card.port.hold(Outcome::Completion(held));
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
        let (reth, done) = match (header.reth, incoming) {
            (Some(reth), _) => {
                let length = reth.length.into();
                let checked =
                    card.check(own.domain(), reth.key, reth.address, length, Access::RemoteWrite);
                if !own.remote_write || reth.length > LONGEST || checked.is_err() {
                    tracing::debug!(qp = own.number, ?reth, ?checked, "a WRITE is dropped");
                    return Ok(());
                }
                (reth, 0)
            }
            (None, Incoming::Write(reth, done)) => (reth, done),
            _ => return Ok(()),
        };
        let total = u64::from(done) + payload.len() as u64;
        let complete = total == u64::from(reth.length);
        if total > reth.length.into() || complete != header.opcode.ends() {
            return Ok(());
        }
        if header.immediate.is_some() && !self.provide(card, own)? {
            return Ok(());
        }
        let address = reth.address.wrapping_add(done.into());
        if let Err(denied) =
            card.write_key(own.domain(), reth.key, address, Access::RemoteWrite, payload)
        {
            tracing::debug!(qp = own.number, ?denied, "a WRITE is dropped");
            return Ok(());
        }
        if !complete {
            self.incoming = Incoming::Write(reth, total as u32);
        } else if header.immediate.is_some() {
            if let Some(wqe) = self.receive.take() {
                let kind = Received::WriteImmediate;
                let held = received(own, header, kind, wqe.index, reth.length);
                card.port.hold(Outcome::Completion(held));
            }
        }
        Ok(())
    }
}
