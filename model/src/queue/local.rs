//! WQEs that the device executes without a peer: DMA memcpy (MMO), and waiting for a CQ's
//! completions.

use super::{Data, Denied, Domain, Protection, Syndrome};
use crate::card::Card;

impl Card {
    /// Copies the next piece of what a request of a queue asks for: `done` bytes are copied, and the
    /// result says how many then are.
    pub(crate) fn copy_memory(
        &self,
        domain: Domain,
        (from, to): (&Data, &Data),
        notes: &Data,
        done: u64,
    ) -> Result<u64, Syndrome> {
        /// Bytes at a time.
        const PIECE: u64 = 1 << 16;
        let refused = |protection| {
            tracing::debug!(?protection, "cannot copy");
            Syndrome::LocalProtection(protection)
        };
        let unread = |denied: Denied| refused(Protection::Gather(denied));
        let unwritten = |denied: Denied| refused(Protection::Scatter(denied));
        // What cards note there is theirs to know; that they may is checked.
        if done == 0 {
            let length = notes.len() as usize;
            let mut kept = vec![0; length];
            self.gather(domain, std::slice::from_ref(notes), 0, &mut kept).map_err(unread)?;
            self.scatter(domain, std::slice::from_ref(notes), 0, &kept).map_err(unwritten)?;
        }
        let mut piece = vec![0; PIECE.min(from.len() - done) as usize];
        self.gather(domain, std::slice::from_ref(from), done, &mut piece).map_err(unread)?;
        self.scatter(domain, std::slice::from_ref(to), done, &piece).map_err(unwritten)?;
        Ok(done + piece.len() as u64)
    }

    /// Whether a CQ has had so many completions, or is not there to have them.
    pub(crate) fn has_completed(&self, cq: u32, count: u32) -> Option<bool> {
        /// Completions are counted modulo 2^24, as consumer indices are.
        const COUNTED: u32 = 0xff_ffff;
        let produced = self.objects.cqs.get(cq)?.producer;
        Some(produced.wrapping_sub(count) & COUNTED < COUNTED / 2 + 1)
    }
}
