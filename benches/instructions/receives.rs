//! Posting receives to a queue with four entries per receive, one by one and many at once.

use std::ptr::null_mut;

use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::ibv_post_recv;
use mlx5_sys::wqe::INVALID_LKEY;

use super::floor::put;
use super::prepared::Receives;
use crate::side::{LENGTH, LIST, Line, Row, Side, forget};
use rig::verbs::QpMemory;

/// Entries that a receive may have, in the row of the queue that takes several.
pub const WIDE: u32 = 4;

/// Which loop is which row's: single receives are posted to a queue that takes several entries,
/// lists to one that takes one.
fn run<S>(
    side: &mut S,
    sges: u32,
    row: Row,
    calls: usize,
    one: fn(&mut S, usize) -> usize,
    list: fn(&mut S, usize) -> usize,
) -> Option<usize> {
    match (row, sges) {
        (Row::ReceiveWide, WIDE) => Some(one(side, calls)),
        (Row::ReceiveList, 1) => Some(list(side, calls)),
        _ => None,
    }
}

/// libmlx5.
pub struct Classic {
    line: Line,
    sges: u32,
    receives: Receives,
}

impl Classic {
    pub fn new(sges: u32) -> Self {
        let line = Line::with_receives(sges);
        Self { receives: Receives::new(line.sge()), line, sges }
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let qp = self.line.qp.as_raw().as_ptr();
        // SAFETY: QP, requests and memory live as long as `self`.
        self.receives.one(calls, |first| unsafe { ibv_post_recv(qp, first, &mut null_mut()) })
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let qp = self.line.qp.as_raw().as_ptr();
        // SAFETY: QP, requests and memory live as long as `self`.
        self.receives.list(calls, |first| unsafe { ibv_post_recv(qp, first, &mut null_mut()) })
    }
}

impl Side for Classic {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        run(self, self.sges, row, calls, Self::one, Self::list)
    }
}

/// This crate, raw layer.
pub struct Raw {
    queue: ReceiveQueue,
    sge: Sge,
    _completions: CqReader,
    _line: Line,
    sges: u32,
}

impl Raw {
    pub fn new(sges: u32) -> Self {
        let line = Line::with_receives(sges);
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let queue = ReceiveQueue::new(&line.qp, &mut completions, ReceiveConfig::default());
        let queue = queue.expect("a QP of its own");
        assert_eq!(queue.max_sge(), sges);
        Self { queue, sge: line.sge(), _completions: completions, _line: line, sges }
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for id in 0..calls as u64 {
            forget(&mut self.queue);
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.queue.post(id, sge) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for _ in 0..calls {
            forget(&mut self.queue);
            let mut batch = self.queue.batch();
            for id in 0..LIST as u64 {
                batch.append(id, sge).expect("appended");
            }
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { batch.ring() };
        }
        calls * LIST
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        run(self, self.sges, row, calls, Self::one, Self::list)
    }
}

/// The stores that must happen.
pub struct Floor {
    receive: QpMemory,
    head: u32,
    line: Line,
    sges: u32,
}

impl Floor {
    pub fn new(sges: u32) -> Self {
        let line = Line::with_receives(sges);
        // SAFETY: the QP lives as long as the floor.
        let receive = unsafe { QpMemory::new(line.qp.as_raw()) };
        assert_eq!(receive.dv.rq.stride, sges * 16);
        Self { receive, head: 0, line, sges }
    }

    fn data(&self) -> [u64; 2] {
        let sge = self.line.sge();
        [(u64::from(LENGTH) << 32 | u64::from(sge.lkey)).to_be(), sge.addr.to_be()]
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let (data, dv) = (self.data(), self.receive.dv);
        let (ring, mask) = (dv.rq.buf.cast::<u8>(), dv.rq.wqe_cnt - 1);
        for _ in 0..calls {
            // SAFETY: a slot of the ring, and the record, which are this queue pair's; no other
            // code uses them.
            unsafe {
                let wqe = ring.add((self.head & mask) as usize * WIDE as usize * 16).cast::<u64>();
                put(wqe, 0, data[0]);
                put(wqe, 1, data[1]);
                put(wqe, 2, u64::from(INVALID_LKEY).to_be());
                put(wqe, 3, 0);
                self.head = self.head.wrapping_add(1);
                dv.dbrec.write_volatile(u32::from(self.head as u16).to_be());
            }
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let (data, dv) = (self.data(), self.receive.dv);
        let (ring, mask) = (dv.rq.buf.cast::<u8>(), dv.rq.wqe_cnt - 1);
        for _ in 0..calls {
            for _ in 0..LIST {
                // SAFETY: a slot of the ring, and the record, which are this queue pair's; no other
                // code uses them.
                unsafe {
                    let wqe = ring.add((self.head & mask) as usize * 16).cast::<u64>();
                    put(wqe, 0, data[0]);
                    put(wqe, 1, data[1]);
                }
                self.head = self.head.wrapping_add(1);
            }
            // SAFETY: a slot of the ring, and the record, which are this queue pair's; no other
            // code uses them.
            unsafe { dv.dbrec.write_volatile(u32::from(self.head as u16).to_be()) }
        }
        calls * LIST
    }
}

impl Side for Floor {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        run(self, self.sges, row, calls, Self::one, Self::list)
    }
}
