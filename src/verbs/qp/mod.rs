//! Queue pairs. The type names the transport and the state to which the program moved the pair. A
//! transition consumes one type and returns the next ([`State`]). The attribute structures hold
//! what each transition needs ([`InitAttributes`], [`RtrAttributes`], [`RtsAttributes`], and those
//! of unreliable transports). They are checked before the call, where libibverbs would only report
//! EINVAL.
//!
//! The type, its transitions and its builder are the same for all back ends
//! ([`Backend`](super::Backend)), of which `verbs` is one and [`devx`](crate::devx) the other.

// First: rustdoc lists the methods of a type in the order of these modules.
mod verbs_builder;

mod builder;
mod transition;

mod address;
mod attributes;
mod backend;
mod claims;
mod connected;
mod dynamic;
mod multicast;
mod query;
mod rate;
mod raw;
mod state;
mod unreliable;
mod verbs;
mod xrc;

pub use address::{AddressVector, AlternatePath, GlobalRoute};
pub use attributes::{InitAttributes, RtrAttributes, RtsAttributes};
pub use backend::Makes;
pub(crate) use backend::{Change, Pair, PairMaker, PairObject};
pub use builder::{Capacities, QueuePairBuilder, ScatterToCqe};
pub(crate) use claims::Claims;
pub use connected::Connected;
pub use dynamic::{DciStreams, DctRtrAttributes};
pub use multicast::MulticastMembership;
pub use query::{MigrationState, QueuePairAttributes};
pub use rate::{RateLimit, RateRange};
pub use state::{CanReceive, Failed, Init, QpState, Reset, Rtr, Rts, State};
pub use transition::TransitionError;
pub use unreliable::{UcRtrAttributes, UdInitAttributes, UnreliableRtsAttributes};
pub use xrc::XrcRtsAttributes;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Context, Verbs};
use crate::error::Result;
use crate::ib::Transport;
use crate::ring::source::DomainId;

/// A queue pair of transport `T` that the program has moved to state `S`, made by back end `B`.
///
/// The HCA moves a pair to ERROR by itself when a request fails. The type still names the state
/// that the program set, and [`query`](Self::query) returns the present state.
///
/// It is not `Clone`: its type is its state, and clones would disagree about it. Queues made from it
/// keep it alive. To share the value itself, borrow it or put it into an `Arc`.
///
/// [`builder`](Self::builder) creates queue pairs by verbs, and
/// [`by_command`](Self::by_command) by firmware command. Peers cannot tell them apart.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::verbs::attr::QpState;
/// use mlx5::verbs::QueuePair;
///
/// let qp = QueuePair::builder(&pd, &cq).build()?;
/// let local = LocalPort::new(&context, 1, None)?;
/// let mine = local.connection_data(&qp);
/// // The peer sends its data over TCP, see `connect`. Here the queue pair is its own peer.
/// let theirs = mine.clone();
/// let qp = qp.init(&local.init())?;
/// let qp = qp.rtr(&local.rtr(&mine, &theirs))?;
/// let qp = qp.rts(&local.rts(&mine, &theirs))?;
/// assert_eq!(qp.query()?.state, QpState::Rts);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_qp", "ibv_destroy_qp"))]
pub struct QueuePair<T: Transport, S: State, B: Makes<T> = Verbs> {
    pair: Arc<Pair<B::Object>>,
    marker: PhantomData<fn() -> (T, S)>,
}

impl<T: Transport, S: State, B: Makes<T>> QueuePair<T, S, B> {
    fn from_pair(pair: Arc<Pair<B::Object>>) -> QueuePair<T, S, B> {
        QueuePair { pair, marker: PhantomData }
    }

    /// Returns its number, by which the peer addresses it. 24 bits.
    #[doc(alias = "qp_num")]
    pub fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Returns the capacities of its queues: at least the requested ones.
    pub fn capacities(&self) -> Capacities {
        self.pair.capacities()
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.pair.object.context()
    }

    /// Returns the state to which the program moved it last. One load; the HCA may have moved it to
    /// ERROR since.
    pub fn state(&self) -> QpState {
        self.pair.state()
    }

    /// Queries the attributes of the queue pair. A firmware command: tens of microseconds.
    ///
    /// # Errors
    /// - By verbs: [`Error::Call`](crate::Error::Call).
    /// - By command: [`Error::Refused`](crate::Error::Refused);
    ///   [`Error::Queue`](crate::Error::Queue) for a target of dynamic connections before RTR.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QueuePairAttributes> {
        PairObject::attributes(&self.pair, T::TRANSPORT_KIND)
    }

    /// Returns the domain of the memory that its requests may name; `None` for XRC targets.
    pub(crate) fn domain(&self) -> Option<DomainId> {
        self.pair.object.domain()
    }

    pub(crate) fn pair(&self) -> &Arc<Pair<B::Object>> {
        &self.pair
    }
}

impl<T: Transport, B: Makes<T>> QueuePair<T, Reset, B> {
    /// Returns a queue pair that its back end has just made.
    pub(crate) fn new(pair: Pair<B::Object>) -> QueuePair<T, Reset, B> {
        QueuePair::from_pair(Arc::new(pair))
    }
}

impl<T: Transport, S: State, B: Makes<T>> fmt::Debug for QueuePair<T, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("transport", &T::NAME)
            .field("state", &S::STATE)
            .field("number", &format_args!("{:#x}", self.number()))
            .field("capacities", &self.capacities())
            .finish()
    }
}
