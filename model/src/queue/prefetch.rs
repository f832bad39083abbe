//! Send WQEs as they were when their doorbell came.
//!
//! Devices read WQEs ahead of their turn (evidence E164). So a WQE that a program, or a peer, changes behind
//! its doorbell may be executed in either version. The model reads late by default. With a seed, it keeps
//! what the doorbell has named, and draws the version of each WQE that has changed.

use mlx5_sys::ifc::qpc;

use super::send::{BLOCK, read};
use crate::card::Card;
use crate::clock::Random;
use crate::memory::Memory;
use crate::object::{Qp, SendQueue};
use crate::work::decode::Control;

/// Blocks of the longest WQE.
const LONGEST: u16 = 16;

impl Card {
    /// Keeps the WQEs of a send queue that a doorbell has just named: those from a counter on. Those of a
    /// queue that another one steers are read when they are enabled.
    pub(super) fn prefetch(&mut self, number: u32, from: u16) {
        if self.prefetch.is_none() {
            return;
        }
        let Some(qp) = self.objects.qps.get_mut(&number) else { return };
        if qp.get(qpc::CD_SLAVE_SEND) == 1 {
            return;
        }
        let mut at = from;
        while at != qp.sq.producer {
            let start = (u32::from(at) & (qp.sq.blocks - 1)) as usize * BLOCK;
            let mut block = [0; BLOCK];
            if read(None, qp, &*self.memory, start, &mut block).is_err() {
                return;
            }
            qp.sq.prefetched.push_back((at, block));
            at = at.wrapping_add(1);
        }
    }
}

/// Returns the WQE at a counter as it was when its doorbell came, if it has changed and this version is
/// drawn. Forgets the WQEs before it.
pub(super) fn early_version(
    qp: &mut Qp,
    index: u16,
    memory: &dyn Memory,
    random: &mut Random,
) -> Option<Vec<u8>> {
    while qp.sq.prefetched.front().is_some_and(|(at, _)| SendQueue::covers(index, *at)) {
        qp.sq.prefetched.pop_front();
    }
    if qp.has_failed() {
        return None;
    }
    let kept = (0..LONGEST).map(|ahead| index.wrapping_add(ahead)).zip(&qp.sq.prefetched);
    let kept = kept.take_while(|(at, (kept, _))| at == kept);
    let mut early: Vec<u8> = kept.flat_map(|(_, (_, block))| *block).collect();
    let control = Control::decode(early.first_chunk()?);
    let length = usize::from(control.ds).max(1) * 16;
    if early.len() < length {
        return None;
    }
    early.truncate(length);
    let mut now = vec![0; length];
    let start = (u32::from(index) & (qp.sq.blocks - 1)) as usize * BLOCK;
    read(None, qp, memory, start, &mut now).ok()?;
    if now == early {
        return None;
    }
    let is_early = random.draw() & 1 == 0;
    tracing::warn!(qp = qp.number, index, is_early, "a WQE has changed behind its doorbell");
    is_early.then_some(early)
}
