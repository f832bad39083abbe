//! Random numbers for this crate's unit tests: seeded from the clock, replayed by `MLX5_SEED`.

/// SplitMix64.
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// Seeded by the environment's `MLX5_SEED`, or else by the clock. Prints the seed, which the
    /// test harness shows when the test fails.
    pub(crate) fn from_clock() -> Self {
        let seed = std::env::var("MLX5_SEED").ok().map_or_else(
            || {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.unwrap().as_nanos() as u64
            },
            |text| text.parse().expect("MLX5_SEED is a decimal number"),
        );
        println!("MLX5_SEED={seed}");
        Self::from_seed(seed)
    }

    /// Seeded by a number, of another one.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// The seed.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }
}

/// Returns how often a test of random choices repeats: `native` times, and a twentieth of that
/// under Miri, which takes some thousand times as long.
pub(crate) const fn rounds(native: u32) -> u32 {
    if !cfg!(miri) {
        native
    } else if native < 40 {
        2
    } else {
        native / 20
    }
}
