//! Turning WQEs into frames.

use std::slice;

use mlx5_sys::ifc::{Field, qpc, sqc, tisc};

use super::super::{Completion, Transport};
use super::LOG_MAX_LSO;
use super::{Ethernet, segments};
use crate::card::Card;
use crate::cost::Rate;
use crate::object::{Role, SNIFFER_TX, State};
use crate::queue::{
    Access, Data, Denied, Domain, EthernetSegment, FailedWqe, Fetch, Protection, SendWqe, Signal,
    Syndrome,
};
use crate::wire::Frame;
use crate::wire::ethernet::tunnel::push_tag;
use crate::wire::ethernet::{self, HEADER, Headers, TAG, VLAN};

/// WQEs that one queue sends before the next has its turn.
const QUANTUM: usize = 16;

/// Opcodes (`mlx5dv.h`, `MLX5_OPCODE_*`).
const NOP: u8 = 0x00;
const TSO: u8 = 0x0e;
const WAIT: u8 = 0x0f;
const DUMP: u8 = 0x23;
const ENHANCED_MPSW: u8 = 0x29;

impl Ethernet {
    /// Sends up to a quantum of requests.
    pub(super) fn send(&mut self, card: &mut Card, qp: u32) {
        for _ in 0..QUANTUM {
            if card.objects.qps.get(&qp).is_none_or(|object| object.state != State::Rts) {
                return;
            }
            let (index, opcode, signal, sent) = match self.next(card, qp) {
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

/// Checks length and keys of a gather list before memory is set aside for it. Returns the length.
fn check(card: &Card, domain: Domain, list: &[Data], most: u64) -> Result<usize, Syndrome> {
    let bytes: u64 = list.iter().map(Data::len).sum();
    if bytes > most {
        tracing::debug!(qp = domain.qp, bytes, "a WQE describes too many bytes");
        return Err(Syndrome::LocalLength);
    }
    for data in list {
        if let Data::Pointer { length, key, address } = data {
            let length = u64::from(*length);
            card.check(domain, *key, *address, length, Access::LocalRead).map_err(denied)?;
        }
    }
    Ok(bytes as usize)
}

/// Reads a gather list.
fn gather(card: &Card, domain: Domain, list: &[Data], to: &mut [u8]) -> Result<(), Syndrome> {
    card.gather(domain, list, 0, to).map_err(denied)
}

fn denied(denied: Denied) -> Syndrome {
    tracing::debug!(?denied, "cannot gather");
    Syndrome::LocalProtection(Protection::Gather(denied))
}

/// Sends what a request asks for: how many bytes it took from memory.
fn send(card: &mut Card, qp: u32, wqe: &SendWqe) -> Result<u32, Syndrome> {
    if matches!(wqe.opcode, NOP | WAIT) {
        return Ok(0);
    }
    let object = card.objects.qps.get(&qp).ok_or(Syndrome::LocalQpOperation)?;
    let domain = Domain { pd: object.get(qpc::PD), qp };
    let most = limit(card, wqe.opcode);
    if wqe.opcode == DUMP {
        let length = check(card, domain, &wqe.data, most)?;
        gather(card, domain, &wqe.data, &mut vec![0; length])?;
        return Ok(length as u32);
    }
    let segment = wqe.ethernet.as_deref().ok_or(Syndrome::LocalQpOperation)?;
    let Role::EthernetSend(context) = &object.role else { return Err(Syndrome::LocalQpOperation) };
    let field = |field: Field| field.get(&context[..]) as u32;
    if field(sqc::TIS_LST_SZ) == 0 {
        return Err(Syndrome::LocalQpOperation);
    }
    let queue = Queue {
        domain,
        least: field(sqc::MIN_WQE_INLINE_MODE),
        transport: card
            .objects
            .tises
            .get(field(sqc::TIS_NUM_0))
            .map(|tis| tis.get(tisc::TRANSPORT_DOMAIN)),
        rate: card.objects.rates.get(&field(sqc::PACKET_PACING_RATE_LIMIT_INDEX)).copied(),
    };
    // `ALLOW_MULTI_PKT_SEND_WQE` is not asked for: Linux sends by these WQEs on queues without it
    // (`mlx5e_create_sq`). It may be about the older format.
    if wqe.opcode == ENHANCED_MPSW {
        return send_each(card, &queue, &wqe.data, segment);
    }
    let inline = segment.header.len();
    let length = check(card, domain, &wqe.data, most.saturating_sub(inline as u64))?;
    let mut frame = segment.header.clone();
    frame.resize(inline + length, 0);
    gather(card, domain, &wqe.data, &mut frame[inline..])?;
    queue.check_inline(inline, &frame)?;
    if wqe.opcode == TSO {
        for packet in segments::cut(&frame, inline, segment)? {
            leave(card, packet, segment, &queue)?;
        }
    } else {
        leave(card, frame, segment, &queue)?;
    }
    Ok(length as u32)
}

/// What a send queue says of its packets.
struct Queue {
    domain: Domain,
    /// `min_wqe_inline_mode`
    least: u32,
    /// Its transport domain.
    transport: Option<u32>,
    /// The rate that it is limited to.
    rate: Option<Rate>,
}

impl Queue {
    /// Checks that enough of a frame is in the WQE itself.
    fn check_inline(&self, inline: usize, frame: &[u8]) -> Result<(), Syndrome> {
        if inline < inline_bytes(self.least, frame) {
            let qp = self.domain.qp;
            tracing::warn!(qp, inline, "fewer bytes of header are in the WQE than the queue needs");
            return Err(Syndrome::HeaderNotInline);
        }
        Ok(())
    }
}

/// Sends each data segment as a packet of its own (enhanced multi-packet WQE). Packets before one that
/// cannot be sent have left.
fn send_each(
    card: &mut Card,
    queue: &Queue,
    packets: &[Data],
    segment: &EthernetSegment,
) -> Result<u32, Syndrome> {
    // No header and no tag: the segment is that of all packets (DPDK, `mlx5_tx.h`).
    if packets.is_empty()
        || !segment.header.is_empty()
        || segment.insert.is_some()
        || segment.maximum != 0
    {
        return Err(Syndrome::LocalQpOperation);
    }
    let (most, mut all) = (limit(card, ENHANCED_MPSW), 0);
    for packet in packets {
        let list = slice::from_ref(packet);
        let inline = if let Data::Inline(bytes) = packet { bytes.len() } else { 0 };
        let length = check(card, queue.domain, list, most)?;
        let mut frame = vec![0; length];
        gather(card, queue.domain, list, &mut frame)?;
        queue.check_inline(inline, &frame)?;
        leave(card, frame, segment, queue)?;
        all += length as u32;
    }
    Ok(all)
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
    queue: &Queue,
) -> Result<(), Syndrome> {
    if frame.len() < HEADER {
        return Err(Syndrome::LocalLength);
    }
    if let Some(tag) = segment.insert {
        push_tag(&mut frame, VLAN, tag);
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
    for frame in card.steer_sent(frame) {
        // The WQE is not at fault: the entry that made the frame so long is.
        if ethernet::payload(&frame) > card.function.limit.payload() {
            tracing::debug!(length = frame.len(), "a changed frame is longer than the port's MTU");
            continue;
        }
        card.steer(SNIFFER_TX, &frame, None);
        if let Some(rate) = queue.rate {
            card.port.pace.limited(queue.domain.qp, frame.len(), rate);
        }
        card.send(Frame(frame, queue.transport));
    }
    Ok(())
}
