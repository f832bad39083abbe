//! Puts segments into a ring: in a straight line, within one block, or around the ring's end.
//!
//! All writers store through raw pointers only: the HCA reads this memory at any time after the
//! doorbell, so no reference to it may exist.

use core::ptr::NonNull;

use mlx5_sys::wqe::{INLINE_SEG, InlineHeader, SEGMENT_SIZE, WQEBB_SIZE};
use zerocopy::IntoBytes;

use super::Unit;

/// A segment's 16 bytes, as they lie in memory: `zerocopy::transmute!` of its type.
pub(crate) type Segment = [u64; 2];

/// Takes a WQE's segments one after another.
pub trait Segments {
    /// Stores one 16-byte segment.
    ///
    /// # Safety
    /// There is space for it.
    unsafe fn put(&mut self, segment: Segment);

    /// Stores one 16-byte segment that is at hand as a unit, as wide as it can be.
    ///
    /// # Safety
    /// There is space for it.
    #[inline(always)]
    unsafe fn put_unit(&mut self, unit: Unit) {
        // SAFETY: there is space for a segment, which the unit is.
        unsafe { self.put([unit.low(), unit.high()]) }
    }

    /// Stores an inline header, the payload's pieces one after another, and steps over the padding
    /// to the next segment. The padding is not written: the HCA does not read it as payload.
    ///
    /// # Safety
    /// There is space for header and payload; `length` is the sum of the pieces' lengths.
    unsafe fn put_inline<'a>(&mut self, length: u32, pieces: impl Iterator<Item = &'a [u8]>);
}

/// Writes a WQE that ends before the ring does.
pub struct Linear {
    at: *mut u8,
}

impl Linear {
    /// Starts at `at`.
    ///
    /// # Safety
    /// The WQE's space, from `at` on, is writable memory of one allocation that nothing else
    /// writes, and `at` is aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8) -> Self {
        Self { at }
    }
}

impl Segments for Linear {
    #[inline(always)]
    unsafe fn put(&mut self, segment: Segment) {
        let [first, second] = segment;
        // Two stores of eight bytes: volatile, so that the compiler does not gather them in a
        // vector register first, which takes longer than storing them.
        // SAFETY: `at` is in writable memory that nothing else writes, and aligned to 16, since
        // `new` and since each segment moves it by 16. The caller has space for a segment there.
        unsafe {
            let at = self.at.cast::<u64>();
            at.write_volatile(first);
            at.add(1).write_volatile(second);
            self.at = self.at.add(SEGMENT_SIZE);
        }
    }

    #[inline(always)]
    unsafe fn put_unit(&mut self, unit: Unit) {
        // SAFETY: `at` is in writable memory, aligned to 16 and not null, and the caller has space
        // for a segment there.
        unsafe {
            unit.store(NonNull::new_unchecked(self.at));
            self.at = self.at.add(SEGMENT_SIZE);
        }
    }

    #[inline(always)]
    unsafe fn put_inline<'a>(&mut self, length: u32, pieces: impl Iterator<Item = &'a [u8]>) {
        let header = InlineHeader { byte_count: (INLINE_SEG | length).into() };
        // SAFETY: `at` is in writable memory, and the caller has space for header and payload
        // there. The pieces are references, and this memory is only reached through raw pointers,
        // so they do not overlap.
        unsafe {
            let start = self.at;
            start.cast::<InlineHeader>().write_unaligned(header);
            let mut at = start.add(InlineHeader::SIZE);
            for piece in pieces {
                copy_short(piece, at);
                at = at.add(piece.len());
            }
            self.at = start.add((InlineHeader::SIZE + length as usize).next_multiple_of(16));
        }
    }
}

/// Copies bytes, a few of them without a call: the copying of a block's worth of payload takes
/// fewer instructions than the library's function needs to find out how many there are.
///
/// # Safety
/// `to` is writable memory for them, which no reference reaches.
#[inline(always)]
unsafe fn copy_short(bytes: &[u8], to: *mut u8) {
    let (from, length) = (bytes.as_ptr(), bytes.len());
    // Both ends, which meet or overlap in the middle.
    macro_rules! ends {
        ($unit:ty) => {{
            let last = length - size_of::<$unit>();
            // SAFETY: the bytes are no fewer than a unit has, so both lie within them.
            unsafe {
                let ends = [from, from.add(last)].map(|at| at.cast::<$unit>().read_unaligned());
                to.cast::<$unit>().write_unaligned(ends[0]);
                to.add(last).cast::<$unit>().write_unaligned(ends[1]);
            }
        }};
    }
    if length >= 8 {
        match length {
            ..17 => ends!(u64),
            17..=32 => ends!(u128),
            // SAFETY: `to` is writable for `length` bytes, and no reference reaches it.
            _ => unsafe { to.copy_from_nonoverlapping(from, length) },
        }
    } else if length >= 4 {
        ends!(u32);
    } else if length >= 2 {
        ends!(u16);
    } else if length == 1 {
        ends!(u8);
    }
}

/// Writes a WQE of one 64-byte block, and keeps the words it stored: what is in registers need not
/// be loaded to be copied to a BlueFlame buffer.
pub struct Block {
    linear: Linear,
    used: usize,
    words: [Option<u64>; WORDS],
}

const WORDS: usize = WQEBB_SIZE / 8;

impl Block {
    /// Starts at `at`.
    ///
    /// # Safety
    /// 64 bytes from `at` on are writable memory of one allocation that nothing else writes, and
    /// `at` is aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8) -> Self {
        // SAFETY: the block is the space of a WQE of one block.
        Self { linear: unsafe { Linear::new(at) }, used: 0, words: [None; WORDS] }
    }

    /// Returns the writer for the rest of the block, whose words are not kept.
    #[inline(always)]
    pub(crate) fn rest(&mut self) -> &mut Linear {
        &mut self.linear
    }

    /// The block's words, as far as they were stored whole.
    #[inline(always)]
    pub(crate) fn words(self) -> [Option<u64>; WORDS] {
        self.words
    }
}

impl Segments for Block {
    #[inline(always)]
    unsafe fn put(&mut self, segment: Segment) {
        let [first, second] = segment;
        self.words[self.used] = Some(first);
        self.words[self.used + 1] = Some(second);
        self.used += 2;
        // SAFETY: the caller has space for a segment in the block, where `linear` is.
        unsafe { self.linear.put(segment) }
    }

    #[inline(always)]
    unsafe fn put_inline<'a>(&mut self, length: u32, mut pieces: impl Iterator<Item = &'a [u8]>) {
        let used = self.used;
        let end = InlineHeader::SIZE + length as usize;
        self.used += end.next_multiple_of(SEGMENT_SIZE) / 8;
        let (first, second) = (pieces.next(), pieces.next());
        let (Some((start, rest)), None) =
            (first.and_then(|piece| piece.split_first_chunk()), second)
        else {
            let pieces = first.into_iter().chain(second).chain(pieces);
            // SAFETY: the caller has space for a header and a payload of `length` bytes, which the
            // pieces that were taken and the rest make up.
            return unsafe { self.linear.put_inline(length, pieces) };
        };
        // The header shares its word with the payload's start. Stored and kept as one word, it need
        // not be loaded again: a load of what two stores have just written waits for both.
        let header = InlineHeader { byte_count: (INLINE_SEG | length).into() };
        let header: [u8; InlineHeader::SIZE] = zerocopy::transmute!(header);
        let [header, start] = [header, *start].map(|half: [u8; 4]| u32::from_ne_bytes(half));
        let word = u64::from(header) | u64::from(start) << 32;
        let at = self.linear.at;
        // SAFETY: `at` is in writable memory, aligned to 16, and the caller has space for header
        // and payload there. The piece is a reference, which does not reach this memory.
        unsafe {
            at.cast::<u64>().write_volatile(word);
            copy_short(rest, at.add(8));
            self.linear.at = at.add(end.next_multiple_of(SEGMENT_SIZE));
        }
        self.words[used] = Some(word);
    }
}

/// Writes a WQE that lies in a ring a second time, to a register, from where it is at hand.
pub struct Echo {
    to: NonNull<u8>,
    from: NonNull<u64>,
}

impl Echo {
    /// Starts at `to`, with what starts at `from` in the ring.
    ///
    /// # Safety
    /// `to` is a register's buffer, aligned to 16, that takes the WQE; `from` is where it was
    /// written.
    #[inline(always)]
    pub(crate) unsafe fn new(to: NonNull<u8>, from: NonNull<u64>) -> Self {
        Self { to, from }
    }

    /// # Safety
    /// A segment was put at `to`.
    #[inline(always)]
    unsafe fn step(&mut self) {
        // SAFETY: a segment lies there, so the ends are at most one past the WQE.
        unsafe {
            self.to = self.to.add(SEGMENT_SIZE);
            self.from = self.from.add(SEGMENT_SIZE / 8);
        }
    }
}

impl Segments for Echo {
    #[inline(always)]
    unsafe fn put(&mut self, segment: Segment) {
        let [first, second] = segment;
        // SAFETY: `to` is in a register's buffer that takes the WQE (`new`), and the caller has
        // space for a segment.
        unsafe {
            let to = self.to.cast::<u64>();
            to.write_volatile(first);
            to.add(1).write_volatile(second);
            self.step();
        }
    }

    #[inline(always)]
    unsafe fn put_unit(&mut self, unit: Unit) {
        // SAFETY: `to` is in a register's buffer that takes the WQE (`new`), aligned to 16, and the
        // caller has space for a segment.
        unsafe {
            unit.store(self.to);
            self.step();
        }
    }

    #[inline(always)]
    unsafe fn put_inline<'a>(&mut self, length: u32, _: impl Iterator<Item = &'a [u8]>) {
        // From the ring, where they lie in words: stores to the register are of no other size.
        for _ in 0..(InlineHeader::SIZE + length as usize).div_ceil(SEGMENT_SIZE) {
            // SAFETY: `from` is where the WQE was written (`new`), whose payload ends no earlier
            // than this loop; the register has space for the same.
            unsafe { self.put([self.from.read(), self.from.add(1).read()]) }
        }
    }
}

/// Writes a WQE that runs past the end of the ring and goes on at its start.
pub(crate) struct Wrapping {
    at: *mut u8,
    start: *mut u8,
    left: usize,
}

impl Wrapping {
    /// Starts `offset` bytes into the ring of `size` bytes at `start`.
    ///
    /// # Safety
    /// The ring is writable memory of one allocation; nothing else writes the WQE's space in it.
    /// `start`, `size` and `offset` are multiples of 16, and `offset` is less than `size`.
    pub(crate) unsafe fn new(start: *mut u8, size: usize, offset: usize) -> Self {
        // SAFETY: `offset` is less than `size`, so it lies in the ring.
        Self { at: unsafe { start.add(offset) }, start, left: size - offset }
    }

    /// # Safety
    /// There is space for the bytes in the WQE.
    unsafe fn put_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                self.at = self.start;
                // A WQE is no longer than the ring, so its end is met once at most.
                self.left = usize::MAX;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.left));
            // SAFETY: `now` fits before the ring's end, and into the WQE's space. `bytes` is a
            // reference, so it is not ring memory.
            unsafe {
                self.at.copy_from_nonoverlapping(now.as_ptr(), now.len());
                self.at = self.at.add(now.len());
            }
            self.left -= now.len();
            bytes = later;
        }
    }
}

impl Segments for Wrapping {
    unsafe fn put(&mut self, segment: Segment) {
        // Position and size are multiples of 16, so a segment is never split.
        // SAFETY: there is space for a segment, which is these bytes.
        unsafe { self.put_bytes(segment.as_bytes()) }
    }

    unsafe fn put_inline<'a>(&mut self, length: u32, pieces: impl Iterator<Item = &'a [u8]>) {
        let header = InlineHeader { byte_count: (INLINE_SEG | length).into() };
        // SAFETY: there is space for header, payload and padding. The header starts at a multiple
        // of 16, so it is not split.
        unsafe {
            self.put_bytes(header.as_bytes());
            for piece in pieces {
                self.put_bytes(piece);
            }
            let used = InlineHeader::SIZE + length as usize;
            let padding = used.next_multiple_of(16) - used;
            self.at = self.at.add(padding);
            self.left -= padding;
        }
    }
}

#[cfg(test)]
mod tests;
