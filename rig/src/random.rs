//! Random numbers: seeded from the clock, replayed by `MLX5_SEED`.

/// SplitMix64.
pub struct Random {
    state: u64,
}

impl Random {
    /// Seeded by the environment's `MLX5_SEED`, or else by the clock. Prints the seed, which the
    /// test harness shows when the test fails.
    #[allow(clippy::new_without_default, reason = "it reads the environment, and prints the seed")]
    pub fn new() -> Self {
        let seed = std::env::var("MLX5_SEED").ok().map_or_else(
            || {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.expect("a clock after 1970").as_nanos() as u64
            },
            |text| text.parse().expect("MLX5_SEED is a decimal number"),
        );
        println!("MLX5_SEED={seed}");
        Self { state: seed }
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "these numbers do not end")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// Returns so many random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
