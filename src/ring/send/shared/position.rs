//! Index arithmetic of shared queues: counters long enough that a thread that was held up between
//! reading one and comparing it finds either the same moment or another number.

/// A count of blocks since the ring was made: 46 bits, of which the low 32 are the
/// [`Counter`](crate::ib::Counter) of exclusive queues. It comes round after 2^46
/// blocks, a week of a hundred million per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position(u64);

impl Position {
    const BITS: u32 = 46;
    const MASK: u64 = (1 << Self::BITS) - 1;

    pub const fn new(value: u64) -> Self {
        Self(value & Self::MASK)
    }

    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub const fn plus(self, blocks: u32) -> Self {
        Self::new(self.0 + blocks as u64)
    }

    /// Returns how far `self` is ahead of `earlier`; more than any ring's size if it is behind.
    #[inline(always)]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// The position after `self`, or the same, whose low 32 bits are `low`.
    #[inline(always)]
    pub const fn next_with_low32(self, low: u32) -> Self {
        self.plus(low.wrapping_sub(self.0 as u32))
    }

    /// Returns the number of WQEs before this position, modulo 2^16, if so many of the blocks before
    /// it are silent: no WQE begins in them.
    pub const fn minus_silent(self, silent: u32) -> u16 {
        (self.0 as u32).wrapping_sub(silent) as u16
    }

    /// Slot of a ring of `entries` blocks, a power of two.
    #[inline(always)]
    pub const fn slot(self, entries: u32) -> usize {
        (self.0 & (entries as u64 - 1)) as usize
    }
}

/// A position, the count of WQEs before it (modulo 2^16, twice what can be outstanding), and two
/// flags, as one number that is read and changed in one access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account(u64);

impl Account {
    /// A thread rings the doorbell, or is about to.
    pub(super) const BUSY: u64 = 1;
    /// No more reservations.
    pub(super) const STOPPED: u64 = 2;
    const FLAGS: u64 = 3;
    const REQUESTS: u32 = 2;
    const POSITION: u32 = 64 - Position::BITS;

    pub const fn new(position: Position, requests: u16) -> Self {
        Self(position.0 << Self::POSITION | (requests as u64) << Self::REQUESTS)
    }

    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub const fn position(self) -> Position {
        Position(self.0 >> Self::POSITION)
    }

    #[inline(always)]
    pub const fn requests(self) -> u16 {
        (self.0 >> Self::REQUESTS) as u16
    }

    #[inline(always)]
    pub const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// After so much more; flags stay.
    #[inline(always)]
    pub const fn plus(self, blocks: u32, requests: u32) -> Self {
        let requests = self.requests().wrapping_add(requests as u16);
        Self(Self::new(self.position().plus(blocks), requests).0 | self.0 & Self::FLAGS)
    }

    #[inline(always)]
    pub const fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }

    #[inline(always)]
    pub const fn without(self, flag: u64) -> Self {
        Self(self.0 & !flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_round() {
        let last = Position::new(Position::MASK);
        assert_eq!(last.plus(3), Position::new(2));
        assert_eq!((last.plus(3).since(last), last.since(last)), (3, 0));
        assert!(last.since(last.plus(1)) > 1 << 32);
        assert_eq!((last.slot(8), last.plus(2).slot(8)), (7, 1));
        assert_eq!(Position::new(0x7_ffff_fffe).next_with_low32(1), Position::new(0x8_0000_0001));
        assert_eq!(Position::new(5).next_with_low32(5), Position::new(5));
    }

    #[test]
    fn the_parts_of_an_account_do_not_touch() {
        let account = Account::new(Position::new(Position::MASK), u16::MAX).with(Account::BUSY);
        let next = account.plus(2, 1);
        assert_eq!((next.position(), next.requests()), (Position::new(1), 0));
        assert!(next.has(Account::BUSY) && !next.has(Account::STOPPED));
        let next = next.without(Account::BUSY).with(Account::STOPPED).plus(0, 7);
        assert_eq!((next.position(), next.requests()), (Position::new(1), 7));
        assert!(!next.has(Account::BUSY) && next.has(Account::STOPPED));
    }
}
