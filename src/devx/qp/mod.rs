//! Queue pairs that are made by firmware command. Type, states, transitions and builder are those
//! of [`verbs`](crate::verbs), with more options.
//!
//! `builder` has the options and makes them, with rings that `shape` lays out. `change` applies
//! transitions. `context` encodes attributes in the fields of the HCA and decodes them. `path`
//! handles addresses. `target` has targets of dynamic connections, which the HCA does not make by
//! CREATE_QP.

mod builder;
mod change;
mod context;
mod failure;
mod path;
mod shape;
mod target;

pub use failure::QueuePairFailure;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use mlx5_sys::doorbell::UAR_RECORDLESS;
use mlx5_sys::ifc::{Field, cmd_hca_cap, opcode, query_qp_in, query_qp_out};
use mlx5_sys::verbs::ibv_qp;

use self::shape::Geometry;
use super::umem::Memory;
use super::{Command, Firmware, Object, QueueCounters, Uar};
use crate::error::{CommandError, Error, QueueError, Result};
use crate::ib::{Dci, Rc, Receives, Transport, TransportKind, Uc, Ud, XrcRecv, XrcSend};
use crate::ring::ReceiveSource;
use crate::ring::source::{
    CompletionOrder, CqObject, CqOwner, DomainId, Member, ObjectId, POSTABLE, ReceiveIndex,
    ReceiveView, SENDABLE, SendView, SrqOwner, require,
};
use crate::verbs::{
    CanReceive, Change, Context, Makes, Pair, PairObject, QueuePair, QueuePairAttributes, State,
};
use crate::wqe::Limits;

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
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::devx::{ByCommand, Firmware};
/// use mlx5::ib::{Rc, Receives};
/// use mlx5::verbs::{CompletionQueue, ProtectionDomain, QueuePair, QueuePairBuilder, Reset};
///
/// /// A queue pair of any such transport, with a CQ of its own.
/// fn make<T: ByCommand + Receives>(
///     pd: &ProtectionDomain,
/// ) -> mlx5::Result<QueuePair<T, Reset, Firmware>> {
///     let cq = CompletionQueue::by_command(pd.context(), 128).build()?;
///     QueuePairBuilder::<T, _>::by_command(pd, &cq).build()
/// }
/// assert!(make::<Rc>(&pd)?.number() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "queue pairs of transport `{Self}` are not made by CREATE_QP",
    note = "`QueuePair::dc_target_by_command` makes targets of dynamic connections, which take \
            receives from RTR on",
    note = "Ethernet frames have `devx::Sq` and `devx::Rq`"
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

impl<T: ByCommand> Makes<T> for Firmware {}

/// A queue pair that was made by CREATE_QP, with the objects that it uses.
pub struct CommandPair {
    /// `Some` until it is destroyed.
    object: Option<Object>,
    /// `st` of its context.
    service: u8,
    signal_all: bool,
    /// The user index in its CQEs.
    user_index: u32,
    /// The order in which its requests complete.
    order: CompletionOrder,
    /// Whether its send queue has no doorbell record.
    recordless: bool,
    /// The rights of the peer, as last set (`ibv_access_flags`).
    access: AtomicU32,
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

impl CommandPair {
    fn object(&self) -> &Object {
        self.object.as_ref().expect("it goes with the queue pair")
    }
}

/// Returns the context of a queue pair, as the HCA reports it. QUERY_QP.
fn query(pair: &Pair<CommandPair>) -> Result<Vec<u8>> {
    let query = Command::new(opcode::QUERY_QP, query_qp_in::SIZE)
        .set(query_qp_in::QPN, pair.number())
        .reply(query_qp_out::SIZE);
    Ok(pair.object.object().query(&query)?.bytes(query_qp_out::QPC).to_vec())
}

/// Converts the error of a query of the state.
fn query_error(refused: &CommandError) -> QueueError {
    QueueError::QueryRefused { status: refused.status(), syndrome: refused.syndrome() }
}

impl PairObject for CommandPair {
    fn context(&self) -> &Context {
        self.object().context()
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        None
    }

    fn change(pair: &Pair<Self>, change: Change) -> Result<()> {
        change::apply(pair, change)
    }

    unsafe fn reset(pair: &Pair<Self>) -> Result<()> {
        // SAFETY: the caller guarantees that queues that own the rings post nothing before their
        // restart.
        unsafe { change::reset(pair) }
    }

    fn resume(pair: &Pair<Self>) -> Result<()> {
        change::resume(pair)
    }

    fn attributes(pair: &Pair<Self>, _: TransportKind) -> Result<QueuePairAttributes> {
        let qpc = query(pair)?;
        let ethernet = path::is_ethernet(pair.object.context(), &qpc)?;
        Ok(context::attributes(&qpc, ethernet, pair.capacities(), pair.object.signal_all))
    }

    fn state(pair: &Pair<Self>) -> Result<u32, QueueError> {
        match query(pair) {
            Ok(qpc) => Ok(context::state(&qpc).raw()),
            Err(Error::Refused(refused)) => Err(query_error(&refused)),
            Err(error) => Err(QueueError::QueryQp(error.errno().map_or(0, |errno| errno.0))),
        }
    }

    fn destroy(&mut self) -> bool {
        // A queue pair that the HCA does not destroy stays until its context is closed.
        self.object.take().is_some_and(|object| object.destroy().is_ok())
    }

    fn domain(&self) -> Option<DomainId> {
        Some(self.pd)
    }

    fn sends<T: Transport>(pair: &Pair<Self>) -> Result<SendView> {
        require(Self::state(pair)?, &SENDABLE, "RTS")?;
        let object = &pair.object;
        if object.geometry.sends.is_none() {
            return Err(QueueError::NoQueue.into());
        }
        let capacities = pair.capacities();
        Ok(SendView {
            // SAFETY: the offset is within the ring.
            buffer: unsafe { object.memory.ring.start().add(object.geometry.sends_at()) },
            blocks: object.geometry.sends.entries(),
            record: object.memory.record.start().cast(),
            register: match object.recordless {
                false => object.uar.register(),
                // SAFETY: the offset is within the page.
                true => unsafe { object.uar.page().add(UAR_RECORDLESS) },
            },
            half: if object.recordless { 0 } else { object.uar.blue_flame() },
            memory: object.uar.memory(),
            recordless: object.recordless,
            number: pair.number(),
            limits: Limits {
                max_sge: capacities.max_send_sge,
                max_inline: capacities.max_inline_data,
                max_packets: 0,
            },
            max_wr: capacities.max_send_wr,
            signal_all: object.signal_all,
            order: object.order,
            cq: object.send_cq.0,
            partner: object.on_one_cq(object.geometry.receives.entries()),
        })
    }

    fn receives(pair: &Pair<Self>) -> Result<ReceiveView> {
        require(Self::state(pair)?, &POSTABLE, "INIT or later")?;
        let object = &pair.object;
        if object.geometry.receives.is_none() {
            return Err(QueueError::NoQueue.into());
        }
        Ok(ReceiveView {
            buffer: object.memory.ring.start(),
            entries: object.geometry.receives.entries(),
            stride: object.geometry.receives.stride(),
            record: object.memory.record.start().cast(),
            number: pair.number(),
            cq: object.receive_cq.0,
            index: ReceiveIndex::Given(object.user_index),
            partner: object.on_one_cq(pair.capacities().max_send_wr),
        })
    }

    fn member(pair: &Pair<Self>) -> Member {
        let srq = pair.object.shared.as_ref().map(|(srq, _)| *srq);
        let index = ReceiveIndex::Given(pair.object.user_index);
        Member { number: pair.number(), cq: pair.object.receive_cq.0, index, srq }
    }
}

impl CommandPair {
    /// Returns `entries` if both queues complete on one CQ, otherwise 0.
    fn on_one_cq(&self, entries: u32) -> u32 {
        if self.send_cq.0 == self.receive_cq.0 { entries } else { 0 }
    }
}

impl<T: Receives + ByCommand, S: CanReceive> ReceiveSource for QueuePair<T, S, Firmware> {
    type Transport = T;
}

impl<T: ByCommand, S: State> QueuePair<T, S, Firmware> {
    /// Returns the UAR that it rings.
    pub fn uar(&self) -> &Uar {
        &self.pair().object.uar
    }

    /// Returns the address of its rings, and the offset of the send ring behind the receive ring,
    /// in bytes. They stay there as long as the queue pair. Only its queues access their contents.
    pub fn rings(&self) -> (NonNull<u8>, usize) {
        let object = &self.pair().object;
        (object.memory.ring.start(), object.geometry.sends_at())
    }

    /// Returns the address of its doorbell record (8 bytes). It stays there as long as the queue
    /// pair.
    pub fn record(&self) -> NonNull<u8> {
        self.pair().object.memory.record.start()
    }

    /// Returns the context as the HCA reports it, laid out as [`qpc`](super::ifc::qpc). QUERY_QP.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query_context(&self) -> Result<Vec<u8>> {
        query(self.pair())
    }

    /// Returns the object, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        self.pair().object.object()
    }
}
