//! Moving a queue pair from state to state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mlx5_sys::verbs::{ibv_mig_state, ibv_modify_qp, ibv_qp_attr, ibv_qp_attr_mask as bit};

use super::attributes::Attributes;
use super::{
    AlternatePath, Connected, Errored, Init, InitAttributes, QueuePair, Reset, Rtr, Rts, State,
};
use crate::error::{Cause, Errno, Error, Result, check};
use crate::ib::{Access, Transport};
use crate::verbs::Zeroed;

/// A move that failed, with the queue pair, which is in the state it was in.
pub struct TransitionError<T: Transport, S: State> {
    /// The queue pair.
    pub queue_pair: QueuePair<T, S>,
    /// The error.
    pub error: Error,
}

/// The queue pair in its new state, or unmoved with the error.
pub(super) type Moved<T, To, From> =
    std::result::Result<QueuePair<T, To>, TransitionError<T, From>>;

impl<T: Connected> QueuePair<T, Reset> {
    /// RESET to INIT. From now on receives can be posted.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], [`Error::Call`].
    pub fn init(self, attributes: &InitAttributes) -> Moved<T, Init, Reset> {
        let mut attr = zeroed();
        attr.port_num = attributes.port;
        attr.pkey_index = attributes.pkey_index;
        attr.qp_access_flags = (attributes.access & T::ACCESS).bits();
        let mask = bit::IBV_QP_PKEY_INDEX.0 | bit::IBV_QP_PORT.0 | bit::IBV_QP_ACCESS_FLAGS.0;
        let checked = attributes.check(self.context());
        self.step(checked, attr, mask).map_err(|failed| TransitionError {
            error: explain_init(failed.error, attributes.access),
            ..failed
        })
    }
}

/// A device without atomics refuses to grant them.
fn explain_init(error: Error, access: Access) -> Error {
    let atomics = access.contains(Access::REMOTE_ATOMIC);
    let refused = error.errno() == Some(Errno(libc::EOPNOTSUPP));
    let cause = Cause::Known("the device has no atomics: leave REMOTE_ATOMIC out of the access");
    error.because((atomics && refused).then_some(cause))
}

impl<T: Connected> QueuePair<T, Init> {
    /// INIT to RTR. From now on packets of the peer are accepted.
    ///
    /// # Errors
    /// [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    /// [`Error::Attribute`], [`Error::Call`].
    pub fn rtr(self, attributes: &T::Rtr) -> Moved<T, Rtr, Init> {
        let mut attr = zeroed();
        let mask = attributes.set(&mut attr);
        let checked = attributes.check(self.context());
        self.step(checked, attr, mask)
    }
}

impl<T: Connected> QueuePair<T, Rtr> {
    /// RTR to RTS. From now on requests can be sent.
    ///
    /// # Errors
    /// [`Error::Attribute`], [`Error::Call`].
    pub fn rts(self, attributes: &T::Rts) -> Moved<T, Rts, Rtr> {
        let mut attr = zeroed();
        let mask = attributes.set(&mut attr);
        let checked = attributes.check(self.context());
        self.step(checked, attr, mask)
    }
}

impl<T: Connected> QueuePair<T, Rts> {
    /// Sets an alternate path of an established connection, and makes HCA and peer ready to migrate
    /// to it (both sides must do so).
    ///
    /// # Errors
    /// - [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    ///   [`Error::Attribute`].
    /// - [`Error::Call`] if the HCA has no automatic path migration.
    pub fn set_alternate_path(&self, path: &AlternatePath) -> Result<()> {
        path.check(self.context())?;
        let mut attr = zeroed();
        attr.path_mig_state = ibv_mig_state::IBV_MIG_REARM;
        let mask = set_alternate(&mut attr, path) | bit::IBV_QP_PATH_MIG_STATE.0;
        self.modify(attr, mask)
    }

    /// Moves the connection to its alternate path now.
    ///
    /// # Errors
    /// [`Error::Call`] where none is armed.
    pub fn migrate(&self) -> Result<()> {
        let mut attr = zeroed();
        attr.path_mig_state = ibv_mig_state::IBV_MIG_MIGRATED;
        self.modify(attr, bit::IBV_QP_PATH_MIG_STATE.0)
    }
}

impl<T: Transport, S: State> QueuePair<T, S> {
    /// Any state to ERROR: every request that is posted, and every one posted later, completes as
    /// flushed.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn to_error(self) -> Moved<T, Errored, S> {
        self.step(Ok(()), zeroed(), 0)
    }

    /// Any state to RESET: everything that is posted is forgotten without a completion.
    ///
    /// Completions that were written before stay in the completion queue. Rings of the direct path
    /// drop them when they take a queue over; `ibv_poll_cq` takes them for those of the pair's next
    /// life.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while the direct path owns one of its queues, [`Error::Call`].
    pub fn reset(self) -> Moved<T, Reset, S> {
        let inner = Arc::clone(&self.inner);
        let reserved = match inner.claims.reserve() {
            Ok(reserved) => reserved,
            Err(error) => return Err(TransitionError { queue_pair: self, error }),
        };
        let reset = self.step(Ok(()), zeroed(), 0)?;
        reserved.was_reset();
        Ok(reset)
    }

    /// Moves to `To` if the attributes were found good.
    pub(super) fn step<To: State>(
        self,
        checked: Result<()>,
        mut attr: ibv_qp_attr,
        mask: u32,
    ) -> Moved<T, To, S> {
        attr.qp_state = To::STATE.raw();
        match checked.and_then(|()| self.modify(attr, mask | bit::IBV_QP_STATE.0)) {
            Ok(()) => {
                self.inner.state.store(To::STATE as u8, Ordering::Release);
                Ok(QueuePair::from_inner(Arc::clone(&self.inner)))
            }
            Err(error) => Err(TransitionError { queue_pair: self, error }),
        }
    }

    fn modify(&self, mut attr: ibv_qp_attr, mask: u32) -> Result<()> {
        // SAFETY: the queue pair is alive, and the attributes live through the call.
        let result =
            unsafe { ibv_modify_qp(self.as_raw().as_ptr(), &mut attr, mask as libc::c_int) };
        check("ibv_modify_qp", result)
    }
}

/// Attributes of which none is given yet.
pub(super) fn zeroed() -> ibv_qp_attr {
    ibv_qp_attr::zeroed()
}

/// Sets the alternate path, and returns its bit of the mask.
pub(crate) fn set_alternate(attr: &mut ibv_qp_attr, path: &AlternatePath) -> u32 {
    attr.alt_ah_attr = path.address.to_raw();
    attr.alt_port_num = path.address.port;
    attr.alt_pkey_index = path.pkey_index;
    attr.alt_timeout = path.timeout.code();
    bit::IBV_QP_ALT_PATH.0
}

impl<T: Transport, S: State> From<TransitionError<T, S>> for Error {
    /// Drops the queue pair.
    fn from(error: TransitionError<T, S>) -> Error {
        error.error
    }
}

impl<T: Transport, S: State> fmt::Display for TransitionError<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "queue pair {:#x} stays in {}: {}",
            self.queue_pair.number(),
            S::STATE,
            self.error
        )
    }
}

impl<T: Transport, S: State> fmt::Debug for TransitionError<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T: Transport, S: State> std::error::Error for TransitionError<T, S> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_atomics_is_told_from_other_refusals() {
        let text = |errno, access| {
            explain_init(Error::from_errno("ibv_modify_qp", Errno(errno)), access).to_string()
        };
        let every = InitAttributes::new(1).access;
        let refused = text(libc::EOPNOTSUPP, every);
        assert!(refused.contains("leave REMOTE_ATOMIC out"), "{refused}");
        assert!(!text(libc::EOPNOTSUPP, Access::LOCAL_WRITE).contains("REMOTE_ATOMIC"));
        assert!(!text(libc::EINVAL, every).contains("REMOTE_ATOMIC"));
    }
}
