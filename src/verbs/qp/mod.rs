//! Queue pairs. The type names the transport and the state to which the program moved the pair. A
//! transition consumes one type and returns the next ([`State`]). The attribute structures hold
//! what each transition needs ([`InitAttributes`], [`RtrAttributes`], [`RtsAttributes`], and those
//! of unreliable transports). They are checked before the call, where libibverbs would only report
//! EINVAL.

mod address;
mod attributes;
mod builder;
mod claims;
mod connected;
mod dynamic;
mod multicast;
mod query;
mod raw;
mod state;
mod transition;
mod unreliable;
mod xrc;

pub use address::{AddressVector, AlternatePath, GlobalRoute};
pub(crate) use attributes::{Attributes, check_24_bits, check_mtu, check_pkey};
pub use attributes::{InitAttributes, RtrAttributes, RtsAttributes};
pub use builder::{Capacities, QueuePairBuilder, ScatterToCqe};
pub(crate) use claims::Claims;
pub use connected::Connected;
pub use dynamic::{DciInitAttributes, DciStreams, DctRtrAttributes};
pub use multicast::MulticastMembership;
pub use query::{MigrationState, QueuePairAttributes};
pub use state::{CanReceive, Errored, Init, QpState, Reset, Rtr, Rts, State};
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
use super::{CompletionQueueHandle, Context, ProtectionDomain, SharedReceiveQueue, XrcDomain};
use crate::ib::{HasQueues, Transport};
use crate::ring::source::DomainId;

/// A queue pair of transport `T` that the program has moved to state `S`.
///
/// The HCA moves a pair to ERROR by itself when a request fails. The type still names the state
/// that the program set, and [`query`](Self::query) returns the present state.
pub struct QueuePair<T: Transport, S: State> {
    inner: Arc<QpInner>,
    marker: PhantomData<fn() -> (T, S)>,
}

/// Keeps a queue pair alive in any state. Clones are cheap.
#[derive(Clone)]
pub struct QueuePairHandle {
    inner: Arc<QpInner>,
}

struct QpInner {
    qp: NonNull<ibv_qp>,
    /// A target of dynamic connections gets its number on the way to RTR.
    number: AtomicU32,
    capacities: Capacities,
    state: AtomicU8,
    /// The claims of the direct path on its queues.
    claims: Claims,
    /// Set when the pair is destroyed, so that no completion is expected any more.
    destroyed: Arc<AtomicBool>,
    /// The parent domain of a pair with a thread domain or an allocator; freed after the pair.
    _parent: Option<ParentDomain>,
    parents: Parents,
    shared_receives: Option<SharedReceiveQueue>,
}

/// The objects that a queue pair belongs to.
enum Parents {
    /// The parents of all queue pairs except XRC targets.
    Queues {
        pd: ProtectionDomain,
        send_cq: CompletionQueueHandle,
        receive_cq: CompletionQueueHandle,
    },
    /// The parent of an XRC target.
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

    /// Returns the CQs of sends and of receives.
    fn cqs(&self) -> Option<(&CompletionQueueHandle, &CompletionQueueHandle)> {
        match self {
            Parents::Queues { send_cq, receive_cq, .. } => Some((send_cq, receive_cq)),
            Parents::Target(_) => None,
        }
    }
}

/// Panic text: queue pairs of a transport with queues always have a protection domain and CQs.
const MADE_WITH: &str = "made with a protection domain and CQs";

// SAFETY: libibverbs allows calls on one QP from several threads; the flags are atomic.
unsafe impl Send for QpInner {}
// SAFETY: libibverbs allows calls on one QP from several threads at once, and the other fields that
// change are synchronized.
unsafe impl Sync for QpInner {}

impl Drop for QpInner {
    fn drop(&mut self) {
        // SAFETY: this crate created the QP and destroys it once, here, while PD and CQs are alive.
        // The direct path held an Arc of it and is gone.
        let result = unsafe { ibv_destroy_qp(self.qp.as_ptr()) };
        self.destroyed.store(result == 0, Ordering::Release);
    }
}

impl<T: Transport, S: State> QueuePair<T, S> {
    fn from_inner(inner: Arc<QpInner>) -> QueuePair<T, S> {
        QueuePair { inner, marker: PhantomData }
    }

    /// Returns its number, by which the peer addresses it. 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.number.load(Ordering::Relaxed)
    }

    /// Returns the capacities of its queues: at least the requested ones.
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

    /// Returns a handle that keeps the queue pair alive.
    pub fn handle(&self) -> QueuePairHandle {
        QueuePairHandle { inner: Arc::clone(&self.inner) }
    }

    /// Returns the domain of the memory that its requests may name; `None` for XRC targets.
    pub(crate) fn domain(&self) -> Option<DomainId> {
        self.inner.parents.pd().map(ProtectionDomain::id)
    }

    /// Returns the queue pair, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_qp> {
        self.inner.qp
    }
}

impl<T: HasQueues, S: State> QueuePair<T, S> {
    /// Returns its protection domain.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.inner.parents.pd().expect(MADE_WITH)
    }

    /// Returns the CQ of its sends.
    pub fn send_cq(&self) -> &CompletionQueueHandle {
        self.inner.parents.cqs().expect(MADE_WITH).0
    }

    /// Returns the CQ of its receives.
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

    /// Returns the capacities of its queues.
    pub fn capacities(&self) -> Capacities {
        self.inner.capacities
    }

    /// Returns the state to which the program moved it last. One load; the HCA may have moved it to
    /// ERROR since.
    pub fn state(&self) -> QpState {
        QpState::from_code(self.inner.state.load(Ordering::Acquire))
    }

    /// Returns the CQ of its sends; `None` for XRC targets.
    pub fn send_cq(&self) -> Option<&CompletionQueueHandle> {
        self.inner.parents.cqs().map(|cqs| cqs.0)
    }

    /// Returns the CQ of its receives; `None` for XRC targets.
    pub fn receive_cq(&self) -> Option<&CompletionQueueHandle> {
        self.inner.parents.cqs().map(|cqs| cqs.1)
    }

    /// Set when the queue pair is destroyed.
    pub(crate) fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.inner.destroyed)
    }

    /// Returns the claims of the direct path on its queues.
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
