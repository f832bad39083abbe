//! Executing the peer's requests: sequence, checks, execution.

use std::collections::VecDeque;

use mlx5_sys::ifc::{Field, query_q_counter_out as counter};

use super::super::receive::{
    LONGEST, Write, WriteError, check_room, deliver, establish, fits, operation, received,
    rides_in_cqe,
};
use super::super::{Completion, Outcome, Parameters, Psn};
use super::delayed::Delayed;
use super::reply::{Original, Reply};
use crate::card::Card;
use crate::cost::Detour;
use crate::queue::{
    Access, Denied, Domain, HEADER, Opcode as Received, QpEvent, ReceiveWqe, Rendezvous, Syndrome,
    TagEvent, Tagged, Taken,
};
use crate::wire::{Acknowledge, AtomicEth, Header, NakCode, Opcode, Reth};
use crate::work::Reason;

/// The message whose first packets have arrived.
#[derive(Debug, Default)]
pub(super) enum Incoming {
    /// None.
    #[default]
    Idle,
    /// A SEND into a receive WQE.
    Send {
        /// The receive WQE.
        wqe: ReceiveWqe,
        /// Bytes that have arrived, without the matched tag header.
        received: u64,
        /// The tag event for its completion.
        tagged: Option<Tagged>,
    },
    /// A WRITE.
    Write(Write),
}

/// The reason for refusing a request permanently.
#[derive(Debug)]
pub(super) struct Refused {
    /// PSN of the packet.
    pub(super) psn: Psn,
    /// The NAK code for the peer.
    pub(super) code: NakCode,
    /// The receive that was in use, and its error.
    pub(super) receive: Option<(Taken, Syndrome)>,
    /// The event for software if no receive reports the error.
    pub(super) event: QpEvent,
    /// Why the memory that it names was not to be accessed.
    pub(super) denied: Option<Denied>,
}

impl Refused {
    /// Bytes 52 to 55 of an error CQE for it, which the queue pair's context shows.
    pub(super) fn codes(&self) -> [u8; 4] {
        match (self.denied, &self.receive) {
            (Some(denied), _) => denied.codes(),
            (None, Some((_, syndrome))) => syndrome.codes(),
            (None, None) => match self.code {
                NakCode::RemoteAccess => Syndrome::RemoteAccess.codes(),
                NakCode::RemoteOperation => Syndrome::RemoteOperation.codes(),
                _ => Syndrome::RemoteInvalidRequest.codes(),
            },
        }
    }
}

/// Responder side of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// Whether the queue pair has been in RTR.
    pub(super) started: bool,
    /// PSN of the next new packet.
    pub(super) expected: Psn,
    /// Messages executed.
    pub(super) messages: u32,
    pub(super) incoming: Incoming,
    /// Messages to fetch.
    pub(super) fetches: VecDeque<Rendezvous>,
    /// Whether the peer got a NAK that makes it go back. Until it does, other packets get no
    /// further NAK.
    pub(super) told: bool,
    /// Whether the first packet has been announced.
    established: bool,
    /// Replies to the peer, and completions and events for software, in order.
    pub(super) replies: VecDeque<Reply>,
    /// The last PSN of the newest READ or atomic executed.
    last_fetch: Option<Psn>,
    /// Original values of the last atomics, for a peer that lost the answer.
    pub(super) saved: VecDeque<(Psn, Original)>,
    /// The request that is refused later.
    pub(super) delayed: Option<Delayed>,
}

/// Returns the counter for requests of a kind, by their first packet.
pub(in super::super) fn counted(opcode: Opcode) -> Option<Field> {
    match opcode {
        Opcode::ReadRequest => Some(counter::RX_READ_REQUESTS),
        _ if opcode.has_atomic() || opcode.has_masked() => Some(counter::RX_ATOMIC_REQUESTS),
        _ if opcode.is_write() && opcode.starts() => Some(counter::RX_WRITE_REQUESTS),
        _ => None,
    }
}

/// Whether the queue pair grants requests of a kind.
fn grants(own: &Parameters, opcode: Opcode) -> bool {
    match opcode {
        Opcode::ReadRequest => own.remote_read,
        _ if opcode.has_atomic() || opcode.has_masked() => own.atomic_sizes != 0,
        _ => !opcode.is_write() || own.remote_write,
    }
}

impl Responder {
    pub(super) fn start(&mut self, own: &Parameters) {
        *self = Self { started: true, expected: Psn::new(own.receive_psn), ..Self::default() };
    }

    /// Starts on a dynamic connection. Its first packet is not reported to software.
    pub(super) fn open(&mut self, own: &Parameters) {
        self.start(own);
        self.established = true;
    }

    /// Takes the completions and events for software, and drops the replies to the peer.
    pub(super) fn outcomes(&mut self) -> impl Iterator<Item = Outcome> {
        std::mem::take(&mut self.replies).into_iter().filter_map(|reply| match reply {
            Reply::Outcome(outcome) => Some(outcome),
            _ => None,
        })
    }

    /// Queues a NAK to the peer, and for software the error of the receive that was in use.
    pub(super) fn refuse_connection(&mut self, qp: u32, refused: Refused) {
        self.expected = refused.psn;
        self.nak(refused.psn, Acknowledge::Nak(refused.code));
        if let Some((taken, syndrome)) = refused.receive {
            self.owe(Completion::received(qp, Received::Send, taken, Err(syndrome)));
        }
    }

    /// Queues the NAK that ended the peer's connection once more.
    pub(super) fn repeat_refusal(&mut self, code: NakCode) {
        let owed = self.replies.iter().any(|reply| matches!(reply, Reply::Nak { .. }));
        if !owed {
            self.nak(self.expected, Acknowledge::Nak(code));
        }
    }

    /// Queues a completion or event for software, after the replies before it.
    pub(super) fn owe(&mut self, outcome: impl Into<Outcome>) {
        self.replies.push_back(Reply::Outcome(outcome.into()));
    }

    /// Queues a NAK to the peer, and the error for software.
    pub(super) fn refuse(&mut self, qp: u32, refused: Refused) {
        let syndrome = Acknowledge::Nak(refused.code);
        self.replies.push_back(Reply::Nak { psn: refused.psn, syndrome, messages: self.messages });
        match refused.receive {
            Some((taken, syndrome)) => {
                self.owe(Completion::received(qp, Received::Send, taken, Err(syndrome)));
            }
            None => self.owe(Outcome::Event(qp, refused.event)),
        }
    }

    /// Handles a request packet from the peer.
    pub(super) fn request(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Refused> {
        let psn = Psn::new(header.psn);
        if !header.opcode.is_send() && !header.opcode.is_write() {
            // READs and atomics see what came before them.
            card.place(own.number);
        }
        if let Some(event) = establish(card, own.number, &mut self.established) {
            self.owe(event);
        }
        match psn.since(self.expected) {
            1.. => {
                card.count(own.number, counter::OUT_OF_SEQUENCE);
                if !self.told {
                    self.told = true;
                    card.port.pace.detour(Detour::Nak);
                    self.nak(self.expected, Acknowledge::Nak(NakCode::Sequence));
                }
                Ok(())
            }
            0 => {
                self.told = false;
                self.execute(card, own, header, payload)
            }
            _ => {
                card.count(own.number, counter::DUPLICATE_REQUEST);
                self.repeat(card, own, header)
            }
        }
    }

    pub(super) fn nak(&mut self, psn: Psn, syndrome: Acknowledge) {
        self.replies.push_back(Reply::Nak { psn, syndrome, messages: self.messages });
    }

    /// Queues an acknowledge. If one is queued already, extends it instead.
    pub(super) fn acknowledge(&mut self, psn: Psn) {
        let messages = self.messages;
        let last = self.replies.iter_mut().rev().find(|reply| !matches!(reply, Reply::Outcome(_)));
        if let Some(Reply::Ack { psn: owed, messages: counted }) = last {
            if psn.since(*owed) > 0 {
                (*owed, *counted) = (psn, messages);
            }
            return;
        }
        self.replies.push_back(Reply::Ack { psn, messages });
    }

    /// Returns the number of queued answers to READs and atomics: first ones, or repeated ones
    /// (`again`).
    pub(super) fn fetches_owed(&self, again: bool) -> usize {
        let fetch = |reply: &&Reply| match reply {
            Reply::Read { again: other, .. } | Reply::Atomic { again: other, .. } => {
                *other == again
            }
            _ => false,
        };
        self.replies.iter().filter(fetch).count()
    }

    /// Executes the expected packet.
    fn execute(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), Refused> {
        let opcode = header.opcode;
        let in_order = match self.incoming {
            Incoming::Idle => opcode.starts(),
            Incoming::Send { .. } => opcode.is_send() && !opcode.starts(),
            Incoming::Write(_) => opcode.is_write() && !opcode.starts(),
        };
        if !in_order || !fits(own, header, payload) {
            let reason = Reason::Unfit { length: payload.len(), mtu: own.mtu };
            return Err(self.invalid(card, header, &reason));
        }
        let Some(domain) = Self::domain(card, own, header) else {
            let reason = Reason::SharedQueue(header.xrc_srq.unwrap_or_default());
            return Err(self.invalid(card, header, &reason));
        };
        // Measured on ConnectX-5: a request that the queue pair does not grant is not counted (evidence,
        // table counters-by-fault).
        if let Some(counter) = counted(opcode).filter(|_| grants(own, opcode)) {
            card.count(own.number, counter);
        }
        if opcode.is_send() {
            self.send(card, own, header, payload, domain)
        } else if opcode.is_write() {
            self.write(card, own, header, payload, domain)
        } else if let Some(reth) = header.reth.filter(|_| opcode.has_masked()) {
            self.masked(card, own, header, reth, payload, domain)
        } else if let Some(reth) = header.reth {
            self.read(card, own, header, reth, domain)
        } else if let Some(atomic) = header.atomic {
            self.atomic(card, own, header, atomic, domain)
        } else {
            Err(self.invalid(card, header, &Reason::Transport))
        }
    }

    /// Advances past an executed packet; more of its message may follow.
    pub(super) fn accept(&mut self, header: &Header, packets: u32) {
        let psn = Psn::new(header.psn);
        self.expected = psn.plus(packets);
        if !header.opcode.is_send() && !header.opcode.is_write() {
            self.last_fetch = Some(self.expected.previous());
        }
        if header.opcode.ends() {
            self.messages = (self.messages + 1) & 0xff_ffff;
        }
    }

    pub(super) fn refused(&self, header: &Header, code: NakCode, event: QpEvent) -> Refused {
        Refused { psn: Psn::new(header.psn), code, receive: None, event, denied: None }
    }

    /// Refuses a request for a reason that is told.
    pub(super) fn invalid(&mut self, card: &Card, header: &Header, reason: &Reason) -> Refused {
        card.explain(header.destination, reason);
        let mut refused = self.refused(header, NakCode::InvalidRequest, QpEvent::InvalidRequest);
        if let Incoming::Send { wqe, tagged, .. } = std::mem::take(&mut self.incoming) {
            match tagged.filter(|tagged| tagged.event.is_matched()) {
                Some(tagged) => self.cancel(header.destination, tagged),
                None => refused.receive = Some((wqe.taken(), Syndrome::RemoteInvalidRequest)),
            }
        }
        refused
    }

    /// Reports that a message which took an entry will not arrive completely.
    fn cancel(&mut self, qp: u32, tagged: Tagged) {
        let tagged = Tagged { event: TagEvent::Canceled, start: [0; HEADER], ..tagged };
        self.owe(Completion::tagged(qp, tagged));
    }

    pub(super) fn denied(&self, header: &Header, denied: Denied) -> Refused {
        let refused = self.refused(header, NakCode::RemoteAccess, QpEvent::AccessError);
        Refused { denied: Some(denied), ..refused }
    }

    /// Returns the PD and queue pair that a request's keys are checked against. An XRC target uses
    /// the domain of the SRQ. `None` if the request names an SRQ that it may not use.
    fn domain(card: &Card, own: &Parameters, header: &Header) -> Option<Domain> {
        match header.xrc_srq {
            None => Some(own.domain()),
            Some(srq) => {
                let pd = card.xrc_srq(own.number, srq)?.pd;
                Some(Domain { pd, ..own.domain() })
            }
        }
    }

    /// Takes a receive WQE. If there is none, the peer gets an RNR NAK.
    fn receive(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
    ) -> Result<Option<ReceiveWqe>, Refused> {
        let taken = match header.xrc_srq {
            Some(srq) => card.take_xrc_receive(own.number, srq),
            None => card.take_receive(own.number),
        };
        match taken {
            Ok(Some(wqe)) => Ok(Some(wqe)),
            Ok(None) => {
                card.count(own.number, counter::OUT_OF_BUFFER);
                self.told = true;
                self.nak(self.expected, Acknowledge::Rnr(own.rnr_timer));
                Ok(None)
            }
            Err(_) => {
                card.explain(own.number, &Reason::UnreadableReceive);
                Err(self.refused(header, NakCode::RemoteOperation, QpEvent::Catastrophic))
            }
        }
    }

    fn send(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
        domain: Domain,
    ) -> Result<(), Refused> {
        let mut payload = payload;
        let (wqe, done, mut tagged) = match std::mem::take(&mut self.incoming) {
            Incoming::Send { wqe, received, tagged } => (wqe, received, tagged),
            _ if card.matches_tags(own.number) => match self.meet(card, own, header, payload)? {
                Some((wqe, tagged)) => {
                    if tagged.event.is_matched() {
                        payload = &payload[HEADER..];
                    }
                    (wqe, 0, Some(tagged))
                }
                None => return Ok(()),
            },
            _ => match self.receive(card, own, header)? {
                Some(wqe) => (wqe, 0, None),
                None => return Ok(()),
            },
        };
        // A taken entry is not a receive that could complete with an error.
        let taken = tagged.filter(|tagged| tagged.event.is_matched());
        let matched = taken.is_some();
        let failed = |responder: &mut Self, syndrome| {
            if let Some(tagged) = taken {
                responder.cancel(own.number, tagged);
                return None;
            }
            Some((wqe.taken(), syndrome))
        };
        let total = done + payload.len() as u64;
        let inline = tagged.is_none() && rides_in_cqe(card, own.number, header, payload);
        let stored = check_room(card, &wqe, total, 0)
            .and_then(|()| if inline { Ok(()) } else { deliver(card, &wqe, done, payload) });
        if let Err(syndrome) = stored {
            let (code, event) = match syndrome {
                Syndrome::LocalLength => (NakCode::InvalidRequest, QpEvent::InvalidRequest),
                _ => (NakCode::RemoteOperation, QpEvent::Catastrophic),
            };
            let receive = failed(self, syndrome);
            return Err(Refused { receive, ..self.refused(header, code, event) });
        }
        if let (true, Some(key)) = (header.opcode.invalidates(), header.immediate) {
            if let Err(denied) = card.invalidate_key(domain, u32::from_be_bytes(key)) {
                return Err(Refused {
                    receive: failed(self, Syndrome::LocalAccess),
                    ..self.denied(header, denied)
                });
            }
        }
        self.accept(header, 1);
        if header.ack_request || header.opcode.ends() {
            self.acknowledge(Psn::new(header.psn));
        }
        if header.opcode.ends() {
            let mut held = received(own, header, operation(header), wqe.taken(), total as u32);
            if let Some(tagged) = tagged.as_mut().filter(|_| matched) {
                (held.wqe, tagged.event) = (0, TagEvent::ConsumedMessage);
                if !header.opcode.starts() {
                    (tagged.event, tagged.start) = (TagEvent::Expected, [0; HEADER]);
                }
            }
            held.tagged = tagged;
            held.inline = inline.then(|| payload.to_vec());
            self.owe(held);
        } else {
            if let Some(tagged) = tagged.filter(|_| matched && header.opcode.starts()) {
                self.owe(Completion::tagged(own.number, tagged));
            }
            self.incoming = Incoming::Send { wqe, received: total, tagged };
        }
        Ok(())
    }

    fn write(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        payload: &[u8],
        domain: Domain,
    ) -> Result<(), Refused> {
        let begun = match (header.reth, &self.incoming) {
            (Some(reth), _) => Write::start(card, own, domain, reth),
            (None, Incoming::Write(write)) => Ok(*write),
            _ => Err(WriteError::Invalid(Reason::Unfit { length: payload.len(), mtu: own.mtu })),
        };
        let write =
            begun.and_then(|write| write.with(header, payload)).map_err(|error| match error {
                WriteError::Invalid(reason) => self.invalid(card, header, &reason),
                WriteError::Denied(denied) => self.denied(header, denied),
            })?;
        let receive = match header.immediate {
            Some(_) => match self.receive(card, own, header)? {
                Some(wqe) => Some(wqe),
                None => return Ok(()),
            },
            None => None,
        };
        if let Err(denied) = write.put(card, domain, payload) {
            let receive = receive.map(|wqe| (wqe.taken(), Syndrome::FLUSHED));
            return Err(Refused { receive, ..self.denied(header, denied) });
        }
        self.accept(header, 1);
        let complete = write.complete();
        if header.ack_request || complete.is_some() {
            self.acknowledge(Psn::new(header.psn));
        }
        if let Some(wqe) = receive {
            let kind = Received::WriteImmediate;
            let length = complete.unwrap_or_default();
            let held = received(own, header, kind, wqe.taken(), length);
            self.owe(held);
        }
        self.incoming = complete.map_or(Incoming::Write(write), |_| Incoming::Idle);
        Ok(())
    }

    fn read(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        reth: Reth,
        domain: Domain,
    ) -> Result<(), Refused> {
        let reason = if !own.remote_read {
            Some(Reason::NoFetches("REMOTE_READ"))
        } else if reth.length > LONGEST {
            Some(Reason::Length(reth.length.into()))
        } else {
            self.too_many(own)
        };
        if let Some(reason) = reason {
            return Err(self.invalid(card, header, &reason));
        }
        self.owe_read(card, own, header, reth, false, domain)?;
        self.accept(header, own.packets(reth.length.into()));
        if let Some(Reply::Read { messages, .. }) = self.replies.back_mut() {
            *messages = self.messages;
        }
        Ok(())
    }

    /// Why one more READ or atomic is refused, if it is.
    pub(super) fn too_many(&self, own: &Parameters) -> Option<Reason> {
        let is_full = self.fetches_owed(false) >= own.responder_depth as usize;
        is_full.then_some(Reason::TooManyFetches(own.responder_depth))
    }

    fn owe_read(
        &mut self,
        card: &Card,
        own: &Parameters,
        header: &Header,
        reth: Reth,
        again: bool,
        domain: Domain,
    ) -> Result<(), Refused> {
        if reth.length > 0 {
            let length = reth.length.into();
            card.check(domain, reth.key, reth.address, length, Access::RemoteRead)
                .map_err(|denied| self.denied(header, denied))?;
        }
        self.replies.push_back(Reply::Read {
            first: Psn::new(header.psn),
            reth,
            domain,
            sent: 0,
            packets: own.packets(reth.length.into()),
            messages: self.messages,
            again,
        });
        Ok(())
    }

    fn atomic(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        header: &Header,
        atomic: AtomicEth,
        domain: Domain,
    ) -> Result<(), Refused> {
        let reason = if own.atomic_sizes == 0 {
            Some(Reason::NoFetches("REMOTE_ATOMIC"))
        } else if own.atomic_sizes & 8 == 0 {
            Some(Reason::AtomicSize(8))
        } else if atomic.address % 8 != 0 {
            Some(Reason::Misaligned { address: atomic.address, size: 8 })
        } else {
            self.too_many(own)
        };
        if let Some(reason) = reason {
            return Err(self.invalid(card, header, &reason));
        }
        let swap = header.opcode == Opcode::CompareSwap;
        let found = card
            .update_key(domain, atomic.key, atomic.address, &mut |bytes| {
                let value = u64::from_le_bytes(bytes);
                let changed = match swap {
                    true if value == atomic.compare => atomic.swap_or_add,
                    true => value,
                    false => value.wrapping_add(atomic.swap_or_add),
                };
                changed.to_le_bytes()
            })
            .map_err(|denied| self.denied(header, denied))?;
        self.found(own, header, Original::Value(u64::from_le_bytes(found)));
        Ok(())
    }

    /// Handles a packet that was executed before: its answer was lost, or it arrived twice.
    fn repeat(&mut self, card: &Card, own: &Parameters, header: &Header) -> Result<(), Refused> {
        let psn = Psn::new(header.psn);
        let opcode = header.opcode;
        if let Some(reth) = header.reth.filter(|_| opcode == Opcode::ReadRequest) {
            let packets = own.packets(reth.length.into());
            let old = packets <= self.expected.after(psn);
            // If its answer is still queued, it needs no other.
            let owed = self.replies.iter().any(|reply| match reply {
                Reply::Read { first, sent, packets, .. } => {
                    first.plus(*sent).since(psn) <= 0 && psn.since(first.plus(*packets)) < 0
                }
                _ => false,
            });
            let room = self.fetches_owed(true) < own.responder_depth as usize;
            let domain = Self::domain(card, own, header);
            let Some(domain) = domain.filter(|_| old && !owed && room) else { return Ok(()) };
            if own.remote_read && reth.length <= LONGEST {
                return self.owe_read(card, own, header, reth, true, domain);
            }
        } else if opcode.has_atomic() || opcode.has_masked() {
            let owed = self
                .replies
                .iter()
                .any(|reply| matches!(reply, Reply::Atomic { psn: other, .. } if *other == psn));
            let saved = self.saved.iter().find(|(other, _)| *other == psn);
            if let (Some((_, original)), false) = (saved, owed) {
                let (original, messages) = (*original, self.messages);
                self.replies.push_back(Reply::Atomic { psn, original, messages, again: true });
            }
        } else if header.ack_request || opcode.ends() {
            // The newest PSN spares the peer repetitions (IBA 1.3, C9-105). But it would skip the answer
            // of a READ or atomic behind the duplicate, which the peer then takes for lost.
            let skips = self.last_fetch.is_some_and(|fetch| fetch.since(psn) > 0);
            self.acknowledge(if skips { psn } else { self.expected.previous() });
        }
        Ok(())
    }
}
