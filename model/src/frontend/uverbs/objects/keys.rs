//! The cache of memory keys.
//!
//! Linux's mlx5_ib keeps the key of a region that is deregistered, and registers the next region of
//! that kind under it (`drivers/infiniband/hw/mlx5/mr.c`: `mlx5_revoke_mr`, `mlx5_mr_cache_alloc`).
//! The key is unchanged, also its low byte, and the last one in is the first one out.

use std::collections::VecDeque;

/// Most keys that a file keeps.
const MOST: usize = 256;

/// The properties of a region by which the cache finds a key for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    /// Length of the page list, rounded up to a power of two.
    pub pages: u64,
    /// Whether the device may reorder accesses.
    pub relaxed: bool,
}

/// Keys of regions that were deregistered.
#[derive(Default)]
pub(crate) struct KeyCache {
    keys: VecDeque<(Kind, u32)>,
}

impl KeyCache {
    /// Takes the key of this kind that was added last.
    pub fn take(&mut self, kind: Kind) -> Option<u32> {
        let at = self.keys.iter().rposition(|(other, _)| *other == kind)?;
        self.keys.remove(at).map(|(_, key)| key)
    }

    /// Adds the key of a region that is gone. A full cache drops the oldest key.
    pub fn add(&mut self, kind: Kind, key: u32) {
        if self.keys.len() == MOST {
            self.keys.pop_front();
        }
        self.keys.push_back((kind, key));
    }
}
