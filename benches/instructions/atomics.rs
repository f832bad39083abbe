//! Atomics under masks, which libmlx5 cannot post.

use mlx5::ib::Rc;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::wqe::{MaskedFetchAdd, Remote, Word};

use crate::side::{Line, Row, Side, forget};

/// This crate, raw layer.
pub struct Raw {
    send: SendQueue<Rc>,
    completions: CqReader,
    old: Word,
    remote: Remote,
    _line: Line,
}

impl Raw {
    pub fn new() -> Self {
        let line = Line::new();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        let (send, remote) = (send.expect("a QP of its own"), line.remote());
        let old = Word::new(line.sge().addr, line.sge().lkey);
        Self { send, completions, old, remote, _line: line }
    }

    #[inline(never)]
    fn post(&mut self, calls: usize) -> usize {
        let (old, remote) = (self.old, self.remote);
        for id in 0..calls as u64 {
            forget(&mut self.send);
            let add = MaskedFetchAdd::new(old, remote, id).fields(1 << 31).signaled();
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, add) }.expect("posted");
        }
        calls
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::Masked => Some(self.post(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => None,
        }
    }
}
