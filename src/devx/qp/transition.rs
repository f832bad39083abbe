//! State transitions of a queue pair, one command each.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mlx5_sys::ifc::{opcode, qp_2rst_in, qpc, rst2init_qp_in};
use mlx5_sys::verbs::{ibv_mig_state, ibv_qp_attr, ibv_qp_attr_mask as bit};

use super::context::{self, optional};
use super::{ByCommand, DevxQp, QpInner};
use crate::devx::Command;
use crate::error::{Error, Result};
use crate::ib::{Access, Rc, Transport, Ud};
use crate::verbs::{
    AlternatePath, Attributes, Connected, Errored, Init, InitAttributes, Reset, Rtr, Rts, State,
    UdInitAttributes, UdRtsAttributes, Zeroed, check_24_bits, check_pkey, check_queue_pair_access,
    set_alternate,
};

/// A failed transition, with the queue pair in its previous state.
pub struct DevxTransitionError<T: Transport, S: State> {
    /// The queue pair.
    pub queue_pair: DevxQp<T, S>,
    /// The error.
    pub error: Error,
}

/// The queue pair in its new state, or the unchanged queue pair with the error.
pub(super) type Moved<T, To, From> =
    std::result::Result<DevxQp<T, To>, DevxTransitionError<T, From>>;

/// A command that changes a queue pair or its state, with its attributes.
pub(super) struct Step {
    opcode: u16,
    /// The optional parameters that are set.
    optional: u32,
    pub(super) attr: ibv_qp_attr,
    pub(super) mask: u32,
}

impl Step {
    pub(super) fn new(opcode: u16) -> Step {
        Step { opcode, optional: 0, attr: ibv_qp_attr::zeroed(), mask: 0 }
    }
}

impl QpInner {
    /// Sets the peer's rights in a step. While the HCA could not execute READs and atomics of the
    /// peer, as before RTR, that is only the right to write.
    fn rights(&self, step: &mut Step, access: Access, depth: u8) {
        let access = if depth == 0 { access & Access::REMOTE_WRITE } else { access };
        step.attr.qp_access_flags = access.bits();
        step.mask |= bit::IBV_QP_ACCESS_FLAGS.0;
    }

    /// Executes a command that moves the queue pair to its next state, or changes attributes in its
    /// present state.
    fn execute(&self, step: &Step) -> Result<()> {
        // All transition commands have the layout of the first.
        let command = Command::new(step.opcode, rst2init_qp_in::SIZE)
            .set(rst2init_qp_in::QPN, self.number)
            .set(rst2init_qp_in::OPT_PARAM_MASK, step.optional);
        let context = self.object().context();
        let mut command = context::set(command, context, self, &step.attr, step.mask)?;
        if let (opcode::RST2INIT_QP, Some(counters)) = (step.opcode, &self.counters) {
            let named = qpc::COUNTER_SET_ID.within(rst2init_qp_in::QPC);
            command = command.set(named, counters.number());
        }
        // SAFETY: no step leads to RESET, and none has fields for rings, doorbell record, CQs or
        // counters of WQEs. `QpInner` keeps the counter set that it names.
        unsafe { self.object().modify(&command) }.map(drop)
    }

    /// Moves to ERROR (`QP_2ERR`) or to RESET (`QP_2RST`).
    ///
    /// # Safety
    /// For `QP_2RST`: no queue of this crate posts to the queue pair before it is restarted.
    unsafe fn drop_to(&self, opcode: u16) -> Result<()> {
        let command = Command::new(opcode, qp_2rst_in::SIZE).set(qp_2rst_in::QPN, self.number);
        // SAFETY: only the state changes. In ERROR no WQE is executed. For RESET the caller
        // guarantees that no queue posts.
        unsafe { self.object().modify(&command) }.map(drop)
    }

    /// SQERR2RTS.
    pub(super) fn resume(&self) -> Result<()> {
        self.execute(&Step::new(opcode::SQERR2RTS_QP))
    }
}

impl<T: Connected + ByCommand> DevxQp<T, Reset> {
    /// RESET to INIT. From now on receives can be posted. RST2INIT_QP.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], [`Error::Refused`].
    pub fn init(self, attributes: &InitAttributes) -> Moved<T, Init, Reset> {
        let mut step = Step::new(opcode::RST2INIT_QP);
        let access = attributes.access & T::ACCESS;
        step.attr.port_num = attributes.port;
        step.attr.pkey_index = attributes.pkey_index;
        step.mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0;
        self.inner.rights(&mut step, access, 0);
        let checked = attributes.check(self.context());
        self.inner.access.store(access.bits(), Ordering::Relaxed);
        self.step(checked, &step)
    }
}

impl<T: Connected + ByCommand> DevxQp<T, Init> {
    /// Changes the attributes of the transition to INIT, in INIT. INIT2INIT_QP.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], [`Error::Refused`]; nothing is changed then.
    pub fn change(&self, attributes: &InitAttributes) -> Result<()> {
        attributes.check(self.context())?;
        let mut step = Step::new(opcode::INIT2INIT_QP);
        let access = attributes.access & T::ACCESS;
        step.attr.port_num = attributes.port;
        step.attr.pkey_index = attributes.pkey_index;
        step.mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0;
        step.optional = optional::PKEY_INDEX | optional::PORT | rights::<T>();
        self.inner.rights(&mut step, access, 0);
        self.inner.execute(&step)?;
        self.inner.access.store(access.bits(), Ordering::Relaxed);
        Ok(())
    }

    /// INIT to RTR. From now on packets of the peer are accepted. INIT2RTR_QP.
    ///
    /// # Errors
    /// [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    /// [`Error::Attribute`], [`Error::Refused`]; [`Error::Call`] if the MAC address of the GID is
    /// not known.
    pub fn rtr(self, attributes: &T::Rtr) -> Moved<T, Rtr, Init> {
        let mut step = Step::new(opcode::INIT2RTR_QP);
        step.mask = attributes.set(&mut step.attr);
        if step.mask & bit::IBV_QP_ALT_PATH.0 != 0 {
            step.optional |= optional::ALTERNATE_PATH;
        }
        if step.mask & bit::IBV_QP_MAX_DEST_RD_ATOMIC.0 != 0 {
            // The depth is known now, so the rights that depend on it can be set.
            let access = self.inner.access.load(Ordering::Relaxed);
            let depth = step.attr.max_dest_rd_atomic;
            step.optional |= rights::<T>();
            self.inner.rights(&mut step, Access::from_bits_truncate(access), depth);
        }
        let checked = attributes.check(self.context());
        self.step(checked, &step)
    }
}

impl<T: Connected + ByCommand> DevxQp<T, Rtr> {
    /// RTR to RTS. From now on requests can be sent. RTR2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Refused`].
    pub fn rts(self, attributes: &T::Rts) -> Moved<T, Rts, Rtr> {
        let mut step = Step::new(opcode::RTR2RTS_QP);
        step.mask = attributes.set(&mut step.attr);
        let checked = attributes.check(self.context());
        self.step(checked, &step)
    }
}

impl<T: Connected + ByCommand> DevxQp<T, Rts> {
    /// Sets an alternate path of an established connection, and makes HCA and peer ready to migrate
    /// to it (both sides must do so). RTS2RTS_QP.
    ///
    /// # Errors
    /// - [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    ///   [`Error::Attribute`].
    /// - [`Error::Call`] if the MAC address of the GID is not known.
    /// - [`Error::Refused`] if the HCA has no automatic path migration.
    pub fn set_alternate_path(&self, path: &AlternatePath) -> Result<()> {
        path.check(self.context())?;
        let mut step = Step::new(opcode::RTS2RTS_QP);
        step.attr.path_mig_state = ibv_mig_state::IBV_MIG_REARM;
        step.mask = set_alternate(&mut step.attr, path) | bit::IBV_QP_PATH_MIG_STATE.0;
        step.optional = optional::ALTERNATE_PATH | optional::PM_STATE;
        self.inner.execute(&step)
    }

    /// Migrates the connection to its alternate path now. RTS2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Refused`] if no path is armed.
    pub fn migrate(&self) -> Result<()> {
        let mut step = Step::new(opcode::RTS2RTS_QP);
        step.attr.path_mig_state = ibv_mig_state::IBV_MIG_MIGRATED;
        step.mask = bit::IBV_QP_PATH_MIG_STATE.0;
        step.optional = optional::PM_STATE;
        self.inner.execute(&step)
    }
}

impl DevxQp<Rc, Rts> {
    /// Changes the rights of the peer. RTS2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Refused`]; nothing is changed then.
    pub fn set_access(&self, access: Access) -> Result<()> {
        check_queue_pair_access(access)?;
        let mut step = Step::new(opcode::RTS2RTS_QP);
        step.optional = rights::<Rc>();
        self.inner.rights(&mut step, access, u8::MAX);
        self.inner.execute(&step)?;
        self.inner.access.store(access.bits(), Ordering::Relaxed);
        Ok(())
    }
}

impl DevxQp<Ud, Reset> {
    /// RESET to INIT. From now on receives can be posted. RST2INIT_QP.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], [`Error::Refused`].
    pub fn init(self, attributes: &UdInitAttributes) -> Moved<Ud, Init, Reset> {
        let step = datagrams(opcode::RST2INIT_QP, attributes);
        let checked = check_pkey(self.context(), attributes.port, attributes.pkey_index);
        self.step(checked, &step)
    }
}

impl DevxQp<Ud, Init> {
    /// Changes the attributes of the transition to INIT, in INIT. INIT2INIT_QP.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], [`Error::Refused`]; nothing is changed then.
    pub fn change(&self, attributes: &UdInitAttributes) -> Result<()> {
        check_pkey(self.context(), attributes.port, attributes.pkey_index)?;
        let mut step = datagrams(opcode::INIT2INIT_QP, attributes);
        step.optional = optional::PKEY_INDEX | optional::PORT | optional::Q_KEY;
        self.inner.execute(&step)
    }

    /// INIT to RTR. From now on messages with the right Q_Key arrive. INIT2RTR_QP.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn rtr(self) -> Moved<Ud, Rtr, Init> {
        self.step(Ok(()), &Step::new(opcode::INIT2RTR_QP))
    }
}

impl DevxQp<Ud, Rtr> {
    /// RTR to RTS. From now on requests can be sent. RTR2RTS_QP.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Refused`].
    pub fn rts(self, attributes: &UdRtsAttributes) -> Moved<Ud, Rts, Rtr> {
        let mut step = Step::new(opcode::RTR2RTS_QP);
        step.attr.sq_psn = attributes.sq_psn;
        step.mask = bit::IBV_QP_SQ_PSN.0;
        self.step(check_24_bits("sq_psn", attributes.sq_psn), &step)
    }
}

impl<T: Transport, S: State> DevxQp<T, S> {
    /// Any state to ERROR: all posted requests, and those posted later, complete as flushed.
    /// QP_2ERR.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn to_error(self) -> Moved<T, Errored, S> {
        // SAFETY: the new state is not RESET.
        let done = unsafe { self.inner.drop_to(opcode::QP_2ERR) };
        self.moved(done)
    }

    /// Any state to RESET: all posted WQEs are discarded without a completion, and the doorbell
    /// record is cleared. QP_2RST.
    ///
    /// Completions that were written before stay in the completion queue. Rings drop them when they
    /// take the queue pair over.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while the direct path owns one of its queues, [`Error::Refused`].
    pub fn reset(self) -> Moved<T, Reset, S> {
        let inner = Arc::clone(&self.inner);
        let reserved = match inner.claims.reserve() {
            Ok(reserved) => reserved,
            Err(error) => return Err(DevxTransitionError { queue_pair: self, error }),
        };
        // SAFETY: no queue of the direct path owns a ring, nor can one claim it while the claims
        // are reserved.
        let reset = unsafe { self.reset_under_queues()? };
        reserved.was_reset();
        Ok(reset)
    }

    /// Moves to RESET like [`reset`](Self::reset), while queues of the direct path own its rings.
    /// They are to be [restarted](crate::ring::SendQueue::restart).
    ///
    /// # Errors
    /// [`Error::Refused`].
    ///
    /// # Safety
    /// Queues that own its rings post nothing until they have been restarted.
    pub unsafe fn reset_under_queues(self) -> Moved<T, Reset, S> {
        // SAFETY: the caller guarantees that queues that own its rings post nothing before their
        // restart.
        let done = unsafe { self.inner.drop_to(opcode::QP_2RST) };
        if done.is_ok() {
            // SAFETY: in RESET the HCA does not read the doorbell record. The caller guarantees
            // that queues that own the rings post nothing, so they do not write it.
            unsafe { self.inner.memory.record.fill(0) };
        }
        self.moved(done)
    }

    /// Moves to `To` by a command, if the check of the attributes succeeded.
    pub(super) fn step<To: State>(self, checked: Result<()>, step: &Step) -> Moved<T, To, S> {
        let done = checked.and_then(|()| self.inner.execute(step));
        self.moved(done)
    }

    fn moved<To: State>(self, done: Result<()>) -> Moved<T, To, S> {
        match done {
            Ok(()) => {
                self.inner.state.store(To::STATE as u8, Ordering::Release);
                Ok(DevxQp::from_inner(Arc::clone(&self.inner)))
            }
            Err(error) => Err(DevxTransitionError { queue_pair: self, error }),
        }
    }
}

/// Returns the optional parameters for the rights of a peer.
fn rights<T: Connected>() -> u32 {
    let all = [
        (Access::REMOTE_WRITE, optional::RWE),
        (Access::REMOTE_READ, optional::RRE),
        (Access::REMOTE_ATOMIC, optional::RAE),
    ];
    let all = all.into_iter().filter(|(right, _)| T::ACCESS.contains(*right));
    all.fold(0, |mask, (_, parameter)| mask | parameter)
}

/// Returns the step of a datagram queue pair to INIT, or in it.
fn datagrams(opcode: u16, attributes: &UdInitAttributes) -> Step {
    let mut step = Step::new(opcode);
    step.attr.port_num = attributes.port;
    step.attr.pkey_index = attributes.pkey_index;
    step.attr.qkey = attributes.qkey;
    step.mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0 | bit::IBV_QP_QKEY.0;
    step
}

impl<T: Transport, S: State> From<DevxTransitionError<T, S>> for Error {
    /// Drops the queue pair and keeps the error.
    fn from(error: DevxTransitionError<T, S>) -> Error {
        error.error
    }
}

impl<T: Transport, S: State> fmt::Display for DevxTransitionError<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.queue_pair.number();
        write!(f, "queue pair {number:#x} stays in {}: {}", S::STATE, self.error)
    }
}

impl<T: Transport, S: State> fmt::Debug for DevxTransitionError<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T: Transport, S: State> std::error::Error for DevxTransitionError<T, S> {}
