//! Queue pairs. The type says the transport and the state the program moved the pair to; moving
//! consumes one type and returns the next ([`state`]). What each move needs is in the attribute
//! structures ([`InitAttributes`], [`RtrAttributes`], [`RtsAttributes`], and those of unreliable
//! transports), checked before the call where libibverbs would only say EINVAL.

mod address;
mod attributes;
mod builder;
mod claims;
mod connected;
mod dynamic;
mod multicast;
mod query;
mod raw;
pub mod state;
mod transition;
mod unreliable;
mod xrc;

pub use address::{AddressVector, AlternatePath, GlobalRoute};
pub(crate) use attributes::{Attributes, check_24_bits, check_mtu, check_pkey};
pub use attributes::{InitAttributes, RtrAttributes, RtsAttributes};
pub use builder::{Capacities, QueuePairBuilder, ScatterToCqe};
pub(crate) use claims::{Claims, WorkQueue};
pub use connected::Connected;
pub use dynamic::{DciInitAttributes, DciStreams, DctRtrAttributes};
pub use multicast::MulticastMembership;
pub use query::{MigrationState, QueuePairAttributes};
pub use state::{Init, QpState, Reset, Rtr, Rts, State};
pub use transition::TransitionError;
pub(crate) use transition::set_alternate;
pub use unreliable::{UcRtrAttributes, UcRtsAttributes, UdInitAttributes, UdRtsAttributes};
pub use xrc::XrcRtsAttributes;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use mlx5_sys::verbs::{ibv_destroy_qp, ibv_qp};

use super::td::ParentDomain;
use super::{
    CompletionQueueHandle, Context, DomainId, ProtectionDomain, SharedReceiveQueue, XrcDomain,
};
use crate::ib::{HasQueues, Transport};

/// A queue pair of transport `T` that the program has moved to state `S`.
///
/// The HCA moves a pair to ERROR by itself when a request fails; the type still says what the
/// program did, and [`query`](Self::query) says what is.
pub struct QueuePair<T: Transport, S: State> {
    inner: Arc<QpInner>,
    marker: PhantomData<fn() -> (T, S)>,
}

/// Keeps a queue pair alive, whatever its state. Clones are cheap.
#[derive(Clone)]
pub struct QueuePairHandle {
    inner: Arc<QpInner>,
}

struct QpInner {
    qp: NonNull<ibv_qp>,
    /// A target of dynamic connections gets it on the way to RTR.
    number: AtomicU32,
    capacities: Capacities,
    state: AtomicU8,
    /// Who writes to its queues on the direct path.
    claims: Claims,
    /// Set when the pair is destroyed, so that it completes nothing any more.
    destroyed: Arc<AtomicBool>,
    /// Where the pair was made in a thread domain; freed after the pair.
    _parent: Option<ParentDomain>,
    parents: Parents,
    shared_receives: Option<SharedReceiveQueue>,
}

/// What a queue pair belongs to.
enum Parents {
    /// All but answering ends of extended reliable connections.
    Queues {
        pd: ProtectionDomain,
        send_cq: CompletionQueueHandle,
        receive_cq: CompletionQueueHandle,
    },
    /// Those.
    Target(XrcDomain),
}

impl Parents {
    fn context(&self) -> &Context {
        match self {
            Parents::Queues { pd, .. } => pd.context(),
            Parents::Target(domain) => domain.context(),
        }
    }

    fn pd(&self) -> Option<&ProtectionDomain> {
        match self {
            Parents::Queues { pd, .. } => Some(pd),
            Parents::Target(_) => None,
        }
    }

    /// Of sends and of receives.
    fn cqs(&self) -> Option<(&CompletionQueueHandle, &CompletionQueueHandle)> {
        match self {
            Parents::Queues { send_cq, receive_cq, .. } => Some((send_cq, receive_cq)),
            Parents::Target(_) => None,
        }
    }
}

/// Why a queue pair of a transport that has queues has what belongs to them.
const MADE_WITH: &str = "made with a protection domain and CQs";

// SAFETY: libibverbs allows calls on one QP from several threads; the flags are atomic.
unsafe impl Send for QpInner {}
// SAFETY: libibverbs allows calls on one QP from several threads at once, and what this crate keeps
// beside it is atomic.
unsafe impl Sync for QpInner {}

impl Drop for QpInner {
    fn drop(&mut self) {
        // SAFETY: created by this crate, destroyed once, here, while PD and CQs live; the direct
        // path held an Arc of it and is gone.
        let result = unsafe { ibv_destroy_qp(self.qp.as_ptr()) };
        self.destroyed.store(result == 0, Ordering::Release);
    }
}

impl<T: Transport, S: State> QueuePair<T, S> {
    fn from_inner(inner: Arc<QpInner>) -> QueuePair<T, S> {
        QueuePair { inner, marker: PhantomData }
    }

    /// Returns its number, which the peer addresses. 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.number.load(Ordering::Relaxed)
    }

    /// What its queues hold, which is at least what was asked for.
    pub fn capacities(&self) -> Capacities {
        self.inner.capacities
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.parents.context()
    }

    /// Returns the shared receive queue that it was made with.
    pub fn shared_receive_queue(&self) -> Option<&SharedReceiveQueue> {
        self.inner.shared_receives.as_ref()
    }

    /// What keeps the queue pair alive.
    pub fn handle(&self) -> QueuePairHandle {
        QueuePairHandle { inner: Arc::clone(&self.inner) }
    }

    /// Returns the domain of the memory that its requests may name; none of answering ends of extended
    /// reliable connections.
    pub(crate) fn domain(&self) -> Option<DomainId> {
        self.inner.parents.pd().map(ProtectionDomain::id)
    }

    /// Returns the queue pair, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_qp> {
        self.inner.qp
    }
}

impl<T: HasQueues, S: State> QueuePair<T, S> {
    /// Returns the domain it belongs to.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.inner.parents.pd().expect(MADE_WITH)
    }

    /// Returns the queue that its send completions go to.
    pub fn send_cq(&self) -> &CompletionQueueHandle {
        self.inner.parents.cqs().expect(MADE_WITH).0
    }

    /// Returns the queue that its receive completions go to.
    pub fn receive_cq(&self) -> &CompletionQueueHandle {
        self.inner.parents.cqs().expect(MADE_WITH).1
    }
}

impl QueuePairHandle {
    /// Returns the queue pair. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_qp> {
        self.inner.qp
    }

    /// Returns its number.
    pub fn number(&self) -> u32 {
        self.inner.number.load(Ordering::Relaxed)
    }

    /// What its queues hold.
    pub fn capacities(&self) -> Capacities {
        self.inner.capacities
    }

    /// Returns the state the program moved it to last. One load; the HCA may have moved it to ERROR since.
    pub fn state(&self) -> QpState {
        QpState::from_code(self.inner.state.load(Ordering::Acquire))
    }

    /// Returns the queue that its send completions go to; none of an answering end of extended reliable
    /// connections.
    pub fn send_cq(&self) -> Option<&CompletionQueueHandle> {
        self.inner.parents.cqs().map(|cqs| cqs.0)
    }

    /// Returns the queue that its receive completions go to; none of an answering end of extended reliable
    /// connections.
    pub fn receive_cq(&self) -> Option<&CompletionQueueHandle> {
        self.inner.parents.cqs().map(|cqs| cqs.1)
    }

    /// Set when the queue pair is destroyed.
    pub(crate) fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inner.destroyed)
    }

    /// Who writes to its queues on the direct path.
    pub(crate) fn claims(&self) -> &Claims {
        &self.inner.claims
    }
}

impl<T: Transport, S: State> fmt::Debug for QueuePair<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("transport", &T::NAME)
            .field("state", &S::STATE)
            .field("number", &format_args!("{:#x}", self.number()))
            .field("capacities", &self.capacities())
            .finish()
    }
}

impl fmt::Debug for QueuePairHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairHandle")
            .field("number", &format_args!("{:#x}", self.number()))
            .field("state", &self.state())
            .finish()
    }
}
