//! The part of a queue pair that belongs to a back end, and the part that all have in common.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use mlx5_sys::verbs::{ibv_qp, ibv_qp_attr};

use super::{Capacities, Claims, QpState, QueuePair, QueuePairAttributes, QueuePairBuilder, State};
use crate::error::{QueueError, Result};
use crate::ib::{Access, Transport, TransportKind};
use crate::ring::source::{
    DomainId, Member, ObjectId, QueueOwner, ReceiveView, Retained, SendView, WorkQueue,
};
use crate::verbs::{Backend, Context, Failed, Reset, Rts, Zeroed};

/// A back end that makes queue pairs of transport `T`: [`Verbs`](crate::expert::Verbs), or
/// [`Firmware`](crate::devx::Firmware).
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::ib::Rc;
/// use mlx5::expert::Makes;
/// use mlx5::verbs::{QueuePair, QueuePairBuilder};
///
/// /// By verbs or by firmware command.
/// fn number<B: Makes<Rc>>(builder: QueuePairBuilder<Rc, B>) -> mlx5::Result<u32> {
///     Ok(builder.max_send_wr(4).build()?.number())
/// }
/// assert!(number(QueuePair::builder(&pd, &cq))? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "queue pairs of transport `{T}` are not made by `{Self}`",
    note = "raw packet queue pairs are made by verbs alone; by firmware command, packets have \
            queues of their own, `devx::Sq` and `devx::Rq`"
)]
pub trait Makes<T: Transport>: Backend + PairMaker<T> {}

/// The types by which a back end makes queue pairs of a transport.
pub trait PairMaker<T: Transport>: Sized + Send + Sync + 'static {
    /// Its part of a queue pair.
    type Object: PairObject;
    /// Its part of the builder.
    type Options;

    /// Creates a queue pair, in state RESET.
    fn build(builder: QueuePairBuilder<T, Self>) -> Result<QueuePair<T, Reset, Self>>
    where
        Self: Makes<T>;
}

/// A back end's part of a queue pair.
pub trait PairObject: Send + Sync + Sized + 'static {
    /// Returns the device.
    fn context(&self) -> &Context;

    /// Returns the queue pair of libibverbs, if it is one.
    fn as_raw(&self) -> Option<NonNull<ibv_qp>>;

    /// Applies a change to the queue pair. The change does not lead to RESET.
    fn change(pair: &Pair<Self>, change: Change) -> Result<()>;

    /// Moves the queue pair to RESET.
    ///
    /// # Safety
    /// Queues that own its rings post nothing before they have been restarted.
    unsafe fn reset(pair: &Pair<Self>) -> Result<()>;

    /// Moves the queue pair from SQE to RTS.
    fn resume(pair: &Pair<Self>) -> Result<()>;

    /// Queries the attributes.
    fn attributes(pair: &Pair<Self>, kind: TransportKind) -> Result<QueuePairAttributes>;

    /// Queries the state (`enum ibv_qp_state`).
    fn state(pair: &Pair<Self>) -> Result<u32, QueueError>;

    /// Destroys the queue pair, once, and returns whether it is gone.
    fn destroy(&mut self) -> bool;

    /// Returns the domain of the memory that its requests may name, if it has queues.
    fn domain(&self) -> Option<DomainId>;

    /// Returns the send queue's addresses and parameters, if it is ready to send.
    fn sends<T: Transport>(pair: &Pair<Self>) -> Result<SendView>;

    /// Returns the receive queue's addresses and parameters, if it is the pair's own.
    fn receives(pair: &Pair<Self>) -> Result<ReceiveView>;

    /// Returns how completions of a shared receive queue name the queue pair.
    fn member(pair: &Pair<Self>) -> Member;
}

/// A queue pair in any state and of any transport.
pub struct Pair<O: PairObject> {
    /// A target of dynamic connections gets its number on the way to RTR.
    number: AtomicU32,
    capacities: Capacities,
    state: AtomicU8,
    /// The claims of the direct path on its queues.
    pub(super) claims: Claims,
    /// Set when the pair is destroyed, so that no completion is expected any more.
    destroyed: Arc<AtomicBool>,
    /// Memory of requests that the HCA may work on until the pair is reset or destroyed.
    pub(super) retained: Retained,
    pub(crate) object: O,
}

impl<O: PairObject> Pair<O> {
    /// Returns a new queue pair, which is in RESET.
    pub(crate) fn new(number: u32, capacities: Capacities, object: O) -> Pair<O> {
        Pair {
            number: AtomicU32::new(number),
            capacities,
            state: AtomicU8::new(QpState::Reset as u8),
            claims: Claims::default(),
            destroyed: Arc::default(),
            retained: Retained::default(),
            object,
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Sets the number, which a target of dynamic connections gets in RTR.
    pub(crate) fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }

    pub(crate) fn capacities(&self) -> Capacities {
        self.capacities
    }

    /// Returns the state to which the program moved it last.
    pub(crate) fn state(&self) -> QpState {
        QpState::from_code(self.state.load(Ordering::Acquire))
    }

    pub(super) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }
}

impl<O: PairObject> Drop for Pair<O> {
    fn drop(&mut self) {
        let gone = self.object.destroy();
        self.destroyed.store(gone, Ordering::Release);
        if gone {
            // SAFETY: the pair is destroyed, and no queue of it exists that could add memory.
            unsafe { self.retained.free() };
        }
    }
}

impl<O: PairObject> QueueOwner for Pair<O> {
    fn id(&self) -> ObjectId {
        // One queue pair of libibverbs has one identity, also where it is taken over as a pointer.
        self.object.as_raw().map_or_else(|| ObjectId::at(self), |qp| ObjectId::at(qp.as_ptr()))
    }

    fn claim(&self, queue: WorkQueue) -> Result<()> {
        self.claims.claim(queue)
    }

    fn release(&self, queue: WorkQueue, idle: bool) {
        self.claims.release(queue, idle);
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.destroyed)
    }

    fn state(&self) -> Result<u32, QueueError> {
        O::state(self)
    }

    fn resume(&self) -> Result<()> {
        O::resume(self)
    }

    fn fail(&self) -> Result<()> {
        let change = Change::to::<Rts, Failed>();
        O::change(self, Change { from: Self::state(self), ..change })
    }

    fn retain(&self, memory: Box<dyn Send>) {
        self.retained.add(memory);
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        self.object.as_raw()
    }
}

/// A transition other than to RESET, or a change of attributes in the present state.
pub struct Change {
    /// The present state.
    pub(crate) from: QpState,
    /// The next state; `None` if the state stays.
    pub(crate) to: Option<QpState>,
    /// The attributes in `mask`.
    pub(crate) attr: ibv_qp_attr,
    /// The bits of the attributes (`enum ibv_qp_attr_mask`).
    pub(crate) mask: u32,
    /// The rights that a peer of this transport can use.
    pub(crate) rights: Access,
}

impl Change {
    /// Returns the transition between two states, without attributes.
    pub(crate) fn to<From: State, To: State>() -> Change {
        Change { to: Some(To::STATE), ..Change::within::<From>() }
    }

    /// Returns a change in a state, without attributes.
    pub(crate) fn within<S: State>() -> Change {
        let attr = ibv_qp_attr::zeroed();
        Change { from: S::STATE, to: None, attr, mask: 0, rights: Access::empty() }
    }
}
