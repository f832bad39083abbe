//! Packet sequence numbers: 24 bits that wrap.

/// A packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Psn(u32);

impl Psn {
    /// How many there are.
    pub const COUNT: u32 = 1 << 24;
    /// Number that may be outstanding: half of all, so that old and new can be distinguished.
    pub const WINDOW: u32 = 1 << 23;

    /// From the low 24 bits of a number.
    pub fn new(number: u32) -> Self {
        Self(number % Self::COUNT)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// So many later.
    pub fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The one before.
    pub fn previous(self) -> Self {
        self.plus(Self::COUNT - 1)
    }

    /// How many after `earlier` it is, going forward only.
    pub fn after(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) % Self::COUNT
    }

    /// How far from `other` it is: negative if it is the older one.
    pub fn since(self, other: Self) -> i32 {
        let after = self.after(other);
        if after < Self::WINDOW { after as i32 } else { after as i32 - Self::COUNT as i32 }
    }
}

#[cfg(test)]
mod tests;
