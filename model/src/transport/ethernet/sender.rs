//! Turning WQEs into frames.

use mlx5_sys::ifc::{qpc, sqc, tisc};

use super::super::{Completion, Transport};
use super::LOG_MAX_LSO;
use super::{Ethernet, segments};
use crate::card::Card;
use crate::object::{Role, SNIFFER_TX, State};
use crate::queue::{
    Access, Data, Domain, EthernetSegment, FailedWqe, Fetch, Protection, SendWqe, Signal, Syndrome,
};
use crate::wire::Frame;
use crate::wire::ethernet::{self, HEADER, Headers, TAG, VLAN};

/// WQEs that one queue sends before the next has its turn.
const QUANTUM: usize = 16;

/// Opcodes (`mlx5dv.h`, `MLX5_OPCODE_*`).
const NOP: u8 = 0x00;
const TSO: u8 = 0x0e;
const DUMP: u8 = 0x23;

impl Ethernet {
    /// Sends up to a quantum of requests.
    pub(super) fn send(&mut self, card: &mut Card, qp: u32) {
        for _ in 0..QUANTUM {
            if card.objects.qps.get(&qp).is_none_or(|object| object.state != State::Rts) {
                return;
            }
            let (index, opcode, signal, sent) = match card.next_send(qp) {
                Fetch::Empty => return,
                Fetch::Wqe(wqe) => (wqe.index, wqe.opcode, wqe.signal, send(card, qp, &wqe)),
                Fetch::Malformed { index, opcode, syndrome } => {
                    (index, opcode, Signal::OnError, Err(syndrome))
                }
            };
            match sent {
                Ok(length) if signal == Signal::Always => {
                    let mut held = Completion::sent(qp, opcode, index, Ok(()));
                    held.length = length;
                    card.port.pace.wait_for_departure();
                    card.port.hold(held);
                }
                Ok(_) => {}
                Err(syndrome) => {
                    card.failed_send(qp, FailedWqe { index, opcode, syndrome });
                    return self.fail(card, qp);
                }
            }
        }
        self.wake(card, qp);
    }
}

/// The most bytes, header included, that a WQE of this opcode may describe: a frame with a tag, or
/// one large send. A card reads no more for a DUMP than one frame holds.
fn limit(card: &Card, opcode: u8) -> u64 {
    let frame = (HEADER + TAG + card.function.limit.payload()) as u64;
    if opcode == TSO { 1 << LOG_MAX_LSO } else { frame }
}

/// Checks length and keys of a gather list before memory is set aside for it.
fn check(card: &Card, domain: Domain, wqe: &SendWqe, header: usize) -> Result<(), Syndrome> {
    if header as u64 + wqe.length() > limit(card, wqe.opcode) {
        tracing::debug!(qp = domain.qp, length = wqe.length(), "a WQE describes too many bytes");
        return Err(Syndrome::LocalLength);
    }
    for data in &wqe.data {
        if let Data::Pointer { length, key, address } = data {
            card.check(domain, *key, *address, (*length).into(), Access::LocalRead).map_err(
                |denied| {
                    tracing::debug!(qp = domain.qp, ?denied, "cannot gather");
                    Syndrome::LocalProtection(Protection::Gather(denied))
                },
            )?;
        }
    }
    Ok(())
}

/// Sends what a request asks for: how many bytes it took from memory.
fn send(card: &mut Card, qp: u32, wqe: &SendWqe) -> Result<u32, Syndrome> {
    if wqe.opcode == NOP {
        return Ok(0);
    }
    let object = card.objects.qps.get(&qp).ok_or(Syndrome::LocalQpOperation)?;
    let domain = Domain { pd: object.get(qpc::PD), qp };
    let header = wqe.ethernet.as_ref().map_or(0, |segment| segment.header.len());
    check(card, domain, wqe, header)?;
    let length = wqe.length() as usize;
    let gather = |card: &Card, to: &mut [u8]| {
        card.gather(domain, &wqe.data, 0, to).map_err(|denied| {
            tracing::debug!(qp, ?denied, "cannot gather");
            Syndrome::LocalProtection(Protection::Gather(denied))
        })
    };
    if wqe.opcode == DUMP {
        gather(card, &mut vec![0; length])?;
        return Ok(length as u32);
    }
    let segment = wqe.ethernet.as_deref().ok_or(Syndrome::LocalQpOperation)?;
    let (least, tis) = match &object.role {
        Role::EthernetSend(context) if sqc::TIS_LST_SZ.get(&context[..]) != 0 => {
            (sqc::MIN_WQE_INLINE_MODE.get(&context[..]), sqc::TIS_NUM_0.get(&context[..]) as u32)
        }
        _ => return Err(Syndrome::LocalQpOperation),
    };
    let transport = card.objects.tises.get(tis).map(|tis| tis.get(tisc::TRANSPORT_DOMAIN));
    let mut frame = segment.header.clone();
    let inline = frame.len();
    frame.resize(inline + length, 0);
    gather(card, &mut frame[inline..])?;
    if inline < inline_bytes(least as u32, &frame) {
        tracing::warn!(qp, inline, "fewer bytes of header are in the WQE than the queue needs");
        return Err(Syndrome::HeaderNotInline);
    }
    if wqe.opcode == TSO {
        for packet in segments::cut(&frame, inline, segment)? {
            leave(card, packet, segment, transport)?;
        }
    } else {
        leave(card, frame, segment, transport)?;
    }
    Ok(length as u32)
}

/// How many bytes of a frame have to be in the WQE itself (`mlx5_ifc.h`, `min_wqe_inline_mode`):
/// nothing, what is of Ethernet, of IP, or of TCP and UDP.
fn inline_bytes(mode: u32, frame: &[u8]) -> usize {
    let Some(headers) = Headers::of(frame) else { return if mode == 0 { 0 } else { HEADER } };
    let link = HEADER + if headers.vlan.is_some() { ethernet::TAG } else { 0 };
    let above = headers.transport.map_or(headers.end.min(link + 40), |(_, at)| at);
    match mode {
        0 => 0,
        1 => link,
        2 => above.max(link),
        _ => above.max(link) + headers.transport_length(frame).unwrap_or(0),
    }
}

/// Does what the WQE leaves to the card, and sends a frame.
fn leave(
    card: &mut Card,
    mut frame: Vec<u8>,
    segment: &EthernetSegment,
    domain: Option<u32>,
) -> Result<(), Syndrome> {
    if frame.len() < HEADER {
        return Err(Syndrome::LocalLength);
    }
    if let Some(tag) = segment.insert {
        let [high, low] = tag.to_be_bytes();
        let [kind, under] = VLAN.to_be_bytes();
        frame.splice(HEADER - 2..HEADER - 2, [kind, under, high, low]);
    }
    if ethernet::payload(&frame) > card.function.limit.payload() {
        tracing::debug!(length = frame.len(), "a frame is longer than the port lets through");
        return Err(Syndrome::LocalLength);
    }
    if let Some(headers) = Headers::of(&frame) {
        // TCP's and UDP's include addresses of IP alone, so the order does not matter.
        if segment.fill_network {
            headers.fill_network(&mut frame);
        }
        if segment.fill_transport {
            headers.fill_transport(&mut frame);
        }
    }
    card.steer(SNIFFER_TX, &frame, None);
    card.send(Frame(frame, domain));
    Ok(())
}
