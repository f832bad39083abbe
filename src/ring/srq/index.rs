//! What CQEs call a shared receive queue of an XRC domain.
//!
//! A CQE of an ordinary shared receive queue has the number of the queue pair. That of an XRC target
//! says little: the target may be another process's. Such CQEs name the shared receive queue itself,
//! by its number in CQEs of version 0, and by a user index in those of version 1. libmlx5 chooses the
//! index when it makes the queue, and tells nobody; the card knows it, and can be asked where the
//! context may give firmware commands.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mlx5_sys::dv;
use mlx5_sys::ifc::{opcode, query_xrc_srq_in, query_xrc_srq_out, xrc_srqc};
use mlx5_sys::verbs::{ibv_query_srq, ibv_srq, ibv_srq_attr};

use crate::ring::QueueError;

/// Where a shared receive queue's memory is, with its number.
///
/// # Safety
/// `srq` is a live SRQ.
pub(super) unsafe fn view(srq: NonNull<ibv_srq>) -> Result<dv::mlx5dv_srq, QueueError> {
    let mut out = MaybeUninit::<dv::mlx5dv_srq>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: all-zero is a value of these plain C structures; the library fills `out`.
    let (out, status) = unsafe {
        out.assume_init_mut().comp_mask = dv::MLX5DV_SRQ_MASK_SRQN.into();
        let object = object.assume_init_mut();
        object.srq.in_ = srq.as_ptr();
        object.srq.out = out.as_mut_ptr();
        let status = dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_SRQ.into());
        (out.assume_init(), status)
    };
    if status == 0 { Ok(out) } else { Err(QueueError::InitObj(status)) }
}

/// Number of a shared receive queue.
///
/// # Safety
/// `srq` is a live SRQ.
pub(crate) unsafe fn number(srq: NonNull<ibv_srq>) -> Result<u32, QueueError> {
    // SAFETY: passed on.
    let view = unsafe { view(srq)? };
    if view.comp_mask & u64::from(dv::MLX5DV_SRQ_MASK_SRQN) == 0 {
        return Err(QueueError::Geometry("the library does not tell the SRQ's number"));
    }
    Ok(view.srqn)
}

/// WQEs in the memory of a shared receive queue: a system call.
///
/// # Safety
/// `srq` is a live SRQ.
pub(super) unsafe fn wqes(srq: NonNull<ibv_srq>) -> Result<u32, QueueError> {
    let mut attributes = MaybeUninit::<ibv_srq_attr>::zeroed();
    // SAFETY: the caller vouches for the SRQ; all-zero is a value of the plain C structure, and the
    // library fills it.
    unsafe {
        match ibv_query_srq(srq.as_ptr(), attributes.as_mut_ptr()) {
            0 => Ok(attributes.assume_init().max_wr.saturating_add(1)),
            errno => Err(QueueError::QuerySrq(errno)),
        }
    }
}

/// What CQEs call a shared receive queue of an XRC domain; `None` where that cannot be known.
///
/// # Safety
/// `srq` is a live SRQ of an XRC domain, of libmlx5.
pub(super) unsafe fn user_index(srq: NonNull<ibv_srq>) -> Option<u32> {
    let mut device = MaybeUninit::<dv::mlx5dv_context>::zeroed();
    // SAFETY: the SRQ's context is alive as long as it; the library fills the structure.
    let device = unsafe {
        let status = dv::mlx5dv_query_device((*srq.as_ptr()).context, device.as_mut_ptr());
        (status == 0).then(|| device.assume_init())?
    };
    if device.flags & u64::from(dv::MLX5DV_CONTEXT_FLAGS_CQE_V1) == 0 {
        // SAFETY: passed on.
        return unsafe { number(srq) }.ok();
    }
    let mut command = [0; query_xrc_srq_in::SIZE];
    query_xrc_srq_in::OPCODE.set(&mut command, opcode::QUERY_XRC_SRQ.into());
    // SAFETY: passed on.
    let number = unsafe { number(srq) }.ok()?;
    query_xrc_srq_in::XRC_SRQN.set(&mut command, number.into());
    let mut answer = [0; query_xrc_srq_out::SIZE];
    // SAFETY: the SRQ is alive, and command and answer are as long as said.
    let status = unsafe {
        dv::mlx5dv_devx_srq_query(
            srq.as_ptr(),
            command.as_ptr().cast(),
            command.len(),
            answer.as_mut_ptr().cast(),
            answer.len(),
        )
    };
    let index = xrc_srqc::USER_INDEX.within(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY);
    (status == 0).then(|| index.get(&answer) as u32)
}
