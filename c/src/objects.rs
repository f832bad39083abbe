//! What libibverbs and libmlx5 tell of objects at the take-over, for conditions that the driver leaves
//! to its caller.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mlx5_sys::doorbell::RECEIVE_WORD;
use mlx5_sys::dv;
use mlx5_sys::ifc::{
    Field, cmd_in, opcode, query_rmp_in, query_rmp_out, query_srq_in, query_srq_out,
    query_xrc_srq_in, query_xrc_srq_out, query_xrq_in, query_xrq_out, xrc_srqc,
};
use mlx5_sys::load::Library;
use mlx5_sys::verbs::{
    ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
    ibv_query_qp, ibv_srq,
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
        let in_init = unsafe { query(qp)? }.state == ibv_qp_state::IBV_QPS_INIT;
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

/// Attributes of a QP.
struct Queried {
    /// `enum ibv_qp_state`.
    state: u32,
    /// The number of requests that it takes.
    sends: u32,
}

/// Queries a QP: a system call.
///
/// # Safety
/// `qp` is a live QP.
unsafe fn query(qp: NonNull<ibv_qp>) -> Result<Queried> {
    let mut attr = MaybeUninit::<ibv_qp_attr>::zeroed();
    let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
    let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as libc::c_int;
    // SAFETY: the caller keeps the QP alive, and the library writes both structures, which live
    // through the call. Zeros are values of them.
    unsafe {
        match ibv_query_qp(qp.as_ptr(), attr.as_mut_ptr(), mask, init.as_mut_ptr()) {
            0 => Ok(Queried {
                state: attr.assume_init().qp_state,
                sends: init.assume_init().cap.max_send_wr,
            }),
            errno => Err(Failed::call("ibv_query_qp", errno)),
        }
    }
}

/// Returns whether a QP is a target of dynamic connections. At most a system call.
///
/// Initiators have the same type, `IBV_QPT_DRIVER`. A target receives from a shared receive queue, sends
/// nothing, and has no number before RTR, where the kernel refuses queries of it. It has no register,
/// where `mlx5dv_init_obj` would read an address: [`QpParts::of`] is not for targets.
///
/// # Safety
/// `qp` is a live QP.
pub(crate) unsafe fn is_dc_target(qp: NonNull<ibv_qp>) -> bool {
    // SAFETY: the caller keeps the QP alive. Type and queue do not change, and the number does not
    // change while the program is in this call.
    let (number, qp_type, srq) =
        unsafe { ((*qp.as_ptr()).qp_num, (*qp.as_ptr()).qp_type, (*qp.as_ptr()).srq) };
    if qp_type != ibv_qp_type::IBV_QPT_DRIVER || srq.is_null() {
        return false;
    }
    // SAFETY: the caller keeps the QP alive.
    number == 0 || unsafe { query(qp) }.map_or(true, |queried| queried.sends == 0)
}

/// A kind of shared receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedKind {
    /// Queue pairs and targets of dynamic connections receive from it.
    Plain,
    /// Messages of XRC name it. It completes on the CQ of this number.
    Xrc { cqn: u32 },
    /// It matches tags.
    Tags,
}

impl SharedKind {
    /// Queries the kind of a shared receive queue: system calls. `None` if the context of the queue may give
    /// no firmware commands: nothing else tells the kind.
    ///
    /// # Safety
    /// `srq` is a live SRQ.
    pub(crate) unsafe fn of(srq: NonNull<ibv_srq>) -> Result<Option<Self>> {
        // SAFETY: the caller keeps the SRQ alive.
        let Some(number) = (unsafe { shared_number(srq)? }) else { return Ok(None) };
        let ask = |(opcode, field, size): (u16, Field, usize)| {
            let mut command = [0; query_xrc_srq_in::SIZE];
            cmd_in::OPCODE.set(&mut command, opcode.into());
            field.set(&mut command, number.into());
            let mut answer = vec![0; size];
            // SAFETY: the SRQ is alive. Command and answer live through the call, and are as long as said.
            let errno = unsafe {
                dv::mlx5dv_devx_srq_query(
                    srq.as_ptr(),
                    command.as_ptr().cast(),
                    command.len(),
                    answer.as_mut_ptr().cast(),
                    answer.len(),
                )
            };
            (errno == 0).then_some(answer)
        };
        // The kernel refuses the queries of other kinds (`devx_is_valid_obj_id` of Linux).
        const XRC: (u16, Field, usize) =
            (opcode::QUERY_XRC_SRQ, query_xrc_srq_in::XRC_SRQN, query_xrc_srq_out::SIZE);
        const OTHERS: [(SharedKind, (u16, Field, usize)); 3] = [
            (SharedKind::Plain, (opcode::QUERY_RMP, query_rmp_in::RMPN, query_rmp_out::SIZE)),
            (SharedKind::Plain, (opcode::QUERY_SRQ, query_srq_in::SRQN, query_srq_out::SIZE)),
            (SharedKind::Tags, (opcode::QUERY_XRQ, query_xrq_in::XRQN, query_xrq_out::SIZE)),
        ];
        if let Some(answer) = ask(XRC) {
            let cqn = xrc_srqc::CQN.within(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY);
            return Ok(Some(Self::Xrc { cqn: cqn.get(&answer) as u32 }));
        }
        Ok(OTHERS.into_iter().find_map(|(kind, query)| ask(query).map(|_| kind)))
    }
}

/// Returns the number of a shared receive queue, if libmlx5 tells it.
///
/// # Safety
/// `srq` is a live SRQ.
unsafe fn shared_number(srq: NonNull<ibv_srq>) -> Result<Option<u32>> {
    let mut out = MaybeUninit::<dv::mlx5dv_srq>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: zeros are values of these structures of integers and pointers. The caller keeps the SRQ
    // alive, and the library writes `out`, which lives through the call.
    let (out, failed) = unsafe {
        out.assume_init_mut().comp_mask = dv::MLX5DV_SRQ_MASK_SRQN.into();
        let object = object.assume_init_mut();
        object.srq.in_ = srq.as_ptr();
        object.srq.out = out.as_mut_ptr();
        let failed = dv::mlx5dv_init_obj(object, u64::from(dv::MLX5DV_OBJ_SRQ)) != 0;
        (out.assume_init(), failed)
    };
    if failed {
        return Err(Failed::of(Status::NotMlx5));
    }
    let told = out.comp_mask & u64::from(dv::MLX5DV_SRQ_MASK_SRQN) != 0;
    Ok(told.then_some(out.srqn))
}
