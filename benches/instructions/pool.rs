//! A program with a buffer pool, on both layers: it takes a buffer from a stack of free ones, posts
//! it, and puts it back when a poll returns its completion. So the columns of the raw layer and of
//! the owned one belong to equal programs.

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::MemoryRegion;
use mlx5::wqe::{RdmaWrite, Remote, Sge};

use super::safe::{SLICES, Safe};
use super::{LENGTH, LIST, Line, Row, Side, forget, put_back};

/// The raw layer: a buffer's place in a table is its id.
pub struct Raw {
    completions: CqReader,
    send: SendQueue<Rc>,
    receive: ReceiveQueue,
    buffers: Vec<Sge>,
    free: Vec<u64>,
    remote: Remote,
    sum: u64,
    _memory: MemoryRegion,
    _line: Line,
}

impl Raw {
    pub fn new() -> Self {
        let line = Line::new();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        let receive = ReceiveQueue::new(&line.qp, &mut completions, ReceiveConfig::default());
        let memory = line.rig.memory(SLICES * LENGTH as usize);
        let buffer =
            |at| Sge::new(memory.address() + (at * LENGTH as usize) as u64, LENGTH, memory.lkey());
        let buffers = (0..SLICES).map(buffer).collect();
        let remote = line.remote();
        Self {
            send: send.expect("a QP of its own"),
            receive: receive.expect("a QP of its own"),
            completions,
            buffers,
            free: (0..SLICES as u64).rev().collect(),
            remote,
            sum: 0,
            _memory: memory,
            _line: line,
        }
    }

    fn buffer(&self, id: u64) -> Sge {
        // SAFETY: an id is a place in the table.
        unsafe { *self.buffers.get_unchecked(id as usize) }
    }

    #[inline(never)]
    fn post(&mut self, calls: usize) -> usize {
        for done in 0..calls {
            forget(self);
            let Some(id) = self.free.pop() else { return done };
            let write = RdmaWrite::new(self.buffer(id), self.remote).signaled();
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        for done in 0..calls {
            forget(self);
            let mut batch = self.send.batch();
            for _ in 0..LIST {
                let Some(id) = self.free.pop() else { return done * LIST };
                // SAFETY: an id is a place in the table. (`batch` borrows a part of `self`, so
                // `buffer` cannot be called.)
                let buffer = unsafe { *self.buffers.get_unchecked(id as usize) };
                let write = RdmaWrite::new(buffer, self.remote).signaled();
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
                put_back(&mut self.free, done.id);
            }
        }
        found
    }

    #[inline(never)]
    fn receive(&mut self, calls: usize) -> usize {
        for done in 0..calls {
            forget(self);
            let Some(id) = self.free.pop() else { return done };
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.receive.post(id, self.buffer(id)) }.expect("posted");
        }
        calls
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::PoolPost => self.post(calls),
            Row::PoolList => self.list(calls),
            Row::PoolPoll | Row::PoolEmpty => self.poll(calls),
            Row::PoolReceive => self.receive(calls),
            _ => return None,
        })
    }
}

/// The owned layer.
pub struct Owned(pub Safe);

impl Side for Owned {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        let row = match row {
            Row::PoolPost => Row::Pointer,
            Row::PoolList => Row::List,
            Row::PoolPoll => Row::Poll,
            Row::PoolEmpty => Row::Empty,
            Row::PoolReceive => Row::Receive,
            _ => return None,
        };
        self.0.run(row, calls)
    }
}
