//! Writing frames into receive WQEs, whole ones and strides.

use mlx5_sys::ifc::{Field, query_q_counter_out, rqc};

use super::super::{Held, Outcome, QueuePair};
use crate::card::Card;
use crate::object::{Half, Qp, State};
use crate::queue::{Data, Opcode, Origin, Part, ReceiveWqe, Seen, Syndrome};
use crate::wire::ethernet::{HEADER, Headers, TAG, VLAN};

/// A frame for a queue, with its headers, hash and tag.
pub(super) struct Arrived<'a> {
    pub frame: &'a [u8],
    pub headers: &'a Headers,
    /// The hash by which the queue was chosen, and of what it is.
    pub hash: (u32, u8),
    /// Tag of the flow.
    pub tag: u32,
}

/// Why a queue cannot go on: the WQE, and what is wrong with it.
type Broken = (Option<u16>, Syndrome);

/// Gives a frame to a receive queue. Where nothing is posted it is lost.
pub(super) fn deliver(card: &mut Card, queue: u32, arrived: &Arrived<'_>) {
    let Some(object) = card.objects.qps.get(&queue).filter(|qp| qp.state == State::Rtr) else {
        return;
    };
    let strips = get(object, rqc::VSD) == Some(0);
    let strides = object.half.as_ref().and_then(Half::strides).map(|s| (s.size, s.count, s.shift));
    let mut seen = Seen::of(arrived.frame, arrived.headers, arrived.hash, arrived.tag);
    let stripped;
    let mut frame = arrived.frame;
    if let (true, Some((VLAN, tag))) = (strips, arrived.headers.vlan) {
        let mut bytes = frame.to_vec();
        bytes.drain(HEADER - 2..HEADER - 2 + TAG);
        stripped = bytes;
        frame = &stripped;
        seen.stripped = Some(tag);
    }
    let taken = match strides {
        Some(strides) => into_strides(card, queue, frame, &seen, strides),
        None => into_receive(card, queue, frame, &seen),
    };
    if let Err((index, syndrome)) = taken {
        if let Some(index) = index {
            hold(card, queue, index, Err(syndrome), frame.len(), &seen);
        }
        let state =
            card.objects.qps.get(&queue).and_then(QueuePair::of).map(|kept| kept.ethernet.clone());
        if let Some(mut state) = state {
            state.fail(card, queue);
        }
    }
}

fn get(qp: &Qp, field: Field) -> Option<u32> {
    match &qp.half {
        Some(Half::Receive(context, _)) => Some(field.get(&context[..]) as u32),
        _ => None,
    }
}

fn hold(
    card: &mut Card,
    queue: u32,
    index: u16,
    result: Result<(), Syndrome>,
    length: usize,
    seen: &Seen,
) {
    let mut held = Held::new(queue, Origin::Responder(Opcode::Send), index, result);
    held.length = length as u32;
    held.ethernet = Some(*seen);
    card.port.hold(Outcome::Completion(held));
}

/// Nothing is posted for a frame.
fn lost(card: &mut Card, queue: u32) {
    tracing::debug!(queue, "no receive is posted, a frame is lost");
    card.count(queue, query_q_counter_out::OUT_OF_BUFFER);
}

fn into_receive(card: &mut Card, queue: u32, frame: &[u8], seen: &Seen) -> Result<(), Broken> {
    let wqe = card.take_receive(queue).map_err(|syndrome| (None, syndrome))?;
    let Some(wqe) = wqe else {
        lost(card, queue);
        return Ok(());
    };
    let room: u64 = wqe.data.iter().map(Data::len).sum();
    if frame.len() as u64 > room {
        return Err((Some(wqe.index), Syndrome::LocalLength));
    }
    put(card, &wqe, 0, frame)?;
    hold(card, queue, wqe.index, Ok(()), frame.len(), seen);
    Ok(())
}

/// Writes a frame to the memory of a receive.
fn put(card: &Card, wqe: &ReceiveWqe, offset: u64, frame: &[u8]) -> Result<(), Broken> {
    card.scatter(wqe.domain, &wqe.data, offset, frame).map_err(|denied| {
        tracing::debug!(?denied, "cannot scatter");
        (Some(wqe.index), Syndrome::LocalProtection)
    })
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
        let (wqe, used) = match give_back(card, queue) {
            Some(current) => current,
            None => match card.take_receive(queue).map_err(|syndrome| (None, syndrome))? {
                Some(wqe) => (wqe, 0),
                None => {
                    lost(card, queue);
                    return Ok(());
                }
            },
        };
        if needed > count {
            return Err((Some(wqe.index), Syndrome::LocalLength));
        }
        let left = count - used;
        // Strides that are too few for the frame are reported as a filler, so that the WQE is used
        // up.
        let filler = needed > left;
        let strides = if filler { left } else { needed };
        let part = Part { wqe: wqe.index, strides: strides as u16, filler };
        let length = if filler { 0 } else { frame.len() };
        if !filler {
            put(card, &wqe, u64::from(used) * u64::from(size) + u64::from(shift), frame)?;
        }
        let mut seen = if filler { Seen::default() } else { *seen };
        seen.part = Some(part);
        hold(card, queue, used as u16, Ok(()), length, &seen);
        if used + strides < count {
            keep(card, queue, Some((wqe, used + strides)));
        }
        if !filler {
            return Ok(());
        }
    }
}

/// Takes the WQE out that packets share now, and how many of its strides are taken.
fn give_back(card: &mut Card, queue: u32) -> Option<(ReceiveWqe, u32)> {
    match &mut card.objects.qps.get_mut(&queue)?.half {
        Some(Half::Receive(_, Some(strides))) => strides.current.take(),
        _ => None,
    }
}

fn keep(card: &mut Card, queue: u32, current: Option<(ReceiveWqe, u32)>) {
    if let Some(Half::Receive(_, Some(strides))) =
        card.objects.qps.get_mut(&queue).and_then(|qp| qp.half.as_mut())
    {
        strides.current = current;
    }
}

/// Gives up the WQE that packets share: its counter.
pub(super) fn give_up(card: &mut Card, queue: u32) -> Option<u16> {
    give_back(card, queue).map(|(wqe, _)| wqe.index)
}
