//! Queue pairs that are made by command: as those of verbs, in types, states and what moves them,
//! with more to choose.
//!
//! [`QueuePairBuilder`] makes them (`builder`), with rings that `shape` lays out; `transition` moves
//! them, by the attributes that verbs take, which `context` puts into the HCA's words and reads back
//! from them. `path` has addresses, `source` is how rings take them over.

mod builder;
mod context;
mod dynamic;
mod path;
mod shape;
mod source;
mod transition;
mod xrc;

pub use builder::QueuePairBuilder;
pub use transition::TransitionError;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use mlx5_sys::ifc::{Field, cmd_hca_cap, opcode, query_qp_in, query_qp_out};

use self::shape::Geometry;
use super::umem::Memory;
use super::{Command, Object, QueueCounters, Uar};
use crate::ib::{Dci, Rc, Transport, Uc, Ud, XrcRecv, XrcSend};
use crate::ring::source::{CqObject, CqOwner, ObjectId, SrqOwner};
use crate::verbs::{
    Capacities, Claims, Context, DomainId, QpState, QueuePairAttributes, Result, State,
};

mod sealed {
    use mlx5_sys::ifc::Field;

    /// What commands call a transport.
    pub trait Service {
        /// The context's `st`.
        const ST: u8;
        /// 16-byte units of the largest request that its rings are made for, before entries or inline
        /// data: control, addresses, and the operands of an atomic.
        const UNITS_BEFORE_DATA: u32;
        /// What the HCA must have for it, besides reliable connections and datagrams.
        const CAPABILITY: Option<Field> = None;
    }
}
pub(crate) use sealed::Service;

/// A transport whose queue pairs can be made by command.
#[diagnostic::on_unimplemented(
    message = "queue pairs of transport `{Self}` are not made so",
    note = "targets of dynamic connections are `devx::DcTarget`, and frames of Ethernet have queues \
            of their own"
)]
pub trait ByCommand: Transport + Service {}

macro_rules! services {
    ($($transport:ident = $st:literal, $units:literal $(, $capability:ident)?;)*) => {$(
        impl Service for $transport {
            const ST: u8 = $st;
            const UNITS_BEFORE_DATA: u32 = $units;
            $(const CAPABILITY: Option<Field> = Some(cmd_hca_cap::$capability);)?
        }
        impl ByCommand for $transport {}
    )*};
}

services! {
    Rc = 0, 3;
    Uc = 1, 2;
    Ud = 2, 4;
    XrcSend = 3, 4, XRC;
    XrcRecv = 3, 1, XRC;
    Dci = 5, 6, DCT;
}

/// A queue pair of transport `T` that was made by CREATE_QP, and that the program has moved to state
/// `S`: [`verbs::QueuePair`](crate::verbs::QueuePair) in all but what makes it.
///
/// A move consumes it, and gives it back, unchanged, inside the error when the HCA refuses. Peers
/// cannot tell it from one of verbs. Its asynchronous events do not come to the context's event file.
pub struct QueuePair<T: Transport, S: State> {
    inner: Arc<QpInner>,
    marker: PhantomData<fn() -> (T, S)>,
}

/// What is behind it.
struct QpInner {
    /// There until it is dropped.
    object: Option<Object>,
    number: u32,
    /// `st` of its context.
    service: u8,
    capacities: Capacities,
    signal_all: bool,
    /// Whether its send queue has no doorbell record.
    recordless: bool,
    /// What the peer may do, as last said (`ibv_access_flags`).
    access: AtomicU32,
    state: AtomicU8,
    claims: Claims,
    /// Set when it is destroyed, so that it completes nothing any more.
    destroyed: Arc<AtomicBool>,
    geometry: Geometry,
    send_cq: (CqObject, Arc<dyn CqOwner>),
    receive_cq: (CqObject, Arc<dyn CqOwner>),
    /// What it takes its receives from, if not from a ring of its own.
    shared: Option<(ObjectId, Arc<dyn SrqOwner>)>,
    uar: Uar,
    /// What it counts in from INIT on.
    counters: Option<QueueCounters>,
    /// Where it lies, longer than the HCA knows it.
    memory: Memory,
    /// Its protection domain.
    pd: DomainId,
    /// What keeps that alive.
    _pd: Box<dyn std::any::Any + Send + Sync>,
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        // One that the HCA does not let go of is left to the end of its context.
        self.destroyed.store(object.destroy().is_ok(), Ordering::Release);
    }
}

impl QpInner {
    fn object(&self) -> &Object {
        self.object.as_ref().expect("it goes with the queue pair")
    }

    /// Its context, as the HCA shows it. QUERY_QP.
    fn query(&self) -> Result<Vec<u8>> {
        let query = Command::new(opcode::QUERY_QP, query_qp_in::SIZE)
            .set(query_qp_in::QPN, self.number)
            .reply(query_qp_out::SIZE);
        Ok(self.object().query(&query)?.bytes(query_qp_out::QPC).to_vec())
    }
}

impl<T: Transport, S: State> QueuePair<T, S> {
    fn from_inner(inner: Arc<QpInner>) -> QueuePair<T, S> {
        QueuePair { inner, marker: PhantomData }
    }

    /// Its number, which the peer addresses. 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// What its queues hold, which is at least what was asked for.
    pub fn capacities(&self) -> Capacities {
        self.inner.capacities
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        self.inner.object().context()
    }

    /// The register that it rings.
    pub fn uar(&self) -> &Uar {
        &self.inner.uar
    }

    /// Where its rings lie: that of receives, and behind it, from so many bytes on, that of sends. They
    /// stay there as long as the queue pair; what is in them is its queues' own.
    pub fn rings(&self) -> (std::ptr::NonNull<u8>, usize) {
        (self.inner.memory.ring.start(), self.inner.geometry.sends_at())
    }

    /// Its doorbell record, of eight bytes. It stays there as long as the queue pair.
    pub fn record(&self) -> std::ptr::NonNull<u8> {
        self.inner.memory.record.start()
    }

    /// The state the program moved it to last. One load; the HCA may have moved it to ERROR since.
    pub fn state(&self) -> QpState {
        QpState::from_code(self.inner.state.load(Ordering::Acquire))
    }

    /// What the HCA says of it now. QUERY_QP.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    pub fn query(&self) -> Result<QueuePairAttributes> {
        let qpc = self.inner.query()?;
        let ethernet = path::is_ethernet(self.context(), &qpc)?;
        Ok(context::attributes(&qpc, ethernet, self.inner.capacities, self.inner.signal_all))
    }

    /// Its context as the HCA shows it, laid out as [`qpc`](super::ifc::qpc). QUERY_QP.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    pub fn query_context(&self) -> Result<Vec<u8>> {
        self.inner.query()
    }

    /// The object, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        self.inner.object()
    }
}

impl<T: Transport, S: State> fmt::Debug for QueuePair<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("transport", &T::NAME)
            .field("state", &S::STATE)
            .field("number", &format_args!("{:#x}", self.number()))
            .field("capacities", &self.capacities())
            .field("uar", self.uar())
            .finish()
    }
}
