//! The memory of a send queue's WQEs and of their shadow entries, and writing to it.

use core::mem::offset_of;
use core::ptr::NonNull;

use mlx5_sys::wqe::{CE_ALWAYS, CtrlSeg, SEGMENT_SIZE, WQEBB_SIZE, opcode};

use super::shadow::{self, Entry, Key};
use super::state::Point;
use crate::ib::{Counter, Shape};
use crate::wqe::{Code, Linear, Operation, Segment, Segments, Wrapping};

/// 16-byte units in a 64-byte block.
pub(in crate::ring) const UNITS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;

/// A queue pair's number, ready for use.
#[derive(Clone, Copy)]
pub(super) struct Names {
    /// In bits 31–8, as in the ctrl segment.
    qpn_shifted: u64,
    /// [`Key::base`].
    pub(in crate::ring) key: u64,
}

impl Names {
    #[inline(always)]
    pub(in crate::ring) fn qpn(self) -> u32 {
        (self.qpn_shifted >> 8) as u32
    }

    pub(in crate::ring) fn new(qpn: u32) -> Self {
        Self { qpn_shifted: u64::from(qpn) << 8, key: Key::base(qpn) }
    }

    /// Returns `opmod_idx_opcode` and `qpn_ds` of a ctrl segment, as one number.
    #[inline(always)]
    pub(in crate::ring) fn ctrl(self, head: Counter, code: Code, ds: u32) -> u64 {
        // The part that the compiler knows, in one term.
        let known = u64::from(code.modifier) << 56 | u64::from(code.opcode) << 32 | u64::from(ds);
        u64::from(head.low16()) << 40 | self.qpn_shifted | known
    }
}

/// The memory of a send queue's WQEs and the parts that they have in common. Enough to write a WQE
/// into blocks that belong to the writer.
#[derive(Clone, Copy)]
pub(super) struct Wqes {
    pub(in crate::ring) shape: Shape,
    pub(in crate::ring) buffer: NonNull<u8>,
    /// The entries of the [shadow](super::shadow), one per block.
    pub(in crate::ring) shadow: NonNull<Entry>,
    pub(in crate::ring) names: Names,
}

impl Wqes {
    /// Writes a WQE of `ds` units at `at`, and its shadow entries. Returns the point behind it.
    ///
    /// # Safety
    /// - Its blocks are free, and nothing else reads or writes them, or their shadow entries, until
    ///   the producer index covers them.
    /// - `ds` is the operation's, and the operation passed its check against the queue's limits.
    /// - As long as the WQE may look posted and is not, or entries are written while polls retire
    ///   others, the queue is [open](super::state::SendState::open).
    #[inline(always)]
    pub(in crate::ring) unsafe fn write<O: Operation>(
        self,
        at: Point,
        id: u64,
        operation: &O,
        flags: u8,
        ds: u32,
    ) -> (Point, Last) {
        let end = at.behind(ds.div_ceil(UNITS));
        // SAFETY: the caller upholds this function's contract, which covers WQE and shadow.
        unsafe {
            let last = self.put(at.at, operation, flags, ds);
            self.remember(at.at, end.silent, id, last, is_signaled(flags));
            (end, last)
        }
    }

    /// Writes a WQE of `ds` units at `head`.
    ///
    /// # Safety
    /// - Its blocks are free, and nothing else reads or writes them until the producer index covers
    ///   them.
    /// - `ds` is the operation's, and the operation passed its check against the queue's limits.
    #[inline(always)]
    pub(in crate::ring) unsafe fn put<O: Operation>(
        self,
        head: Counter,
        operation: &O,
        flags: u8,
        ds: u32,
    ) -> Last {
        let code = operation.code();
        let ctrl =
            ctrl_segment(self.names.ctrl(head, code, ds), code, flags, operation.immediate());
        let slot = self.shape.slot(head);
        let offset = slot * WQEBB_SIZE;
        let size = self.shape.entries() as usize * WQEBB_SIZE;
        // SAFETY: the WQE's blocks start at `offset`, and the caller may write them. A WQE that
        // ends before the ring does is contiguous.
        unsafe {
            if offset + ds as usize * SEGMENT_SIZE <= size {
                let mut writer = Linear::new(self.buffer.as_ptr().add(offset));
                writer.put(ctrl);
                operation.put(&mut writer);
            } else {
                encode_wrapping(self.buffer, size, offset, ctrl, operation);
            }
        }
        Last { doorbell: ctrl[0] }
    }

    /// Writes the shadow entries of a WQE. `silent` counts the silent blocks up to its end.
    ///
    /// # Safety
    /// - Nothing else reads or writes the shadow entries of its blocks until the producer index
    ///   covers them.
    /// - As long as they may look posted and are not, the queue is
    ///   [open](super::state::SendState::open).
    #[inline(always)]
    pub(in crate::ring) unsafe fn remember(
        self,
        head: Counter,
        silent: u32,
        id: u64,
        last: Last,
        signaled: bool,
    ) {
        let slot = self.shape.slot(head);
        let (Code { opcode, modifier, .. }, ds) = last.code_and_ds();
        let key = if signaled && shadow::may_be_plain(opcode, modifier, ds) {
            Key::plain(self.names.key, opcode, last.doorbell)
        } else {
            Key::other(opcode, ds, silent)
        };
        // SAFETY: the shadow has an entry for every slot. Only the caller uses this one.
        unsafe { self.shadow.add(slot).write(Entry { id, key }) };
        for block in 1..ds.div_ceil(UNITS) {
            // A former WQE, or one of a batch that was dropped, may have begun here.
            let slot = self.shape.slot(head.plus(block));
            // SAFETY: the shadow has an entry for every slot; this one is of a block of the same
            // WQE.
            unsafe { Entry::write_inside(self.shadow.add(slot), opcode, silent) };
        }
    }

    /// Number of the queue pair.
    #[inline(always)]
    pub(in crate::ring) fn qpn(&self) -> u32 {
        self.names.qpn()
    }

    /// The 16-byte unit `at` of a WQE at `head`.
    #[inline(always)]
    pub(in crate::ring) fn unit(&self, head: Counter, at: usize) -> NonNull<u8> {
        let (block, unit) = (at / UNITS as usize, at % UNITS as usize);
        // SAFETY: a unit of the block.
        unsafe { self.block(head.plus(block as u32)).add(unit * SEGMENT_SIZE) }
    }

    /// The block at `head`.
    #[inline(always)]
    pub(in crate::ring) fn block(&self, head: Counter) -> NonNull<u8> {
        // SAFETY: a slot lies in the ring.
        unsafe { self.buffer.add(self.shape.slot(head) * WQEBB_SIZE) }
    }
}

/// Returns whether the request after one of this opcode waits for it. It changes a memory key, or
/// the start value of a key's signatures, and the next request may use that key.
#[inline(always)]
pub(super) const fn changes_keys(opcode: u8) -> bool {
    matches!(opcode, opcode::UMR | opcode::SET_PSV)
}

/// Returns whether a WQE whose ctrl segment has these flags brings a CQE, if it succeeds.
#[inline(always)]
pub(super) fn is_signaled(flags: u8) -> bool {
    // "Always", or "always with an event".
    flags & CE_ALWAYS != 0
}

/// Writes a WQE that runs past the end of the ring.
///
/// # Safety
/// - The ring is writable memory of one allocation, of `size` bytes.
/// - The WQE's blocks are free, and nothing else writes them.
/// - `ring`, `size` and `offset` are multiples of 16, and `offset` is less than `size`.
/// - The operation passed its check.
#[cold]
#[inline(never)]
unsafe fn encode_wrapping<O: Operation>(
    ring: NonNull<u8>,
    size: usize,
    offset: usize,
    ctrl: Segment,
    operation: &O,
) {
    // SAFETY: ring, size and offset are as `Wrapping` asks; the WQE's blocks have space for all
    // segments.
    unsafe {
        let mut writer = Wrapping::new(ring, size, offset);
        writer.put(ctrl);
        operation.put(&mut writer);
    }
}

/// A [`CtrlSeg`], as two words that can be stored, and copied to a
/// BlueFlame buffer, eight bytes at a time. The first one is the doorbell.
#[inline(always)]
pub(super) fn ctrl_segment(first: u64, code: Code, fm_ce_se: u8, imm: u32) -> Segment {
    const {
        assert!(offset_of!(CtrlSeg, opmod_idx_opcode) == 0 && offset_of!(CtrlSeg, qpn_ds) == 4);
        assert!(offset_of!(CtrlSeg, fm_ce_se) == 11 && offset_of!(CtrlSeg, imm) == 12);
    }
    let second = u64::from(code.stream << 8 | u32::from(fm_ce_se)) << 32 | u64::from(imm);
    [first.to_be(), second.to_be()]
}

/// The data of a batch's last WQE for the doorbell.
#[derive(Clone, Copy, Default)]
pub(in crate::ring) struct Last {
    /// The first eight bytes of the ctrl segment, in memory order.
    pub(in crate::ring) doorbell: u64,
}

impl Last {
    /// The first eight bytes of the WQE.
    #[inline(always)]
    pub(in crate::ring) fn doorbell(self) -> u64 {
        self.doorbell
    }

    #[inline(always)]
    pub(super) fn code_and_ds(self) -> (Code, u32) {
        let words = u64::from_be(self.doorbell);
        let code = Code::modified((words >> 32) as u8, (words >> 56) as u8);
        (code, words as u32 & 0x3f)
    }
}

/// A producer's note about a WQE that it wrote to a shared queue.
#[derive(Clone, Copy, Default)]
pub(in crate::ring) struct Posted {
    pub(in crate::ring) id: u64,
    pub(in crate::ring) last: Last,
    pub(in crate::ring) signaled: bool,
}
