//! Queue pairs of libmlx5's extended interface: `ibv_wr_*`, and `mlx5dv_wr_*` where asked for.

use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};

use mlx5::verbs::CompletionQueue;
use mlx5_sys::dv;
use mlx5_sys::verbs::*;

use super::Rig;

/// The attributes of a queue pair. One SGE.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// `enum ibv_qp_type`: RC, UC or UD; what is the driver's own is an initiator of dynamic
    /// connections.
    pub kind: u32,
    /// WQEs of the send queue.
    pub max_send_wr: u32,
    /// WQEs of the receive queue.
    pub max_recv_wr: u32,
    /// Bytes: 64 unless said otherwise.
    pub max_inline_data: u32,
    /// Which `ibv_wr_*` it has: `IBV_QP_EX_WITH_*`.
    pub operations: u64,
    /// Which `mlx5dv_wr_*` it has: `MLX5DV_QP_EX_WITH_*`. 0: it is made without mlx5dv.
    pub direct_operations: u64,
    /// `MLX5DV_QP_CREATE_*`.
    pub direct_flags: u32,
}

impl Shape {
    /// A queue pair of `kind` with these `ibv_wr_*`.
    pub fn new(kind: u32, max_send_wr: u32, operations: u64) -> Self {
        Self {
            kind,
            max_send_wr,
            max_recv_wr: 1,
            max_inline_data: 64,
            operations,
            direct_operations: 0,
            direct_flags: 0,
        }
    }
}

/// A queue pair of the extended interface. Destroyed with the value, which must be dropped before
/// its CQ is.
pub struct ExtendedQp {
    qp: NonNull<ibv_qp>,
    ex: NonNull<ibv_qp_ex>,
}

// SAFETY: libmlx5 locks.
unsafe impl Sync for ExtendedQp {}
// SAFETY: libmlx5 locks.
unsafe impl Send for ExtendedQp {}

impl Drop for ExtendedQp {
    fn drop(&mut self) {
        // SAFETY: made here, and used no more.
        assert_eq!(unsafe { ibv_destroy_qp(self.qp.as_ptr()) }, 0);
    }
}

impl ExtendedQp {
    /// In RESET.
    pub fn new(rig: &Rig, cq: &CompletionQueue, shape: &Shape) -> Self {
        // SAFETY: the structure consists of integers and pointers, so zeros are valid.
        let mut attributes: ibv_qp_init_attr_ex = unsafe { zeroed() };
        attributes.send_cq = cq.as_raw().as_ptr();
        attributes.recv_cq = cq.as_raw().as_ptr();
        attributes.cap.max_send_wr = shape.max_send_wr;
        attributes.cap.max_recv_wr = shape.max_recv_wr;
        attributes.cap.max_send_sge = 1;
        attributes.cap.max_recv_sge = 1;
        attributes.cap.max_inline_data = shape.max_inline_data;
        attributes.qp_type = shape.kind;
        attributes.pd = rig.pd.as_raw().as_ptr();
        attributes.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
            | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attributes.send_ops_flags = shape.operations;
        let context = rig.context.as_raw().as_ptr();
        let initiator = shape.kind == ibv_qp_type::IBV_QPT_DRIVER;
        if initiator {
            (attributes.cap.max_recv_wr, attributes.cap.max_recv_sge) = (0, 0);
        }
        let plain = shape.direct_operations == 0 && shape.direct_flags == 0 && !initiator;
        let qp = if plain {
            // SAFETY: context, domain and CQ are alive.
            unsafe { ibv_create_qp_ex(context, &mut attributes) }.unwrap_or(null_mut())
        } else {
            // SAFETY: the structure consists of integers and pointers, so zeros are valid.
            let mut direct: dv::mlx5dv_qp_init_attr = unsafe { zeroed() };
            if shape.direct_operations != 0 {
                direct.comp_mask |= u64::from(dv::MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS);
                direct.send_ops_flags = shape.direct_operations;
            }
            if shape.direct_flags != 0 {
                direct.comp_mask |= u64::from(dv::MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS);
                direct.create_flags = shape.direct_flags;
            }
            if initiator {
                direct.comp_mask |= u64::from(dv::MLX5DV_QP_INIT_ATTR_MASK_DC);
                direct.dc_init_attr.dc_type = dv::MLX5DV_DCTYPE_DCI;
            }
            // SAFETY: context, domain and CQ are alive.
            unsafe { dv::mlx5dv_create_qp(context, &mut attributes, &mut direct) }
        };
        let qp = NonNull::new(qp)
            .unwrap_or_else(|| panic!("a QP like {shape:?}: {}", std::io::Error::last_os_error()));
        // SAFETY: made with functions for sending, so it is an extended one.
        let ex = NonNull::new(unsafe { ibv_qp_to_qp_ex(qp.as_ptr()) }).expect("extended");
        Self { qp, ex }
    }

    /// Creates a queue pair like [`new`](Self::new), connected to itself, in RTS.
    pub fn looped(rig: &Rig, cq: &CompletionQueue, shape: &Shape) -> Self {
        let made = Self::new(rig, cq, shape);
        connect_to_itself(rig, made.qp, shape.kind);
        made
    }

    /// The queue pair.
    pub fn qp(&self) -> NonNull<ibv_qp> {
        self.qp
    }

    /// Its extended interface.
    pub fn ex(&self) -> NonNull<ibv_qp_ex> {
        self.ex
    }
}

/// Takes an RC, UC or UD queue pair, or an initiator of dynamic connections, from RESET to RTS, with
/// itself as its peer where it has one. UD's
/// Q_Key is 0x11111111.
fn connect_to_itself(rig: &Rig, qp: NonNull<ibv_qp>, kind: u32) {
    // SAFETY: the QP is alive.
    let number = unsafe { qp.as_ref() }.qp_num;
    connect_to(rig, qp, kind, number);
}

/// The same of a queue pair, also the requesting end of an extended reliable connection, whose peer
/// on this port is `number`.
pub fn connect_to(rig: &Rig, qp: NonNull<ibv_qp>, kind: u32, number: u32) {
    use ibv_qp_attr_mask as bit;
    // SAFETY: the structure consists of integers and pointers, so zeros are valid.
    let mut attributes: ibv_qp_attr = unsafe { zeroed() };
    attributes.port_num = 1;
    attributes.qp_access_flags = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
        | if kind == ibv_qp_type::IBV_QPT_RC {
            (ibv_access_flags::IBV_ACCESS_REMOTE_READ | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC)
                .0
        } else {
            0
        };
    attributes.qkey = 0x1111_1111;
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
    if let Some(entry) = rig.local.gid() {
        attributes.ah_attr.is_global = 1;
        attributes.ah_attr.grh.dgid.raw = entry.gid.0;
        attributes.ah_attr.grh.sgid_index = entry.index as u8;
        attributes.ah_attr.grh.hop_limit = 1;
    }
    let (init, rtr, rts) = match kind {
        ibv_qp_type::IBV_QPT_UD => (bit::IBV_QP_QKEY, bit(0), bit::IBV_QP_SQ_PSN),
        ibv_qp_type::IBV_QPT_DRIVER => (
            bit(0),
            bit::IBV_QP_PATH_MTU,
            bit::IBV_QP_SQ_PSN
                | bit::IBV_QP_TIMEOUT
                | bit::IBV_QP_RETRY_CNT
                | bit::IBV_QP_RNR_RETRY
                | bit::IBV_QP_MAX_QP_RD_ATOMIC,
        ),
        _ => {
            let rtr =
                bit::IBV_QP_AV | bit::IBV_QP_PATH_MTU | bit::IBV_QP_DEST_QPN | bit::IBV_QP_RQ_PSN;
            let answers = kind == ibv_qp_type::IBV_QPT_RC;
            let requests = answers || kind == ibv_qp_type::IBV_QPT_XRC_SEND;
            let given = |whether, mask| if whether { mask } else { bit(0) };
            (
                bit::IBV_QP_ACCESS_FLAGS,
                rtr | given(answers, bit::IBV_QP_MAX_DEST_RD_ATOMIC | bit::IBV_QP_MIN_RNR_TIMER),
                bit::IBV_QP_SQ_PSN
                    | given(
                        requests,
                        bit::IBV_QP_TIMEOUT
                            | bit::IBV_QP_RETRY_CNT
                            | bit::IBV_QP_RNR_RETRY
                            | bit::IBV_QP_MAX_QP_RD_ATOMIC,
                    ),
            )
        }
    };
    let states = [
        (ibv_qp_state::IBV_QPS_INIT, init | bit::IBV_QP_PKEY_INDEX | bit::IBV_QP_PORT),
        (ibv_qp_state::IBV_QPS_RTR, rtr),
        (ibv_qp_state::IBV_QPS_RTS, rts),
    ];
    for (state, mask) in states {
        attributes.qp_state = state;
        let mask = (mask | bit::IBV_QP_STATE).0;
        // SAFETY: QP and attributes are alive.
        let result = unsafe { ibv_modify_qp(qp.as_ptr(), &mut attributes, mask as i32) };
        assert_eq!(result, 0, "to state {state}");
    }
}
