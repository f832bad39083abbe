//! This crate, raw layer.

use std::mem::replace;

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::wqe::{InlineBytes, RdmaWrite, Remote, Sge};

use crate::side::{LIST, Line, Row, Side, forget};

pub struct Raw {
    completions: CqReader,
    send: SendQueue<Rc>,
    receive: ReceiveQueue,
    sge: Sge,
    remote: Remote,
    sum: u64,
    _line: Line,
}

impl Raw {
    pub fn new() -> Self {
        Self::with(SendConfig::default())
    }

    pub fn with(config: SendConfig) -> Self {
        let line = Line::new();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, config);
        let receive = ReceiveQueue::new(&line.qp, &mut completions, ReceiveConfig::default());
        Self {
            send: send.expect("a QP of its own"),
            receive: receive.expect("a QP of its own"),
            completions,
            sge: line.sge(),
            remote: line.remote(),
            sum: 0,
            _line: line,
        }
    }

    #[inline(never)]
    fn inline(&mut self, calls: usize) -> usize {
        let remote = self.remote;
        for id in 0..calls as u64 {
            forget(&mut self.send);
            let write = RdmaWrite::new(InlineBytes(id.to_ne_bytes()), remote).signaled();
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn pointer(&mut self, calls: usize) -> usize {
        let (sge, remote) = (self.sge, self.remote);
        for id in 0..calls as u64 {
            forget(&mut self.send);
            let write = RdmaWrite::new(sge, remote).signaled();
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let (sge, remote) = (self.sge, self.remote);
        for _ in 0..calls {
            forget(&mut self.send);
            let mut batch = self.send.batch();
            for id in 0..LIST as u64 {
                let write = RdmaWrite::new(sge, remote).signaled();
                batch.append(id, write).expect("appended");
            }
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { batch.ring() };
        }
        calls * LIST
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(self);
            if let Ok(Some(Completion::Send(done))) = self.completions.poll(&mut self.send) {
                self.sum += done.id;
                found += 1;
            }
        }
        found
    }

    #[inline(never)]
    fn receive(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for id in 0..calls as u64 {
            forget(&mut self.receive);
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.receive.post(id, sge) }.expect("posted");
        }
        calls
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::Inline => self.inline(calls),
            Row::Pointer => self.pointer(calls),
            Row::List => self.list(calls),
            Row::Poll | Row::Empty => {
                let found = self.poll(calls);
                let ids = replace(&mut self.sum, 0);
                assert!(found == 0 || found == 1 || ids != 0, "ids come back");
                found
            }
            Row::Receive => self.receive(calls),
            _ => return None,
        })
    }
}
