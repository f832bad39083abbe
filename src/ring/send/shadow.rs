//! The send queue's shadow: software's record of posted WQEs, in memory that the HCA cannot reach.
//!
//! One entry per 64-byte block of the send ring. The entry of a *plain* WQE (signaled, one block)
//! holds the last eight bytes of the CQE that will report its success, except for two bytes that
//! are not known ahead. So a poll needs one comparison to find out whether a CQE is that of the
//! queue's oldest WQE. It reads only that entry, and no counter.
//!
//! If it is not, the WQE is often a signaled one behind unsignaled ones, as many as last time. So the
//! poll then compares the entry that is as far from the oldest as the last one was, and checks that
//! the head has passed it.
//!
//! This requires that the entry in the head's slot does not look posted while the queue is empty.
//! An entry of an earlier lap names another index. An entry that was written ahead and not posted,
//! by a batch that was dropped, looks posted. While there may be such entries, nothing is compared:
//! see [`Shadow::pause`].

use core::mem::offset_of;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use mlx5_sys::cqe::Cqe64;
use mlx5_sys::wqe::SEGMENT_SIZE;

use super::wqes::UNITS;
use crate::cqe::SendOperation;
use crate::ib::{Counter, Shape};

/// The entry of a WQE, or of a further block of a WQE.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(in crate::ring) key: Key,
}

impl Entry {
    /// The entry of a block in which no WQE begins.
    pub(in crate::ring) const NONE: Self = Self { id: 0, key: Key::inside(0, 0) };

    /// Makes an entry that of a further block of a WQE. It keeps its id, which is not read.
    ///
    /// # Safety
    /// `place` is an entry of a shadow that only the caller reads and writes.
    #[inline(always)]
    pub(super) unsafe fn write_inside(place: NonNull<Self>, opcode: u8, silent: u32) {
        // SAFETY: the caller may write the entry, of which this is a field.
        unsafe { (&raw mut (*place.as_ptr()).key).write(Key::inside(opcode, silent)) }
    }

    /// Returns the operation that was requested.
    #[inline(always)]
    pub(in crate::ring) fn operation(&self) -> SendOperation {
        // Opcodes of WQEs have six bits.
        SendOperation::from_small_opcode(self.key.opcode())
    }
}

/// The description of a block.
///
/// A plain WQE, by byte in the memory of a little-endian machine:
///
/// | 0, 1 | 2 | 3–5 | 6, 7 |
/// |---|---|---|---|
/// | zero, or `COMPLETED` | opcode | QP number, big-endian | index, big-endian |
///
/// Other blocks:
///
/// | 0 | 1 | 2 | 4–7 |
/// |---|---|---|---|
/// | flags, not zero | `ds` | opcode | [`silent`](Self::silent) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) struct Key(u64);

const OTHER: u64 = 1;
/// No WQE begins here.
const INSIDE: u64 = 2;
/// The WQE has completed, and an earlier one has not: of queues whose requests complete in any
/// order. No CQE's bytes have this bit.
const COMPLETED: u64 = 4;
const DS_SHIFT: u32 = 8;
const OPCODE_SHIFT: u32 = 16;
const SILENT_SHIFT: u32 = 32;

impl Key {
    /// Returns the part that all plain WQEs of a queue pair have in common.
    pub(in crate::ring) fn base(qpn: u32) -> u64 {
        let [_, number @ ..] = qpn.to_be_bytes();
        number.iter().rev().fold(0, |base, &byte| base << 8 | u64::from(byte)) << 24
    }

    /// Creates the key of a plain WQE whose ctrl segment begins with `ctrl`, in memory order.
    #[inline(always)]
    pub(in crate::ring) fn plain(base: u64, opcode: u8, ctrl: u64) -> Self {
        // Of the eight bytes (opmod 0, index, opcode, QP number, ds), the first three come last.
        Self(u64::from_le(ctrl) << 40 | base | u64::from(opcode) << OPCODE_SHIFT)
    }

    /// Creates the key of any WQE.
    #[inline(always)]
    pub(in crate::ring) fn other(opcode: u8, ds: u32, silent: u32) -> Self {
        let known = OTHER | u64::from(ds) << DS_SHIFT | u64::from(opcode) << OPCODE_SHIFT;
        Self(known | u64::from(silent) << SILENT_SHIFT)
    }

    /// Creates the key of a further block of a WQE with that opcode.
    #[inline(always)]
    pub(in crate::ring) const fn inside(opcode: u8, silent: u32) -> Self {
        let known = OTHER | INSIDE | (opcode as u64) << OPCODE_SHIFT;
        Self(known | (silent as u64) << SILENT_SHIFT)
    }

    /// Returns the key of the plain WQE that a CQE reports. `end` is the CQE's last eight bytes.
    #[inline(always)]
    pub(in crate::ring) fn reported(end: u64) -> Self {
        const { assert!(offset_of!(Cqe64, sop_drop_qpn) == 56 && Cqe64::SIZE == 64) };
        // Keeps the first six bytes. Drops the signature, and the byte of opcode and owner, which
        // the caller has checked.
        Self(u64::from_le(end) << 16)
    }

    /// Returns the key of the same WQE, once it has completed before an earlier one.
    pub(in crate::ring) fn completed(self) -> Self {
        Self(self.0 | COMPLETED)
    }

    /// Returns whether the key is one of [`completed`](Self::completed).
    pub(super) fn is_completed(self) -> bool {
        self.0 & COMPLETED != 0
    }

    /// Returns the index of a plain WQE.
    #[inline(always)]
    pub(in crate::ring) fn index(self) -> u16 {
        u16::from_be((self.0 >> 48) as u16)
    }

    #[inline(always)]
    fn is_plain(self) -> bool {
        self.0 & (OTHER | INSIDE) == 0
    }

    /// Returns the number of blocks of the WQE that begins in this block.
    pub(in crate::ring) fn blocks(self) -> Option<u32> {
        if self.is_plain() {
            return Some(1);
        }
        (self.0 & INSIDE == 0).then(|| u32::from((self.0 >> DS_SHIFT) as u8).div_ceil(UNITS))
    }

    /// Returns the opcode of the WQE; 0 for a block that no WQE was written to.
    #[inline(always)]
    pub(in crate::ring) fn opcode(self) -> u8 {
        (self.0 >> OPCODE_SHIFT) as u8
    }

    /// Returns the size of the WQE in 16-byte units, if the HCA can put data into its memory.
    pub(in crate::ring) fn ds(self) -> u32 {
        if self.is_plain() {
            return plain_ds(self.opcode()).unwrap_or(UNITS);
        }
        ((self.0 >> DS_SHIFT) as u8).into()
    }

    /// Returns the number of [silent](super::state::Point) blocks up to the end of this WQE. `None`
    /// for a plain WQE: it adds none, and does not store the number.
    #[inline(always)]
    pub(in crate::ring) fn silent(self) -> Option<u32> {
        (!self.is_plain()).then_some((self.0 >> SILENT_SHIFT) as u32)
    }
}

/// Returns the size in 16-byte units that a plain WQE of this opcode must have, for a READ or an
/// atomic. Their data is later put where the WQE says.
#[inline(always)]
const fn plain_ds(opcode: u8) -> Option<u32> {
    match SendOperation::from_opcode(opcode) {
        SendOperation::Read => Some(3),
        SendOperation::CompareSwap | SendOperation::FetchAdd => Some(4),
        _ => None,
    }
}

/// Returns whether a WQE is plain, if it is signaled.
#[inline(always)]
pub(super) const fn may_be_plain(opcode: u8, modifier: u8, ds: u32) -> bool {
    // The key has no place for a modifier.
    if modifier != 0 {
        return false;
    }
    match plain_ds(opcode) {
        Some(plain) => ds == plain,
        None => ds <= UNITS,
    }
}

/// Most WQEs that [`Shadow::retire_stride`] retires.
const LONGEST_STRIDE: u32 = 64;

/// The entries of a ring, and the address of the oldest WQE's entry.
pub(crate) struct Shadow {
    /// One entry for each block of the ring, and `BEHIND` more that equal no CQE.
    first: NonNull<Entry>,
    shape: Shape,
    /// The entry of the tail's slot. If that is 0 or no entry is expected, the one behind the last.
    oldest: NonNull<Entry>,
    /// While comparing is [paused](Self::pause): what `oldest` is afterwards.
    paused: Option<NonNull<Entry>>,
    /// The entry behind that of the last block, which equals no CQE.
    behind: NonNull<Entry>,
    /// Number of entries from the oldest to the one that the next CQE is likely to report, both
    /// included: as many as last time. From 1 to [`LONGEST_STRIDE`].
    stride: u32,
}

/// Entries behind that of the last block: one that the oldest may be, and those that are ahead of
/// it.
const BEHIND: usize = LONGEST_STRIDE as usize;

impl Shadow {
    pub(in crate::ring) fn new(shape: Shape, tail: Counter) -> Self {
        let layout = Self::layout(shape);
        // SAFETY: the size is not 0.
        let Some(first) = NonNull::new(unsafe { alloc(layout) }.cast::<Entry>()) else {
            handle_alloc_error(layout)
        };
        for at in 0..layout.size() / size_of::<Entry>() {
            // SAFETY: within the allocation.
            unsafe { first.add(at).write(Entry::NONE) }
        }
        // SAFETY: the entry behind those of the blocks is in the allocation, too.
        let behind = unsafe { first.add(shape.entries() as usize) };
        let mut shadow = Self { first, shape, oldest: first, paused: None, behind, stride: 1 };
        shadow.set_tail(tail);
        shadow
    }

    fn layout(shape: Shape) -> Layout {
        // 2^24 entries at most, so it cannot overflow.
        Layout::array::<Entry>(shape.entries() as usize + BEHIND).expect("a small array")
    }

    /// Returns the entry of slot 0. One entry for each slot of the ring follows from there.
    #[inline(always)]
    pub(in crate::ring) fn first(&self) -> NonNull<Entry> {
        self.first
    }

    /// Returns a copy of the entry of a block.
    #[inline(always)]
    pub(in crate::ring) fn get(&self, counter: Counter) -> Entry {
        // SAFETY: a slot is less than the number of entries, so the entry is in the allocation, and
        // `new` initialized it.
        unsafe { self.first.add(self.shape.slot(counter)).read() }
    }

    /// Returns a reference to the entry of a block.
    #[inline(always)]
    pub(in crate::ring) fn entry(&self, counter: Counter) -> &Entry {
        // SAFETY: a slot is less than the number of entries, so the entry is in the allocation, and
        // `new` initialized it. Writers hold the shadow uniquely, or write where it is not
        // borrowed.
        unsafe { self.first.add(self.shape.slot(counter)).as_ref() }
    }

    #[inline(always)]
    pub(in crate::ring) fn set(&mut self, counter: Counter, entry: Entry) {
        // SAFETY: a slot is less than the number of entries, so the entry is in the allocation,
        // which the shadow owns.
        unsafe { self.first.add(self.shape.slot(counter)).write(entry) }
    }

    /// Sets the oldest entry after the tail moved.
    #[inline(always)]
    pub(super) fn set_tail(&mut self, tail: Counter) {
        // SAFETY: a slot is less than the number of entries, so the entry is in the allocation.
        self.set_oldest(unsafe { self.first.add(self.shape.slot(tail)) });
    }

    /// Sets the oldest entry, at once or for the time after a pause.
    #[inline(always)]
    fn set_oldest(&mut self, oldest: NonNull<Entry>) {
        *self.paused.as_mut().unwrap_or(&mut self.oldest) = oldest;
    }

    /// Makes no CQE equal the oldest entry, nor one ahead of it, until [`resume`](Self::resume), even
    /// if the tail is set meanwhile.
    #[inline(always)]
    pub(in crate::ring) fn suspend(&mut self) {
        if self.paused.is_none() {
            self.paused = Some(self.oldest);
            self.oldest = self.behind;
        }
    }

    /// Ends a [`suspend`](Self::suspend), if there is one.
    #[inline(always)]
    pub(in crate::ring) fn resume(&mut self) {
        if let Some(oldest) = self.paused.take() {
            self.oldest = oldest;
        }
    }

    /// Returns whether comparing is paused.
    #[inline(always)]
    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Returns the number of WQEs that [`retire_stride`](Self::retire_stride) retires.
    #[inline(always)]
    pub(in crate::ring) fn stride(&self) -> u32 {
        self.stride
    }

    /// Sets the number of WQEs that the next CQE is likely to retire, at least one.
    pub(super) fn set_stride(&mut self, stride: u32) {
        self.stride = if stride <= LONGEST_STRIDE { stride } else { 1 };
    }

    /// Makes no CQE equal the oldest entry, nor one ahead of it, until the tail is
    /// [set](Self::set_tail).
    pub(super) fn expect_nothing(&mut self) {
        self.set_oldest(self.behind);
    }

    /// Returns the entry of the oldest WQE, if it is the plain one that a CQE with these last bytes
    /// reports. The next entry then becomes the oldest.
    #[inline(always)]
    pub(in crate::ring) fn retire_oldest(&mut self, end: u64) -> Option<Entry> {
        // SAFETY: an entry of the allocation, which includes the one behind the last block's.
        let entry = unsafe { self.oldest.read() };
        if entry.key != Key::reported(end) {
            return None;
        }
        // SAFETY: the entry is not the one behind the last block's, since that one equals no CQE.
        self.oldest = unsafe { self.oldest.add(1) };
        Some(entry)
    }

    /// Returns the offset of the entry that [`retire_oldest`](Self::retire_oldest) has just
    /// returned, from the first one.
    #[inline(always)]
    pub(in crate::ring) fn retired(&self) -> usize {
        self.oldest.addr().get() - self.first.addr().get() - size_of::<Entry>()
    }

    /// Returns the entry of the last of a [`stride`](Self::stride) of WQEs, if it is the plain one
    /// that a CQE with these last bytes reports. The entry behind it then becomes the oldest.
    #[inline(always)]
    pub(super) fn retire_stride(&mut self, end: u64) -> Option<Entry> {
        // SAFETY: `oldest` is at most one entry behind the last block's, and the stride at most
        // `LONGEST_STRIDE`. The allocation has so many entries, of which this is the end at most.
        let behind = unsafe { self.oldest.add(self.stride as usize) };
        // SAFETY: the stride is at least one, so this is an initialized entry of the allocation.
        let entry = unsafe { behind.sub(1).read() };
        if entry.key != Key::reported(end) {
            return None;
        }
        // The entry is of a block, since those behind the last block's equal no CQE.
        self.oldest = behind;
        Some(entry)
    }
}

#[cfg(test)]
impl Clone for Shadow {
    fn clone(&self) -> Self {
        let layout = Self::layout(self.shape);
        // SAFETY: the size is not 0. Both allocations have this layout, and the entries of this one
        // are initialized.
        let first = unsafe {
            let first = NonNull::new(alloc(layout)).expect("memory for a copy");
            first.copy_from_nonoverlapping(self.first.cast(), layout.size());
            first.cast::<Entry>()
        };
        // SAFETY: the copy has the same entries.
        let moved = |place: NonNull<Entry>| unsafe {
            first.byte_add(place.addr().get() - self.first.addr().get())
        };
        let (oldest, paused) = (moved(self.oldest), self.paused.map(moved));
        Self {
            first,
            shape: self.shape,
            oldest,
            paused,
            behind: moved(self.behind),
            stride: self.stride,
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, with this layout.
        unsafe { dealloc(self.first.cast().as_ptr(), Self::layout(self.shape)) }
    }
}

const _: () = assert!(size_of::<Entry>() == SEGMENT_SIZE);
