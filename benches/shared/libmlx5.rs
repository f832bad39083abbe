//! libmlx5's queue pair, which any thread may post to: by `ibv_post_send`, and by `ibv_wr_*`.

use std::mem::{MaybeUninit, zeroed};
use std::ops::Range;
use std::ptr::null_mut;

use mlx5::verbs::CompletionQueue;
use mlx5_sys::verbs::*;

use crate::sides::{Line, REQUESTS};
use crate::{Kind, Side, now};
use rig::Rig;
use rig::extended::{ExtendedQp, Shape};

fn take(cq: &CompletionQueue, ids: &mut Vec<u64>) {
    let mut wc = MaybeUninit::<ibv_wc>::uninit();
    // SAFETY: room for one, which is written where one is found.
    while unsafe { ibv_poll_cq(cq.as_raw().as_ptr(), 1, wc.as_mut_ptr()) } == 1 {
        // SAFETY: `ibv_poll_cq` returned 1, so it has written the completion.
        let wc = unsafe { wc.assume_init_ref() };
        assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
        ids.push(wc.wr_id);
    }
}

/// `ibv_post_send`, of a request that is filled ahead but for id and payload.
pub struct Classic {
    line: Line,
}

impl Classic {
    pub fn new(rig: Rig) -> Self {
        Self { line: Line::new(rig) }
    }
}

impl Side for Classic {
    fn name(&self) -> &'static str {
        "libmlx5, ibv_post_send"
    }

    fn burst(&self, kind: Kind, ids: Range<u64>, go: &dyn Fn()) -> (u64, u64) {
        let (sge, remote) = (self.line.sge(), self.line.remote());
        let mut payload = 0u64;
        let payload = &raw mut payload;
        let mut list = ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey };
        // SAFETY: the structure consists of integers, pointers and unions of them, so zeros are
        // valid.
        let mut wr: ibv_send_wr = unsafe { zeroed() };
        wr.num_sge = 1;
        wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        wr.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
        wr.wr.rdma.remote_addr = remote.addr;
        wr.wr.rdma.rkey = remote.rkey;
        if kind == Kind::Inline {
            list = ibv_sge { addr: payload.expose_provenance() as u64, length: 8, lkey: 0 };
            wr.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
        }
        wr.sg_list = &raw mut list;
        let qp = self.line.qp.as_raw().as_ptr();
        let mut bad = null_mut();
        go();
        let start = now();
        for id in ids {
            wr.wr_id = id;
            // SAFETY: a local, and queue pair, request and memory live through the call, and the
            // memory to the end; libmlx5 locks.
            unsafe {
                payload.write_volatile(id);
                assert_eq!(ibv_post_send(qp, &mut wr, &mut bad), 0);
            }
        }
        (start, now())
    }

    fn completed(&self, ids: &mut Vec<u64>) {
        take(&self.line.cq, ids);
    }
}

/// `ibv_wr_start`, `ibv_wr_rdma_write`, `ibv_wr_set_…`, `ibv_wr_complete`: the lock is held from
/// the first to the last.
pub struct Extended {
    qp: ExtendedQp,
    cq: CompletionQueue,
    line: Line,
}

impl Extended {
    pub fn new(rig: Rig) -> Self {
        let line = Line::new(rig);
        let cq = line.rig.cq(REQUESTS);
        let operations = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0.into();
        let shape = Shape::new(ibv_qp_type::IBV_QPT_RC, REQUESTS, operations);
        let qp = ExtendedQp::looped(&line.rig, &cq, &shape);
        Self { qp, cq, line }
    }
}

impl Side for Extended {
    fn name(&self) -> &'static str {
        "libmlx5, ibv_wr_*"
    }

    fn burst(&self, kind: Kind, ids: Range<u64>, go: &dyn Fn()) -> (u64, u64) {
        let (sge, remote) = (self.line.sge(), self.line.remote());
        let ex = self.qp.ex().as_ptr();
        go();
        let start = now();
        for id in ids {
            // SAFETY: queue pair and memory live to the end; the fields of the request are used
            // under the lock that `ibv_wr_start` takes.
            unsafe {
                ibv_wr_start(ex);
                (*ex).wr_id = id;
                (*ex).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                ibv_wr_rdma_write(ex, remote.rkey, remote.addr);
                match kind {
                    Kind::Inline => {
                        let mut payload = std::hint::black_box(id);
                        ibv_wr_set_inline_data(ex, (&raw mut payload).cast(), 8);
                    }
                    Kind::Pointer => ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length),
                }
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        (start, now())
    }

    fn completed(&self, ids: &mut Vec<u64>) {
        take(&self.cq, ids);
    }
}
