//! Queue pairs that are made by firmware command. Types, states and transitions are those of verbs,
//! with more options.
//!
//! [`DevxQpBuilder`] makes them (`builder`), with rings that `shape` lays out. `transition`
//! changes their state, by the attributes that verbs take. `context` encodes these attributes in
//! the fields of the HCA and decodes them. `path` handles addresses. `source` lets rings take queue
//! pairs over.

mod builder;
mod context;
mod dynamic;
mod path;
mod shape;
mod source;
mod transition;
mod xrc;

pub use builder::DevxQpBuilder;
pub use transition::DevxTransitionError;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use mlx5_sys::ifc::{Field, cmd_hca_cap, opcode, query_qp_in, query_qp_out};

use self::shape::Geometry;
use super::umem::Memory;
use super::{Command, Object, QueueCounters, Uar};
use crate::error::Result;
use crate::ib::{Dci, Rc, Transport, Uc, Ud, XrcRecv, XrcSend};
use crate::ring::source::{CqObject, CqOwner, DomainId, ObjectId, SrqOwner};
use crate::verbs::{Capacities, Claims, Context, QpState, QueuePairAttributes, State};

mod sealed {
    use mlx5_sys::ifc::Field;

    /// A transport, as commands encode it.
    pub trait Service {
        /// The context's `st`.
        const ST: u8;
        /// Size of the largest request without its entries or inline data, in 16-byte units:
        /// control, addresses, and the operands of an atomic. Rings are made for it.
        const UNITS_BEFORE_DATA: u32;
        /// The capability that the HCA needs for it, besides reliable connections and datagrams.
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

/// A queue pair of transport `T`, made by CREATE_QP, that the program has moved to state `S`.
/// Except for its creation, it is like [`verbs::QueuePair`](crate::verbs::QueuePair).
///
/// A transition consumes it. If the HCA refuses, the error holds the unchanged queue pair. Peers
/// cannot tell it from a verbs queue pair. Its asynchronous events do not come to the context's
/// event file.
pub struct DevxQp<T: Transport, S: State> {
    inner: Arc<QpInner>,
    marker: PhantomData<fn() -> (T, S)>,
}

/// The shared state of a queue pair.
struct QpInner {
    /// `Some` until it is dropped.
    object: Option<Object>,
    number: u32,
    /// `st` of its context.
    service: u8,
    capacities: Capacities,
    signal_all: bool,
    /// Whether its send queue has no doorbell record.
    recordless: bool,
    /// The rights of the peer, as last set (`ibv_access_flags`).
    access: AtomicU32,
    state: AtomicU8,
    claims: Claims,
    /// Set when the queue pair is destroyed, so that no completion is expected any more.
    destroyed: Arc<AtomicBool>,
    geometry: Geometry,
    send_cq: (CqObject, Arc<dyn CqOwner>),
    receive_cq: (CqObject, Arc<dyn CqOwner>),
    /// The shared receive queue it takes receives from, unless it has a ring of its own.
    shared: Option<(ObjectId, Arc<dyn SrqOwner>)>,
    uar: Uar,
    /// The counters that it uses from INIT on.
    counters: Option<QueueCounters>,
    /// The memory of its rings and doorbell record. It is released after the HCA has destroyed the
    /// pair.
    memory: Memory,
    /// Its protection domain.
    pd: DomainId,
    /// Keeps the protection domain alive.
    _pd: Box<dyn std::any::Any + Send + Sync>,
}

impl Drop for QpInner {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        // A queue pair that the HCA does not destroy stays until its context is closed.
        self.destroyed.store(object.destroy().is_ok(), Ordering::Release);
    }
}

impl QpInner {
    fn object(&self) -> &Object {
        self.object.as_ref().expect("it goes with the queue pair")
    }

    /// Returns its context, as the HCA reports it. QUERY_QP.
    fn query(&self) -> Result<Vec<u8>> {
        let query = Command::new(opcode::QUERY_QP, query_qp_in::SIZE)
            .set(query_qp_in::QPN, self.number)
            .reply(query_qp_out::SIZE);
        Ok(self.object().query(&query)?.bytes(query_qp_out::QPC).to_vec())
    }
}

impl<T: Transport, S: State> DevxQp<T, S> {
    fn from_inner(inner: Arc<QpInner>) -> DevxQp<T, S> {
        DevxQp { inner, marker: PhantomData }
    }

    /// Returns its number, which the peer addresses. 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns the capacities of its queues: at least what was asked for.
    pub fn capacities(&self) -> Capacities {
        self.inner.capacities
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.object().context()
    }

    /// Returns the UAR that it rings.
    pub fn uar(&self) -> &Uar {
        &self.inner.uar
    }

    /// Returns the address of its rings, and the offset of the send ring behind the receive ring,
    /// in bytes. They stay there as long as the queue pair. Only its queues access their contents.
    pub fn rings(&self) -> (std::ptr::NonNull<u8>, usize) {
        (self.inner.memory.ring.start(), self.inner.geometry.sends_at())
    }

    /// Returns the address of its doorbell record (8 bytes). It stays there as long as the queue
    /// pair.
    pub fn record(&self) -> std::ptr::NonNull<u8> {
        self.inner.memory.record.start()
    }

    /// Returns the state to which the program moved it last. One load. The HCA may have moved it to
    /// ERROR since.
    pub fn state(&self) -> QpState {
        QpState::from_code(self.inner.state.load(Ordering::Acquire))
    }

    /// Returns the attributes that the HCA reports now. QUERY_QP.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    pub fn query(&self) -> Result<QueuePairAttributes> {
        let qpc = self.inner.query()?;
        let ethernet = path::is_ethernet(self.context(), &qpc)?;
        Ok(context::attributes(&qpc, ethernet, self.inner.capacities, self.inner.signal_all))
    }

    /// Returns the context as the HCA reports it, laid out as [`qpc`](super::ifc::qpc). QUERY_QP.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused).
    pub fn query_context(&self) -> Result<Vec<u8>> {
        self.inner.query()
    }

    /// Returns the object, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        self.inner.object()
    }
}

impl<T: Transport, S: State> fmt::Debug for DevxQp<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevxQp")
            .field("transport", &T::NAME)
            .field("state", &S::STATE)
            .field("number", &format_args!("{:#x}", self.number()))
            .field("capacities", &self.capacities())
            .field("uar", self.uar())
            .finish()
    }
}
