//! State transitions of a queue pair, one command each.

use std::sync::atomic::Ordering;

use mlx5_sys::ifc::{
    opcode, opt_param, qp_2rst_in, qpc, qpc_ext, rst2init_qp_in, rts2rts_qp_ext_in,
};
use mlx5_sys::verbs::ibv_qp_attr_mask as bit;

use super::{ByCommand, CommandPair, Firmware, context};
use crate::devx::Command;
use crate::error::Result;
use crate::ib::{Access, Dci, Rc, Ud};
use crate::verbs::{
    Change, Connected, Init, InitAttributes, Pair, PairObject, QpState, QueuePair, Reset, Rts,
    State, TransitionError, UdInitAttributes, check_queue_pair_access,
};

/// `mlx5_ifc.h` of rdma-core, `MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`
const STREAM: u64 = 1;

/// Executes the command that makes a change.
pub(super) fn apply(pair: &Pair<CommandPair>, change: Change) -> Result<()> {
    let Some(opcode) = opcode_of(&change) else { return to_error(pair) };
    let object = &pair.object;
    let (mut attr, mut mask) = (change.attr, change.mask);
    let mut granted = None;
    if mask & bit::IBV_QP_ACCESS_FLAGS.0 != 0 {
        let access = Access::from_bits_truncate(attr.qp_access_flags);
        granted = Some(access);
        // Before RTR the HCA could not execute READs and atomics of the peer.
        if change.from != QpState::Rts {
            attr.qp_access_flags = (access & Access::REMOTE_WRITE).bits();
        }
    }
    if opcode == opcode::INIT2RTR_QP && mask & bit::IBV_QP_MAX_DEST_RD_ATOMIC.0 != 0 {
        // The depth is known now, so the rights that depend on it can be set.
        let all = object.access.load(Ordering::Relaxed);
        let able = if attr.max_dest_rd_atomic == 0 { Access::REMOTE_WRITE.bits() } else { !0 };
        attr.qp_access_flags = all & able;
        mask |= bit::IBV_QP_ACCESS_FLAGS.0;
    }
    // All transition commands have the layout of the first.
    let command = Command::new(opcode, rst2init_qp_in::SIZE)
        .set(rst2init_qp_in::QPN, pair.number())
        .set(rst2init_qp_in::OPT_PARAM_MASK, optional_of(opcode, mask, change.rights));
    let mut command = context::set(command, pair, &attr, mask)?;
    if let (opcode::RST2INIT_QP, Some(counters)) = (opcode, &object.counters) {
        let named = qpc::COUNTER_SET_ID.within(rst2init_qp_in::QPC);
        command = command.set(named, counters.number());
    }
    // SAFETY: no change leads to RESET, and none has fields for rings, doorbell record, CQs or
    // counters of WQEs. `CommandPair` keeps the counter set that it names.
    unsafe { object.object().modify(&command)? };
    if let Some(access) = granted {
        object.access.store(access.bits(), Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the command of a change with attributes; `None` for the transition to ERROR.
fn opcode_of(change: &Change) -> Option<u16> {
    match (change.from, change.to) {
        (_, Some(QpState::Error)) => None,
        (QpState::Reset, _) => Some(opcode::RST2INIT_QP),
        (QpState::Init, None) => Some(opcode::INIT2INIT_QP),
        (QpState::Init, _) => Some(opcode::INIT2RTR_QP),
        (QpState::Rtr, _) => Some(opcode::RTR2RTS_QP),
        (QpState::SqError, _) => Some(opcode::SQERR2RTS_QP),
        _ => Some(opcode::RTS2RTS_QP),
    }
}

/// Returns the optional parameters of a command, which are attributes that it need not have.
fn optional_of(opcode: u16, mask: u32, rights: Access) -> u32 {
    let rights = [
        (Access::REMOTE_WRITE, opt_param::RWE),
        (Access::REMOTE_READ, opt_param::RRE),
        (Access::REMOTE_ATOMIC, opt_param::RAE),
    ]
    .into_iter()
    .filter(|(right, _)| rights.contains(*right))
    .fold(0, |mask, (_, parameter)| mask | parameter);
    let known: &[_] = match opcode {
        opcode::INIT2INIT_QP => &[
            (bit::IBV_QP_PKEY_INDEX, opt_param::PKEY_INDEX),
            (bit::IBV_QP_PORT, opt_param::PRI_PORT),
            (bit::IBV_QP_QKEY, opt_param::Q_KEY),
            (bit::IBV_QP_ACCESS_FLAGS, rights),
        ],
        opcode::INIT2RTR_QP | opcode::RTS2RTS_QP => &[
            (bit::IBV_QP_ALT_PATH, opt_param::ALT_ADDR_PATH),
            (bit::IBV_QP_PATH_MIG_STATE, opt_param::PM_STATE),
            (bit::IBV_QP_ACCESS_FLAGS, rights),
        ],
        _ => &[],
    };
    let given = known.iter().filter(|(attribute, _)| mask & attribute.0 != 0);
    given.fold(0, |all, (_, parameter)| all | parameter)
}

/// Moves to ERROR. QP_2ERR.
fn to_error(pair: &Pair<CommandPair>) -> Result<()> {
    let command =
        Command::new(opcode::QP_2ERR, qp_2rst_in::SIZE).set(qp_2rst_in::QPN, pair.number());
    // SAFETY: only the state changes. In ERROR no WQE is executed.
    unsafe { pair.object.object().modify(&command) }.map(drop)
}

/// Moves to RESET, and clears the doorbell record. QP_2RST.
///
/// # Safety
/// Queues that own its rings post nothing before they have been restarted.
pub(super) unsafe fn reset(pair: &Pair<CommandPair>) -> Result<()> {
    let command =
        Command::new(opcode::QP_2RST, qp_2rst_in::SIZE).set(qp_2rst_in::QPN, pair.number());
    // SAFETY: only the state changes. The caller guarantees that no queue posts.
    unsafe { pair.object.object().modify(&command)? };
    // SAFETY: in RESET the HCA does not read the doorbell record. The caller guarantees that queues
    // that own the rings post nothing, so they do not write it.
    unsafe { pair.object.memory.record.fill(0) };
    Ok(())
}

/// Moves from SQE to RTS. SQERR2RTS_QP.
pub(super) fn resume(pair: &Pair<CommandPair>) -> Result<()> {
    let to = Some(QpState::Rts);
    apply(pair, Change { from: QpState::SqError, to, ..Change::within::<Rts>() })
}

impl<T: Connected + ByCommand> QueuePair<T, Init, Firmware> {
    /// Changes the attributes of the transition to INIT, in INIT. INIT2INIT_QP.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`](crate::Error::NoSuchPort),
    /// [`Error::Attribute`](crate::Error::Attribute), [`Error::Refused`](crate::Error::Refused);
    /// nothing is changed then.
    pub fn change(&self, attributes: &InitAttributes) -> Result<()> {
        attributes.check(self.context())?;
        let mut change = Change::within::<Init>();
        attributes.set(&mut change, T::ACCESS);
        self.change_by(change)
    }
}

impl QueuePair<Ud, Init, Firmware> {
    /// Changes the attributes of the transition to INIT, in INIT. INIT2INIT_QP.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`](crate::Error::NoSuchPort),
    /// [`Error::Attribute`](crate::Error::Attribute), [`Error::Refused`](crate::Error::Refused);
    /// nothing is changed then.
    pub fn change(&self, attributes: &UdInitAttributes) -> Result<()> {
        attributes.check(self.context())?;
        let mut change = Change::within::<Init>();
        attributes.set(&mut change);
        self.change_by(change)
    }
}

impl QueuePair<Rc, Rts, Firmware> {
    /// Changes the rights of the peer. RTS2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Attribute`](crate::Error::Attribute), [`Error::Refused`](crate::Error::Refused);
    /// nothing is changed then.
    pub fn set_access(&self, access: Access) -> Result<()> {
        check_queue_pair_access(access)?;
        let mut change = Change::within::<Rts>();
        change.attr.qp_access_flags = access.bits();
        change.mask = bit::IBV_QP_ACCESS_FLAGS.0;
        change.rights = Rc::ACCESS;
        self.change_by(change)
    }
}

impl QueuePair<Dci, Rts, Firmware> {
    /// Resumes a stream that has failed. The [send queue](crate::ring::SendQueue::go_on) of the
    /// direct path needs a call, too. RTS2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused): the stream has not failed, there are no streams,
    /// or the queue pair has failed.
    pub fn reset_stream(&self, stream: u16) -> Result<()> {
        let named = qpc_ext::DCI_STREAM_CHANNEL_ID.within(rts2rts_qp_ext_in::QPC_DATA_EXT);
        let command = Command::new(opcode::RTS2RTS_QP, rts2rts_qp_ext_in::SIZE)
            .set(rts2rts_qp_ext_in::QPC_EXT, 1u32)
            .set(rts2rts_qp_ext_in::QPN, self.number())
            .set(rts2rts_qp_ext_in::OPT_PARAM_MASK_95_32, STREAM)
            .set(named, stream);
        // SAFETY: the queue pair stays in RTS, and goes on behind the request that failed on the
        // stream: nothing is executed again.
        unsafe { self.object().modify(&command) }.map(drop)
    }
}

impl<T: ByCommand, S: State> QueuePair<T, S, Firmware> {
    /// Moves to RESET like [`reset`](Self::reset), while queues of the direct path own its rings.
    /// They are to be [restarted](crate::ring::SendQueue::restart).
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    ///
    /// # Safety
    /// Queues that own its rings post nothing until they have been restarted.
    pub unsafe fn reset_under_queues(
        self,
    ) -> Result<QueuePair<T, Reset, Firmware>, TransitionError<T, S, Firmware>> {
        // SAFETY: the caller guarantees that queues that own its rings post nothing before their
        // restart.
        let done = unsafe { PairObject::reset(self.pair()) };
        self.moved(done)
    }
}
