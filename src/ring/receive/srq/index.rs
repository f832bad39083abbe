//! Shared receive queues of verbs: their memory in libmlx5, and user indices of XRC domains.
//!
//! A CQE of an ordinary shared receive queue has the number of the queue pair. For an XRC target
//! that number does not help: the target may be another process's. So its CQEs name the shared
//! receive queue itself: in version 0 by its number, in version 1 by a user index. libmlx5 chooses
//! the index when it creates the queue, and does not report it. The HCA can be queried for it if
//! the context may give firmware commands.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mlx5_sys::dv;
use mlx5_sys::ifc::{opcode, query_xrc_srq_in, query_xrc_srq_out, xrc_srqc};
use mlx5_sys::verbs::{ibv_query_srq, ibv_srq, ibv_srq_attr};

use crate::error::QueueError;
use crate::ring::source::UserIndex;
use crate::ring::source::{ObjectId, ReceiveIndex, SharedView};

/// Returns a shared receive queue's memory and number, as libmlx5 reports them.
///
/// # Safety
/// `srq` is a live SRQ.
unsafe fn view(srq: NonNull<ibv_srq>) -> Result<dv::mlx5dv_srq, QueueError> {
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

/// Returns the number of a shared receive queue.
///
/// # Safety
/// `srq` is a live SRQ.
pub(crate) unsafe fn number(srq: NonNull<ibv_srq>) -> Result<u32, QueueError> {
    // SAFETY: the caller keeps the SRQ alive.
    let view = unsafe { view(srq)? };
    if view.comp_mask & u64::from(dv::MLX5DV_SRQ_MASK_SRQN) == 0 {
        return Err(QueueError::Geometry("the library does not tell the SRQ's number"));
    }
    Ok(view.srqn)
}

/// Returns the number of WQEs in the memory of a shared receive queue. A system call.
///
/// # Safety
/// `srq` is a live SRQ.
unsafe fn wqes(srq: NonNull<ibv_srq>) -> Result<u32, QueueError> {
    let mut attributes = MaybeUninit::<ibv_srq_attr>::zeroed();
    // SAFETY: the caller keeps the SRQ alive; all-zero is a value of the plain C structure, and the
    // library fills it.
    unsafe {
        match ibv_query_srq(srq.as_ptr(), attributes.as_mut_ptr()) {
            0 => Ok(attributes.assume_init().max_wr.saturating_add(1)),
            errno => Err(QueueError::QuerySrq(errno)),
        }
    }
}

/// Returns the user index of a shared receive queue of an XRC domain; `None` if it cannot be known.
///
/// # Safety
/// `srq` is a live SRQ of an XRC domain, of libmlx5.
unsafe fn user_index(srq: NonNull<ibv_srq>) -> Option<u32> {
    let mut device = MaybeUninit::<dv::mlx5dv_context>::zeroed();
    // SAFETY: the SRQ's context is alive as long as it; the library fills the structure.
    let device = unsafe {
        let status = dv::mlx5dv_query_device((*srq.as_ptr()).context, device.as_mut_ptr());
        (status == 0).then(|| device.assume_init())?
    };
    if device.flags & u64::from(dv::MLX5DV_CONTEXT_FLAGS_CQE_V1) == 0 {
        // SAFETY: the caller keeps the SRQ alive.
        return unsafe { number(srq) }.ok();
    }
    let mut command = [0; query_xrc_srq_in::SIZE];
    query_xrc_srq_in::OPCODE.set(&mut command, opcode::QUERY_XRC_SRQ.into());
    // SAFETY: the caller keeps the SRQ alive.
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

/// Returns the view of an SRQ that is taken over. `order` is the order in which a former direct
/// owner left its WQEs. Without it, the list continues where libmlx5 left it.
///
/// # Safety
/// - `srq` is a live SRQ.
/// - `xrc` says whether it is one of an XRC domain.
/// - None of its receives is outstanding, and nothing writes its list.
pub(crate) unsafe fn view_of(
    srq: NonNull<ibv_srq>,
    xrc: bool,
    order: Option<Box<[u16]>>,
) -> Result<SharedView, QueueError> {
    // SAFETY: the caller keeps the SRQ alive.
    let (view, wqes) = unsafe { (view(srq)?, wqes(srq)?) };
    let (Some(buffer), Some(record)) =
        (NonNull::new(view.buf.cast::<u8>()), NonNull::new(view.dbrec))
    else {
        return Err(QueueError::NoQueue);
    };
    let order = match order {
        Some(order) => order,
        // SAFETY: the library's list, of which nothing is outstanding.
        None => unsafe { read_order(buffer, wqes, view.stride, view.head, view.tail)? },
    };
    // SAFETY: the SRQ is alive. It is asked only if it is one of an XRC domain.
    let index = xrc.then(|| match unsafe { user_index(srq) } {
        Some(index) => UserIndex::Known(index),
        None => UserIndex::Alone,
    });
    Ok(SharedView {
        buffer,
        wqes,
        stride: view.stride,
        order,
        record,
        index,
        origin: ReceiveIndex::Library,
        cyclic: false,
        cq: None,
        id: ObjectId::at(srq.as_ptr()),
        number: if view.comp_mask & u64::from(dv::MLX5DV_SRQ_MASK_SRQN) == 0 {
            0
        } else {
            view.srqn
        },
    })
}

/// Follows libmlx5's list from its head to its tail, where it ends.
///
/// # Safety
/// `buffer` is readable memory of `wqes` WQEs of `stride` bytes, at least two, that nothing writes.
unsafe fn read_order(
    buffer: NonNull<u8>,
    wqes: u32,
    stride: u32,
    head: u32,
    tail: u32,
) -> Result<Box<[u16]>, QueueError> {
    const BROKEN: QueueError =
        QueueError::Geometry("the shared receive queue's list leads out of it");
    let mut order = Vec::new();
    let mut at = head;
    loop {
        if at >= wqes || order.len() as u32 == wqes {
            return Err(BROKEN);
        }
        order.push(at as u16);
        if at == tail {
            break;
        }
        // SAFETY: within the memory, and aligned to two.
        let next =
            unsafe { buffer.add(at as usize * stride as usize + 2).cast::<u16>().read_volatile() };
        at = u32::from(u16::from_be(next));
    }
    // libmlx5 keeps half of the WQEs back, for receives that met a page fault, or none of them.
    if !matches!(wqes / order.len() as u32, 1 | 2) || !order.len().is_power_of_two() {
        return Err(QueueError::NotIdle);
    }
    Ok(order.into())
}
