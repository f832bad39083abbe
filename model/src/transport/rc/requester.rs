//! Turning WQEs into request packets: segmentation, fences, window.

mod timers;

use std::collections::VecDeque;

use mlx5_sys::wqe::opcode;

use super::super::local::Alone;
use super::super::{Completion, Parameters, Psn};
use super::credits::credits;
use super::dynamic::Initiator;
use super::rendezvous::Fetched;
use crate::card::Card;
use crate::object::Service;
use crate::queue::{Fence, Fetch, SendWqe, Signal, Syndrome};
use crate::work::{FOREIGN, Reason};

/// Packets of SENDs and WRITEs that may be unacknowledged.
pub const WINDOW: u32 = 128;
/// Bytes that an atomic without masks answers.
const ATOMIC: u64 = 8;
/// Requests that may be in flight.
const REQUESTS: usize = 256;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send {
        immediate: bool,
    },
    SendInvalidate,
    Write {
        immediate: bool,
    },
    Read,
    CompareSwap,
    FetchAdd,
    /// A masked atomic.
    Masked {
        swap: bool,
    },
    /// An operation that this side executes alone, when its turn comes.
    Local,
    /// A change of a memory key of this side, when its turn comes.
    Umr,
    /// Opens a dynamic connection; no WQE requests it.
    Connect,
    /// No operation: done when everything before it is.
    Nop,
    /// An invalid request: everything before it is executed first, then the queue pair fails.
    Failed(Syndrome),
}

impl Kind {
    fn of(wqe: &SendWqe, longest: u64) -> Self {
        let kind = match wqe.opcode {
            opcode::NOP => Self::Nop,
            opcode::SEND_INVAL => Self::SendInvalidate,
            opcode::RDMA_WRITE => Self::Write { immediate: false },
            opcode::RDMA_WRITE_IMM => Self::Write { immediate: true },
            opcode::SEND => Self::Send { immediate: false },
            opcode::SEND_IMM => Self::Send { immediate: true },
            opcode::RDMA_READ => Self::Read,
            opcode::ATOMIC_CS => Self::CompareSwap,
            opcode::ATOMIC_FA => Self::FetchAdd,
            opcode::ATOMIC_MASKED_CS => Self::Masked { swap: true },
            opcode::ATOMIC_MASKED_FA => Self::Masked { swap: false },
            opcode::WAIT | opcode::SEND_EN | opcode::TAG_MATCHING | opcode::MMO => Self::Local,
            opcode::UMR => Self::Umr,
            _ => return Self::Failed(Syndrome::LocalQpOperation),
        };
        let length = wqe.length();
        match kind {
            Self::Write { .. } | Self::Read if wqe.remote.is_none() => {
                Self::Failed(Syndrome::LocalQpOperation)
            }
            Self::CompareSwap | Self::FetchAdd if wqe.remote.is_none() || wqe.atomic.is_none() => {
                Self::Failed(Syndrome::LocalQpOperation)
            }
            Self::Masked { .. } if wqe.remote.is_none() || wqe.masked.is_none() => {
                Self::Failed(Syndrome::LocalQpOperation)
            }
            Self::Nop | Self::Umr | Self::Local | Self::Connect => kind,
            _ if length > longest => Self::Failed(Syndrome::LocalLength),
            _ => kind,
        }
    }

    /// Returns whether the peer takes a receive for it.
    fn takes_receive(self) -> bool {
        matches!(self, Self::Send { .. } | Self::SendInvalidate | Self::Write { immediate: true })
    }

    /// Returns whether the answer carries data, so that an acknowledge is not enough.
    pub(super) fn is_fetch(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd | Self::Masked { .. })
    }
}

/// A WQE in execution.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) wqe: SendWqe,
    pub(super) kind: Kind,
    /// PSN of its first packet.
    pub(super) first: Psn,
    /// PSNs it takes: packets sent, or for a READ packets answered.
    pub(super) packets: u32,
    /// Bytes.
    pub(super) length: u64,
    /// Packets of a READ or atomic answered.
    pub(super) answered: u32,
    /// The packet of a READ with which its newest request on the wire starts.
    pub(super) asked: u32,
    /// Answer data that goes into the CQE instead of memory.
    pub(super) inline: Option<Vec<u8>>,
    /// For requests without a WQE: the message that is fetched, or its end.
    pub(super) fetched: Option<Fetched>,
    /// DMA memcpy: bytes copied.
    pub(super) copied: u64,
    /// Send sequence number (SSN): messages up to this one, 24 bits.
    pub(super) ssn: u32,
}

impl Request {
    pub(super) fn last(&self) -> Psn {
        self.first.plus(self.packets).previous()
    }
}

/// End-to-end flow control (IBA 1.3, 9.7.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    /// The peer has reported receives for messages up to this SSN.
    Limited(u32),
    /// The peer does not count receives.
    Unlimited,
}

impl Default for Credit {
    fn default() -> Self {
        Self::Limited(0)
    }
}

impl Credit {
    /// Applies an acknowledge: `code` reports the receives posted after the message `msn`.
    pub(super) fn update(&mut self, msn: u32, code: u8) {
        let Some(receives) = credits(code) else {
            *self = Self::Unlimited;
            return;
        };
        let limit = msn.wrapping_add(receives) & 0xff_ffff;
        match self {
            Self::Limited(before) if !is_newer(limit, *before) => {}
            _ => *self = Self::Limited(limit),
        }
    }

    /// Returns whether a message that takes a receive may be begun. One message beyond the limit
    /// always may.
    fn allows(self, ssn: u32) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Limited(limit) => !is_newer(ssn, limit.wrapping_add(1) & 0xff_ffff),
        }
    }

    /// Returns whether a message that takes a receive lies beyond the limit.
    fn limits(self, ssn: u32) -> bool {
        matches!(self, Self::Limited(limit) if is_newer(ssn, limit))
    }

    /// Notes that a message is sent that takes no receive: those behind it have the same credit.
    fn pass(&mut self) {
        if let Self::Limited(limit) = self {
            *limit = limit.wrapping_add(1) & 0xff_ffff;
        }
    }
}

/// Returns whether a 24-bit message number comes after another.
fn is_newer(one: u32, other: u32) -> bool {
    let ahead = one.wrapping_sub(other) & 0xff_ffff;
    ahead != 0 && ahead < 1 << 23
}

/// Requester side of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// Whether the queue pair has been in RTS.
    pub(super) started: bool,
    /// Requests fetched and not completed, oldest first.
    pub(super) requests: VecDeque<Request>,
    /// The request whose packet goes next (`cursor`), and which of its packets (`sent`).
    pub(super) cursor: usize,
    pub(super) sent: u32,
    /// PSN of the next request to fetch.
    pub(super) next: Psn,
    /// Oldest PSN that may be unacknowledged.
    pub(super) unacknowledged: Psn,
    /// One past the newest PSN sent.
    pub(super) high: Psn,
    /// Whether the peer has refused a request.
    pub(super) refused: bool,
    /// Messages to send so far: SSN of the newest.
    pub(super) messages: u32,
    /// The newest message for which the peer has reported a receive (LSN).
    pub(super) credit: Credit,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    /// Time-outs since the last answer.
    timed_out: u32,
    /// The PSN of an answer to nothing that this queue pair has sent, before the first valid one.
    pub(super) foreign: Option<Psn>,
    /// Whether no retry was left at the last RNR NAK: the wait is that for the error.
    never_ready: bool,
    /// Set after going back because of an answer, until a request is answered or a time-out is over.
    rewound: bool,
    /// The time until which the peer asked to wait.
    rnr_until: Option<u64>,
    /// The time at which packets in flight count as lost.
    ack_until: Option<u64>,
    /// Additional state of an initiator of dynamic connections.
    pub(super) initiator: Initiator,
}

impl Requester {
    pub(super) fn start(&mut self, own: &Parameters) {
        let psn = Psn::new(own.send_psn);
        // Peers that take receives from shared queues do not count them.
        let credit = match own.service {
            Service::Rc => Credit::default(),
            _ => Credit::Unlimited,
        };
        *self = Self {
            started: true,
            credit,
            next: psn,
            unacknowledged: psn,
            high: psn,
            retries: own.retries,
            rnr_retries: own.rnr_retries,
            ..Self::default()
        };
    }

    /// Returns the next PSN as QUERY_QP shows it: after a NAK the boundary of what the peer has executed,
    /// else one past the newest that was sent (measured on ConnectX-6, evidence E111 and E112).
    pub(super) fn shown_psn(&self) -> Psn {
        if self.refused { self.unacknowledged } else { self.high }
    }

    /// Returns the settings with the path to the initiator's current target.
    pub(super) fn toward(&self, own: &Parameters) -> Parameters {
        self.initiator.toward(own)
    }

    /// Sends requests, as many as `budget` and the window allow. An error belongs to the oldest
    /// request.
    pub(super) fn request(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        fetch: bool,
        budget: &mut usize,
    ) -> Result<(), Syndrome> {
        loop {
            let toward = self.toward(own);
            self.send(card, &toward, fetch, budget)?;
            if *budget == 0 || self.rnr_until.is_some() || !self.turn(card, own) {
                return Ok(());
            }
            *budget -= 1;
        }
    }

    /// Sends requests like [`Requester::request`], on the current path to the peer.
    fn send(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        fetch: bool,
        budget: &mut usize,
    ) -> Result<(), Syndrome> {
        if self.rnr_until.is_some() {
            return Ok(());
        }
        let mut in_flight = self.in_flight();
        while *budget > 0 {
            if self.cursor == self.requests.len() && !(fetch && self.fetch(card, own)) {
                break;
            }
            let request = &self.requests[self.cursor];
            match request.kind {
                Kind::Failed(syndrome) if self.cursor == 0 => return Err(syndrome),
                Kind::Failed(_) => break,
                Kind::Nop => {
                    self.cursor += 1;
                    self.retire_idle(card, own);
                    // WQEs that send no packet use the budget as well: their number is unlimited.
                    *budget -= 1;
                    continue;
                }
                Kind::Umr => {
                    if self.is_fenced() {
                        break;
                    }
                    self.change_key(card, own);
                    continue;
                }
                Kind::Local => {
                    if self.is_fenced() || self.do_alone(card, own) == Alone::Waits {
                        break;
                    }
                    *budget -= 1;
                    continue;
                }
                _ => {}
            }
            let (kind, is_new) = (request.kind, self.sent == 0 && request.first == self.high);
            if self.sent == 0 && !self.may_start(own) || self.sent > 0 && self.is_limited() {
                break;
            }
            if is_new && !kind.takes_receive() {
                self.credit.pass();
            }
            if kind.is_fetch() {
                self.send_fetch(card, own);
            } else {
                if in_flight >= WINDOW {
                    break;
                }
                if !self.send_packet(card, own) {
                    continue;
                }
                in_flight += 1;
            }
            *budget -= 1;
            if self.ack_until.is_none() {
                self.ack_until = self.next_timeout(own, card.clock.now());
            }
        }
        Ok(())
    }

    /// Returns the number of SEND and WRITE packets sent and not acknowledged.
    fn in_flight(&self) -> u32 {
        let sent = self.requests.iter().take(self.cursor).map(|request| match request.kind {
            Kind::Send { .. } | Kind::SendInvalidate | Kind::Write { .. } => request.packets,
            _ => 0,
        });
        let all = sent.sum::<u32>() + self.sent;
        let acknowledged = match self.requests.front() {
            Some(front) if !front.kind.is_fetch() => self.unacknowledged.after(front.first),
            _ => 0,
        };
        all.saturating_sub(acknowledged)
    }

    /// Takes the next WQE. Returns `false` if there is none or too much is in flight.
    fn fetch(&mut self, card: &mut Card, own: &Parameters) -> bool {
        if self.requests.len() >= REQUESTS || self.initiator.waits() {
            return false;
        }
        let (wqe, kind) = match card.next_send(own.number) {
            Fetch::Empty => return false,
            Fetch::Wqe(mut wqe) => {
                if let (Some(address), None) = (&mut wqe.address, own.streams) {
                    address.stream = 0;
                }
                let kind = Kind::of(&wqe, own.message);
                if let Kind::Failed(_) = kind {
                    let (index, opcode) = (wqe.index, wqe.opcode);
                    card.explain(own.number, &Reason::Malformed { index, opcode, what: FOREIGN });
                }
                (wqe, kind)
            }
            Fetch::Malformed { index, opcode, syndrome } => {
                let wqe = SendWqe::bare(index, opcode, Signal::Always);
                (wqe, Kind::Failed(syndrome))
            }
        };
        if !self.initiator.goes_on(&wqe, kind) {
            self.initiator.wait(wqe, kind);
            return false;
        }
        self.enqueue(card, own, wqe, kind);
        true
    }

    /// Adds a request behind the others.
    pub(super) fn enqueue(&mut self, card: &Card, own: &Parameters, wqe: SendWqe, kind: Kind) {
        let length = match kind {
            // That of the answer, whatever memory there is for it.
            Kind::CompareSwap | Kind::FetchAdd => ATOMIC,
            _ => wqe.length(),
        };
        let packets = match kind {
            Kind::Nop | Kind::Umr | Kind::Local | Kind::Failed(_) => 0,
            Kind::CompareSwap | Kind::FetchAdd | Kind::Masked { .. } | Kind::Connect => 1,
            _ => own.packets(length),
        };
        let room = if kind.is_fetch() && wqe.signal == Signal::Always {
            card.inline_room(own.number, true) as u64
        } else {
            0
        };
        let inline = (length > 0 && length <= room).then(Vec::new);
        let first = self.next;
        self.next = first.plus(packets);
        let ssn = self.number(packets);
        let fetched = None;
        self.requests.push_back(Request {
            wqe,
            kind,
            first,
            packets,
            length,
            answered: 0,
            asked: 0,
            inline,
            fetched,
            copied: 0,
            ssn,
        });
    }

    /// Returns the SSN of the next request: only a request with packets is a message.
    pub(super) fn number(&mut self, packets: u32) -> u32 {
        if packets > 0 {
            self.messages = (self.messages + 1) & 0xff_ffff;
        }
        self.messages
    }

    /// Returns the number of READs and atomics before the cursor that have no answer yet.
    fn fetches(&self) -> usize {
        self.requests.iter().take(self.cursor).filter(|before| before.kind.is_fetch()).count()
    }

    /// Returns whether a fence holds the request at the cursor back.
    fn is_fenced(&self) -> bool {
        match self.requests[self.cursor].wqe.fence {
            Fence::None | Fence::Small => false,
            Fence::Full => self.fetches() > 0,
            // Completed requests are not in the list any more.
            Fence::Strong => self.cursor > 0,
        }
    }

    /// Executes the UMR at the cursor. If it succeeds, the request becomes a no-op, so that going
    /// back for a lost answer does not execute it again.
    fn change_key(&mut self, card: &mut Card, own: &Parameters) {
        let request = &mut self.requests[self.cursor];
        let changed = match &request.wqe.umr {
            Some(umr) => card.change_key(own.domain(), umr),
            None => Err(Syndrome::LocalQpOperation),
        };
        request.kind = changed.map_or_else(Kind::Failed, |()| Kind::Nop);
    }

    /// Executes the request at the cursor on this side alone. When it is done, the request becomes
    /// a no-op, as after [`change_key`](Self::change_key).
    fn do_alone(&mut self, card: &mut Card, own: &Parameters) -> Alone {
        let request = &mut self.requests[self.cursor];
        let done = match &request.wqe.local {
            Some(local) => card.do_alone(own, local, &mut request.copied),
            None => Err(Syndrome::LocalQpOperation),
        };
        request.kind = match done {
            Ok(unfinished @ (Alone::More | Alone::Waits)) => return unfinished,
            Ok(Alone::Done) => Kind::Nop,
            Err(syndrome) => Kind::Failed(syndrome),
        };
        Alone::Done
    }

    /// Returns whether the request at the cursor may send its first packet.
    fn may_start(&self, own: &Parameters) -> bool {
        let request = &self.requests[self.cursor];
        if self.is_fenced() {
            return false;
        }
        if request.kind.is_fetch() && self.fetches() >= own.initiator_depth as usize {
            return false;
        }
        if request.kind.takes_receive() && !self.credit.allows(request.ssn) {
            return false;
        }
        // The oldest request may be in retransmission, from its middle.
        self.cursor == 0
            || request.first.after(self.unacknowledged) + request.packets <= Psn::WINDOW
    }

    /// Returns whether only the first packet of the request at the cursor may be sent: it is a SEND
    /// beyond the peer's credit, and the peer has not acknowledged that packet. A WRITE with
    /// immediate takes its receive with its last packet, so all of it may be sent.
    pub(super) fn is_limited(&self) -> bool {
        let request = &self.requests[self.cursor];
        matches!(request.kind, Kind::Send { .. } | Kind::SendInvalidate)
            && self.credit.limits(request.ssn)
            && self.unacknowledged.since(request.first) <= 0
    }

    /// Completes the oldest request, which is answered.
    pub(super) fn retire(&mut self, card: &mut Card, own: &Parameters) {
        let Some(request) = self.requests.pop_front() else { return };
        if request.kind.is_fetch() {
            // Fenced requests behind it may send the data.
            card.place(own.number);
        }
        if self.cursor > 0 {
            self.cursor -= 1;
        } else {
            self.sent = 0;
        }
        self.unacknowledged = request.first.plus(request.packets);
        if own.service == Service::Dc && self.requests.is_empty() {
            self.start_idle(card.clock.now());
        }
        if let Some(fetched) = request.fetched {
            fetched.done(card, own.number, request.length as u32);
        } else if request.wqe.signal == Signal::Always {
            let (opcode, index) = (request.wqe.opcode, request.wqe.index);
            let mut held = Completion::sent(own.number, opcode, index, Ok(()));
            held.length = request.length as u32;
            held.inline = request.inline;
            card.port.hold(held);
        }
    }

    /// Completes requests that need no answer and have nothing before them.
    pub(super) fn retire_idle(&mut self, card: &mut Card, own: &Parameters) {
        while self.requests.front().is_some_and(|front| front.kind == Kind::Nop) {
            self.retire(card, own);
        }
    }

    /// Notes that all packets of the oldest request up to this one have arrived. It is a SEND or
    /// WRITE.
    pub(super) fn acknowledge_partly(&mut self, end: Psn) {
        if let Some(front) = self.requests.front() {
            self.unacknowledged = end;
            if self.cursor == 0 {
                self.sent = self.sent.max(end.after(front.first));
            }
        }
    }
}
