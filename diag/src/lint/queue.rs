//! Checks across the WQEs of a queue: indices, sizes, completions, doorbells.

use mlx5_sys::wqe::{MAX_DS, SEGMENT_SIZE, WQEBB_SIZE, opcode};

use super::wqe::{Checked, Ctrl, check};
use super::{Defect, Facts, Finding, Segment};

/// Units of a block.
const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;
/// Blocks of the longest WQE.
const LONGEST: u32 = (MAX_DS as u32).div_ceil(UNITS);

/// Goes over a send queue's WQEs in the order of posting.
///
/// Small, and copied freely: a copy that went over WQEs that are not posted after all is thrown
/// away.
#[derive(Clone, Copy, Debug)]
pub struct Lint {
    facts: Facts,
    /// Counter of the next WQE, once known.
    next: Option<u16>,
    /// Blocks since, and without, the last WQE that asked for a CQE.
    run: u32,
    /// Signaled WQEs whose CQE was not [told](Self::completed).
    signals: u32,
    /// The last WQE changed keys.
    key_changed: bool,
    /// First eight bytes of the last WQE, as a number.
    last: Option<u64>,
}

/// The memory of a ring's WQEs.
pub trait Blocks {
    /// Size of the ring in blocks, a power of two.
    fn count(&self) -> u32;
    /// Returns the block at a counter.
    fn block(&self, counter: u16) -> [u8; WQEBB_SIZE];
}

/// A ring whose writer remembers where each WQE begins.
pub trait Starts: Blocks {
    /// Blocks of the WQE that begins at a counter, if one does.
    fn blocks_at(&self, counter: u16) -> Option<u32>;
}

/// A ring as bytes.
struct Bytes<'a>(&'a [u8]);

impl Blocks for Bytes<'_> {
    fn count(&self) -> u32 {
        let whole = (self.0.len() / WQEBB_SIZE).min(1 << 15) as u32;
        // The largest power of two; of a ring that is cut off, its start.
        if whole == 0 { 0 } else { 1 << whole.ilog2() }
    }

    fn block(&self, counter: u16) -> [u8; WQEBB_SIZE] {
        let slot = u32::from(counter) & (self.count() - 1);
        let at = slot as usize * WQEBB_SIZE;
        let mut block = [0; WQEBB_SIZE];
        block.copy_from_slice(&self.0[at..at + WQEBB_SIZE]);
        block
    }
}

/// A WQE of a ring, contiguous.
struct Contiguous {
    bytes: [u8; LONGEST as usize * WQEBB_SIZE],
    ctrl: Ctrl,
}

fn ctrl_at(ring: &impl Blocks, counter: u16) -> Ctrl {
    let block = ring.block(counter);
    let mut bytes = [0; SEGMENT_SIZE];
    bytes.copy_from_slice(&block[..SEGMENT_SIZE]);
    Ctrl::read(bytes)
}

fn gather(ring: &impl Blocks, counter: u16, ctrl: Ctrl, blocks: u32) -> Contiguous {
    let mut wqe = Contiguous { bytes: [0; LONGEST as usize * WQEBB_SIZE], ctrl };
    for (block, into) in (0..blocks).zip(wqe.bytes.chunks_exact_mut(WQEBB_SIZE)) {
        into.copy_from_slice(&ring.block(counter.wrapping_add(block as u16)));
    }
    wqe
}

impl Lint {
    /// A queue whose next WQE has whichever index it has.
    pub const fn new(facts: Facts) -> Lint {
        Lint { facts, next: None, run: 0, signals: 0, key_changed: false, last: None }
    }

    /// A queue whose next WQE is at this counter, modulo 2^16.
    pub const fn at(facts: Facts, next: u16) -> Lint {
        Lint { next: Some(next), ..Lint::new(facts) }
    }

    /// Returns the known facts about the queue.
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Counter of the next WQE, once known.
    pub const fn next(&self) -> Option<u16> {
        self.next
    }

    /// A CQE of the queue was read. One of an error retires unsignaled WQEs, too.
    pub fn completed(&mut self, error: bool) {
        self.signals = self.signals.saturating_sub(1);
        if error {
            self.run = 0;
        }
    }

    /// Goes over the next WQE: its bytes, contiguous from the ctrl segment on; what is behind its
    /// own size is ignored. Returns its size in blocks, at least 1.
    pub fn wqe(&mut self, bytes: &[u8], report: &mut dyn FnMut(Finding)) -> u32 {
        let Some(first) = bytes.first_chunk::<SEGMENT_SIZE>() else {
            let wqe = self.next.unwrap_or(0);
            let left = bytes.len() as u16;
            let defect = Defect::SegmentMissing { needed: SEGMENT_SIZE as u16, left };
            report(Finding { wqe, opcode: 0, segment: Segment::Ctrl, offset: 0, defect });
            return 1;
        };
        let ctrl = Ctrl::read(*first);
        let counter = self.next.unwrap_or(ctrl.index);
        self.one(counter, ctrl, bytes, report)
    }

    /// Goes over the WQE at `counter`, and counts it.
    fn one(
        &mut self,
        counter: u16,
        ctrl: Ctrl,
        bytes: &[u8],
        report: &mut dyn FnMut(Finding),
    ) -> u32 {
        let qpn = *self.facts.qpn.get_or_insert(ctrl.qpn);
        let mut at_ctrl = |offset, defect| {
            let segment = Segment::Ctrl;
            report(Finding { wqe: counter, opcode: ctrl.opcode, segment, offset, defect });
        };
        if ctrl.index != counter {
            at_ctrl(1, Defect::WrongIndex { expected: counter, found: ctrl.index });
        }
        if ctrl.qpn != qpn {
            at_ctrl(4, Defect::WrongQueuePair { expected: qpn, found: ctrl.qpn });
        }
        let ring = self.facts.blocks.unwrap_or(1 << 15).saturating_mul(UNITS);
        let max = self.facts.max_ds.min(ring);
        let signaled = ctrl.is_signaled();
        if ctrl.ds == 0 {
            at_ctrl(7, Defect::SizeZero {});
        } else if ctrl.ds > max {
            at_ctrl(7, Defect::TooLong { ds: ctrl.ds, max });
        } else {
            if self.facts.signal_all && !signaled {
                at_ctrl(11, Defect::NotSignaled {});
            }
            if self.key_changed && ctrl.fence() == 0 && ctrl.opcode != opcode::NOP {
                at_ctrl(11, Defect::KeyChangeUnfenced {});
            }
            let size = ctrl.ds as usize * SEGMENT_SIZE;
            let given = &bytes[..size.min(bytes.len())];
            check(Checked { facts: &self.facts, ctrl, wqe: counter, bytes: given, size }, report);
        }
        let blocks = ctrl.ds.div_ceil(UNITS).max(1);
        self.count(counter, ctrl, blocks, report);
        blocks
    }

    /// Counts a WQE as posted.
    fn count(&mut self, counter: u16, ctrl: Ctrl, blocks: u32, report: &mut dyn FnMut(Finding)) {
        let mut whole = |defect| {
            let segment = Segment::Whole;
            report(Finding { wqe: counter, opcode: ctrl.opcode, segment, offset: 0, defect });
        };
        let before = self.run;
        if ctrl.is_signaled() {
            self.run = 0;
            self.signals += 1;
            if let Some(cqes) = self.facts.cqes.filter(|cqes| self.signals == cqes + 1) {
                whole(Defect::CqTooSmall { signaled: self.signals, cqes });
            }
        } else if ctrl.opcode == opcode::TAG_MATCHING {
            // A CQE of the shared receive queue's reports it.
            self.run = 0;
        } else {
            self.run = self.run.saturating_add(blocks);
        }
        if let Some(ring) = self.facts.blocks {
            if before < ring && self.run >= ring {
                whole(Defect::NoCompletion { run: self.run, blocks: ring });
            }
        }
        self.key_changed = matches!(ctrl.opcode, opcode::UMR | opcode::SET_PSV);
        self.last = Some(ctrl.doorbell);
        self.next = Some(counter.wrapping_add(blocks as u16));
    }

    /// Goes over a ring: all of its bytes, from the next WQE on, or, where that is not known, from
    /// the first block on. With what the doorbell record says (its send counter, modulo 2^16), up
    /// to there; else as far as WQEs with the right indices follow each other. Returns how many
    /// WQEs it saw.
    ///
    /// Each WQE begins where the one before ends, by its size. Inline data is never taken for WQEs,
    /// and neither are the bytes behind a WQE in its last block, which are of an earlier lap.
    ///
    /// A ring has a power of two of 64-byte blocks; bytes beyond the largest such size are ignored.
    pub fn ring(
        &mut self,
        ring: &[u8],
        record: Option<u16>,
        report: &mut dyn FnMut(Finding),
    ) -> u32 {
        let ring = Bytes(ring);
        if ring.count() == 0 {
            return 0;
        }
        self.facts.blocks = Some(ring.count());
        self.span(&ring, record, report)
    }

    /// Checks WQEs like [`ring`](Self::ring), in a ring from any source.
    fn span(
        &mut self,
        ring: &impl Blocks,
        record: Option<u16>,
        report: &mut dyn FnMut(Finding),
    ) -> u32 {
        let start = self.next.unwrap_or_else(|| ctrl_at(ring, 0).index);
        let most = ring.count();
        let (mut counter, mut passed, mut wqes) = (start, 0, 0);
        // Of the WQE before: its size, and what it is.
        let mut before = None;
        let end = record.map(|record| u32::from(record.wrapping_sub(start)));
        loop {
            if passed >= most || end.is_some_and(|end| passed >= end) {
                break;
            }
            let ctrl = ctrl_at(ring, counter);
            if end.is_none() && ctrl.doorbell == 0 {
                // Never written.
                break;
            }
            let is_ours = self.facts.qpn.is_none_or(|qpn| qpn == ctrl.qpn);
            if ctrl.index != counter {
                let Some(end) = end else { break };
                let stale = ctrl.index == counter.wrapping_sub(most as u16) && is_ours;
                if stale {
                    record_says(counter, record, report, |record| Defect::RecordAhead {
                        record,
                        written: counter,
                    });
                    self.next = Some(counter);
                    return wqes;
                }
                let likely = is_ours && ctrl.ds != 0 && opcode::name(ctrl.opcode).is_some();
                let further = (1..LONGEST).filter(|ahead| passed + ahead < end.min(most));
                let found = further
                    .take_while(|_| !likely)
                    .find(|ahead| self.begins(ring, counter.wrapping_add(*ahead as u16)));
                if let Some(blocks) = found {
                    let (wqe, opcode, ds) = before.unwrap_or((counter, ctrl.opcode, 0));
                    let defect = Defect::Gap { ds, blocks };
                    report(Finding { wqe, opcode, segment: Segment::Ctrl, offset: 7, defect });
                    counter = counter.wrapping_add(blocks as u16);
                    self.next = Some(counter);
                    passed += blocks;
                    continue;
                }
            }
            let blocks = ctrl.ds.div_ceil(UNITS).max(1);
            before = Some((counter, ctrl.opcode, ctrl.ds));
            wqes += 1;
            let left = (most - passed).min(end.map_or(u32::MAX, |end| end - passed));
            let within = self.swallowed(ring, counter, ctrl, left);
            let taken = if let Some(block) = within {
                let (segment, offset) = (Segment::Ctrl, 7);
                let defect = Defect::Overlap { ds: ctrl.ds, block };
                report(Finding { wqe: counter, opcode: ctrl.opcode, segment, offset, defect });
                self.facts.qpn.get_or_insert(ctrl.qpn);
                self.count(counter, ctrl, block, report);
                block
            } else if let Some(end) = end.filter(|end| passed + blocks > *end) {
                // What is behind the record may be anything.
                let after = counter.wrapping_add(blocks as u16);
                record_says(counter, record, report, |record| Defect::RecordInside {
                    record,
                    end: after,
                });
                self.count(counter, ctrl, end - passed, report);
                end - passed
            } else {
                let wqe = gather(ring, counter, ctrl, blocks.min(LONGEST));
                self.one(counter, wqe.ctrl, &wqe.bytes, report)
            };
            counter = counter.wrapping_add(taken as u16);
            passed += taken;
        }
        self.next = Some(counter);
        if passed < most && end.is_some() {
            self.behind(ring, counter, most - passed, record, report);
        }
        wqes
    }

    /// Returns the first block of a WQE that is not its own, if its size (ds) takes other WQEs in.
    /// `left` blocks were written from `counter` on.
    ///
    /// Looks only at blocks that begin with a data segment: inline data, operands and the entries
    /// of keys are anybody's bytes. And a data segment is taken for a ctrl segment only if WQEs
    /// without a finding follow each other from there to the end of this one.
    fn swallowed(&self, ring: &impl Blocks, counter: u16, ctrl: Ctrl, left: u32) -> Option<u32> {
        let blocks = ctrl.ds.div_ceil(UNITS);
        if blocks < 2 || blocks > left {
            return None;
        }
        let whole = gather(ring, counter, ctrl, blocks);
        let listed = self.look(counter, &whole, &mut |_| ());
        (1..blocks).filter(|block| listed >> block & 1 != 0).find(|first| {
            let mut at = *first;
            while at < blocks {
                let counter = counter.wrapping_add(at as u16);
                let Some(own) = self.clean_blocks(ring, counter, left - at) else { return false };
                at += own;
            }
            true
        })
    }

    /// Checks a WQE alone. Returns which of its blocks begin with a data segment, a bit for each.
    fn look(&self, counter: u16, wqe: &Contiguous, report: &mut dyn FnMut(Finding)) -> u16 {
        let (ctrl, size) = (wqe.ctrl, wqe.ctrl.ds as usize * SEGMENT_SIZE);
        let bytes = &wqe.bytes[..size];
        check(Checked { facts: &self.facts, ctrl, wqe: counter, bytes, size }, report)
    }

    /// Goes over the WQEs from `head` up to `end`, whose places the ring's writer remembers.
    pub fn known(
        &mut self,
        ring: &impl Starts,
        head: u16,
        end: u16,
        report: &mut dyn FnMut(Finding),
    ) {
        let posted = u32::from(end.wrapping_sub(head));
        let mut passed = 0;
        while passed < posted {
            let counter = head.wrapping_add(passed as u16);
            let ctrl = ctrl_at(ring, counter);
            let says = ctrl.ds.div_ceil(UNITS).max(1);
            let blocks = ring.blocks_at(counter).unwrap_or(says).clamp(1, posted - passed);
            passed += blocks;
            let defect = match says {
                _ if ctrl.ds == 0 || says == blocks => {
                    let wqe = gather(ring, counter, ctrl, blocks.min(LONGEST));
                    self.one(counter, wqe.ctrl, &wqe.bytes, report);
                    self.next = Some(head.wrapping_add(passed as u16));
                    continue;
                }
                _ if says < blocks => Defect::Gap { ds: ctrl.ds, blocks: blocks - says },
                _ if passed < posted => Defect::Overlap { ds: ctrl.ds, block: blocks },
                _ => Defect::RecordInside { record: end, end: counter.wrapping_add(says as u16) },
            };
            let segment = match defect {
                Defect::RecordInside { .. } => Segment::Record,
                _ => Segment::Ctrl,
            };
            report(Finding { wqe: counter, opcode: ctrl.opcode, segment, offset: 7, defect });
            self.count(counter, ctrl, blocks, report);
        }
    }

    /// Returns whether a WQE of this queue begins at a counter, by its ctrl segment.
    fn begins(&self, ring: &impl Blocks, counter: u16) -> bool {
        let ctrl = ctrl_at(ring, counter);
        ctrl.index == counter
            && self.facts.qpn.is_some_and(|qpn| qpn == ctrl.qpn)
            && ctrl.ds != 0
            && opcode::name(ctrl.opcode).is_some()
    }

    /// Returns the number of blocks of the WQE at a counter, if it begins there, has no finding,
    /// and has at most `left` blocks.
    fn clean_blocks(&self, ring: &impl Blocks, counter: u16, left: u32) -> Option<u32> {
        if !self.begins(ring, counter) {
            return None;
        }
        let ctrl = ctrl_at(ring, counter);
        let blocks = ctrl.ds.div_ceil(UNITS);
        if blocks > left {
            return None;
        }
        let mut is_clean = true;
        self.look(counter, &gather(ring, counter, ctrl, blocks), &mut |_| is_clean = false);
        is_clean.then_some(blocks)
    }

    /// Looks for WQEs behind the record.
    ///
    /// Behind it lies what was written a lap before. There a data segment whose lkey has the
    /// queue's number in its upper bits can look like a ctrl segment. So only WQEs without a
    /// finding count.
    fn behind(
        &self,
        ring: &impl Blocks,
        from: u16,
        most: u32,
        record: Option<u16>,
        report: &mut dyn FnMut(Finding),
    ) {
        let mut written = from;
        let mut passed = 0;
        while let Some(blocks) = self.clean_blocks(ring, written, most - passed) {
            written = written.wrapping_add(blocks as u16);
            passed += blocks;
        }
        if passed != 0 {
            record_says(from, record, report, |record| Defect::RecordBehind { record, written });
        }
    }

    /// Checks what was stored to the doorbell register after the last WQE: eight bytes as they lie
    /// in memory, as a big-endian number.
    pub fn doorbell(&self, stored: u64, report: &mut dyn FnMut(Finding)) {
        let Some(expected) = self.last.filter(|expected| *expected != stored) else { return };
        let wqe = (expected >> 40) as u16;
        let defect = Defect::WrongDoorbell { expected, found: stored };
        report(Finding { wqe, opcode: 0, segment: Segment::Register, offset: 0, defect });
    }
}

/// Reports what is wrong with the record, which is known where anything can be.
fn record_says(
    wqe: u16,
    record: Option<u16>,
    report: &mut dyn FnMut(Finding),
    defect: impl FnOnce(u16) -> Defect,
) {
    if let Some(record) = record {
        let (segment, defect) = (Segment::Record, defect(record));
        report(Finding { wqe, opcode: 0, segment, offset: 0, defect });
    }
}
