//! Turning WQEs into packets without answers: a request is done when its last packet has left.

use mlx5_sys::wqe::opcode;

use super::super::local::Alone;
use super::super::{Completion, Parameters, Psn};
use super::datagram;
use crate::card::Card;
use crate::object::{Service, Special};
use crate::queue::{Fetch, Protection, SendWqe, Signal, Syndrome};
use crate::wire::{Header, Opcode, Reth};
use crate::work::{FOREIGN, Reason};

/// The kind of a request, by what it puts on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nop,
    Umr,
    Local,
    Send { immediate: bool },
    Write { immediate: bool },
}

/// Why a turn at the port ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is left to send.
    Idle,
    /// There may be more.
    More,
    /// The way is congested; the packet waits.
    Congested,
}

/// A WQE on its way.
#[derive(Debug)]
struct Request {
    wqe: SendWqe,
    /// The work to do, or the error that prevents it.
    kind: Result<Kind, Syndrome>,
    /// The header of its first packet, without the opcode; `None` if it sends none.
    header: Option<Header>,
    packets: u32,
    sent: u32,
    /// For a local operation of the device: the bytes done so far.
    copied: u64,
}

/// Sending side of a queue pair.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Whether it has been in RTS.
    pub(super) started: bool,
    /// PSN of the next packet.
    pub(super) next: Psn,
    current: Option<Request>,
    /// A WQE that cannot be executed: counter and opcode.
    malformed: Option<(u16, u8)>,
}

impl Sender {
    pub(super) fn start(&mut self, own: &Parameters) {
        *self = Self { started: true, next: Psn::new(own.send_psn), ..Self::default() };
    }

    /// Gives up the request on its way: counter and opcode of its WQE.
    pub(super) fn take(&mut self) -> Option<(u16, u8)> {
        let current = self.current.take().map(|request| (request.wqe.index, request.wqe.opcode));
        self.malformed.take().or(current)
    }

    /// Sends up to `most` packets. An error is of the request that [`Sender::take`] gives.
    pub(super) fn pump(
        &mut self,
        card: &mut Card,
        own: &Parameters,
        most: usize,
    ) -> Result<Progress, Syndrome> {
        for _ in 0..most {
            if self.current.is_none() && !self.fetch(card, own)? {
                return Ok(Progress::Idle);
            }
            let Some(request) = &mut self.current else { return Ok(Progress::Idle) };
            let kind = request.kind?;
            if kind == Kind::Umr {
                let umr = request.wqe.umr.as_deref().ok_or(Syndrome::LocalQpOperation)?;
                card.change_key(own.domain(), umr)?;
            } else if kind == Kind::Local {
                let local = request.wqe.local.as_deref().ok_or(Syndrome::LocalQpOperation)?;
                match card.do_alone(own, local, &mut request.copied)? {
                    Alone::Done => {}
                    Alone::More => continue,
                    Alone::Waits => return Ok(Progress::Idle),
                }
            } else if kind != Kind::Nop {
                if let Some(header) = &mut request.header {
                    if card.port.is_congested(&header.route, header.destination) {
                        return Ok(Progress::Congested);
                    }
                    header.psn = self.next.get();
                    let frame = packet(card, own, kind, &request.wqe, *header, {
                        (request.sent, request.packets)
                    })?;
                    card.send(frame);
                }
                self.next = self.next.plus(1);
                request.sent += 1;
                if request.sent < request.packets {
                    continue;
                }
            }
            if let Some(Request { wqe, .. }) = self.current.take() {
                if wqe.signal == Signal::Always {
                    let mut held = Completion::sent(own.number, wqe.opcode, wqe.index, Ok(()));
                    held.length = wqe.length() as u32;
                    card.port.pace.wait_for_departure();
                    card.port.hold(held);
                }
            }
        }
        Ok(Progress::More)
    }

    /// Takes the next WQE; `false` if there is none.
    fn fetch(&mut self, card: &mut Card, own: &Parameters) -> Result<bool, Syndrome> {
        let service = own.service;
        let wqe = match card.next_send(own.number) {
            Fetch::Empty => return Ok(false),
            Fetch::Wqe(wqe) => wqe,
            Fetch::Malformed { index, opcode, syndrome } => {
                self.malformed = Some((index, opcode));
                return Err(syndrome);
            }
        };
        let sends = own.special != Some(Special::Umr);
        let kind = match wqe.opcode {
            opcode::RDMA_WRITE..=opcode::SEND_IMM if !sends => Err(Syndrome::LocalQpOperation),
            opcode::NOP => Ok(Kind::Nop),
            opcode::RDMA_WRITE => Ok(Kind::Write { immediate: false }),
            opcode::RDMA_WRITE_IMM => Ok(Kind::Write { immediate: true }),
            opcode::SEND => Ok(Kind::Send { immediate: false }),
            opcode::SEND_IMM => Ok(Kind::Send { immediate: true }),
            opcode::UMR => Ok(Kind::Umr),
            opcode::WAIT | opcode::SEND_EN => Ok(Kind::Local),
            _ => Err(Syndrome::LocalQpOperation),
        };
        // A datagram is one packet.
        let longest = if service == Service::Ud { own.mtu.into() } else { own.message };
        let length = wqe.length();
        let kind = match kind {
            Ok(Kind::Send { .. } | Kind::Write { .. }) if length > longest => {
                Err(Syndrome::LocalLength)
            }
            kind => kind,
        };
        // The opcode follows with each packet.
        let to = |route, number| Header {
            service,
            ..Header::new(route, Opcode::SendOnly, own.p_key, number, 0)
        };
        let (kind, header) = match (service, &wqe.address, kind) {
            (Service::Ud, Some(address), Ok(kind)) => {
                match datagram::route(&card.identity, address) {
                    Ok(route) => {
                        let mut header = to(route, address.destination);
                        header.datagram = Some(datagram::extension(own, address));
                        (Ok(kind), Some(header))
                    }
                    Err(syndrome) => (Err(syndrome), None),
                }
            }
            (Service::Ud, None, Ok(Kind::Send { .. } | Kind::Write { .. })) => {
                (Err(Syndrome::LocalQpOperation), None)
            }
            (_, _, kind) => (kind, Some(to(own.route, own.remote))),
        };
        if kind.is_err() {
            let (index, opcode) = (wqe.index, wqe.opcode);
            card.explain(own.number, &Reason::Malformed { index, opcode, what: FOREIGN });
        }
        let packets = own.packets(length);
        self.current = Some(Request { wqe, kind, header, packets, sent: 0, copied: 0 });
        Ok(true)
    }
}

/// Makes packet `index` of a request.
fn packet(
    card: &Card,
    own: &Parameters,
    kind: Kind,
    wqe: &SendWqe,
    mut header: Header,
    (index, packets): (u32, u32),
) -> Result<crate::wire::Frame, Syndrome> {
    let (starts, ends) = (index == 0, index + 1 == packets);
    let offset = u64::from(index) * u64::from(own.mtu);
    let length = (wqe.length() - offset).min(own.mtu.into()) as usize;
    header.opcode = match kind {
        Kind::Write { immediate } => Opcode::write(starts, ends, immediate),
        Kind::Send { immediate } => Opcode::send(starts, ends, immediate),
        Kind::Nop | Kind::Umr | Kind::Local => return Err(Syndrome::LocalQpOperation),
    };
    header.solicited = ends && wqe.solicited;
    header.immediate = header.opcode.has_immediate().then_some(wqe.immediate);
    if let (true, Some(remote)) = (header.opcode.has_reth(), wqe.remote) {
        let length = wqe.length() as u32;
        header.reth = Some(Reth { address: remote.address, key: remote.key, length });
    }
    header
        .frame(length, |to| {
            if to.is_empty() { Ok(()) } else { card.gather(own.domain(), &wqe.data, offset, to) }
        })
        .map_err(|denied| Syndrome::LocalProtection(Protection::Gather(denied)))
}
