//! Puts segments into a ring: in a straight line, within one block, or around the ring's end; and
//! to a register's buffer.
//!
//! All writers store through raw pointers only: the HCA reads this memory at any time after the
//! doorbell, so no reference to it may exist.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::{INLINE_SEG, InlineHeader, SEGMENT_SIZE, WQEBB_SIZE};

use super::{InlineBytes, Unit};

/// A segment's 16 bytes, as they lie in memory: `zerocopy::transmute!` of its type.
pub(crate) type Segment = [u64; 2];

/// Takes a WQE's segments one after another.
///
/// Stores are of whole words, aligned. A copy to a BlueFlame buffer loads words, and a load of what
/// narrower stores have just written waits for them to leave the store buffer, some ten cycles.
pub trait Segments {
    /// Stores eight bytes of a segment.
    ///
    /// # Safety
    /// There is space for them.
    unsafe fn put_word(&mut self, word: u64);

    /// Stores one 16-byte segment.
    ///
    /// # Safety
    /// There is space for it.
    #[inline(always)]
    unsafe fn put(&mut self, segment: Segment) {
        let [first, second] = segment;
        // SAFETY: there is space for a segment, which is these words.
        unsafe {
            self.put_word(first);
            self.put_word(second);
        }
    }

    /// Stores one 16-byte segment that is at hand as a unit, as wide as it can be.
    ///
    /// # Safety
    /// There is space for it.
    #[inline(always)]
    unsafe fn put_unit(&mut self, unit: Unit) {
        // SAFETY: there is space for a segment, which the unit is.
        unsafe { self.put([unit.low(), unit.high()]) }
    }

    /// Stores an inline header, a payload that is not empty, and zeros up to the next segment: at
    /// most `most` segments, a number that the compiler can use if it knows it.
    ///
    /// # Safety
    /// There is space for header and payload, which have at most `most` segments.
    #[inline(always)]
    unsafe fn put_inline(&mut self, payload: &[u8], most: usize) {
        let length = payload.len();
        let header = u64::from((INLINE_SEG | length as u32).to_be());
        // SAFETY: every word but the last of a segment has a byte of header or payload, which there
        // is space for, and space is of whole segments.
        unsafe {
            let (Some((first, mut rest)), Some(last)) =
                (payload.split_first_chunk(), payload.last_chunk())
            else {
                let payload = few(payload);
                return self.put([header | payload << 32, payload >> 32]);
            };
            self.put_word(header | u64::from(u32::from_ne_bytes(*first)) << 32);
            // The words but the first and the last.
            for _ in 0..2 * most - 2 {
                let (Some((next, more)), true) = (rest.split_first_chunk(), rest.len() > 8) else {
                    break;
                };
                self.put_word(u64::from_ne_bytes(*next));
                rest = more;
            }
            // One to eight bytes are left, the last ones of these.
            self.put_word(u64::from_ne_bytes(*last) >> (8 * (8 - rest.len())));
            if (InlineHeader::SIZE + length).div_ceil(8) % 2 != 0 {
                self.put_word(0);
            }
        }
    }

    /// Stores unit `at` of an inline header and a payload of known length.
    ///
    /// # Safety
    /// There is space for it.
    #[inline(always)]
    unsafe fn put_known<const N: usize>(&mut self, payload: &[u8; N], at: usize) {
        // SAFETY: the caller has space for a unit.
        unsafe { self.put_unit(InlineBytes::unit(payload, at)) }
    }

    /// Stores an inline header, a payload in pieces, whose lengths have the sum `length`, and zeros
    /// up to the next segment.
    ///
    /// # Safety
    /// There is space for header and payload.
    #[inline(always)]
    unsafe fn put_gathered<'a>(&mut self, length: u32, pieces: impl Iterator<Item = &'a [u8]>) {
        let header = u64::from((INLINE_SEG | length).to_be());
        // SAFETY: there is space for header and pieces.
        unsafe { self.put_packed([header, 0], InlineHeader::SIZE, pieces) }
    }

    /// Stores the first `used` bytes of `start`, the pieces one after another, and zeros up to the
    /// next segment. The other bytes of `start` are zero.
    ///
    /// # Safety
    /// There is space for `used` bytes and the pieces. `used` is less than 16.
    #[inline(always)]
    unsafe fn put_packed<'a>(
        &mut self,
        start: Segment,
        used: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        // Bytes so far. The last ones, fewer than eight, are in `word`.
        let (mut bytes, [mut word, second]) = (used, start);
        // SAFETY: every word but the last of a segment has at least one of the bytes that there is
        // space for, and space is of whole segments.
        unsafe {
            if used >= 8 {
                self.put_word(word);
                word = second;
            }
            for piece in pieces {
                let at = bytes % 8;
                bytes += piece.len();
                let last;
                if let (Some(head), Some(tail)) = (piece.first_chunk(), piece.last_chunk()) {
                    word |= u64::from_ne_bytes(*head) << (8 * at);
                    // In two steps, since none of it may be left.
                    last = u64::from_ne_bytes(*tail) >> 8 >> (8 * (7 - bytes % 8));
                } else {
                    let all = few(piece);
                    word |= all << (8 * at);
                    if at + piece.len() < 8 {
                        continue;
                    }
                    last = all >> 8 >> (8 * (7 - at));
                }
                self.put_word(word);
                let mut rest = piece.get(8 - at..).unwrap_or_default();
                while let Some((next, more)) = rest.split_first_chunk() {
                    self.put_word(u64::from_ne_bytes(*next));
                    rest = more;
                }
                word = last;
            }
            if bytes % 8 != 0 {
                self.put_word(word);
            }
            if bytes.div_ceil(8) % 2 != 0 {
                self.put_word(0);
            }
        }
    }
}

/// Returns fewer than eight bytes in memory order, and zeros behind them.
#[inline(always)]
pub(super) fn few(bytes: &[u8]) -> u64 {
    // Both ends, which meet or overlap in the middle.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_ne_bytes(*half)));
        first | last << (8 * (bytes.len() - 4))
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u16::from_ne_bytes(*half)));
        first | last << (8 * (bytes.len() - 2))
    } else {
        bytes.first().map_or(0, |byte| u64::from(*byte))
    }
}

/// Writes a WQE to contiguous memory: a ring, up to its end, or the buffer of a register.
pub struct Linear {
    at: *mut u64,
}

impl Linear {
    /// Starts at `at`.
    ///
    /// # Safety
    /// The WQE's space, from `at` on, is writable memory of one allocation, or a register's buffer,
    /// that nothing else writes, and `at` is aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8) -> Self {
        Self { at: at.cast() }
    }
}

impl Segments for Linear {
    #[inline(always)]
    unsafe fn put_word(&mut self, word: u64) {
        // Volatile, so that the compiler does not gather two words in a vector register first,
        // which takes longer than storing them.
        // SAFETY: `at` is in writable memory that nothing else writes, and aligned to 8, since
        // `new` and since each word moves it by 8. The caller has space for a word there.
        unsafe {
            self.at.write_volatile(word);
            self.at = self.at.add(1);
        }
    }

    #[inline(always)]
    unsafe fn put_unit(&mut self, unit: Unit) {
        // SAFETY: `at` is in writable memory, not null, and the caller has space for a segment
        // there. Segments start at multiples of 16, as the first one does.
        unsafe {
            unit.store(NonNull::new_unchecked(self.at.cast()));
            self.at = self.at.add(SEGMENT_SIZE / 8);
        }
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

    /// Returns the block's words, as far as they were kept.
    #[inline(always)]
    pub(crate) fn words(self) -> [Option<u64>; WORDS] {
        self.words
    }

    /// Returns the block's words, with zeros for those behind the WQE's end, which the HCA does not
    /// read. [`rest`](Self::rest) was not used.
    #[inline(always)]
    pub(crate) fn padded(mut self) -> [Option<u64>; WORDS] {
        self.words[self.used..].fill(Some(0));
        self.words
    }
}

impl Segments for Block {
    #[inline(always)]
    unsafe fn put_word(&mut self, word: u64) {
        self.words[self.used] = Some(word);
        self.used += 1;
        // SAFETY: the caller has space for a word in the block, where `linear` is.
        unsafe { self.linear.put_word(word) }
    }

    /// By words, which are kept.
    #[inline(always)]
    unsafe fn put_known<const N: usize>(&mut self, payload: &[u8; N], at: usize) {
        // SAFETY: the caller has space for a segment.
        unsafe { self.put(InlineBytes::segment(payload, at)) }
    }
}

/// The 16-byte units of a WQE that goes to a BlueFlame buffer.
pub(crate) type Units = [MaybeUninit<Unit>; BF_BUFFER_SIZE / SEGMENT_SIZE];

/// Writes a WQE to contiguous memory, a segment at a time, and keeps its units: what is in registers
/// need not be encoded again, or loaded, to be copied to a BlueFlame buffer.
pub(crate) struct Kept<'a> {
    linear: Linear,
    /// The first half of a segment whose second half was not put yet.
    low: Option<u64>,
    used: usize,
    /// Not in this structure: so the compiler can keep the units in registers as soon as it knows
    /// `used`.
    units: &'a mut Units,
}

impl<'a> Kept<'a> {
    /// Starts at `at`.
    ///
    /// # Safety
    /// The WQE's space, from `at` on, is writable memory of one allocation that nothing else
    /// writes, no longer than a BlueFlame buffer. `at` is aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *mut u8, units: &'a mut Units) -> Self {
        // SAFETY: the space is as the caller says.
        Self { linear: unsafe { Linear::new(at) }, low: None, used: 0, units }
    }
}

impl Segments for Kept<'_> {
    #[inline(always)]
    unsafe fn put_word(&mut self, word: u64) {
        match self.low.take() {
            None => self.low = Some(word),
            // SAFETY: the caller has space for the segment's second half, and had it for the first.
            Some(low) => unsafe { self.put_unit(Unit::from_words(low, word)) },
        }
    }

    #[inline(always)]
    unsafe fn put(&mut self, [first, second]: Segment) {
        // SAFETY: the caller has space for a segment.
        unsafe { self.put_unit(Unit::from_words(first, second)) }
    }

    #[inline(always)]
    unsafe fn put_unit(&mut self, unit: Unit) {
        self.units[self.used] = MaybeUninit::new(unit);
        self.used += 1;
        // SAFETY: the caller has space for a segment.
        unsafe { self.linear.put_unit(unit) }
    }
}

/// Writes a WQE that runs past the end of the ring and goes on at its start.
pub(crate) struct Wrapping {
    at: NonNull<u64>,
    start: NonNull<u64>,
    end: NonNull<u64>,
}

impl Wrapping {
    /// Starts `offset` bytes into the ring of `size` bytes at `start`.
    ///
    /// # Safety
    /// The ring is writable memory of one allocation; nothing else writes the WQE's space in it.
    /// `start`, `size` and `offset` are multiples of 16, and `offset` is less than `size`.
    pub(crate) unsafe fn new(start: NonNull<u8>, size: usize, offset: usize) -> Self {
        // SAFETY: `offset` is less than `size`, so it lies in the ring.
        let [at, end] = unsafe { [start.add(offset), start.add(size)] };
        Self { at: at.cast(), start: start.cast(), end: end.cast() }
    }
}

impl Segments for Wrapping {
    unsafe fn put_word(&mut self, word: u64) {
        // Position and size are multiples of 8, so a word is never split.
        if self.at == self.end {
            self.at = self.start;
        }
        // SAFETY: `at` is before the ring's end, in the WQE's space.
        unsafe {
            self.at.write_volatile(word);
            self.at = self.at.add(1);
        }
    }
}

#[cfg(test)]
mod tests;
