//! Requests that were written ahead.

use mlx5::cqe::Completion;
use mlx5::ring::{CqReader, Prepared, SendConfig, SendQueue};
use mlx5::wqe::{InlineBytes, RdmaWrite, Remote};

use crate::side::{Line, Row, Side, forget};

/// An 8-byte inline WRITE.
type Eight = RdmaWrite<InlineBytes<8>>;

pub struct Raw {
    completions: CqReader,
    prepared: Prepared<Eight>,
    remote: Remote,
    _line: Line,
}

impl Raw {
    pub fn new() -> Self {
        let line = Line::new();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        let prepared = Prepared::new(send.expect("a QP of its own"));
        Self { completions, prepared, remote: line.remote(), _line: line }
    }

    /// Fires all that is prepared.
    #[inline(never)]
    fn fire(&mut self) -> usize {
        let mut fired = 0_usize;
        while self.prepared.fire(fired.to_ne_bytes()).is_ok() {
            fired += 1;
            forget(&mut self.prepared);
        }
        fired
    }

    fn poll(&mut self, calls: usize) -> usize {
        let sent = |found| matches!(found, Ok(Some(Completion::Send(_))));
        (0..calls).filter(|_| sent(self.completions.poll(&mut self.prepared))).count()
    }
}

impl Side for Raw {
    fn prepare(&mut self, row: Row, calls: usize) {
        assert_eq!(row, Row::Prepared);
        for id in 0..calls as u64 {
            let write = RdmaWrite::new(InlineBytes([0; 8]), self.remote).signaled();
            self.prepared.prepare(id, write).expect("prepared");
        }
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            // As many as were prepared.
            Row::Prepared => Some(self.fire()),
            // Not rows of this side: what follows one.
            Row::Poll | Row::Empty if calls != 0 => Some(self.poll(calls)),
            _ => None,
        }
    }
}
