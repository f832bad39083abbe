//! Puts message data that came inside a CQE where the WQE wanted it.

use core::mem::offset_of;

use mlx5_sys::wqe::{DataSeg, INVALID_LKEY, SEGMENT_SIZE};

/// One data segment, read back from a ring.
///
/// The card only reads rings (their pages are mapped for it read-only), so what is read back is
/// what this crate wrote.
pub(super) struct Segment {
    addr: u64,
    length: usize,
    end: bool,
}

impl Segment {
    /// Reads the segment at `at`.
    ///
    /// # Safety
    /// 16 bytes at `at` are readable and aligned to 16.
    pub(super) unsafe fn read(at: *const u8) -> Self {
        const { assert!(size_of::<DataSeg>() == SEGMENT_SIZE && offset_of!(DataSeg, addr) == 8) };
        // SAFETY: the caller vouches for the 16 bytes; every bit pattern is a `DataSeg`.
        let segment = unsafe { at.cast::<DataSeg>().read_volatile() };
        let count = segment.byte_count.get();
        Self {
            addr: segment.addr.get(),
            length: if count == 0 { 1 << 31 } else { count as usize },
            end: count == 0 && segment.lkey.get() == INVALID_LKEY,
        }
    }
}

/// Copies `data` into the memory of the segments, one after another. `false` if they are too short:
/// then as much is copied as fits.
///
/// # Safety
/// The segments name writable memory that no reference covers.
pub(super) unsafe fn scatter(mut data: &[u8], segments: impl Iterator<Item = Segment>) -> bool {
    for segment in segments {
        if data.is_empty() || segment.end {
            break;
        }
        let (now, later) = data.split_at(data.len().min(segment.length));
        let to = core::ptr::with_exposed_provenance_mut::<u8>(segment.addr as usize);
        // SAFETY: the caller vouches for the memory; `now` is a copy on this side's stack.
        unsafe { to.copy_from_nonoverlapping(now.as_ptr(), now.len()) };
        data = later;
    }
    data.is_empty()
}
