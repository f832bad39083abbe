//! Writing frames into receive WQEs, whole ones and strides.

use mlx5_sys::ifc::{query_q_counter_out, rqc};

use super::super::receive::{check_room, put};
use super::super::{Completion, Outcome};
use crate::card::Card;
use crate::object::{Qp, Role, State};
use crate::queue::{Opcode, Part, QpEvent, ReceiveWqe, Seen, Syndrome, Taken};
use crate::wire::ethernet::tunnel::pop_tag;
use crate::wire::ethernet::{Headers, VLAN};

/// A frame for a queue, with its headers, hash and tag.
pub(super) struct Arrived<'a> {
    pub frame: &'a [u8],
    pub headers: &'a Headers,
    /// The hash by which the queue was chosen, and of what it is.
    pub hash: (u32, u8),
    /// Tag of the flow.
    pub tag: u32,
}

/// Why a queue cannot go on.
enum Broken {
    /// The WQE with this index cannot take the frame.
    Wqe(u16, Syndrome),
    /// The ring or its doorbell record cannot be read: no WQE names the error.
    Queue,
}

/// Gives a frame to a receive queue. Where nothing is posted it is lost.
pub(super) fn deliver(card: &mut Card, queue: u32, arrived: &Arrived<'_>) {
    let Some(object) = card.objects.qps.get(&queue).filter(|qp| qp.state == State::Rtr) else {
        return;
    };
    let strips = match &object.role {
        Role::EthernetReceive(context, _) => rqc::VSD.get(&context[..]) == 0,
        _ => false,
    };
    let strides = object.strides().map(|s| (s.size, s.count, s.shift));
    let mut seen = Seen::of(arrived.frame, arrived.headers, arrived.hash, arrived.tag);
    let stripped;
    let mut frame = arrived.frame;
    if let (true, Some((VLAN, tag))) = (strips, arrived.headers.vlan) {
        let mut bytes = frame.to_vec();
        pop_tag(&mut bytes);
        stripped = bytes;
        frame = &stripped;
        seen.stripped = Some(tag);
    }
    let taken = match strides {
        Some(strides) => into_strides(card, queue, frame, &seen, strides),
        None => into_receive(card, queue, frame, &seen),
    };
    match taken {
        Ok(()) => return,
        Err(Broken::Wqe(index, syndrome)) => {
            hold(card, queue, index, Err(syndrome), frame.len(), &seen);
        }
        Err(Broken::Queue) => card.port.hold(Outcome::Event(queue, QpEvent::Catastrophic)),
    }
    card.fail(queue);
}

fn hold(
    card: &mut Card,
    queue: u32,
    index: u16,
    result: Result<(), Syndrome>,
    length: usize,
    seen: &Seen,
) {
    let mut held =
        Completion::received(queue, Opcode::Send, Taken { index, xrc_srq: None }, result);
    held.length = length as u32;
    held.ethernet = Some(*seen);
    card.port.hold(held);
}

/// Nothing is posted for a frame.
fn lost(card: &mut Card, queue: u32) {
    tracing::debug!(queue, "no receive is posted, a frame is lost");
    card.count(queue, query_q_counter_out::OUT_OF_BUFFER);
}

fn into_receive(card: &mut Card, queue: u32, frame: &[u8], seen: &Seen) -> Result<(), Broken> {
    let wqe = card.take_receive(queue).map_err(|_| Broken::Queue)?;
    let Some(wqe) = wqe else {
        lost(card, queue);
        return Ok(());
    };
    check_room(card, &wqe, frame.len() as u64, 0)
        .and_then(|()| put(card, &wqe, 0, frame))
        .map_err(|syndrome| Broken::Wqe(wqe.index, syndrome))?;
    hold(card, queue, wqe.index, Ok(()), frame.len(), seen);
    Ok(())
}

fn into_strides(
    card: &mut Card,
    queue: u32,
    frame: &[u8],
    seen: &Seen,
    (size, count, shift): (u32, u32, bool),
) -> Result<(), Broken> {
    let shift = if shift { 2 } else { 0 };
    let needed = (frame.len() as u32 + shift).div_ceil(size).max(1);
    loop {
        let (wqe, used) = match take_current(card, queue) {
            Some(current) => current,
            None => match card.take_receive(queue).map_err(|_| Broken::Queue)? {
                Some(wqe) => (wqe, 0),
                None => {
                    lost(card, queue);
                    return Ok(());
                }
            },
        };
        if needed > count {
            return Err(Broken::Wqe(wqe.index, Syndrome::LocalLength));
        }
        let left = count - used;
        // Strides that are too few for the frame are reported as a filler, so that the WQE is used
        // up.
        let filler = needed > left;
        let strides = if filler { left } else { needed };
        let part = Part { wqe: wqe.index, strides: strides as u16, filler };
        let length = if filler { 0 } else { frame.len() };
        if !filler {
            let offset = u64::from(used) * u64::from(size) + u64::from(shift);
            put(card, &wqe, offset, frame).map_err(|syndrome| Broken::Wqe(wqe.index, syndrome))?;
        }
        let mut seen = if filler { Seen::default() } else { *seen };
        seen.part = Some(part);
        hold(card, queue, used as u16, Ok(()), length, &seen);
        if used + strides < count {
            if let Some(kept) = card.objects.qps.get_mut(&queue).and_then(Qp::strides_mut) {
                kept.current = Some((wqe, used + strides));
            }
        }
        if !filler {
            return Ok(());
        }
    }
}

/// Takes out the WQE that packets share now, and how many of its strides are taken.
pub(super) fn take_current(card: &mut Card, queue: u32) -> Option<(ReceiveWqe, u32)> {
    card.objects.qps.get_mut(&queue)?.strides_mut()?.current.take()
}
