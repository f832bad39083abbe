//! What libibverbs and libmlx5 tell of objects at the take-over, for conditions that the driver leaves
//! to its caller.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mlx5_sys::doorbell::RECEIVE_WORD;
use mlx5_sys::dv;
use mlx5_sys::load::Library;
use mlx5_sys::verbs::{
    ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_query_qp,
};

use crate::error::{Failed, Result};
use crate::status::Status;

/// Opens the C libraries, if they are not open yet.
pub(crate) fn libraries() -> Result {
    for library in [Library::Verbs, Library::Mlx5] {
        library.open().map_err(|missing| Failed::told(Status::LibraryMissing, missing))?;
    }
    Ok(())
}

/// What a queue pair's queues are made of.
pub(crate) struct QpParts {
    /// The address of the doorbell register, which is not read.
    pub(crate) register: usize,
    /// The number of receives that were posted since RESET, modulo 2^16.
    received: u32,
    in_init: bool,
}

impl QpParts {
    /// # Safety
    /// `qp` is a live QP.
    pub(crate) unsafe fn of(qp: NonNull<ibv_qp>) -> Result<Self> {
        let mut out = MaybeUninit::<dv::mlx5dv_qp>::zeroed();
        let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
        // SAFETY: zeros are values of these structures of integers and pointers. The caller keeps
        // the QP alive, and the library writes `out`, which lives through the call.
        let (out, failed) = unsafe {
            let object = object.assume_init_mut();
            object.qp.in_ = qp.as_ptr();
            object.qp.out = out.as_mut_ptr();
            let failed = dv::mlx5dv_init_obj(object, u64::from(dv::MLX5DV_OBJ_QP)) != 0;
            (out.assume_init(), failed)
        };
        if failed || out.dbrec.is_null() {
            return Err(Failed::of(Status::NotMlx5));
        }
        // SAFETY: the record of a live QP has two words. Other owners of the queue may store to it.
        let received = unsafe { out.dbrec.add(RECEIVE_WORD).read_volatile() };
        // SAFETY: the caller keeps the QP alive.
        let in_init = unsafe { state(qp)? } == ibv_qp_state::IBV_QPS_INIT;
        let (register, received) = (out.bf.reg.addr(), u32::from_be(received) & 0xffff);
        Ok(Self { register, received, in_init })
    }

    /// Fails if receives are outstanding for certain: a queue pair in INIT completes none.
    pub(crate) fn require_no_receive(&self) -> Result {
        if !self.in_init || self.received == 0 {
            return Ok(());
        }
        Err(Failed::told(
            Status::NotIdle,
            format_args!(
                "{} receives were posted by ibv_post_recv and are outstanding: take the receive \
                 queue over before any is posted, and post them by mlx5_rq_post",
                self.received
            ),
        ))
    }
}

/// Returns the state of a QP (`enum ibv_qp_state`): a system call.
///
/// # Safety
/// `qp` is a live QP.
unsafe fn state(qp: NonNull<ibv_qp>) -> Result<u32> {
    let mut attr = MaybeUninit::<ibv_qp_attr>::zeroed();
    let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
    let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as libc::c_int;
    // SAFETY: the caller keeps the QP alive, and the library writes both structures, which live
    // through the call. Zeros are values of them.
    unsafe {
        match ibv_query_qp(qp.as_ptr(), attr.as_mut_ptr(), mask, init.as_mut_ptr()) {
            0 => Ok(attr.assume_init().qp_state),
            errno => Err(Failed::call("ibv_query_qp", errno)),
        }
    }
}
