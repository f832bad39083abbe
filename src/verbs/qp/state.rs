//! States of a queue pair, as types.

use std::fmt;

use mlx5_sys::verbs::ibv_qp_state;

pub(super) mod sealed {
    pub trait Sealed {}
}

/// A state that a program moves a queue pair to.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::{Rc, Transport};
/// use mlx5::verbs::attr::QpState;
/// use mlx5::verbs::{QueuePair, State};
///
/// fn state<T: Transport, S: State>(_: &QueuePair<T, S>) -> QpState {
///     S::STATE
/// }
///
/// let qp = QueuePair::<Rc, _>::builder(&pd, &cq).build()?;
/// assert_eq!(state(&qp), QpState::Reset);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait State: sealed::Sealed + Send + Sync + 'static {
    /// Its value.
    const STATE: QpState;
}

/// A state in which receives can be posted.
///
/// ```compile_fail,E0277
/// # use mlx5::{ib::Rc, ring::*, verbs::*};
/// # fn example(qp: &QueuePair<Rc, Reset>, reader: &mut CqReader) -> mlx5::Result<()> {
/// // In RESET, a queue pair takes no receives: this does not compile.
/// let receives = ReceiveQueue::new(qp, reader, ReceiveConfig::default())?;
/// # Ok(())
/// # }
/// ```
pub trait CanReceive: State {}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $value:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl State for $name {
            const STATE: QpState = QpState::$value;
        }
    )*};
}

states! {
    /// Just made, or reset: nothing can be posted.
    ///
    /// See the example on [`State`].
    #[doc(alias = "IBV_QPS_RESET")]
    Reset = Reset,
    /// Bound to a port: receives can be posted, nothing arrives yet.
    ///
    /// See the example on [`QueuePair`](super::QueuePair).
    #[doc(alias = "IBV_QPS_INIT")]
    Init = Init,
    /// Connected to its peer, ready to receive.
    ///
    /// See the example on [`QueuePair`](super::QueuePair).
    #[doc(alias = "IBV_QPS_RTR")]
    Rtr = Rtr,
    /// Ready to send as well.
    ///
    /// See the example on [`QueuePair`](super::QueuePair).
    #[doc(alias = "IBV_QPS_RTS")]
    Rts = Rts,
    /// Failed (ERROR): every request, posted before or after, completes as flushed.
    ///
    /// ```
    /// # let rig::Link { qp, mut reader, mut receives, sge, memory: _m, .. } = rig::link()?;
    /// use mlx5::cqe::{Completion, Status};
    ///
    /// // SAFETY: the memory stays registered, and nothing uses it before the completion.
    /// unsafe { receives.post(1, sge)? };
    /// // In ERROR, the device returns all requests.
    /// let _qp = qp.to_error()?;
    /// # let completion = rig::poll(&mut reader, &mut receives)?;
    /// // The next poll finds the receive as flushed.
    /// let Completion::Failed(failure) = completion else { return Err("a receive".into()) };
    /// assert_eq!((failure.id, failure.status), (1, Status::Flushed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "IBV_QPS_ERR")]
    Failed = Error,
}

impl CanReceive for Init {}
impl CanReceive for Rtr {}
impl CanReceive for Rts {}
impl CanReceive for Failed {}

/// A state as a value (`enum ibv_qp_state`).
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::verbs::attr::QpState;
/// use mlx5::verbs::QueuePair;
///
/// let qp = QueuePair::builder(&pd, &cq).build()?.to_error()?;
/// // What the program moved it to, and what the device says.
/// assert_eq!((qp.state(), qp.query()?.state), (QpState::Error, QpState::Error));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_qp_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Nothing can be posted.
    #[doc(alias = "IBV_QPS_RESET")]
    Reset = 0,
    /// Receives can be posted.
    #[doc(alias = "IBV_QPS_INIT")]
    Init = 1,
    /// Receives arrive.
    #[doc(alias = "IBV_QPS_RTR")]
    Rtr = 2,
    /// Sends leave.
    #[doc(alias = "IBV_QPS_RTS")]
    Rts = 3,
    /// Send queue drained.
    #[doc(alias = "IBV_QPS_SQD")]
    SqDrained = 4,
    /// Send queue failed, receive queue works (not of RC).
    #[doc(alias = "IBV_QPS_SQE")]
    SqError = 5,
    /// Failed.
    #[doc(alias = "IBV_QPS_ERR")]
    Error = 6,
    /// A value this crate does not know.
    Unknown = 7,
}

impl QpState {
    pub(crate) fn from_code(code: u8) -> QpState {
        match code {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            4 => QpState::SqDrained,
            5 => QpState::SqError,
            6 => QpState::Error,
            _ => QpState::Unknown,
        }
    }

    /// `enum ibv_qp_state`.
    pub(crate) fn raw(self) -> ibv_qp_state::Type {
        self as ibv_qp_state::Type
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::SqDrained => "SQD",
            QpState::SqError => "SQE",
            QpState::Error => "ERROR",
            QpState::Unknown => "unknown",
        })
    }
}
