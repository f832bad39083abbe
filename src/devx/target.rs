//! Targets of dynamic connections, made by command.
//!
//! CREATE_DCT passes all attributes of a target to the HCA at once. So, like a verbs target, it has
//! a number only from RTR on, and INIT stores attributes for RTR.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use mlx5_sys::ifc::{
    Field, arm_dct_in, atomic_caps, cmd_hca_cap, create_dct_in, create_dct_out, dctc, opcode,
    query_dct_in, query_dct_out,
};
use mlx5_sys::verbs::{ibv_qp, ibv_qp_state};

use super::domain::Domain;
use super::{Command, Object, Reply, atomic};
use crate::error::{Error, QueueError, Result};
use crate::ib::capability::Group;
use crate::ib::{Access, Dct};
use crate::ring::source::handover::Receives;
use crate::ring::source::{
    CqObject, CqOwner, DomainId, Member, ObjectId, QueueOwner, ReceiveView, SrqOwner, WorkQueue,
};
use crate::ring::{CompletionSource, ReceiveSource, SharedReceiveSource};
use crate::verbs::{CanReceive, Init, Reset, Rtr, State};
use crate::verbs::{Claims, Context, DctRtrAttributes, InitAttributes, check_mtu};

/// `mlx5_ifc.h`, `MLX5_RES_SCAT_DATA64_CQE`
const SCATTER_64: u32 = 2;

/// A target of dynamic connections, made by command, that the program has moved to state `S`.
/// Except for its creation, it is like [`verbs::QueuePair<Dct, S>`](crate::verbs::QueuePair).
///
/// A transition consumes it. If the HCA refuses, the error holds the unchanged target. Initiators
/// that were made by verbs can send to it, and initiators that were made by command can send to
/// verbs targets.
pub struct DcTarget<S: State = Reset> {
    inner: Arc<TargetInner>,
    state: PhantomData<fn() -> S>,
}

struct TargetInner {
    /// Set from RTR on.
    object: OnceLock<(Object, u32)>,
    /// The CQ and the shared receive queue of its receives.
    cq: (CqObject, Arc<dyn CqOwner>),
    srq: (ObjectId, Arc<dyn SrqOwner>),
    claims: Claims,
    /// Set when it is destroyed.
    destroyed: Arc<AtomicBool>,
    /// The context fields that are known so far.
    known: Vec<(Field, u64)>,
    /// Keeps the protection domain alive.
    _pd: Box<dyn Any + Send + Sync>,
    context: Context,
}

impl Drop for TargetInner {
    fn drop(&mut self) {
        let Some((object, _)) = self.object.take() else { return };
        // A target that the HCA does not destroy stays until its context is closed. Its CQ and its
        // shared receive queue are dropped after it.
        self.destroyed.store(object.destroy().is_ok(), Ordering::Release);
    }
}

/// A failed transition, with the target in its previous state.
pub struct TargetError<S: State> {
    /// The target.
    pub target: DcTarget<S>,
    /// The error.
    pub error: Error,
}

/// The target in its new state, or the unchanged target with the error.
type Moved<To, From> = std::result::Result<DcTarget<To>, TargetError<From>>;

/// Builder for [`DcTarget`].
#[derive(Clone)]
#[must_use = "nothing is made before build"]
pub struct DcTargetBuilder<'a> {
    pd: &'a dyn Domain,
    cq: (CqObject, u32, Arc<dyn CqOwner>),
    srq: (ObjectId, u32, Arc<dyn SrqOwner>),
    access_key: u64,
    user_index: u32,
    scatter_to_cqe: bool,
}

impl DcTarget {
    /// Creates a builder for a target in `pd`. Its receives come from `receives` and complete on
    /// `cq`, which may be made by verbs or by command. It accepts requests that carry `access_key`.
    ///
    /// # Errors
    /// [`Error::Queue`] if libmlx5 does not report the numbers of the queues; [`Error::Attribute`]
    /// for a shared receive queue of an XRC domain.
    pub fn builder<'a, C: CompletionSource, Q: SharedReceiveSource>(
        pd: &'a dyn Domain,
        cq: &C,
        receives: &Q,
        access_key: u64,
    ) -> Result<DcTargetBuilder<'a>> {
        if !receives.is_plain() {
            return Err(Error::attribute(
                "shared receive queue",
                "one of an XRC domain",
                "requests name those themselves; a target takes from an ordinary one",
            ));
        }
        let view = cq.completions()?;
        Ok(DcTargetBuilder {
            pd,
            cq: (view.object, view.cqn, cq.owner()),
            srq: (receives.id(), receives.number()?, receives.owner()),
            access_key,
            user_index: 0,
            scatter_to_cqe: false,
        })
    }
}

impl DcTargetBuilder<'_> {
    /// Sets the user index in its CQEs, 24 bits. Default: 0.
    pub fn user_index(mut self, index: u32) -> Self {
        self.user_index = index;
        self
    }

    /// Sets whether CQEs may carry messages of up to 64 bytes, which takes a CQ with CQEs of 128
    /// bytes. Default: no. If they may, every receive must name memory of this process at its own
    /// address, see [`ScatterToCqe`](crate::verbs::ScatterToCqe).
    pub fn scatter_to_cqe(mut self, scatter: bool) -> Self {
        self.scatter_to_cqe = scatter;
        self
    }

    /// Creates a target in state RESET, without a command to the HCA.
    ///
    /// # Errors
    /// [`Error::NoCapability`]; [`Error::Call`] if the protection domain is not one of libmlx5.
    pub fn build(self) -> Result<DcTarget> {
        let capabilities = self.pd.context().capabilities();
        let what = "a target of dynamic connections";
        capabilities.require(Group::General, cmd_hca_cap::DCT, what)?;
        let scatter = if self.scatter_to_cqe { SCATTER_64 } else { 0 };
        let known = vec![
            (dctc::PD, self.pd.number()?.into()),
            (dctc::CQN, self.cq.1.into()),
            (dctc::SRQN_XRQN, self.srq.1.into()),
            (dctc::DC_ACCESS_KEY, self.access_key),
            (dctc::USER_INDEX, self.user_index.into()),
            (dctc::CS_RES, scatter.into()),
        ];
        Ok(DcTarget::of(TargetInner {
            object: OnceLock::new(),
            cq: (self.cq.0, self.cq.2),
            srq: (self.srq.0, self.srq.2),
            claims: Claims::default(),
            destroyed: Arc::default(),
            known,
            _pd: self.pd.keep(),
            context: self.pd.context().clone(),
        }))
    }
}

impl<S: State> DcTarget<S> {
    fn of(inner: TargetInner) -> Self {
        Self { inner: Arc::new(inner), state: PhantomData }
    }

    /// Changes the state, and adds known context fields.
    fn knowing<To: State>(mut self, more: impl IntoIterator<Item = (Field, u64)>) -> DcTarget<To> {
        // No other owner has it before RTR.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.known.extend(more);
        }
        DcTarget { inner: self.inner, state: PhantomData }
    }

    /// Returns the number by which initiators name it; 0 before RTR.
    pub fn number(&self) -> u32 {
        self.inner.object.get().map_or(0, |(_, number)| *number)
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

impl DcTarget<Reset> {
    /// RESET to INIT: sets the port and the rights of initiators. No call: the HCA gets them in
    /// RTR.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`], [`Error::Attribute`], and the errors of querying the capabilities of
    /// atomics if peers may execute them.
    pub fn init(self, attributes: &InitAttributes) -> Moved<Init, Reset> {
        if let Err(error) = attributes.check(self.context()) {
            return Err(TargetError { target: self, error });
        }
        let may = |right| u64::from(attributes.access.contains(right));
        let atomics = may(Access::REMOTE_ATOMIC);
        let mode = match atomics {
            0 => Ok(0),
            _ => atomic::mode(self.context(), atomic_caps::ATOMIC_SIZE_DC),
        };
        let mode = match mode {
            Ok(mode) => mode,
            Err(error) => return Err(TargetError { target: self, error }),
        };
        Ok(self.knowing([
            (dctc::PORT, attributes.port.into()),
            (dctc::PKEY_INDEX, attributes.pkey_index.into()),
            (dctc::RRE, may(Access::REMOTE_READ)),
            (dctc::RWE, may(Access::REMOTE_WRITE)),
            (dctc::RAE, atomics),
            (dctc::ATOMIC_MODE, mode),
        ]))
    }
}

impl DcTarget<Init> {
    /// INIT to RTR: passes all attributes to the HCA by CREATE_DCT. From now on the target has a
    /// [number](Self::number), by which initiators find it.
    ///
    /// # Errors
    /// [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    /// [`Error::Attribute`], [`Error::Refused`].
    pub fn rtr(self, attributes: &DctRtrAttributes) -> Moved<Rtr, Init> {
        match self.create(attributes) {
            Ok(object) => {
                let number = object.reply().get(create_dct_out::DCTN) as u32;
                // It was not set before.
                let _ = self.inner.object.set((object, number));
                Ok(self.knowing([]))
            }
            Err(error) => Err(TargetError { target: self, error }),
        }
    }

    fn create(&self, attributes: &DctRtrAttributes) -> Result<Object> {
        let address = &attributes.address;
        let port = address.check(self.context())?;
        check_mtu(attributes.path_mtu, &port)?;
        let route = address.global;
        let priority = if port.is_ethernet() { address.service_level & 7 } else { 0 };
        let command = Command::new(opcode::CREATE_DCT, create_dct_in::SIZE)
            .reply(create_dct_out::SIZE)
            .fields(create_dct_in::DCT_CONTEXT_ENTRY, self.inner.known.iter().copied())
            .fields(
                create_dct_in::DCT_CONTEXT_ENTRY,
                [
                    (dctc::MIN_RNR_NAK, attributes.min_rnr_timer.code().into()),
                    (dctc::MTU, u32::from(attributes.path_mtu.code())),
                    (dctc::TCLASS, route.map_or(0, |route| route.traffic_class.into())),
                    (dctc::FLOW_LABEL, route.map_or(0, |route| route.flow_label)),
                    (dctc::MY_ADDR_INDEX, route.map_or(0, |route| route.sgid_index.into())),
                    (dctc::HOP_LIMIT, route.map_or(0, |route| route.hop_limit.into())),
                    (dctc::ETH_PRIO, priority.into()),
                ],
            );
        // SAFETY: `TargetInner` keeps all that the command names: domain, CQ and shared receive
        // queue. The target has no ring of its own, and peers reach only what keys of its domain
        // allow.
        unsafe { command.create(self.context()) }
    }
}

impl DcTarget<Rtr> {
    /// Returns the reply of QUERY_DCT. One command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query_context(&self) -> Result<Reply> {
        self.inner.query()
    }

    /// Returns how many requests with another key arrived. Requests no event. One command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn key_violations(&self) -> Result<u32> {
        let count = dctc::DC_ACCESS_KEY_VIOLATION_COUNT.within(query_dct_out::DCT_CONTEXT_ENTRY);
        Ok(self.query_context()?.get(count) as u32)
    }

    /// Requests one event for the next request with another key. One command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn arm_key_violation(&self) -> Result<()> {
        let command = Command::new(opcode::ARM_DCT_FOR_KEY_VIOLATION, arm_dct_in::SIZE)
            .set(arm_dct_in::DCT_NUMBER, self.number());
        // SAFETY: the command requests an event, and changes nothing else.
        unsafe { self.object().modify(&command) }.map(drop)
    }

    /// Returns the object, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        self.inner.object().expect("made in RTR")
    }
}

impl TargetInner {
    fn object(&self) -> Option<&Object> {
        self.object.get().map(|(object, _)| object)
    }

    fn query(&self) -> Result<Reply> {
        let (object, number) = self.object.get().ok_or(QueueError::NoQueue)?;
        let command = Command::new(opcode::QUERY_DCT, query_dct_in::SIZE)
            .set(query_dct_in::DCTN, *number)
            .reply(query_dct_out::SIZE);
        object.query(&command)
    }
}

/// Keeps a target alive, in any state.
struct TargetHandle(Arc<TargetInner>);

impl QueueOwner for TargetHandle {
    fn id(&self) -> ObjectId {
        ObjectId::at(Arc::as_ptr(&self.0))
    }

    fn claim(&self, queue: WorkQueue) -> Result<()> {
        self.0.claims.claim(queue)
    }

    fn release(&self, queue: WorkQueue, idle: bool) {
        self.0.claims.release(queue, idle);
    }

    fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.destroyed)
    }

    fn state(&self) -> std::result::Result<u32, QueueError> {
        let reply = match self.0.query() {
            Ok(reply) => reply,
            Err(Error::Refused(refused)) => {
                let (status, syndrome) = (refused.status(), refused.syndrome());
                return Err(QueueError::QueryRefused { status, syndrome });
            }
            Err(_) => return Err(QueueError::NoQueue),
        };
        // `mlx5_ifc.h`, MLX5_DCTC_STATE_ACTIVE; otherwise the target is draining or drained.
        let active = reply.get(dctc::STATE.within(query_dct_out::DCT_CONTEXT_ENTRY)) == 0;
        Ok(if active { ibv_qp_state::IBV_QPS_RTR } else { ibv_qp_state::IBV_QPS_ERR })
    }

    fn resume(&self) -> Result<()> {
        Err(QueueError::NoQueue.into())
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        None
    }
}

// SAFETY: a target has no receive queue of its own to hand over. It takes receives from a shared
// receive queue, and its owner keeps it alive.
unsafe impl<S: CanReceive> Receives for DcTarget<S> {
    fn owner(&self) -> Arc<dyn QueueOwner> {
        Arc::new(TargetHandle(Arc::clone(&self.inner)))
    }

    fn receives(&self) -> Result<ReceiveView> {
        Err(QueueError::NoQueue.into())
    }

    fn domain(&self) -> Option<DomainId> {
        None
    }

    fn member(&self) -> Member {
        Member { number: self.number(), cq: self.inner.cq.0, srq: Some(self.inner.srq.0) }
    }
}

/// Only from RTR on, because it has no number before.
impl ReceiveSource for DcTarget<Rtr> {
    type Transport = Dct;
}

impl<S: State> fmt::Debug for DcTarget<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DcTarget")
            .field("number", &format_args!("{:#x}", self.number()))
            .field("state", &S::STATE)
            .finish_non_exhaustive()
    }
}

impl<S: State> fmt::Debug for TargetError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<S: State> fmt::Display for TargetError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S: State> std::error::Error for TargetError<S> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
