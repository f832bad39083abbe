//! The CQEs that mini CQEs of the enhanced layout refer to: kept by the reader's block, and by the CQ
//! while it has no reader.

use crate::ib::Counter;

/// The CQEs that mini CQEs may refer to, by the index behind them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Titles {
    /// The CQE that was seen last.
    last: Option<(Counter, [u64; 8])>,
    /// The last of the CQEs that were there when CQEs of a queue were dropped.
    swept: Option<(Counter, [u64; 8])>,
}

impl Titles {
    pub(in crate::ring) fn before(&self, index: Counter) -> Option<[u64; 8]> {
        let found = [self.swept, self.last]
            .into_iter()
            .flatten()
            .find(|(at, _)| at.low24() == index.low24());
        found.map(|(_, words)| words)
    }

    pub(in crate::ring) fn remember(&mut self, index: Counter, cqe: [u64; 8]) {
        self.last = Some((index, cqe));
    }

    pub(in crate::ring) fn keep(&mut self, end: Counter) {
        self.swept = self.last.filter(|(at, _)| *at == end);
    }
}
