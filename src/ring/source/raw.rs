//! Raw objects of libibverbs: asks libmlx5 where a queue's memory is, and the kernel what state it
//! is in.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mlx5_sys::dv;
use mlx5_sys::ifc::{cmd_in, cmd_out, opcode, query_cq_in, query_cq_out};
use mlx5_sys::verbs::{
    ___ibv_query_port, ibv_context, ibv_cq, ibv_modify_qp, ibv_port_attr, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask as bit, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_query_qp, ibv_srq,
};
use mlx5_sys::wqe::WQEBB_SIZE;

use super::{
    CompletionOrder, CompletionView, CqCheck, CqObject, Member, ObjectId, POSTABLE, QueueOwner,
    ReceiveIndex, ReceiveView, SENDABLE, SendView, WorkQueue, require,
};
use crate::error::{Errno, Error, QueueError};
use crate::ib::{Dci, RawPacket, Transport};
use crate::ring::UarMapping;
use crate::wqe::{Limits, MAX_PACKETS};

/// The view of a QP that is taken over.
pub(crate) struct QpView {
    dv: dv::mlx5dv_qp,
    number: u32,
    qp_type: u32,
    cap: ibv_qp_cap,
    signal_all: bool,
    send_cq: *mut ibv_cq,
    receive_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    state: u32,
    max_packets: u32,
}

impl QpView {
    /// Queries a QP.
    ///
    /// # Safety
    /// `qp` is a live QP.
    pub(crate) unsafe fn new(qp: NonNull<ibv_qp>) -> Result<Self, QueueError> {
        // SAFETY: the caller keeps the QP alive.
        if unsafe { is_dc_target(qp) } {
            return Err(QueueError::NoQueue);
        }
        let mut out = MaybeUninit::<dv::mlx5dv_qp>::zeroed();
        let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
        // SAFETY: the structures are integers and pointers, for which zeros are values. The caller
        // keeps the object alive, and the library writes `out`, which lives through the call.
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
        // SAFETY: the caller keeps the QP alive.
        let (state, init) = unsafe { query(qp)? };
        // SAFETY: the caller keeps the QP alive; libibverbs sets these members at creation and does
        // not change them.
        let (number, qp_type, send_cq, receive_cq, srq) = unsafe {
            let qp = qp.as_ptr();
            ((*qp).qp_num, (*qp).qp_type, (*qp).send_cq, (*qp).recv_cq, (*qp).srq)
        };
        let max_packets = match qp_type == RawPacket::QP_TYPE {
            // SAFETY: the caller keeps the QP alive, and with it the device's context.
            true if unsafe { sends_several((*qp.as_ptr()).context) } => MAX_PACKETS,
            _ => 0,
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
            max_packets,
        })
    }

    /// Returns its send queue, if it is in RTS.
    pub(crate) fn sends<T: Transport>(&self) -> Result<SendView, QueueError> {
        if self.qp_type != T::QP_TYPE {
            return Err(QueueError::WrongTransport(self.qp_type));
        }
        require(self.state, &SENDABLE, "RTS")?;
        let (Some(buffer), Some(record), Some(register)) = (
            NonNull::new(self.dv.sq.buf.cast::<u8>()),
            NonNull::new(self.dv.dbrec),
            NonNull::new(self.dv.bf.reg.cast::<u8>()),
        ) else {
            return Err(QueueError::NoQueue);
        };
        if self.dv.sq.wqe_cnt == 0 {
            return Err(QueueError::NoQueue);
        }
        if self.dv.sq.stride as usize != WQEBB_SIZE {
            return Err(QueueError::Geometry("the send queue's stride is not 64 bytes"));
        }
        Ok(SendView {
            buffer,
            blocks: self.dv.sq.wqe_cnt,
            record,
            register,
            half: self.dv.bf.size as usize,
            memory: UarMapping::WRITE_COMBINING,
            recordless: false,
            number: self.number,
            limits: Limits {
                max_sge: self.cap.max_send_sge,
                max_inline: Limits::granted_inline(self.cap.max_inline_data),
                max_packets: self.max_packets,
            },
            max_wr: self.cap.max_send_wr,
            signal_all: self.signal_all,
            order: CompletionOrder::Posting,
            cq: CqObject::of(self.send_cq),
            partner: self.on_one_cq(if self.srq.is_null() { self.dv.rq.wqe_cnt } else { 0 }),
        })
    }

    /// Returns its receive queue, if it is in INIT or later.
    pub(crate) fn receives(&self) -> Result<ReceiveView, QueueError> {
        require(self.state, &POSTABLE, "INIT or later")?;
        let (Some(buffer), Some(record)) =
            (NonNull::new(self.dv.rq.buf.cast::<u8>()), NonNull::new(self.dv.dbrec))
        else {
            return Err(QueueError::NoQueue);
        };
        if self.dv.rq.wqe_cnt == 0 || !self.srq.is_null() {
            return Err(QueueError::NoQueue);
        }
        Ok(ReceiveView {
            buffer,
            entries: self.dv.rq.wqe_cnt,
            stride: self.dv.rq.stride,
            record,
            number: self.number,
            cq: CqObject::of(self.receive_cq),
            index: ReceiveIndex::Library,
            partner: self.on_one_cq(self.cap.max_send_wr),
        })
    }

    /// Returns its receive queue, if it is one for packets in RTR or later. On the way from INIT to RTR,
    /// libmlx5 clears the record.
    pub(crate) fn packets(&self) -> Result<ReceiveView, QueueError> {
        if self.qp_type != RawPacket::QP_TYPE {
            return Err(QueueError::WrongTransport(self.qp_type));
        }
        let [_, arrived @ ..] = POSTABLE;
        require(self.state, &arrived, "RTR or later")?;
        self.receives()
    }

    /// Returns `entries` if both queues complete on one CQ, otherwise 0.
    fn on_one_cq(&self, entries: u32) -> u32 {
        if self.send_cq == self.receive_cq { entries } else { 0 }
    }
}

/// Returns whether queue pairs for Ethernet packets send several by one WQE. The kernel allows it on
/// each of them where the device can.
///
/// # Safety
/// `context` is a live context.
unsafe fn sends_several(context: *mut ibv_context) -> bool {
    const BOTH: u32 = dv::MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED | dv::MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW;
    let mut device = MaybeUninit::<dv::mlx5dv_context>::zeroed();
    // SAFETY: the structure is integers and pointers, for which zeros are values. The caller keeps the
    // context alive, and the library writes the structure, which lives through the call.
    let (status, flags) = unsafe {
        let device = device.assume_init_mut();
        (dv::mlx5dv_query_device(context, device), device.flags)
    };
    status == 0 && flags & u64::from(BOTH) == u64::from(BOTH)
}

/// Returns how completions of a shared receive queue name a QP. Does not query libmlx5, which
/// supports only queue pairs with queues: a target of dynamic connections has none.
///
/// # Safety
/// `qp` is a live QP that can receive.
pub(crate) unsafe fn member(qp: NonNull<ibv_qp>) -> Member {
    // SAFETY: the caller keeps the QP alive. libibverbs sets these members before the QP can
    // receive, and does not change them.
    let (number, cq, srq) = unsafe {
        let qp = qp.as_ptr();
        ((*qp).qp_num, (*qp).recv_cq, (*qp).srq)
    };
    let srq = NonNull::new(srq).map(|srq| ObjectId::at(srq.as_ptr()));
    Member { number, cq: CqObject::of(cq), index: ReceiveIndex::Library, srq }
}

/// State and creation attributes of a QP, by `ibv_query_qp`: a system call.
///
/// # Safety
/// `qp` is a live QP.
pub(crate) unsafe fn query(qp: NonNull<ibv_qp>) -> Result<(u32, ibv_qp_init_attr), QueueError> {
    // SAFETY: this function's contract.
    unsafe { query_these(qp, bit::IBV_QP_STATE | bit::IBV_QP_CAP) }
}

/// Queries these attributes of a QP.
///
/// # Safety
/// `qp` is a live QP.
unsafe fn query_these(
    qp: NonNull<ibv_qp>,
    mask: bit,
) -> Result<(u32, ibv_qp_init_attr), QueueError> {
    let mut attr = MaybeUninit::<ibv_qp_attr>::zeroed();
    let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
    // SAFETY: the structures are integers and pointers, for which zeros are values. The caller
    // keeps the QP alive, and the library writes both structures, which live through the call.
    unsafe {
        let status = ibv_query_qp(qp.as_ptr(), attr.as_mut_ptr(), mask.0 as i32, init.as_mut_ptr());
        if status != 0 {
            return Err(QueueError::QueryQp(status));
        }
        Ok((attr.assume_init().qp_state, init.assume_init()))
    }
}

/// Returns whether a QP is a target of dynamic connections: it has no queue and no register, and
/// `mlx5dv_init_obj` would read an address where one is. Initiators have the same type.
///
/// # Safety
/// `qp` is a live QP.
unsafe fn is_dc_target(qp: NonNull<ibv_qp>) -> bool {
    // SAFETY: the caller keeps the QP alive; libibverbs sets these members at creation and does not
    // change them.
    let (qp_type, srq) = unsafe { ((*qp.as_ptr()).qp_type, (*qp.as_ptr()).srq) };
    if qp_type != Dci::QP_TYPE || srq.is_null() {
        return false;
    }
    // Before RTR, targets cannot be queried, and at no time for their capacity.
    // SAFETY: the caller keeps the QP alive.
    let queried = unsafe { query_these(qp, bit::IBV_QP_STATE) };
    queried.map_or(true, |(_, init)| init.cap.max_send_wr == 0)
}

/// Moves a QP from SQE to RTS.
///
/// # Safety
/// `qp` is a live QP.
pub(crate) unsafe fn resume(qp: NonNull<ibv_qp>) -> crate::error::Result<()> {
    // SAFETY: integers and a union of integers, for which zeros are values.
    let mut attr: ibv_qp_attr = unsafe { core::mem::zeroed() };
    attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
    attr.cur_qp_state = ibv_qp_state::IBV_QPS_SQE;
    // The kernel was not told that the HCA moved the pair to SQE.
    let mask = bit::IBV_QP_STATE.0 | bit::IBV_QP_CUR_STATE.0;
    // SAFETY: the caller keeps the QP alive. The call reads the attributes, which live through it.
    let result = unsafe { ibv_modify_qp(qp.as_ptr(), &mut attr, mask as libc::c_int) };
    if result != 0 {
        return Err(Error::from_errno("ibv_modify_qp", Errno(result)));
    }
    Ok(())
}

/// Returns the view of a CQ that is taken over.
///
/// # Safety
/// `cq` is a live CQ.
pub(crate) unsafe fn view_cq(cq: NonNull<ibv_cq>) -> Result<CompletionView, QueueError> {
    let mut out = MaybeUninit::<dv::mlx5dv_cq>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: the structures are integers and pointers, for which zeros are values. The caller
    // keeps the object alive, and the library writes `out`, which lives through the call.
    let (out, status) = unsafe {
        let object = object.assume_init_mut();
        object.cq.in_ = cq.as_ptr();
        object.cq.out = out.as_mut_ptr();
        let status = dv::mlx5dv_init_obj(object, u64::from(dv::MLX5DV_OBJ_CQ));
        (out.assume_init(), status)
    };
    if status != 0 {
        return Err(QueueError::InitObj(status));
    }
    let (Some(buffer), Some(record), Some(page)) = (
        NonNull::new(out.buf.cast::<u8>()),
        NonNull::new(out.dbrec),
        NonNull::new(out.cq_uar.cast::<u8>()),
    ) else {
        return Err(QueueError::NoQueue);
    };
    Ok(CompletionView {
        buffer,
        cqe_count: out.cqe_cnt,
        cqe_size: out.cqe_size,
        record,
        page,
        cqn: out.cqn,
        object: CqObject::of(cq.as_ptr()),
        raw: Some(cq),
        compression: Default::default(),
        enhanced: false,
        collapsed: false,
    })
}

/// Returns whether an asynchronous event of an opened device is unread, or its event file is broken.
/// Reads no event.
///
/// # Safety
/// `context` is open.
unsafe fn has_unread_event(context: *mut ibv_context) -> bool {
    // SAFETY: the caller keeps the context open; the field does not change.
    let fd = unsafe { (*context).async_fd };
    let mut unread = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the call reads and writes one pollfd, which lives through it.
    unsafe { libc::poll(&mut unread, 1, 0) != 0 }
}

/// Checks whether a device failed or was removed: a system call, which gives a firmware command.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn device_is_gone(context: *mut ibv_context) -> bool {
    let mut port = MaybeUninit::<ibv_port_attr>::zeroed();
    // SAFETY: the caller keeps the context open, and the structure lives through the call.
    let status = unsafe { ___ibv_query_port(context, 1, port.as_mut_ptr()) };
    status != 0 && Errno(status).is_device_gone()
}

/// Checks whether the HCA has failed a CQ: a system call, and QUERY_CQ if an asynchronous event of
/// its context is unread. Reads no event.
///
/// # Safety
/// `cq` is a live CQ.
pub(crate) unsafe fn check_cq(cq: NonNull<ibv_cq>, cqn: u32) -> CqCheck {
    // SAFETY: the caller keeps the CQ alive, which keeps its context open; the field does not
    // change.
    let context = unsafe { (*cq.as_ptr()).context };
    // SAFETY: the context is open.
    if !unsafe { has_unread_event(context) } {
        return CqCheck::NoEvent;
    }
    let (mut query, mut reply) = ([0u8; query_cq_in::SIZE], [0u8; query_cq_out::SIZE]);
    cmd_in::OPCODE.set(&mut query, opcode::QUERY_CQ.into());
    query_cq_in::CQN.set(&mut query, cqn.into());
    // SAFETY: the caller keeps the CQ alive; both buffers live through the call and have these
    // sizes.
    let status = unsafe {
        dv::mlx5dv_devx_cq_query(
            cq.as_ptr(),
            query.as_ptr().cast(),
            query.len(),
            reply.as_mut_ptr().cast(),
            reply.len(),
        )
    };
    // Firmware that refuses a command works, whatever errno libmlx5 makes of the refusal.
    if cmd_out::STATUS.get(&reply) != 0 {
        return CqCheck::Unknown;
    }
    if status != 0 {
        // The context may be one that gives no firmware commands.
        // SAFETY: the context is open.
        let gone = Errno(status).is_device_gone() || unsafe { device_is_gone(context) };
        return if gone { CqCheck::DeviceFailed } else { CqCheck::Unknown };
    }
    CqCheck::of(&reply[query_cq_out::CQ_CONTEXT.bytes()])
}

/// A queue pair that this crate did not make. The caller that handed it over keeps it alive.
pub(crate) struct Foreign(NonNull<ibv_qp>);

// SAFETY: libibverbs locks the state that calls on one QP share, so they may come from any thread.
unsafe impl Send for Foreign {}
// SAFETY: libibverbs locks the state that calls on one QP share, so several threads may call at
// once.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Returns the owner of a queue pair.
    ///
    /// # Safety
    /// `qp` stays alive as long as the result.
    pub(crate) unsafe fn owner(qp: NonNull<ibv_qp>) -> Arc<dyn QueueOwner> {
        Arc::new(Self(qp))
    }
}

impl QueueOwner for Foreign {
    fn id(&self) -> ObjectId {
        ObjectId::at(self.0.as_ptr())
    }

    fn claim(&self, _: WorkQueue) -> crate::error::Result<()> {
        Ok(())
    }

    fn release(&self, _: WorkQueue, _: bool) {}

    fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    fn state(&self) -> Result<u32, QueueError> {
        // SAFETY: the caller of `owner` keeps the QP alive as long as `self`.
        unsafe { query(self.0) }.map(|(state, _)| state)
    }

    fn resume(&self) -> crate::error::Result<()> {
        // SAFETY: the caller of `owner` keeps the QP alive as long as `self`.
        unsafe { resume(self.0) }
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        Some(self.0)
    }
}
