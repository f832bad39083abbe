//! Counters of rings, and how they become slots.
//!
//! All counters are free-running 32-bit numbers here. The HCA sees their low 16 bits (WQE counters)
//! or low 24 bits (CQ consumer index); entries are powers of two, so a slot is a counter masked,
//! and the parity of a counter's lap is the ownership bit of a CQE.

use std::fmt;

/// A free-running counter: it never jumps back, and wraps at 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter(u32);

impl Counter {
    /// A counter that starts at `value`.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// Returns the number.
    #[inline(always)]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the counter `n` entries later.
    #[inline(always)]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// Returns the counter one entry earlier.
    #[inline(always)]
    pub const fn before(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// Returns how many entries `self` is ahead of `earlier`.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns whether `self` is at or after `other`, from which it is less than 2^31 away.
    #[inline(always)]
    pub const fn reaches(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) as i32 >= 0
    }

    /// Returns bits 15–0, as in WQEs, CQEs and QP doorbell records.
    #[inline(always)]
    pub const fn low16(self) -> u16 {
        self.0 as u16
    }

    /// Returns bits 23–0, as in CQ doorbell records.
    #[inline(always)]
    pub const fn low24(self) -> u32 {
        self.0 & 0xff_ffff
    }

    /// Returns the counter whose low 16 bits are `low`, looked for in the 2^16 values from `self`
    /// on.
    #[inline(always)]
    pub const fn next_with_low16(self, low: u16) -> Self {
        self.plus(low.wrapping_sub(self.low16()) as u32)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The shape of a ring: a number of entries that is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    mask: u32,
}

impl Shape {
    /// `entries` must be a power of two up to 2^24; anything else gives `None`.
    pub const fn new(entries: u32) -> Option<Self> {
        if entries.is_power_of_two() && entries <= 1 << 24 {
            Some(Self { mask: entries - 1 })
        } else {
            None
        }
    }

    /// Returns the number of entries.
    #[inline(always)]
    pub const fn entries(self) -> u32 {
        self.mask + 1
    }

    /// Returns the slot of an entry, less than [`entries`](Self::entries).
    #[inline(always)]
    pub const fn slot(self, counter: Counter) -> usize {
        (counter.0 & self.mask) as usize
    }

    /// Returns the last slot.
    #[inline(always)]
    pub const fn last(self) -> usize {
        self.mask as usize
    }

    /// Returns whether fewer than `count` entries, which are at least two, are left from `slot` to the
    /// ring's end.
    #[inline(always)]
    pub(crate) const fn ends_within(self, slot: usize, count: u32) -> bool {
        // Of two entries, one is left, which is the cheaper comparison.
        if count == 2 { slot == self.last() } else { slot + count as usize - 1 > self.last() }
    }

    /// Parity of the lap that `counter` is in: the owner bit that a CQE of this lap carries.
    #[inline(always)]
    pub const fn lap(self, counter: Counter) -> bool {
        counter.0 & (self.mask + 1) != 0
    }

    /// Returns the number of the lap that `counter` is in, modulo 256: what a CQE of this lap
    /// carries in the enhanced layout.
    pub const fn iteration(self, counter: Counter) -> u8 {
        (counter.0 >> (self.mask + 1).trailing_zeros()) as u8
    }
}
