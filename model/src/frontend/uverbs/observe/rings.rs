//! Rings in the program's memory, read beside the program and the device.
//!
//! The program writes doorbell records, WQEs and consumer indices, and the device writes CQEs, at any
//! time. So no content is trusted: indices are reduced to the ring, lengths are limited to it, and an
//! address without memory is a [`Fault`].

use std::sync::atomic::{Ordering, fence};

use mlx5_sys::cqe::{FORMAT_COMPRESSED, FORMAT_SHIFT, MINI_CQES_PER_SLOT};

use crate::memory::{Fault, Memory};
use crate::object::{MiniFormat, SendQueue};
use crate::trace::Mistake;

/// Bytes of a block of a send queue, and of a segment.
const BLOCK: usize = 64;
const SEGMENT: usize = 16;
/// Longest WQE: 63 segments.
const LONGEST: usize = 63 * SEGMENT;
/// Longest CQE.
const LONGEST_CQE: usize = 128;

fn read_be32(memory: &dyn Memory, address: u64) -> Result<u32, Fault> {
    let mut word = [0; 4];
    memory.read(address, &mut word)?;
    Ok(u32::from_be_bytes(word))
}

/// A send queue.
#[derive(Debug)]
pub(super) struct SendRing {
    base: u64,
    blocks: u32,
    /// Address of the send counter in the doorbell record.
    record: u64,
    /// Counter of the first block that was not read yet.
    next: u16,
}

impl SendRing {
    /// Creates an empty ring of a power of two of blocks. `record` is the address of the send counter.
    /// `None` for no ring of this kind.
    pub fn new(base: u64, blocks: u32, record: u64) -> Option<Self> {
        let is_ring = blocks.is_power_of_two() && blocks <= 1 << 15 && base != 0 && record != 0;
        is_ring.then_some(Self { base, blocks, record, next: 0 })
    }

    /// Starts from the beginning: the queue pair was reset.
    pub fn reset(&mut self) {
        self.next = 0;
    }

    /// Passes each WQE that a doorbell or the doorbell record tells of and that was not passed yet,
    /// with the counter of its first block. `doorbell` is the counter behind the WQE that was rung.
    /// Returns the mistake of the program, if there is one.
    pub fn look(
        &mut self,
        memory: &dyn Memory,
        doorbell: u16,
        mut wqe: impl FnMut(u16, &[u8]),
    ) -> Result<Option<Mistake>, Fault> {
        let record = read_be32(memory, self.record)? as u16;
        // The program wrote the WQEs before the record.
        fence(Ordering::Acquire);
        // A device executes what the doorbell names (measured on ConnectX-6, evidence E001).
        let is_late = record != doorbell && !SendQueue::covers(record, doorbell);
        let end = if is_late { doorbell } else { record };
        if u32::from(end.wrapping_sub(self.next)) > self.blocks {
            self.next = end;
            return Ok(Some(Mistake::OverfullQueue));
        }
        let mut bytes = [0; LONGEST];
        while self.next != end {
            let left = end.wrapping_sub(self.next);
            let ctrl = self.at(self.next);
            memory.read(ctrl, &mut bytes[..SEGMENT])?;
            let segments = usize::from(bytes[7] & 0x3f).max(1);
            let length = (segments * SEGMENT).min(self.blocks as usize * BLOCK);
            for (index, chunk) in bytes[..length].chunks_mut(BLOCK).enumerate() {
                memory.read(self.at(self.next.wrapping_add(index as u16)), chunk)?;
            }
            wqe(self.next, &bytes[..length]);
            let blocks = length.div_ceil(BLOCK) as u16;
            self.next = self.next.wrapping_add(blocks.min(left));
        }
        Ok(is_late.then_some(Mistake::LateRecord))
    }

    /// Address of a block.
    fn at(&self, counter: u16) -> u64 {
        let index = u64::from(u32::from(counter) & (self.blocks - 1));
        self.base.wrapping_add(index * BLOCK as u64)
    }
}

/// A receive queue. WQEs are copied when they were posted: the program may have posted another in the
/// same place before the CQE of the first is seen.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    base: u64,
    wqes: u32,
    /// Bytes of a WQE.
    stride: usize,
    /// Address of the receive counter in the doorbell record.
    record: u64,
    /// Number of WQEs that were seen.
    seen: u64,
    /// The last WQEs that were seen, of two laps.
    copies: Vec<u8>,
}

impl ReceiveRing {
    /// Creates an empty ring of a power of two of WQEs. `None` for no ring of this kind.
    pub fn new(base: u64, wqes: u32, shift: u32, record: u64) -> Option<Self> {
        let is_ring = wqes.is_power_of_two()
            && wqes <= 1 << 15
            && (4..=11).contains(&shift)
            && base != 0
            && record != 0;
        let stride = 1 << shift;
        let copies = || vec![0; 2 * wqes as usize * stride];
        is_ring.then(|| Self { base, wqes, stride, record, seen: 0, copies: copies() })
    }

    /// Starts from the beginning: the queue pair was reset.
    pub fn reset(&mut self) {
        self.seen = 0;
    }

    /// Copies the WQEs that were posted since the last look.
    pub fn look(&mut self, memory: &dyn Memory) -> Result<(), Fault> {
        let counter = read_be32(memory, self.record)? as u16;
        // The program wrote the WQEs before the record.
        fence(Ordering::Acquire);
        let posted = u64::from(counter.wrapping_sub(self.seen as u16));
        let end = self.seen + posted;
        let from = end - posted.min(u64::from(self.wqes));
        for count in from..end {
            let index = count % u64::from(self.wqes);
            let address = self.base.wrapping_add(index * self.stride as u64);
            let place = self.place(count);
            memory.read(address, &mut self.copies[place])?;
        }
        self.seen = end;
        Ok(())
    }

    /// Returns the WQE with this counter, if it was seen.
    pub fn wqe(&self, index: u16) -> Option<&[u8]> {
        let last = self.seen.checked_sub(1)?;
        let before = u64::from((last as u16).wrapping_sub(index));
        let count = last.checked_sub(before).filter(|_| before < 2 * u64::from(self.wqes))?;
        Some(&self.copies[self.place(count)])
    }

    fn place(&self, count: u64) -> std::ops::Range<usize> {
        let slot = (count % (2 * u64::from(self.wqes))) as usize;
        slot * self.stride..(slot + 1) * self.stride
    }
}

/// A shared receive queue. Its WQEs are read when a CQE names them.
#[derive(Debug)]
pub(super) struct SharedRing {
    base: u64,
    wqes: u32,
    /// Bytes of a WQE.
    stride: usize,
}

impl SharedRing {
    /// Bytes of the segment that names the next WQE.
    const NEXT: usize = 16;

    /// Returns the ring of a queue with these sizes, as `mlx5_ib` lays it out.
    pub fn new(base: u64, max_wr: u32, max_sge: u32) -> Option<Self> {
        let wqes = max_wr.checked_add(1)?.checked_next_power_of_two()?;
        let segments = max_sge.checked_add(1)?.checked_mul(SEGMENT as u32)?;
        let stride = segments.checked_next_power_of_two()?.max(32);
        Self::of(base, wqes, stride as usize)
    }

    /// Returns the ring of a power of two of WQEs of `stride` bytes. `None` for no ring of this kind.
    pub fn of(base: u64, wqes: u32, stride: usize) -> Option<Self> {
        let is_ring = wqes.is_power_of_two()
            && wqes <= 1 << 16
            && (32..=LONGEST).contains(&stride)
            && base != 0;
        is_ring.then_some(Self { base, wqes, stride })
    }

    /// Returns the number of WQEs, and the bytes of each.
    pub fn sizes(&self) -> (u32, u32) {
        (self.wqes, self.stride as u32)
    }

    /// Passes the scatter list of a WQE.
    pub fn wqe(
        &self,
        memory: &dyn Memory,
        index: u16,
        pass: impl FnOnce(&[u8]),
    ) -> Result<(), Fault> {
        let mut bytes = [0; LONGEST];
        let bytes = &mut bytes[..self.stride];
        let index = u64::from(u32::from(index) & (self.wqes - 1));
        memory.read(self.base.wrapping_add(index * self.stride as u64), bytes)?;
        pass(&bytes[Self::NEXT..]);
        Ok(())
    }
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CqRing {
    base: u64,
    entries: u32,
    /// Bytes of a CQE.
    size: usize,
    /// Address of the consumer index in the doorbell record.
    record: u64,
    /// Number of CQEs that were read or missed.
    next: u32,
    /// Format of mini-CQEs, if the CQ compresses.
    format: Option<MiniFormat>,
    /// CQEs of a compressing CQ were missed: the next slot may hold mini-CQEs of a block whose title
    /// was not seen.
    is_lost: bool,
}

/// The outcome of a look at a completion queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A CQE, and the number of CQEs before it.
    Cqe(u32, &'a [u8]),
    /// A CQE that was compressed, and the number of CQEs before it.
    Expanded(u32, &'a [u8; 64]),
    /// So many CQEs were overwritten before they were read.
    Missed(u32),
}

impl CqRing {
    /// Creates an empty ring of a power of two of CQEs. `None` for no ring of this kind.
    pub fn new(base: u64, entries: u32, size: u32, record: u64) -> Option<Self> {
        let is_ring = entries.is_power_of_two()
            && entries <= 1 << 23
            && matches!(size, 64 | 128)
            && base != 0
            && record != 0;
        let ring = Self {
            base,
            entries,
            size: size as usize,
            record,
            next: 0,
            format: None,
            is_lost: false,
        };
        is_ring.then_some(ring)
    }

    /// The CQ compresses, in the basic layout: a title CQE precedes slots of mini-CQEs.
    pub fn compressed(self, format: MiniFormat) -> Self {
        Self { format: Some(format), ..self }
    }

    /// Returns whether the next look needs the numbers of the queue pairs that are known.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Goes on in another ring: the CQ was resized.
    pub fn resize(&mut self, base: u64, entries: u32) {
        if let Some(ring) = Self::new(base, entries, self.size as u32, self.record) {
            *self = Self { next: self.next, format: self.format, is_lost: self.is_lost, ..ring };
        }
    }

    /// Passes each CQE that the device has written since the last look.
    ///
    /// A slot is written again only after the program has consumed its CQE, so the consumer index
    /// tells what may have been overwritten. The owner bit tells in which lap a slot was written.
    /// After CQEs of a compressing CQ were missed, a slot is read as a CQE only if it names one of the
    /// queue pairs `known`.
    pub fn look(
        &mut self,
        memory: &dyn Memory,
        known: &[u32],
        mut pass: impl FnMut(Found<'_>),
    ) -> Result<(), Fault> {
        let mut missed = self.skip(self.consumed(memory)?);
        let mut bytes = [0; LONGEST_CQE];
        let bytes = &mut bytes[..self.size];
        // The device writes no more than a lap while the program consumes nothing. If the program
        // goes on meanwhile, the next look sees the rest.
        for _ in 0..self.entries {
            // Asked before the slot is read: of an empty slot, the device may write the CQE and the
            // program consume it at any moment from then on.
            let is_consumed = self.consumed(memory)? > 0;
            fence(Ordering::Acquire);
            let mut passed = 0;
            if self.read(memory, bytes)? && (!self.is_lost || names(bytes, known)) {
                tell(&mut missed, &mut pass);
                passed = self.pass(memory, bytes, &mut pass)?;
            } else if !is_consumed {
                break;
            }
            if passed == 0 {
                missed += 1;
                self.is_lost = self.format.is_some();
            }
            self.next = self.next.wrapping_add(passed.max(1));
        }
        tell(&mut missed, &mut pass);
        Ok(())
    }

    /// Passes a CQE, or all of a block. Returns their number.
    fn pass(
        &mut self,
        memory: &dyn Memory,
        bytes: &[u8],
        pass: &mut impl FnMut(Found<'_>),
    ) -> Result<u32, Fault> {
        let Some(title) = bytes.last_chunk::<64>() else { return Ok(0) };
        let Some(format) = self.format.filter(|_| is_title(title)) else {
            self.is_lost = false;
            pass(Found::Cqe(self.next & INDEX, bytes));
            return Ok(1);
        };
        let count = u32::from_be_bytes([title[44], title[45], title[46], title[47]]);
        if !(2..=self.entries).contains(&count) {
            return Ok(0);
        }
        let passed = self.expand(memory, format, title, count, pass)?;
        self.is_lost = passed < count;
        Ok(passed)
    }

    /// Passes the CQEs of a block whose title is next. Returns their number, which is less than `count`
    /// if the program takes the title away meanwhile.
    fn expand(
        &self,
        memory: &dyn Memory,
        format: MiniFormat,
        title: &[u8; 64],
        count: u32,
        pass: &mut impl FnMut(Found<'_>),
    ) -> Result<u32, Fault> {
        let mut slot = [0; 64];
        for start in (0..count).step_by(MINI_CQES_PER_SLOT) {
            // The first slot is the one behind the title.
            memory.read(self.at(self.next.wrapping_add(start.max(1))), &mut slot)?;
            fence(Ordering::Acquire);
            if self.op_own(memory, self.next)? != title[63] {
                return Ok(start);
            }
            for (number, mini) in (start..count).zip(slot.chunks_exact(8)) {
                let mini = mini.first_chunk().copied().unwrap_or_default();
                let cqe = format.expand(title, number as u16, mini);
                pass(Found::Expanded(self.next.wrapping_add(number) & INDEX, &cqe));
            }
        }
        Ok(count)
    }

    /// Returns the address of the last 64 bytes of a slot.
    fn at(&self, number: u32) -> u64 {
        let index = u64::from(number & (self.entries - 1));
        self.base.wrapping_add((index + 1) * self.size as u64 - 64)
    }

    /// Reads the last byte of a slot.
    fn op_own(&self, memory: &dyn Memory, number: u32) -> Result<u8, Fault> {
        let mut op_own = [0];
        memory.read(self.at(number).wrapping_add(63), &mut op_own)?;
        Ok(op_own[0])
    }

    /// Returns how many CQEs the program has consumed that were not read yet.
    fn consumed(&self, memory: &dyn Memory) -> Result<u32, Fault> {
        let ahead = read_be32(memory, self.record)?.wrapping_sub(self.next) & INDEX;
        // The program is behind in the other half of all numbers.
        Ok(if ahead > INDEX / 2 { 0 } else { ahead })
    }

    /// Leaves out the CQEs that were certainly overwritten, and returns their number.
    fn skip(&mut self, consumed: u32) -> u32 {
        let missed = consumed.saturating_sub(self.entries);
        self.next = self.next.wrapping_add(missed);
        self.is_lost |= missed > 0 && self.format.is_some();
        missed
    }

    /// Reads the next CQE. Returns whether the device has written it, and nothing over it yet.
    fn read(&self, memory: &dyn Memory, bytes: &mut [u8]) -> Result<bool, Fault> {
        const INVALID: u8 = 0xf;
        let lap = (self.next & self.entries != 0) as u8;
        let op_own = self.op_own(memory, self.next)?;
        if op_own >> 4 == INVALID || op_own & 1 != lap {
            return Ok(false);
        }
        fence(Ordering::Acquire);
        let start = self.at(self.next).wrapping_sub(self.size as u64 - 64);
        memory.read(start, bytes)?;
        fence(Ordering::Acquire);
        Ok(self.op_own(memory, self.next)? == op_own && bytes.last() == Some(&op_own))
    }
}

/// Returns whether a CQE is the title of a block: a success whose format is that of mini-CQEs.
fn is_title(cqe: &[u8; 64]) -> bool {
    cqe[63] >> 4 <= 4 && cqe[63] >> FORMAT_SHIFT & 3 == FORMAT_COMPRESSED
}

/// Returns whether a CQE is of one of these queue pairs.
fn names(cqe: &[u8], known: &[u32]) -> bool {
    let Some(cqe) = cqe.last_chunk::<64>() else { return false };
    known.contains(&u32::from_be_bytes([0, cqe[57], cqe[58], cqe[59]]))
}

/// The bits of a consumer index.
const INDEX: u32 = 0xff_ffff;

fn tell(missed: &mut u32, pass: &mut impl FnMut(Found<'_>)) {
    if *missed > 0 {
        pass(Found::Missed(*missed));
        *missed = 0;
    }
}

#[cfg(test)]
mod tests;
