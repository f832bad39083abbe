//! Copies payload that came in a CQE to the address in the WQE's data segments.
//!
//! The `lkey` of a segment may stand for memory elsewhere (dma-buf, device memory, indirect keys),
//! which the CPU cannot tell. QPs therefore put no payload into CQEs unless asked
//! ([`ScatterToCqe`](crate::verbs::attr::ScatterToCqe)), and where they do, the contract of posting says
//! that the memory is mapped at that address. Nothing is copied to address 0: entries of a
//! [`NullRegion`](crate::verbs::NullRegion) have it. libmlx5 skips them by their key
//! (`copy_to_scat`).

use core::mem::offset_of;
use core::ptr::NonNull;

use mlx5_sys::wqe::{DataSeg, INVALID_LKEY, SEGMENT_SIZE};

/// One data segment, read back from a ring.
///
/// The HCA only reads rings, and no key reaches their memory, so it is what this crate wrote.
pub(in crate::ring) struct Segment {
    addr: u64,
    count: u32,
    lkey: u32,
}

impl Segment {
    /// Reads the segment at `at`.
    ///
    /// # Safety
    /// 16 bytes at `at` are readable and aligned to 16.
    #[inline(always)]
    pub(in crate::ring) unsafe fn read(at: *const u8) -> Self {
        const { assert!(size_of::<DataSeg>() == SEGMENT_SIZE && offset_of!(DataSeg, addr) == 8) };
        // As words: a volatile load of the type, which has no alignment, is one of each byte.
        // SAFETY: the two words are the 16 bytes that the caller says are readable and aligned.
        let words = unsafe {
            let at = at.cast::<u64>();
            [at.read_volatile(), at.add(1).read_volatile()]
        };
        let segment: DataSeg = zerocopy::transmute!(words);
        Self { addr: segment.addr.get(), count: segment.byte_count.get(), lkey: segment.lkey.get() }
    }

    /// Returns the length of the segment's memory. `None` for the segment behind the last.
    fn length(&self) -> Option<usize> {
        match (self.count, self.lkey) {
            (0, INVALID_LKEY) => None,
            (0, _) => Some(1 << 31),
            (count, _) => Some(count as usize),
        }
    }

    /// Copies `length` bytes from `from` into the segment's memory, without a call: by two copies
    /// that may overlap. Returns false, and copies nothing, if the segment is too short, or only
    /// [`put`](Self::put) can tell.
    ///
    /// # Safety
    /// - `length` is at most 32. So many bytes at `from` are readable, and nothing writes them.
    /// - The segment names memory that is mapped, writable, at its address, that no reference covers
    ///   and that is not at `from`; or its address is 0.
    #[inline(always)]
    pub(in crate::ring) unsafe fn put_short(&self, from: NonNull<u8>, length: usize) -> bool {
        if self.count == 0 || self.addr == 0 || (self.count as usize) < length {
            return false;
        }
        let from = from.as_ptr();
        let to = core::ptr::with_exposed_provenance_mut::<u8>(self.addr as usize);
        macro_rules! ends {
            ($size:literal) => {{
                let last = length - $size;
                // SAFETY: the first and the last `$size` bytes of `length`, which is no less, at
                // `from` and of the segment. The caller says that these are readable, and that the
                // segment's memory is writable.
                unsafe {
                    let first = from.cast::<[u8; $size]>().read();
                    let second = from.add(last).cast::<[u8; $size]>().read();
                    to.cast::<[u8; $size]>().write(first);
                    to.add(last).cast::<[u8; $size]>().write(second);
                }
            }};
        }
        match length {
            16.. => ends!(16),
            8.. => ends!(8),
            4.. => ends!(4),
            2.. => ends!(2),
            1 => ends!(1),
            0 => {}
        }
        true
    }

    /// Copies `data` into the segment's memory. `false`, and nothing is copied, if that is too
    /// short.
    ///
    /// # Safety
    /// The segment names memory that is mapped, writable, at its address, and that no reference
    /// covers; or its address is 0.
    #[inline(always)]
    pub(in crate::ring) unsafe fn put(&self, data: &[u8]) -> bool {
        if self.length().is_none_or(|length| length < data.len()) {
            return false;
        }
        // SAFETY: no longer than the segment, whose memory is as `store` asks, as the caller says.
        unsafe { store(self.addr, data) };
        true
    }
}

/// Copies `data` to an address, or nowhere if that is 0.
///
/// # Safety
/// The address is 0, or so many bytes are mapped there, writable, and no reference covers them.
/// `data` is a copy that does not overlap them.
#[inline(always)]
pub(in crate::ring) unsafe fn store(address: u64, data: &[u8]) {
    if address == 0 {
        return;
    }
    let to = core::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: by this function's contract, the bytes are writable and do not overlap `data`.
    unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
}

/// Copies `data` into the memory of the segments, one after another. `false` if they are too short:
/// then as much is copied as fits.
///
/// # Safety
/// Each segment names memory that is mapped, writable, at its address, and that no reference
/// covers; or its address is 0.
pub(in crate::ring) unsafe fn scatter(
    mut data: &[u8],
    segments: impl Iterator<Item = Segment>,
) -> bool {
    for segment in segments {
        let Some(length) = segment.length().filter(|_| !data.is_empty()) else { break };
        let (now, later) = data.split_at(data.len().min(length));
        // SAFETY: the caller says that each segment's memory is writable at its address.
        unsafe { segment.put(now) };
        data = later;
    }
    data.is_empty()
}
