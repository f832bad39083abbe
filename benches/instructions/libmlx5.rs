//! libmlx5's interfaces: `ibv_post_send` and its like, `ibv_wr_*` with `ibv_start_poll`.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::{NonNull, null_mut};

use mlx5::verbs::CompletionQueue;
use mlx5_sys::verbs::*;

use super::inline::Lengths;
use super::prepared::{INLINE, MOST, POINTER, Receives, Sends};
use crate::side::{LENGTH, LIST, Line, Row, Side, forget, watch};
use rig::extended::{ExtendedQp, Shape};

/// `ibv_post_send`, `ibv_poll_cq`, `ibv_post_recv`.
pub struct Classic {
    line: Line,
    sends: Sends,
    receives: Receives,
    sum: u64,
}

impl Classic {
    pub fn new() -> Self {
        Self::on(Line::new())
    }

    /// Whose inline requests may have the most bytes that a row has.
    pub fn long() -> Self {
        Self::on(Line::with_inline(MOST as u32))
    }

    fn on(line: Line) -> Self {
        let (sge, remote) = (line.sge(), line.remote());
        let mut sends = Sends::new(sge, ibv_wr_opcode::IBV_WR_RDMA_WRITE);
        for request in sends.each() {
            request.wr.rdma.remote_addr = remote.addr;
            request.wr.rdma.rkey = remote.rkey;
        }
        Self { line, sends, receives: Receives::new(sge), sum: 0 }
    }

    #[inline(never)]
    fn post(&mut self, which: usize, calls: usize) -> usize {
        // SAFETY: QP, requests and memory live as long as `self`.
        unsafe { self.sends.post(self.line.qp.as_raw().as_ptr(), which, calls) }
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        // SAFETY: QP, requests and memory live as long as `self`.
        unsafe { self.sends.list(self.line.qp.as_raw().as_ptr(), calls) }
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let cq = self.line.cq.as_raw().as_ptr();
        let mut found = 0;
        let mut wc = MaybeUninit::<ibv_wc>::zeroed();
        for _ in 0..calls {
            // SAFETY: there is space for one completion, zeros are valid in it, and no other code
            // polls the CQ.
            let (taken, wc) =
                unsafe { (ibv_poll_cq(cq, 1, wc.as_mut_ptr()), wc.assume_init_ref()) };
            if taken == 1 && wc.status == ibv_wc_status::IBV_WC_SUCCESS {
                self.sum += wc.wr_id;
                found += 1;
            }
        }
        found
    }

    #[inline(never)]
    fn receive(&mut self, calls: usize) -> usize {
        let qp = self.line.qp.as_raw().as_ptr();
        // SAFETY: the QP, the requests and their memory live as long as `self`.
        self.receives.one(calls, |first| unsafe { ibv_post_recv(qp, first, &mut null_mut()) })
    }
}

impl Side for Classic {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::Inline => self.post(INLINE, calls),
            Row::Pointer => self.post(POINTER, calls),
            Row::List => self.list(calls),
            Row::Poll | Row::Empty => self.poll(calls),
            Row::Receive => self.receive(calls),
            _ => return None,
        })
    }
}

impl Lengths for Classic {
    fn set_inline(&mut self, bytes: usize) {
        self.sends.set_inline(bytes);
    }
}

/// `ibv_wr_*`, and `ibv_start_poll` with `ibv_end_poll`.
pub struct Extended {
    _qp: ExtendedQp,
    ex: NonNull<ibv_qp_ex>,
    sge: ibv_sge,
    remote: (u64, u32),
    payload: [u64; MOST / 8],
    /// How many bytes of it are posted.
    bytes: usize,
    cq: CompletionQueue,
    sum: u64,
    _line: Line,
}

impl Extended {
    /// Creates libmlx5 with its default: with locks, since it was not told that the process has one
    /// thread.
    pub fn new() -> Self {
        Self::made(64)
    }

    /// Whose inline requests may have the most bytes that a row has.
    pub fn long() -> Self {
        Self::made(MOST as u32)
    }

    /// In a process that tells it so. It looks when a device is opened.
    pub fn unlocked(make: fn() -> Self) -> Self {
        const VARIABLE: &str = "MLX5_SINGLE_THREADED";
        // SAFETY: no other thread of a benchmark looks at the environment.
        unsafe { std::env::set_var(VARIABLE, "1") };
        let side = make();
        // SAFETY: no other thread of a benchmark looks at the environment.
        unsafe { std::env::remove_var(VARIABLE) };
        side
    }

    fn made(max_inline_data: u32) -> Self {
        let line = Line::new();
        let cq = line.rig.cq(511);
        let operations = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0.into();
        let shape = Shape {
            max_recv_wr: 128,
            max_inline_data,
            ..Shape::new(ibv_qp_type::IBV_QPT_RC, 128, operations)
        };
        let qp = ExtendedQp::looped(&line.rig, &cq, &shape);
        watch(qp.qp(), cq.as_raw());
        let (sge, remote) = (line.sge(), line.remote());
        Self {
            ex: qp.ex(),
            _qp: qp,
            sge: ibv_sge { addr: sge.addr, length: LENGTH, lkey: sge.lkey },
            remote: (remote.addr, remote.rkey),
            payload: [0; MOST / 8],
            bytes: 8,
            cq,
            sum: 0,
            _line: line,
        }
    }

    /// # Safety
    /// Between `ibv_wr_start` and `ibv_wr_complete`.
    #[inline(always)]
    unsafe fn write(&mut self, id: u64) {
        // SAFETY: the caller upholds the same conditions.
        unsafe {
            let ex = self.ex.as_ptr();
            (*ex).wr_id = id;
            (*ex).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            ibv_wr_rdma_write(ex, self.remote.1, self.remote.0);
        }
    }

    #[inline(never)]
    fn inline(&mut self, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for id in 0..calls as u64 {
            self.payload[0] = id;
            forget(self);
            // SAFETY: QP and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                self.write(id);
                ibv_wr_set_inline_data(ex, (&raw mut self.payload).cast(), self.bytes);
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        calls
    }

    #[inline(never)]
    fn pointer(&mut self, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for id in 0..calls as u64 {
            // SAFETY: QP and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                self.write(id);
                ibv_wr_set_sge(ex, self.sge.lkey, self.sge.addr, self.sge.length);
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for _ in 0..calls {
            // SAFETY: QP and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                for id in 0..LIST as u64 {
                    self.write(id);
                    ibv_wr_set_sge(ex, self.sge.lkey, self.sge.addr, self.sge.length);
                }
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        calls * LIST
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        // CQs of this crate are extended ones.
        let cq = self.cq.as_raw().as_ptr().cast::<ibv_cq_ex>();
        let mut found = 0;
        // SAFETY: the structure consists of integers, so zeros are valid.
        let mut attributes: ibv_poll_cq_attr = unsafe { zeroed() };
        for _ in 0..calls {
            // SAFETY: the CQ lives as long as `self`, and no other code polls it.
            unsafe {
                if ibv_start_poll(cq, &mut attributes) == 0 {
                    if (*cq).status == ibv_wc_status::IBV_WC_SUCCESS {
                        self.sum += (*cq).wr_id;
                        found += 1;
                    }
                    ibv_end_poll(cq);
                }
            }
        }
        found
    }
}

impl Side for Extended {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::Inline => self.inline(calls),
            Row::Pointer => self.pointer(calls),
            Row::List => self.list(calls),
            Row::Poll | Row::Empty => self.poll(calls),
            _ => return None,
        })
    }
}

impl Lengths for Extended {
    fn set_inline(&mut self, bytes: usize) {
        assert!(bytes <= MOST);
        self.bytes = bytes;
    }
}
