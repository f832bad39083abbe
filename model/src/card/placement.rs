//! Data that has arrived, and that memory does not have yet.
//!
//! The specification leaves open in which order the data of WRITEs, SENDs and answers to READs becomes visible,
//! within a message and across messages of a queue pair (IBA 1.3, 9.5). Devices use that: packets of adaptive
//! routing are placed as they arrive (facts F037 to F042 of evidence/facts/ordering.toml), and PCIe may reorder
//! writes. The model places data in order by default. With a seed, data waits here in lines. A draw with each
//! packet chooses lines that become visible, and a timer ends the wait.

use std::collections::BTreeMap;

use super::Card;
use crate::clock::Random;
use crate::memory::{Fault, Memory};

/// Bytes that become visible at once: a cache line, the unit in which x86-64 takes writes from PCIe.
const LINE: u64 = 64;
/// Bytes that answer or fault alike.
const PAGE: u64 = 4096;
/// Longest time in nanoseconds that data waits, if nothing places it before.
const LONGEST: u64 = 20_000;

/// Bytes of one line.
#[derive(Debug)]
struct Piece {
    bus: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn overlaps(&self, bus: u64, length: usize) -> bool {
        self.bus < bus + length as u64 && bus < self.bus + self.bytes.len() as u64
    }

    /// Writes it. The memory answered when the packet arrived.
    fn write(self, memory: &dyn Memory) {
        if let Err(fault) = memory.write(self.bus, &self.bytes) {
            tracing::warn!(%fault, "the memory of a packet's data has gone");
        }
    }
}

/// Data of a queue pair. No two pieces overlap.
#[derive(Debug)]
struct Waiting {
    pieces: Vec<Piece>,
    /// The time at which the timer places the rest.
    until: u64,
}

/// Data that waits to become visible, by queue pair.
#[derive(Debug)]
pub(crate) struct Placement {
    random: Random,
    waiting: BTreeMap<u32, Waiting>,
}

impl Placement {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { random: Random::seeded(seed), waiting: BTreeMap::new() }
    }

    /// Adds data that is contiguous on the bus. Fails if its memory does not answer. Waiting data of the
    /// queue pair that it overwrites is placed first.
    pub(crate) fn add(
        &mut self,
        qp: u32,
        memory: &dyn Memory,
        bus: u64,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let end = bus.checked_add(bytes.len() as u64).ok_or(Fault(bus))?;
        let mut page = bus;
        while page < end {
            // A write without effect faults as the write of the data would.
            memory.update(page & !7, &mut |old| old)?;
            page = (page & !(PAGE - 1)).saturating_add(PAGE);
        }
        let waiting = self.waiting.entry(qp).or_insert(Waiting { pieces: vec![], until: u64::MAX });
        let (overwritten, others) = std::mem::take(&mut waiting.pieces)
            .into_iter()
            .partition::<Vec<Piece>, _>(|piece| piece.overlaps(bus, bytes.len()));
        waiting.pieces = others;
        overwritten.into_iter().for_each(|piece| piece.write(memory));
        let (mut at, mut rest) = (bus, bytes);
        while !rest.is_empty() {
            let room = (LINE - at % LINE) as usize;
            let (line, later) = rest.split_at(room.min(rest.len()));
            waiting.pieces.push(Piece { bus: at, bytes: line.to_vec() });
            (at, rest) = (at + line.len() as u64, later);
        }
        Ok(())
    }

    /// Places some lines of a queue pair, which its last packet was added to. Starts the timer of the
    /// others.
    pub(crate) fn place_some(&mut self, qp: u32, memory: &dyn Memory, now: u64) {
        let Some(waiting) = self.waiting.get_mut(&qp) else { return };
        let some = self.random.draw() as usize % (waiting.pieces.len() + 1);
        draw(&mut self.random, &mut waiting.pieces, some, memory);
        if waiting.until == u64::MAX {
            if waiting.pieces.is_empty() {
                self.waiting.remove(&qp);
            } else {
                waiting.until = now + 1 + self.random.draw() % LONGEST;
            }
        }
    }

    /// Places all data of a queue pair. Its timer stays.
    fn place(&mut self, qp: u32, memory: &dyn Memory) {
        if let Some(waiting) = self.waiting.get_mut(&qp) {
            let all = waiting.pieces.len();
            draw(&mut self.random, &mut waiting.pieces, all, memory);
        }
    }
}

/// Places so many of the pieces, in an order that is drawn.
fn draw(random: &mut Random, pieces: &mut Vec<Piece>, count: usize, memory: &dyn Memory) {
    for _ in 0..count {
        let next = random.draw() as usize % pieces.len();
        pieces.swap_remove(next).write(memory);
    }
}

impl Card {
    /// Returns whether data of a queue pair waits to become visible.
    pub(crate) fn has_waiting_data(&self, qp: u32) -> bool {
        let waiting = self.placement.as_ref().and_then(|placement| placement.waiting.get(&qp));
        waiting.is_some_and(|waiting| !waiting.pieces.is_empty())
    }

    /// Makes all data of a queue pair that has arrived visible.
    pub(crate) fn place(&mut self, qp: u32) {
        if let Some(placement) = &mut self.placement {
            placement.place(qp, &*self.memory);
        }
    }

    /// Makes all data that has arrived visible, before software may give up memory.
    pub(crate) fn place_all(&mut self) {
        if let Some(placement) = &mut self.placement {
            let queues: Vec<u32> = placement.waiting.keys().copied().collect();
            queues.into_iter().for_each(|qp| placement.place(qp, &*self.memory));
        }
    }

    /// Returns the time at which data becomes visible in any case.
    pub(crate) fn placement_deadline(&self) -> Option<u64> {
        self.placement.as_ref()?.waiting.values().map(|waiting| waiting.until).min()
    }

    /// Makes the data whose timers are due visible. Returns the queue pairs: they may answer now.
    pub(crate) fn place_due(&mut self, now: u64) -> Vec<u32> {
        let Some(placement) = &mut self.placement else { return Vec::new() };
        let due = placement.waiting.iter().filter(|(_, waiting)| waiting.until <= now);
        let due: Vec<u32> = due.map(|(qp, _)| *qp).collect();
        for qp in &due {
            placement.place(*qp, &*self.memory);
            placement.waiting.remove(qp);
        }
        due
    }
}
