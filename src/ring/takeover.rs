//! Asks libmlx5 where a queue's memory is, and the kernel what state it is in.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mlx5_sys::dv;
use mlx5_sys::verbs::{
    ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_query_qp,
    ibv_srq,
};

use super::QueueError;
use super::error::state_name;

/// What is known of a QP when it is taken over.
pub(super) struct QpView {
    pub(super) dv: dv::mlx5dv_qp,
    pub(super) number: u32,
    pub(super) qp_type: u32,
    pub(super) cap: ibv_qp_cap,
    pub(super) signal_all: bool,
    pub(super) send_cq: *mut ibv_cq,
    pub(super) receive_cq: *mut ibv_cq,
    pub(super) srq: *mut ibv_srq,
    pub(super) state: u32,
}

impl QpView {
    /// Looks at a QP.
    ///
    /// # Safety
    /// `qp` is a live QP.
    pub(super) unsafe fn new(qp: NonNull<ibv_qp>) -> Result<Self, QueueError> {
        let mut out = MaybeUninit::<dv::mlx5dv_qp>::zeroed();
        let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
        // SAFETY: all-zero is a value of these plain C structures; the library fills `out`.
        let (dv, status) = unsafe {
            let object = object.assume_init_mut();
            object.qp.in_ = qp.as_ptr();
            object.qp.out = out.as_mut_ptr();
            let status = dv::mlx5dv_init_obj(object, u64::from(dv::MLX5DV_OBJ_QP));
            (out.assume_init(), status)
        };
        if status != 0 {
            return Err(QueueError::InitObj(status));
        }
        // SAFETY: the caller vouches for the QP.
        let (state, init) = unsafe { query(qp)? };
        // SAFETY: as above; these members are set at creation and do not change.
        let (number, qp_type, send_cq, receive_cq, srq) = unsafe {
            let qp = qp.as_ptr();
            ((*qp).qp_num, (*qp).qp_type, (*qp).send_cq, (*qp).recv_cq, (*qp).srq)
        };
        Ok(Self {
            dv,
            number,
            qp_type,
            cap: init.cap,
            signal_all: init.sq_sig_all != 0,
            send_cq,
            receive_cq,
            srq,
            state,
        })
    }

    /// Fails unless the QP is in one of `states`.
    pub(super) fn require(&self, states: &[u32], needed: &'static str) -> Result<(), QueueError> {
        require(self.state, states, needed)
    }
}

/// Fails unless `state` is one of `states`.
pub(super) fn require(state: u32, states: &[u32], needed: &'static str) -> Result<(), QueueError> {
    if states.contains(&state) {
        return Ok(());
    }
    Err(QueueError::WrongState { found: state, name: state_name(state), needed })
}

/// State and creation attributes of a QP, by `ibv_query_qp`: a system call.
///
/// # Safety
/// `qp` is a live QP.
pub(super) unsafe fn query(qp: NonNull<ibv_qp>) -> Result<(u32, ibv_qp_init_attr), QueueError> {
    let mut attr = MaybeUninit::<ibv_qp_attr>::zeroed();
    let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
    let mask = ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_CAP;
    // SAFETY: the caller vouches for the QP; all-zero is a value of these plain C structures, and
    // the library fills them.
    unsafe {
        let status = ibv_query_qp(qp.as_ptr(), attr.as_mut_ptr(), mask.0 as i32, init.as_mut_ptr());
        if status != 0 {
            return Err(QueueError::QueryQp(status));
        }
        Ok((attr.assume_init().qp_state, init.assume_init()))
    }
}

/// Where a CQ's memory is.
///
/// # Safety
/// `cq` is a live CQ.
pub(super) unsafe fn view_cq(cq: NonNull<ibv_cq>) -> Result<dv::mlx5dv_cq, QueueError> {
    let mut out = MaybeUninit::<dv::mlx5dv_cq>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: all-zero is a value of these plain C structures; the library fills `out`.
    let (out, status) = unsafe {
        let object = object.assume_init_mut();
        object.cq.in_ = cq.as_ptr();
        object.cq.out = out.as_mut_ptr();
        let status = dv::mlx5dv_init_obj(object, u64::from(dv::MLX5DV_OBJ_CQ));
        (out.assume_init(), status)
    };
    if status == 0 { Ok(out) } else { Err(QueueError::InitObj(status)) }
}
