//! Creates, by command, the objects of tests that the Repertoire runs on objects of verbs.

use std::ops::Deref;

pub use mlx5::devx::DevxXrcd as XrcDomain;
use mlx5::devx::{ByCommand, Firmware};
use mlx5::expert::CompletionSource;
use mlx5::ib::{HasQueues, Rc, XrcRecv};
use mlx5::verbs::attr::QpState;
use mlx5::verbs::{self, ProtectionDomain, Reset, SharedReceiveQueueBuilder, State};
use mlx5_model::Mode;

pub type CompletionQueue = verbs::CompletionQueue<Firmware>;
pub type SharedReceiveQueue = verbs::SharedReceiveQueue<Firmware>;
pub type QueuePair<T, S> = verbs::QueuePair<T, S, Firmware>;
pub type QueuePairBuilder<T> = verbs::QueuePairBuilder<T, Firmware>;

/// A builder of shared receive queues.
pub fn srq(pd: &ProtectionDomain) -> SharedReceiveQueueBuilder<Firmware> {
    SharedReceiveQueue::by_command(pd)
}

/// A builder of reliable connections.
pub fn rc(pd: &ProtectionDomain, cq: &impl CompletionSource) -> QueuePairBuilder<Rc> {
    builder(pd, cq)
}

/// A builder of queue pairs of any transport with queues.
pub fn builder<T: HasQueues + ByCommand>(
    pd: &ProtectionDomain,
    cq: &impl CompletionSource,
) -> QueuePairBuilder<T> {
    QueuePairBuilder::by_command(pd, cq)
}

/// The rig, whose CQs are made by command.
pub struct Rig(rig::Rig);

impl Deref for Rig {
    type Target = rig::Rig;

    fn deref(&self) -> &rig::Rig {
        &self.0
    }
}

impl Rig {
    pub fn new(mode: Mode) -> Self {
        Self(rig::Rig::new(mode))
    }

    /// A CQ of at least so many entries.
    pub fn cq(&self, entries: u32) -> CompletionQueue {
        // Verbs' rings have an entry more than was asked for.
        CompletionQueue::by_command(&self.context, entries + 1).build().expect("a CQ")
    }
}

/// An answering end of extended reliable connections.
pub fn xrc_target(rig: &Rig, domain: &XrcDomain) -> QueuePair<XrcRecv, Reset> {
    QueuePair::target_by_command(&rig.pd, domain, &rig.cq(1)).unwrap()
}

/// That a queue pair takes no more from its shared receive queue is no event of the context's file;
/// the card says what state it is in.
pub fn last_wqe_is_told<T: ByCommand, S: State>(rig: &Rig, qp: &QueuePair<T, S>) {
    nothing_is_told(rig);
    assert_eq!(qp.query().unwrap().state, QpState::Error);
}

/// Nor is that a limit was reached; the card has none any more.
pub fn limit_is_told(rig: &Rig, srq: &SharedReceiveQueue) {
    nothing_is_told(rig);
    assert_eq!(srq.query().unwrap().limit, 0);
}

/// There is no event in the context's file.
pub fn nothing_is_told(rig: &Rig) {
    assert_eq!(rig.context.async_event(std::time::Duration::ZERO).unwrap(), None);
}
