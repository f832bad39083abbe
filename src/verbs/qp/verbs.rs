//! Queue pairs that libibverbs makes.

use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::verbs::{
    ibv_destroy_qp, ibv_modify_qp, ibv_qp, ibv_qp_attr_mask as bit, ibv_qp_init_attr, ibv_query_qp,
};

use super::backend::{Change, Makes, Pair, PairObject};
use super::query;
use super::{QpState, QueuePair, QueuePairAttributes, State};
use crate::error::{Cause, Errno, Error, QueueError, Result, check};
use crate::ib::{Access, HasQueues, Transport, TransportKind};
use crate::ring::source::{
    CompletionOrder, DomainId, Member, QpView, ReceiveView, SendView, member, resume,
};
use crate::verbs::td::ParentDomain;
use crate::verbs::{
    CompletionQueue, Context, ProtectionDomain, SharedReceiveQueue, Verbs, XrcDomain, Zeroed,
    keep_from_children,
};

impl<T: Transport> Makes<T> for Verbs {}

/// A queue pair of libibverbs, with the objects that it uses.
pub struct VerbsPair {
    pub(super) qp: NonNull<ibv_qp>,
    /// The parent domain of a pair with a thread domain or an allocator; freed after the pair.
    pub(super) _parent: Option<ParentDomain>,
    pub(super) parents: Parents,
    pub(super) shared_receives: Option<SharedReceiveQueue>,
    /// The order in which its requests complete.
    pub(super) order: CompletionOrder,
}

/// The objects that a queue pair belongs to.
pub(super) enum Parents {
    /// The parents of all queue pairs except XRC targets.
    Queues { pd: ProtectionDomain, send_cq: CompletionQueue, receive_cq: CompletionQueue },
    /// The parent of an XRC target.
    Target(XrcDomain),
}

/// Panic text: queue pairs of a transport with queues always have a protection domain and CQs.
const MADE_WITH: &str = "made with a protection domain and CQs";

// SAFETY: libibverbs allows calls on one QP from several threads.
unsafe impl Send for VerbsPair {}
// SAFETY: libibverbs allows calls on one QP from several threads at once.
unsafe impl Sync for VerbsPair {}

impl PairObject for VerbsPair {
    fn context(&self) -> &Context {
        match &self.parents {
            Parents::Queues { pd, .. } => pd.context(),
            Parents::Target(domain) => domain.context(),
        }
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        Some(self.qp)
    }

    fn change(pair: &Pair<Self>, change: Change) -> Result<()> {
        let (mut attr, mut mask) = (change.attr, change.mask);
        if let Some(to) = change.to {
            attr.qp_state = to.raw();
            mask |= bit::IBV_QP_STATE.0;
        }
        let qp = pair.object.qp.as_ptr();
        // SAFETY: the queue pair is alive, and the attributes live through the call.
        let result = unsafe { ibv_modify_qp(qp, &mut attr, mask as libc::c_int) };
        check("ibv_modify_qp", result).map_err(|error| {
            explain_refused_rights(error, Access::from_bits_truncate(attr.qp_access_flags))
        })?;
        if change.to == Some(QpState::Rtr) {
            // SAFETY: the queue pair is alive. A target of dynamic connections has just got its
            // number; that of other queue pairs does not change.
            pair.set_number(unsafe { (*qp).qp_num });
        }
        Ok(())
    }

    unsafe fn reset(pair: &Pair<Self>) -> Result<()> {
        let mut attr = Zeroed::zeroed();
        let state = bit::IBV_QP_STATE.0 as libc::c_int;
        // The state of zeroed attributes is RESET.
        // SAFETY: the queue pair is alive, and the attributes live through the call. The caller
        // guarantees that no queue posts.
        check("ibv_modify_qp", unsafe { ibv_modify_qp(pair.object.qp.as_ptr(), &mut attr, state) })
    }

    fn resume(pair: &Pair<Self>) -> Result<()> {
        // SAFETY: the queue pair is alive.
        unsafe { resume(pair.object.qp) }
    }

    fn attributes(pair: &Pair<Self>, kind: TransportKind) -> Result<QueuePairAttributes> {
        let (mut attr, mut init) = (Zeroed::zeroed(), ibv_qp_init_attr::zeroed());
        let mask = query::mask(kind) as libc::c_int;
        // SAFETY: the queue pair is alive, and both structures live through the call.
        let result = unsafe { ibv_query_qp(pair.object.qp.as_ptr(), &mut attr, mask, &mut init) };
        check("ibv_query_qp", result)?;
        Ok(QueuePairAttributes::new(&attr, &init))
    }

    fn state(pair: &Pair<Self>) -> Result<u32, QueueError> {
        // SAFETY: the queue pair is alive.
        unsafe { crate::ring::source::query(pair.object.qp) }.map(|(state, _)| state)
    }

    fn destroy(&mut self) -> bool {
        // SAFETY: this crate created the QP and destroys it once, here, while PD and CQs are alive.
        // The direct path held an Arc of it and is gone.
        unsafe { ibv_destroy_qp(self.qp.as_ptr()) == 0 }
    }

    fn domain(&self) -> Option<DomainId> {
        self.pd().map(ProtectionDomain::id)
    }

    fn sends<T: Transport>(pair: &Pair<Self>) -> Result<SendView> {
        // SAFETY: `pair` is alive, and its queue pair with it.
        let view = unsafe { QpView::new(pair.object.qp) }?.sends::<T>()?;
        // SAFETY: libmlx5 has mapped the register, and keeps it mapped as long as the queue pair.
        unsafe { keep_from_children(view.register)? };
        Ok(SendView { order: pair.object.order, ..view })
    }

    fn receives(pair: &Pair<Self>) -> Result<ReceiveView> {
        if pair.object.shared_receives.is_some() {
            // Asked of a target of dynamic connections, libmlx5 would look where nothing is.
            return Err(QueueError::NoQueue.into());
        }
        // SAFETY: `pair` is alive, and its queue pair with it.
        Ok(unsafe { QpView::new(pair.object.qp) }?.receives()?)
    }

    fn member(pair: &Pair<Self>) -> Member {
        // SAFETY: `pair` is alive. Only queue pairs that receive are asked, and they have a CQ.
        unsafe { member(pair.object.qp) }
    }
}

impl VerbsPair {
    fn pd(&self) -> Option<&ProtectionDomain> {
        match &self.parents {
            Parents::Queues { pd, .. } => Some(pd),
            Parents::Target(_) => None,
        }
    }

    /// Returns the CQs of sends and of receives.
    fn cqs(&self) -> Option<(&CompletionQueue, &CompletionQueue)> {
        match &self.parents {
            Parents::Queues { send_cq, receive_cq, .. } => Some((send_cq, receive_cq)),
            Parents::Target(_) => None,
        }
    }
}

impl<T: Transport, S: State> QueuePair<T, S> {
    /// Returns the shared receive queue that it was made with.
    pub fn shared_receive_queue(&self) -> Option<&SharedReceiveQueue> {
        self.pair().object.shared_receives.as_ref()
    }

    /// Returns the queue pair, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_qp> {
        self.pair().object.qp
    }

    /// Returns an owner that keeps the queue pair alive in any state.
    pub(in crate::verbs) fn keep(&self) -> Arc<Pair<VerbsPair>> {
        Arc::clone(&self.pair)
    }
}

impl<T: HasQueues, S: State> QueuePair<T, S> {
    /// Returns its protection domain.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.pair().object.pd().expect(MADE_WITH)
    }

    /// Returns the CQ of its sends.
    pub fn send_cq(&self) -> &CompletionQueue {
        self.pair().object.cqs().expect(MADE_WITH).0
    }

    /// Returns the CQ of its receives.
    pub fn receive_cq(&self) -> &CompletionQueue {
        self.pair().object.cqs().expect(MADE_WITH).1
    }
}

/// A device without atomics refuses to grant them.
fn explain_refused_rights(error: Error, access: Access) -> Error {
    let atomics = access.contains(Access::REMOTE_ATOMIC);
    let refused = error.errno() == Some(Errno(libc::EOPNOTSUPP));
    let cause = Cause::Known("the device has no atomics: leave REMOTE_ATOMIC out of the access");
    error.because((atomics && refused).then_some(cause))
}

#[cfg(test)]
mod tests;
