//! Registers of the UAR pages.

use mlx5_sys::ifc::{cqc, qpc};

use super::send::BLOCK;
use crate::card::{BlueflameCopy, Card};
use crate::cost::Store;
use crate::object::{CopiedWqe, Qp, SendQueue};

/// Offsets into a UAR page (`mlx5dv.h`, `mlx5_ifc.h`; `device.h` for the EQ's).
const CQ_ARM: usize = 0x20;
const EQ_ARM: usize = 0x40;
const EQ_UPDATE: usize = 0x48;
/// The send doorbell of queues without a record (rdma-core, `tests/mlx5_base.py`).
pub(crate) const RECORDLESS: usize = 0x600;
/// BlueFlame registers of 0x200 bytes, each of two halves, up to the end of the page.
const BLUEFLAME: usize = 0x800;
const HALF: usize = 0x100;
const PAGE: usize = 0x1000;

/// Returns the end of the BlueFlame buffer that an offset into a UAR page is in.
pub(crate) fn blueflame_end(offset: usize) -> Option<usize> {
    (BLUEFLAME..PAGE).contains(&offset).then_some((offset & !(HALF - 1)) + HALF)
}

impl Card {
    /// A store reached a register, as [`Card::store`] says. Returns the queue pair whose doorbell it
    /// rang, if that has work.
    pub(crate) fn stored(&mut self, uar: u32, offset: usize, bytes: &[u8]) -> Option<u32> {
        let upper = self.registers.upper.take();
        match (offset, bytes.len()) {
            (EQ_ARM | EQ_UPDATE, 4) => {
                let word = be32(bytes, 0);
                self.update_eq(uar, word >> 24, word, offset == EQ_ARM);
            }
            (CQ_ARM, 8) => self.arm_register(uar, be32(bytes, 0), be32(bytes, 4)),
            (RECORDLESS, 8) => {
                let words = (be32(bytes, 0), be32(bytes, 4));
                return self.doorbell(uar, words, Register::Recordless);
            }
            (CQ_ARM | RECORDLESS, 4) => self.registers.upper = Some((uar, offset, first(bytes))),
            (at, 4)
                if at % 8 == 4 && matches!(upper, Some((u, o, _)) if (u, o) == (uar, at - 4)) =>
            {
                let mut whole = [0; 8];
                if let Some((_, _, half)) = upper {
                    whole[..4].copy_from_slice(&half);
                }
                whole[4..].copy_from_slice(&first(bytes));
                return self.stored(uar, offset - 4, &whole);
            }
            (at, n) if (BLUEFLAME..PAGE).contains(&at) && at % HALF + n <= HALF && n > 0 => {
                return self.blueflame(uar, at & !(HALF - 1), at % HALF, bytes);
            }
            (_, n) => {
                tracing::warn!(uar, offset, n, "a store to no register");
                self.complaints.unknown_stores += 1;
            }
        }
        None
    }

    /// Returns whether a fault loses a store: a doorbell, or the rest of a BlueFlame copy whose
    /// doorbell was lost. The eight bytes of a doorbell may come in two stores.
    pub(crate) fn loses_store(&mut self, uar: u32, offset: usize, bytes: &[u8]) -> bool {
        let Some(impairment) = &mut self.impairment else { return false };
        let (at, buffer) = (offset % HALF, (uar, offset - offset % HALF));
        let is_second = matches!(self.registers.upper, Some((u, o, _)) if (u, o) == buffer);
        let number = match (at, bytes.len()) {
            _ if buffer.1 < BLUEFLAME && buffer.1 != RECORDLESS => return false,
            (0, 8..) => be32(bytes, 4) >> 8,
            (4, 4) if is_second => be32(bytes, 0) >> 8,
            _ => return at >= 8 && impairment.has_lost(buffer),
        };
        let lost = impairment.loses_doorbell(buffer, number, self.clock.now());
        if lost {
            tracing::warn!(qp = number, "a fault: a doorbell is lost");
        }
        lost
    }

    /// Returns what a store is in virtual time. A store that is wider than a doorbell begins a BlueFlame
    /// copy; a copy word by word begins like a doorbell, and counts as one.
    pub(crate) fn cost_of_store(&self, offset: usize, bytes: &[u8]) -> Store {
        let at = offset % HALF;
        if !(BLUEFLAME..PAGE).contains(&offset) || at == 0 && bytes.len() <= 8 {
            return Store::Word;
        }
        if at != 0 {
            return Store::Rest;
        }
        let (index, qp) = ((be32(bytes, 0) >> 8) as u16, be32(bytes, 4) >> 8);
        let blocks = (be32(bytes, 4) & 0x3f).div_ceil(4).max(1);
        let next = self.objects.qps.get(&qp).is_some_and(|qp| qp.sq.fetched == index);
        Store::Copy { blocks, newest: next.then_some((qp, index)) }
    }

    /// Returns the queue pairs with send queues and records whose doorbells are on a UAR page.
    pub(crate) fn send_queues_on(&self, uar: u32) -> Vec<u32> {
        let mut queues: Vec<u32> = self
            .objects
            .qps
            .values()
            .filter(|qp| qp.get(qpc::UAR_PAGE) == uar && qp.has_send_record())
            .map(|qp| qp.number)
            .collect();
        queues.sort_unstable();
        queues
    }

    /// Looks at the arm words of the CQs on a UAR page.
    pub(crate) fn look_at_arms(&mut self, uar: u32) {
        let cqs: Vec<(u32, u64, u32)> = self
            .objects
            .cqs
            .iter()
            .filter(|(_, cq)| cq.get(cqc::UAR_PAGE) == uar)
            .map(|(n, cq)| (n, cq.record(), cq.arm_word))
            .collect();
        for (cqn, record, seen) in cqs {
            let mut word = [0; 4];
            if self.memory.read(record.wrapping_add(4), &mut word).is_ok()
                && u32::from_be_bytes(word) != seen
            {
                self.arm_cq(cqn, u32::from_be_bytes(word));
            }
        }
    }

    fn arm_register(&mut self, uar: u32, word: u32, cqn: u32) {
        if self.objects.cqs.get(cqn).is_none_or(|cq| cq.get(cqc::UAR_PAGE) != uar) {
            tracing::warn!(uar, cqn, "an arm of a CQ that is not on this UAR page");
            self.complaints.stray_doorbells += 1;
            return;
        }
        self.arm_cq(cqn, word);
    }

    fn blueflame(&mut self, uar: u32, half: usize, at: usize, bytes: &[u8]) -> Option<u32> {
        if at == 0 && bytes.len() == 4 {
            self.registers.upper = Some((uar, half, first(bytes)));
            return None;
        }
        if at == 0 && bytes.len() >= 8 {
            let (control, rest) = bytes.split_at(8);
            let index = u16::from_be_bytes([control[1], control[2]]);
            let (qp, ds) = (be32(control, 4) >> 8, control[7] & 0x3f);
            let length = usize::from(ds) * 16;
            let copy = BlueflameCopy { qp, index, length, reached: bytes.len() };
            self.registers.copies.insert((uar, half), copy);
            if !rest.is_empty() {
                self.compare(copy, 8, rest);
            }
            let words = (be32(control, 0), be32(control, 4));
            let number = self.doorbell(uar, words, Register::BlueFlame)?;
            self.keep_copy(number, copy, bytes);
            return Some(number);
        }
        match self.registers.copies.get_mut(&(uar, half)) {
            Some(copy) if copy.reached == at => {
                copy.reached += bytes.len();
                let copy = *copy;
                self.compare(copy, at, bytes);
            }
            _ => {
                tracing::warn!(uar, half, at, "a BlueFlame store that continues nothing");
                self.complaints.unknown_stores += 1;
            }
        }
        None
    }

    /// Keeps a WQE that arrived whole, so that the ring need not be read for it. Forgets the one of an
    /// earlier doorbell.
    fn keep_copy(&mut self, number: u32, copy: BlueflameCopy, bytes: &[u8]) {
        let Some(qp) = self.objects.qps.get_mut(&number) else { return };
        let next = copy.length <= BLOCK && copy.index == qp.sq.fetched;
        let block = bytes.try_into().ok().filter(|_| next);
        qp.sq.copied = block.map(|block| Box::new(CopiedWqe { index: copy.index, block }));
    }

    /// Compares a part of a BlueFlame copy with the WQE in the ring, which is what is executed unless
    /// the copy is whole.
    fn compare(&mut self, copy: BlueflameCopy, at: usize, bytes: &[u8]) {
        let Some(qp) = self.objects.qps.get(&copy.qp) else { return };
        let ring = qp.sq.blocks as usize * BLOCK;
        // What is copied beyond the WQE's end fills the last block and means nothing.
        let length = bytes.len().min(copy.length.saturating_sub(at));
        if ring == 0 || length == 0 {
            return;
        }
        let mut met = [0; HALF];
        let met = &mut met[..length];
        for (i, chunk) in met.chunks_mut(8).enumerate() {
            let offset = (usize::from(copy.index) * BLOCK + at + i * 8) % ring;
            // Copies are of multiples of eight bytes from an aligned ring; others differ below.
            let room = chunk.len().min(ring - offset);
            if qp.sq.pages.read(&*self.memory, offset, &mut chunk[..room]).is_err() {
                self.complaints.unmapped_queues += 1;
                return;
            }
        }
        if *met != bytes[..length] {
            tracing::warn!(
                qp = copy.qp,
                index = copy.index,
                at,
                "a BlueFlame copy differs from its WQE"
            );
            self.complaints.blueflame_mismatches += 1;
        }
    }

    /// Handles a doorbell: the first eight bytes of the last WQE that is posted. The queue ends
    /// behind that WQE. Or the size is zero, and the counter is the one behind the last WQE.
    ///
    /// libmlx5, Linux and rdma-core's test of queues without a record ring the first form. NVSHMEM
    /// and GPUNetIO ring the second, with a record as well as without. The record plays no part in
    /// RTS (measured on ConnectX-6, evidence E001).
    ///
    /// Returns the queue pair, if it has work.
    fn doorbell(&mut self, uar: u32, (first, second): (u32, u32), at: Register) -> Option<u32> {
        let (index, number, ds) = ((first >> 8) as u16, second >> 8, (second & 0x3f) as u16);
        let Some(qp) = self.objects.qps.get_mut(&number).filter(|qp| {
            qp.get(qpc::UAR_PAGE) == uar && qp.sq.blocks > 0 && Register::of(qp) == at
        }) else {
            tracing::warn!(uar, qp = number, "a doorbell for a QP that is not on this UAR page");
            self.complaints.stray_doorbells += 1;
            return None;
        };
        if qp.has_failed() && qp.has_send_record() {
            // The record alone counts.
            return Some(number);
        }
        let producer = index.wrapping_add(ds.div_ceil(4));
        qp.sq.rung = true;
        if producer == qp.sq.producer {
            // The same doorbell again does no harm (evidence E010).
            return None;
        }
        if !SendQueue::covers(producer, qp.sq.producer) {
            tracing::warn!(qp = number, index, "a doorbell for a WQE that is known");
            self.complaints.wrong_doorbells += 1;
            return None;
        }
        if !qp.sq.holds_up_to(producer) {
            tracing::warn!(qp = number, index, "a doorbell beyond what the ring holds");
            self.complaints.overfull_queues += 1;
            return None;
        }
        let before = std::mem::replace(&mut qp.sq.producer, producer);
        self.compare_record(number);
        self.prefetch(number, before);
        Some(number)
    }
}

/// A register at which send queues are rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    /// The BlueFlame register, of queues with a doorbell record.
    BlueFlame,
    /// That of queues without one.
    Recordless,
}

impl Register {
    /// Returns the register of a queue pair.
    fn of(qp: &Qp) -> Self {
        if qp.is_recordless() { Self::Recordless } else { Self::BlueFlame }
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
}

fn first(bytes: &[u8]) -> [u8; 4] {
    be32(bytes, 0).to_be_bytes()
}

#[cfg(test)]
mod tests;
