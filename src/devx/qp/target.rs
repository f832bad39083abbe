//! Targets of dynamic connections, made by command.
//!
//! CREATE_DCT passes all attributes of a target to the HCA at once. So, like a verbs target, it has
//! a number only from RTR on, and INIT stores attributes for RTR.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use mlx5_sys::ifc::{
    Field, arm_dct_in, atomic_caps, cmd_hca_cap, create_dct_in, create_dct_out, dctc, opcode,
    query_dct_in, query_dct_out,
};
use mlx5_sys::verbs::{ibv_qp, ibv_qp_attr, ibv_qp_init_attr};

use super::builder::NO_INDEX;
use super::{Firmware, query_error};
use crate::devx::domain::Domain;
use crate::devx::{Command, Object, Reply, atomic};
use crate::error::{Error, QueueError, Result};
use crate::ib::capability::Group;
use crate::ib::{Access, Dct, INTERNAL, Transport, TransportKind};
use crate::ring::source::{
    CqObject, CqOwner, DomainId, Member, ObjectId, ReceiveIndex, ReceiveView, SendView, SrqOwner,
};
use crate::ring::{CompletionSource, ReceiveSource, SharedReceiveSource};
use crate::verbs::{
    AddressVector, Capacities, Change, Context, Makes, Pair, PairMaker, PairObject, QpState,
    QueuePair, QueuePairAttributes, QueuePairBuilder, Reset, Rtr, ScatterToCqe, Zeroed,
};

/// `mlx5_ifc.h`, `MLX5_RES_SCAT_DATA64_CQE`
const SCATTER_64: u32 = 2;

/// A target that is made by CREATE_DCT on the way to RTR, with the objects that it uses.
pub struct TargetPair {
    /// Set from RTR on.
    object: OnceLock<Object>,
    /// The CQ and the shared receive queue of its receives.
    cq: (CqObject, Arc<dyn CqOwner>),
    srq: (ObjectId, Arc<dyn SrqOwner>),
    /// The user index in its CQEs.
    user_index: u32,
    /// The context fields that are known from the start.
    made_with: [(Field, u64); 6],
    /// The context fields that are known from INIT on.
    init: OnceLock<[(Field, u64); 6]>,
    /// Keeps the protection domain alive.
    _pd: Box<dyn Any + Send + Sync>,
    context: Context,
}

/// Options of a target by command.
pub struct TargetOptions {
    context: Context,
    pd: (u32, Box<dyn Any + Send + Sync>),
    cq: (CqObject, u32, Arc<dyn CqOwner>),
    srq: (ObjectId, u32, Arc<dyn SrqOwner>),
    user_index: u32,
}

impl Makes<Dct> for Firmware {}

impl QueuePair<Dct, Reset, Firmware> {
    /// Creates a builder for a target of dynamic connections by firmware command, in `pd`. Its
    /// receives come from `receives` and complete on `cq`, which may be made by verbs or by
    /// command. It accepts requests that carry `access_key`.
    ///
    /// # Errors
    /// [`Error::Queue`] if libmlx5 does not report the numbers of the queues; [`Error::Attribute`]
    /// for a shared receive queue of an XRC domain, or a queue of another opened device;
    /// [`Error::Call`] if the protection domain is not one of libmlx5.
    #[doc(alias = "MLX5_CMD_OP_CREATE_DCT")]
    pub fn dc_target_by_command<C: CompletionSource, Q: SharedReceiveSource>(
        pd: &dyn Domain,
        cq: &C,
        receives: &Q,
        access_key: u64,
    ) -> Result<QueuePairBuilder<Dct, Firmware>> {
        if !receives.is_plain() {
            return Err(Error::attribute(
                "shared receive queue",
                "one of an XRC domain",
                "requests name those themselves; a target takes from an ordinary one",
            ));
        }
        pd.context().require_same("completion queue", cq.device())?;
        pd.context().require_same("shared receive queue", receives.device())?;
        let view = cq.completions()?;
        let options = TargetOptions {
            context: pd.context().clone(),
            pd: (pd.number()?, pd.keep()),
            cq: (view.object, view.cqn, cq.owner(INTERNAL)),
            srq: (receives.id(), receives.number()?, receives.owner(INTERNAL)),
            user_index: NO_INDEX,
        };
        let mut builder = QueuePairBuilder::with(Capacities::NONE, options);
        builder.dynamic.access_key = access_key;
        Ok(builder)
    }
}

impl QueuePairBuilder<Dct, Firmware> {
    /// Sets the user index in its CQEs, 24 bits. Default: 0xff_ffff, which no queue has.
    pub fn user_index(mut self, index: u32) -> Self {
        self.options.user_index = index;
        self
    }
}

impl PairMaker<Dct> for Firmware {
    type Object = TargetPair;
    type Options = TargetOptions;

    /// No command: the HCA gets all attributes in RTR.
    fn build(builder: QueuePairBuilder<Dct, Self>) -> Result<QueuePair<Dct, Reset, Self>> {
        let TargetOptions { context, pd, cq, srq, user_index } = builder.options;
        let what = "a target of dynamic connections";
        context.capabilities().require(Group::General, cmd_hca_cap::DCT, what)?;
        let scatter = match builder.scatter_to_cqe {
            ScatterToCqe::Never => 0,
            ScatterToCqe::Receives | ScatterToCqe::Always => SCATTER_64,
        };
        let made_with = [
            (dctc::PD, pd.0.into()),
            (dctc::CQN, cq.1.into()),
            (dctc::SRQN_XRQN, srq.1.into()),
            (dctc::DC_ACCESS_KEY, builder.dynamic.access_key),
            (dctc::USER_INDEX, user_index.into()),
            (dctc::CS_RES, scatter.into()),
        ];
        let object = TargetPair {
            object: OnceLock::new(),
            cq: (cq.0, cq.2),
            srq: (srq.0, srq.2),
            user_index,
            made_with,
            init: OnceLock::new(),
            _pd: pd.1,
            context,
        };
        Ok(QueuePair::new(Pair::new(0, Capacities::NONE, object)))
    }
}

impl TargetPair {
    /// Stores the attributes of INIT.
    fn init(&self, attr: &ibv_qp_attr) -> Result<()> {
        let access = Access::from_bits_truncate(attr.qp_access_flags);
        let may = |right| u64::from(access.contains(right));
        let mode = match access.contains(Access::REMOTE_ATOMIC) {
            true => atomic::mode(&self.context, atomic_caps::ATOMIC_SIZE_DC)?,
            false => 0,
        };
        // It was not set before: no transition leads back to RESET.
        let _ = self.init.set([
            (dctc::PORT, attr.port_num.into()),
            (dctc::PKEY_INDEX, attr.pkey_index.into()),
            (dctc::RRE, may(Access::REMOTE_READ)),
            (dctc::RWE, may(Access::REMOTE_WRITE)),
            (dctc::RAE, may(Access::REMOTE_ATOMIC)),
            (dctc::ATOMIC_MODE, mode),
        ]);
        Ok(())
    }

    /// Passes all attributes to the HCA. CREATE_DCT.
    fn create(&self, attr: &ibv_qp_attr) -> Result<Object> {
        let address = AddressVector::from_raw(&attr.ah_attr);
        let route = address.global;
        let ethernet = self.context.port(address.port)?.is_ethernet();
        let priority = if ethernet { address.service_level & 7 } else { 0 };
        let known = self.made_with.iter().chain(self.init.get().into_iter().flatten()).copied();
        let command = Command::new(opcode::CREATE_DCT, create_dct_in::SIZE)
            .reply(create_dct_out::SIZE)
            .fields(create_dct_in::DCT_CONTEXT_ENTRY, known)
            .fields(
                create_dct_in::DCT_CONTEXT_ENTRY,
                [
                    (dctc::MIN_RNR_NAK, attr.min_rnr_timer.into()),
                    (dctc::MTU, attr.path_mtu),
                    (dctc::TCLASS, route.map_or(0, |route| route.traffic_class.into())),
                    (dctc::FLOW_LABEL, route.map_or(0, |route| route.flow_label)),
                    (dctc::MY_ADDR_INDEX, route.map_or(0, |route| route.sgid_index.into())),
                    (dctc::HOP_LIMIT, route.map_or(0, |route| route.hop_limit.into())),
                    (dctc::ETH_PRIO, priority.into()),
                ],
            );
        // SAFETY: `TargetPair` keeps all that the command names: domain, CQ and shared receive
        // queue. The target has no ring of its own, and peers reach only what keys of its domain
        // allow.
        unsafe { command.create(&self.context) }
    }
}

/// Returns the reply of QUERY_DCT.
fn query(pair: &Pair<TargetPair>) -> Result<Reply> {
    let object = pair.object.object.get().ok_or(QueueError::NoQueue)?;
    let command = Command::new(opcode::QUERY_DCT, query_dct_in::SIZE)
        .set(query_dct_in::DCTN, pair.number())
        .reply(query_dct_out::SIZE);
    object.query(&command)
}

/// Refuses a transition that targets do not have.
fn no_transition(from: QpState, to: &str) -> Error {
    let rule = format!("a target of dynamic connections in {from} does not go there");
    Error::attribute("state", to, rule)
}

impl PairObject for TargetPair {
    fn context(&self) -> &Context {
        &self.context
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        None
    }

    fn change(pair: &Pair<Self>, change: Change) -> Result<()> {
        match change.to {
            Some(QpState::Init) => pair.object.init(&change.attr),
            Some(QpState::Rtr) => {
                let object = pair.object.create(&change.attr)?;
                pair.set_number(object.reply().get(create_dct_out::DCTN) as u32);
                // It was not set before: no transition leads back to INIT.
                let _ = pair.object.object.set(object);
                Ok(())
            }
            to => Err(no_transition(change.from, &to.unwrap_or(change.from).to_string())),
        }
    }

    unsafe fn reset(pair: &Pair<Self>) -> Result<()> {
        Err(no_transition(pair.state(), "RESET"))
    }

    fn resume(_: &Pair<Self>) -> Result<()> {
        Err(QueueError::NoQueue.into())
    }

    fn attributes(pair: &Pair<Self>, _: TransportKind) -> Result<QueuePairAttributes> {
        let reply = query(pair)?;
        let get = |field: Field| reply.get(field.within(query_dct_out::DCT_CONTEXT_ENTRY)) as u32;
        let access = [
            (dctc::RWE, Access::REMOTE_WRITE),
            (dctc::RRE, Access::REMOTE_READ),
            (dctc::RAE, Access::REMOTE_ATOMIC),
        ];
        let access = access.into_iter().filter(|(field, _)| get(*field) == 1);
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = state(&reply).raw();
        attr.port_num = get(dctc::PORT) as u8;
        attr.pkey_index = get(dctc::PKEY_INDEX) as u16;
        attr.qp_access_flags = access.fold(0, |all, (_, right)| all | right.bits());
        attr.path_mtu = get(dctc::MTU);
        attr.min_rnr_timer = get(dctc::MIN_RNR_NAK) as u8;
        attr.ah_attr.port_num = attr.port_num;
        Ok(QueuePairAttributes::new(&attr, &ibv_qp_init_attr::zeroed()))
    }

    fn state(pair: &Pair<Self>) -> Result<u32, QueueError> {
        let reply = match query(pair) {
            Ok(reply) => reply,
            Err(Error::Refused(refused)) => return Err(query_error(&refused)),
            Err(_) => return Err(QueueError::NoQueue),
        };
        Ok(state(&reply).raw())
    }

    fn destroy(&mut self) -> bool {
        // A target that the HCA does not destroy stays until its context is closed. Its CQ and its
        // shared receive queue are dropped after it.
        self.object.take().is_some_and(|object| object.destroy().is_ok())
    }

    fn domain(&self) -> Option<DomainId> {
        None
    }

    fn sends<T: Transport>(_: &Pair<Self>) -> Result<SendView> {
        Err(QueueError::NoQueue.into())
    }

    fn receives(_: &Pair<Self>) -> Result<ReceiveView> {
        Err(QueueError::NoQueue.into())
    }

    fn member(pair: &Pair<Self>) -> Member {
        let TargetPair { cq, srq, user_index, .. } = &pair.object;
        let index = ReceiveIndex::Given(*user_index);
        Member { number: pair.number(), cq: cq.0, index, srq: Some(srq.0) }
    }
}

/// Returns the state of a target: RTR, or ERROR if it is draining or drained.
fn state(reply: &Reply) -> QpState {
    // `mlx5_ifc.h`, MLX5_DCTC_STATE_ACTIVE
    let active = reply.get(dctc::STATE.within(query_dct_out::DCT_CONTEXT_ENTRY)) == 0;
    if active { QpState::Rtr } else { QpState::Error }
}

/// Only from RTR on, because it has no number before.
impl ReceiveSource for QueuePair<Dct, Rtr, Firmware> {
    type Transport = Dct;
}

impl QueuePair<Dct, Rtr, Firmware> {
    /// Returns the reply of QUERY_DCT. One command.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn query_context(&self) -> Result<Reply> {
        query(self.pair())
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
        self.pair().object.object.get().expect("made in RTR")
    }
}
