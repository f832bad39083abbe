//! A random number generator whose sequence depends on its seed alone.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the generator of the sequence that `parts` name.
    pub fn new(parts: &[u64]) -> Self {
        let mut random = Self { state: 0x6d6c_7835 };
        for &part in parts {
            random.state ^= part;
            random.state = random.next();
        }
        random
    }

    /// Returns the next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

/// Returns `length` bytes that `salt` determines.
pub fn bytes(salt: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(&[salt]);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(random.next().to_ne_bytes());
    }
    bytes.truncate(length);
    bytes
}
