//! libmlx5's queue pair, which any thread may post to: by `ibv_post_send`, and by `ibv_wr_*`.

use std::mem::{MaybeUninit, zeroed};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

use mlx5::verbs::CompletionQueue;
use mlx5_sys::verbs::*;

use crate::rig::Rig;
use crate::sides::{Line, REQUESTS};
use crate::{Kind, Side, now};

fn take(cq: &CompletionQueue, ids: &mut Vec<u64>) {
    let mut wc = MaybeUninit::<ibv_wc>::uninit();
    // SAFETY: room for one, which is written where one is found.
    while unsafe { ibv_poll_cq(cq.as_raw().as_ptr(), 1, wc.as_mut_ptr()) } == 1 {
        // SAFETY: as above.
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
        // SAFETY: integers, pointers and unions of them.
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
    qp: Owned,
    ex: NonNull<ibv_qp_ex>,
    cq: CompletionQueue,
    line: Line,
}

// SAFETY: libmlx5 locks.
unsafe impl Sync for Extended {}

impl Extended {
    pub fn new(rig: Rig) -> Self {
        let line = Line::new(rig);
        let cq = line.rig.cq(REQUESTS);
        let qp = Owned(create(&line.rig, &cq));
        // SAFETY: made with functions for sending, so it is an extended one.
        let ex = NonNull::new(unsafe { ibv_qp_to_qp_ex(qp.0.as_ptr()) }).expect("extended");
        connect_to_itself(&line.rig, qp.0);
        Self { qp, ex, cq, line }
    }
}

/// Destroyed before its CQ.
struct Owned(NonNull<ibv_qp>);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made here, and used no more.
        assert_eq!(unsafe { ibv_destroy_qp(self.0.as_ptr()) }, 0);
    }
}

impl Side for Extended {
    fn name(&self) -> &'static str {
        "libmlx5, ibv_wr_*"
    }

    fn burst(&self, kind: Kind, ids: Range<u64>, go: &dyn Fn()) -> (u64, u64) {
        let (sge, remote) = (self.line.sge(), self.line.remote());
        let ex = self.ex.as_ptr();
        debug_assert_eq!(self.qp.0.as_ptr().cast(), ex);
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

/// A QP of the other sides' shape that has `ibv_wr_rdma_write`.
fn create(rig: &Rig, cq: &CompletionQueue) -> NonNull<ibv_qp> {
    // SAFETY: integers and pointers.
    let mut attributes: ibv_qp_init_attr_ex = unsafe { zeroed() };
    attributes.send_cq = cq.as_raw().as_ptr();
    attributes.recv_cq = cq.as_raw().as_ptr();
    attributes.cap.max_send_wr = REQUESTS;
    attributes.cap.max_recv_wr = 1;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = 64;
    attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
    attributes.pd = rig.pd.as_raw().as_ptr();
    attributes.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
        | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    attributes.send_ops_flags = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0.into();
    // SAFETY: context, domain and CQ are alive.
    let qp = unsafe { ibv_create_qp_ex(rig.context.as_raw().as_ptr(), &mut attributes) };
    qp.and_then(NonNull::new).expect("a QP")
}

fn connect_to_itself(rig: &Rig, qp: NonNull<ibv_qp>) {
    use ibv_qp_attr_mask as bit;
    // SAFETY: the QP is alive.
    let number = unsafe { qp.as_ref() }.qp_num;
    // SAFETY: integers and pointers.
    let mut attributes: ibv_qp_attr = unsafe { zeroed() };
    attributes.port_num = 1;
    attributes.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    attributes.path_mtu = ibv_mtu::IBV_MTU_1024;
    attributes.dest_qp_num = number;
    attributes.max_dest_rd_atomic = 1;
    attributes.max_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.dlid = rig.local.attributes().lid;
    let init = bit::IBV_QP_PKEY_INDEX | bit::IBV_QP_PORT | bit::IBV_QP_ACCESS_FLAGS;
    let rtr = bit::IBV_QP_AV
        | bit::IBV_QP_PATH_MTU
        | bit::IBV_QP_DEST_QPN
        | bit::IBV_QP_RQ_PSN
        | bit::IBV_QP_MAX_DEST_RD_ATOMIC
        | bit::IBV_QP_MIN_RNR_TIMER;
    let rts = bit::IBV_QP_TIMEOUT
        | bit::IBV_QP_RETRY_CNT
        | bit::IBV_QP_RNR_RETRY
        | bit::IBV_QP_SQ_PSN
        | bit::IBV_QP_MAX_QP_RD_ATOMIC;
    let states = [
        (ibv_qp_state::IBV_QPS_INIT, init),
        (ibv_qp_state::IBV_QPS_RTR, rtr),
        (ibv_qp_state::IBV_QPS_RTS, rts),
    ];
    for (state, mask) in states {
        attributes.qp_state = state;
        let mask = (mask | bit::IBV_QP_STATE).0;
        // SAFETY: QP and attributes are alive.
        assert_eq!(unsafe { ibv_modify_qp(qp.as_ptr(), &mut attributes, mask as i32) }, 0);
    }
}
