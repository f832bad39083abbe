//! Moving a queue pair from state to state.

use std::fmt;
use std::sync::Arc;

use mlx5_sys::verbs::{ibv_mig_state, ibv_qp_attr, ibv_qp_attr_mask as bit};

use super::attributes::Attributes;
use super::{
    AlternatePath, Change, Connected, Failed, Init, InitAttributes, Makes, PairObject, QueuePair,
    Reset, Rtr, Rts, State,
};
use crate::error::{Cause, Errno, Error, Result};
use crate::ib::Transport;
use crate::verbs::Verbs;
use crate::verbs::attr::LinkLayer;

/// A move that failed, with the queue pair, which is in the state it was in.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::verbs::attr::InitAttributes;
/// use mlx5::verbs::QueuePair;
///
/// let qp = QueuePair::builder(&pd, &cq).build()?;
/// // There is no port 9. The queue pair comes back, and is where it was.
/// let failed = qp.init(&InitAttributes::new(9)).err().ok_or("port 9")?;
/// let qp = failed.queue_pair.init(&InitAttributes::new(1))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TransitionError<T: Transport, S: State, B: Makes<T> = Verbs> {
    /// The queue pair.
    pub queue_pair: QueuePair<T, S, B>,
    /// The error.
    pub error: Error,
}

/// The queue pair in its new state, or unmoved with the error.
pub(super) type Moved<T, To, From, B = Verbs> =
    std::result::Result<QueuePair<T, To, B>, TransitionError<T, From, B>>;

impl<T: Connected, B: Makes<T>> QueuePair<T, Reset, B> {
    /// RESET to INIT. From now on receives can be posted.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`]; [`Error::Call`] by verbs, [`Error::Refused`] by
    /// command.
    #[doc(alias("ibv_modify_qp", "IBV_QPS_INIT"))]
    pub fn init(self, attributes: &InitAttributes) -> Moved<T, Init, Reset, B> {
        let mut change = Change::to::<Reset, Init>();
        attributes.set(&mut change, T::ACCESS);
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}

impl<T: Connected, B: Makes<T>> QueuePair<T, Init, B> {
    /// INIT to RTR. From now on packets of the peer are accepted.
    ///
    /// # Errors
    /// - [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    ///   [`Error::Attribute`].
    /// - By verbs: [`Error::Call`].
    /// - By command: [`Error::Refused`]; [`Error::Call`] if the MAC address of the GID is not
    ///   known.
    #[doc(alias("ibv_modify_qp", "IBV_QPS_RTR"))]
    pub fn rtr(self, attributes: &T::Rtr) -> Moved<T, Rtr, Init, B> {
        let mut change = Change::to::<Init, Rtr>();
        change.mask = attributes.set(&mut change.attr);
        change.rights = T::ACCESS;
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}

impl<T: Connected, B: Makes<T>> QueuePair<T, Rtr, B> {
    /// RTR to RTS. From now on requests can be sent.
    ///
    /// # Errors
    /// [`Error::Attribute`]; [`Error::Call`] by verbs, [`Error::Refused`] by command.
    #[doc(alias("ibv_modify_qp", "IBV_QPS_RTS"))]
    pub fn rts(self, attributes: &T::Rts) -> Moved<T, Rts, Rtr, B> {
        let mut change = Change::to::<Rtr, Rts>();
        change.mask = attributes.set(&mut change.attr);
        let checked = attributes.check(self.context());
        self.step(checked, change)
    }
}

impl<T: Connected, B: Makes<T>> QueuePair<T, Rts, B> {
    /// Sets an alternate path of an established connection, and makes HCA and peer ready to migrate
    /// to it (both sides must do so).
    ///
    /// # Errors
    /// - [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    ///   [`Error::Attribute`].
    /// - If the HCA has no automatic path migration: [`Error::Call`] by verbs, [`Error::Refused`]
    ///   by command.
    /// - By verbs on RoCE: [`Error::Call`], because Linux keeps alternate paths to InfiniBand.
    /// - By command: [`Error::Call`] if the MAC address of the GID is not known.
    #[doc(alias("ibv_modify_qp", "IBV_QP_ALT_PATH"))]
    pub fn set_alternate_path(&self, path: &AlternatePath) -> Result<()> {
        path.check(self.context())?;
        let mut change = Change::within::<Rts>();
        change.attr.path_mig_state = ibv_mig_state::IBV_MIG_REARM;
        change.mask = set_alternate(&mut change.attr, path) | bit::IBV_QP_PATH_MIG_STATE.0;
        self.change_by(change).map_err(|error| {
            let is_invalid = error.errno() == Some(Errno(libc::EINVAL));
            let port = is_invalid.then(|| self.context().port(path.address.port).ok()).flatten();
            let is_roce = port.is_some_and(|port| port.link_layer == LinkLayer::Ethernet);
            error.because(is_roce.then_some(Cause::Known(
                "Linux keeps alternate paths to InfiniBand; on RoCE, connect anew",
            )))
        })
    }

    /// Migrates the connection to its alternate path now.
    ///
    /// # Errors
    /// If no path is armed: [`Error::Call`] by verbs, [`Error::Refused`] by command.
    #[doc(alias("ibv_modify_qp", "IBV_QP_PATH_MIG_STATE"))]
    pub fn migrate(&self) -> Result<()> {
        let mut change = Change::within::<Rts>();
        change.attr.path_mig_state = ibv_mig_state::IBV_MIG_MIGRATED;
        change.mask = bit::IBV_QP_PATH_MIG_STATE.0;
        self.change_by(change)
    }
}

impl<T: Transport, S: State, B: Makes<T>> QueuePair<T, S, B> {
    /// Any state to ERROR: every request that is posted, and every one posted later, completes as
    /// flushed.
    ///
    /// # Errors
    /// [`Error::Call`] by verbs, [`Error::Refused`] by command. A target of dynamic connections
    /// cannot be moved to ERROR.
    #[doc(alias("ibv_modify_qp", "IBV_QPS_ERR"))]
    pub fn to_error(self) -> Moved<T, Failed, S, B> {
        self.step(Ok(()), Change::to::<S, Failed>())
    }

    /// Moves the queue pair to ERROR for an owner that resets it next, whatever the result.
    pub(crate) fn fail_before_reset(&self) -> Result<()> {
        self.change_by(Change::to::<S, Failed>())
    }

    /// Any state to RESET: everything that is posted is forgotten without a completion.
    ///
    /// Completions that were written before stay in the completion queue. Rings of the direct path
    /// drop them when they take a queue over; `ibv_poll_cq` takes them for those of the pair's next
    /// life.
    ///
    /// # Errors
    /// [`Error::QueueInUse`] while the direct path owns one of its queues; [`Error::Call`] by
    /// verbs, [`Error::Refused`] by command. A target of dynamic connections cannot be reset.
    #[doc(alias("ibv_modify_qp", "IBV_QPS_RESET"))]
    pub fn reset(self) -> Moved<T, Reset, S, B> {
        let pair = Arc::clone(&self.pair);
        let reserved = match pair.claims.reserve() {
            Ok(reserved) => reserved,
            Err(error) => return Err(TransitionError { queue_pair: self, error }),
        };
        // SAFETY: no queue of the direct path owns a ring, nor can one claim it while the claims
        // are reserved.
        let done = unsafe { PairObject::reset(&pair) };
        let reset = self.moved(done)?;
        // SAFETY: the pair was reset. What is added later is of requests before the reset, too,
        // since no queue posts while the claims are reserved.
        unsafe { pair.retained.free() };
        reserved.was_reset();
        Ok(reset)
    }

    /// Moves to `To` by a change, if the check of the attributes succeeded.
    pub(super) fn step<To: State>(self, checked: Result<()>, change: Change) -> Moved<T, To, S, B> {
        let done = checked.and_then(|()| self.change_by(change));
        self.moved(done)
    }

    /// Returns the queue pair in state `To` if the transition is done.
    pub(crate) fn moved<To: State>(self, done: Result<()>) -> Moved<T, To, S, B> {
        match done {
            Ok(()) => {
                self.pair.set_state(To::STATE);
                Ok(QueuePair::from_pair(self.pair))
            }
            Err(error) => Err(TransitionError { queue_pair: self, error }),
        }
    }

    /// Makes the change by the back end.
    pub(crate) fn change_by(&self, change: Change) -> Result<()> {
        PairObject::change(&self.pair, change)
    }
}

/// Sets the alternate path, and returns its bit of the mask.
pub(super) fn set_alternate(attr: &mut ibv_qp_attr, path: &AlternatePath) -> u32 {
    attr.alt_ah_attr = path.address.to_raw();
    attr.alt_port_num = path.address.port;
    attr.alt_pkey_index = path.pkey_index;
    attr.alt_timeout = path.timeout.code();
    bit::IBV_QP_ALT_PATH.0
}

impl<T: Transport, S: State, B: Makes<T>> From<TransitionError<T, S, B>> for Error {
    /// Drops the queue pair.
    fn from(error: TransitionError<T, S, B>) -> Error {
        error.error
    }
}

impl<T: Transport, S: State, B: Makes<T>> fmt::Display for TransitionError<T, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.queue_pair.number();
        write!(f, "queue pair {number:#x} stays in {}: {}", S::STATE, self.error)
    }
}

impl<T: Transport, S: State, B: Makes<T>> fmt::Debug for TransitionError<T, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T: Transport, S: State, B: Makes<T>> std::error::Error for TransitionError<T, S, B> {}
