//! Receiving messages: what every service does with SENDs and WRITEs.

use super::{Completion, Outcome, Parameters};
use crate::card::Card;
use crate::object::State;
use crate::queue::{
    Access, Data, Denied, Domain, Opcode as Received, Protection, QpEvent, ReceiveWqe, Syndrome,
    Taken,
};
use crate::wire::{Header, Reth, Route};
use crate::work::Reason;

/// Longest message of the transport.
pub(super) const LONGEST: u32 = 1 << 31;

/// Returns whether a packet of a message has a length that its opcode allows: all but the last are
/// full, and only a message of one packet may be empty.
pub(super) fn fits(own: &Parameters, header: &Header, payload: &[u8]) -> bool {
    let mtu = own.mtu as usize;
    match (header.opcode.starts(), header.opcode.ends()) {
        (_, false) => payload.len() == mtu,
        (true, true) => payload.len() <= mtu,
        (false, true) => (1..=mtu).contains(&payload.len()),
    }
}

/// Returns the event that the first packet of the peer causes before the queue pair is in RTS.
/// `established` notes that it has arrived.
pub(super) fn establish(card: &Card, qp: u32, established: &mut bool) -> Option<Outcome> {
    let first = !std::mem::replace(established, true);
    let waits = card.objects.qps.get(&qp).is_some_and(|qp| qp.state == State::Rtr);
    (first && waits).then_some(Outcome::Event(qp, QpEvent::CommunicationEstablished))
}

/// Checks that the bytes of a message so far fit into its receive, behind those of a header.
pub(super) fn check_room(
    card: &Card,
    wqe: &ReceiveWqe,
    length: u64,
    header: u64,
) -> Result<(), Syndrome> {
    let room: u64 = wqe.data.iter().map(Data::len).sum();
    let length = length + header;
    if length > room || length > LONGEST.into() {
        let has_header = header > 0;
        card.explain(wqe.domain.qp, &Reason::ShortReceive { length, room, has_header });
        return Err(Syndrome::LocalLength);
    }
    Ok(())
}

/// Writes bytes to the memory of a receive, `offset` bytes into it.
pub(super) fn put(
    card: &Card,
    wqe: &ReceiveWqe,
    offset: u64,
    bytes: &[u8],
) -> Result<(), Syndrome> {
    card.scatter(wqe.domain, &wqe.data, offset, bytes).map_err(unscattered)
}

/// Writes bytes of a connection's message, as [`put`] does. They are visible before the completion of
/// the receive, and possibly not earlier.
pub(super) fn deliver(
    card: &mut Card,
    wqe: &ReceiveWqe,
    offset: u64,
    bytes: &[u8],
) -> Result<(), Syndrome> {
    card.deliver_list(wqe.domain, &wqe.data, offset, bytes).map_err(unscattered)
}

fn unscattered(denied: Denied) -> Syndrome {
    Syndrome::LocalProtection(Protection::Scatter(denied))
}

/// Returns whether the CQE carries the payload of a SEND itself: the whole message is in this
/// packet, and small enough.
pub(super) fn rides_in_cqe(card: &Card, qp: u32, header: &Header, payload: &[u8]) -> bool {
    let whole = header.opcode.starts() && header.opcode.ends();
    whole && !payload.is_empty() && payload.len() <= card.inline_room(qp, false)
}

/// Returns the operation that the completion of a SEND reports.
pub(super) fn operation(header: &Header) -> Received {
    match header.immediate {
        None => Received::Send,
        Some(_) if header.opcode.invalidates() => Received::SendInvalidate,
        Some(_) => Received::SendImmediate,
    }
}

/// Returns the completion of a receive, whose message ends with this packet.
pub(super) fn received(
    own: &Parameters,
    header: &Header,
    operation: Received,
    taken: Taken,
    length: u32,
) -> Completion {
    let source = match header.route {
        Route::InfiniBand { level, source, .. } => (source, level),
        Route::Ethernet { .. } => (0, 0),
    };
    Completion {
        length,
        immediate: header.immediate.unwrap_or_default(),
        solicited: header.solicited,
        source,
        // A DCT has no single peer that its context could name.
        sender: header.dynamic.map(|dynamic| (dynamic.source, header.route.is_global())),
        ..Completion::received(own.number, operation, taken, Ok(()))
    }
}

/// Returns the completion of a receive that is flushed.
pub(super) fn flushed(qp: u32, taken: Taken) -> Completion {
    Completion::received(qp, Received::Send, taken, Err(Syndrome::FLUSHED))
}

/// Why a WRITE is not executed.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The queue pair takes no such request.
    Invalid(Reason),
    /// The key does not allow it.
    Denied(Denied),
}

/// A WRITE that has arrived in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// Its destination.
    reth: Reth,
    /// Bytes that have arrived.
    received: u32,
}

impl Write {
    /// Starts with the first packet. Only its own bytes are checked: packets within the region are
    /// executed, also where the message leads out of it (measured on ConnectX-5 and -6, evidence E097).
    pub fn start(
        card: &Card,
        own: &Parameters,
        domain: Domain,
        reth: Reth,
    ) -> Result<Self, WriteError> {
        if !own.remote_write {
            return Err(WriteError::Invalid(Reason::NoWrites));
        }
        if reth.length > LONGEST {
            return Err(WriteError::Invalid(Reason::Length(reth.length.into())));
        }
        let first = reth.length.min(own.mtu);
        card.check(domain, reth.key, reth.address, first.into(), Access::RemoteWrite)
            .map_err(WriteError::Denied)?;
        Ok(Self { reth, received: 0 })
    }

    /// Returns the key that it names.
    pub fn key(&self) -> u32 {
        self.reth.key
    }

    /// Returns the message with a further packet, which must end it where its announced length is
    /// reached.
    pub fn with(self, header: &Header, payload: &[u8]) -> Result<Self, WriteError> {
        let total = u64::from(self.received) + payload.len() as u64;
        let complete = total == u64::from(self.reth.length);
        if total > self.reth.length.into() || complete != header.opcode.ends() {
            return Err(WriteError::Invalid(Reason::Length(total)));
        }
        Ok(Self { received: total as u32, ..self })
    }

    /// Writes the payload of the packet that the message ends with so far.
    pub fn put(&self, card: &mut Card, domain: Domain, payload: &[u8]) -> Result<(), Denied> {
        let done = u64::from(self.received) - payload.len() as u64;
        let address = self.reth.address.wrapping_add(done);
        card.deliver_key(domain, self.reth.key, address, Access::RemoteWrite, payload)
    }

    /// Returns the bytes of the message, if all have arrived.
    pub fn complete(&self) -> Option<u32> {
        (self.received == self.reth.length).then_some(self.reth.length)
    }
}
