//! What the lint sees of a send ring.

use core::ptr::NonNull;

use mlx5_diag::lint;
use mlx5_sys::wqe::WQEBB_SIZE;

use super::state::SendState;
use crate::ib::Counter;

/// A view of a ring that only its queue writes.
#[cfg_attr(not(feature = "lint"), allow(dead_code, reason = "only the guard asks"))]
pub(super) struct Written<'a> {
    pub(in crate::ring) buffer: NonNull<u8>,
    pub(in crate::ring) blocks: u32,
    pub(in crate::ring) state: &'a SendState,
}

impl lint::Blocks for Written<'_> {
    fn count(&self) -> u32 {
        self.blocks
    }

    fn block(&self, counter: u16) -> [u8; WQEBB_SIZE] {
        let slot = (u32::from(counter) & (self.blocks - 1)) as usize;
        // SAFETY: a block of the ring, which lives as long as the queue. The read is volatile,
        // since any process that has the memory registered may overwrite it at any time.
        unsafe { self.buffer.add(slot * WQEBB_SIZE).cast().read_volatile() }
    }
}

impl lint::Starts for Written<'_> {
    fn blocks_at(&self, counter: u16) -> Option<u32> {
        self.state.entry(Counter::new(counter.into())).key.blocks()
    }
}
