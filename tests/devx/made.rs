//! Creates, by command, the objects of tests that the Repertoire runs on objects of verbs.

use std::ops::Deref;

pub use mlx5::devx::DevxXrcd as XrcDomain;
use mlx5::devx::{ByCommand, Firmware};
use mlx5::ib::{HasQueues, Rc, XrcRecv};
use mlx5::ring::CompletionSource;
use mlx5::verbs::{
    self, Connected, ProtectionDomain, QpState, RtrAttributes, RtsAttributes,
    SharedReceiveQueueBuilder,
};
use mlx5::verbs::{Init, Reset, Rts, State};
use mlx5_model::Mode;

use crate::rig;

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

/// The rig, but for what it does with queue pairs.
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

    /// A queue pair in INIT.
    pub fn init<T: Connected + ByCommand>(
        &self,
        builder: QueuePairBuilder<T>,
    ) -> QueuePair<T, Init> {
        self.to_init(builder.build().expect("a queue pair"))
    }

    pub fn to_init<T: Connected + ByCommand>(&self, qp: QueuePair<T, Reset>) -> QueuePair<T, Init> {
        qp.init(&self.local.init()).expect("INIT")
    }

    /// Connects two queue pairs to each other.
    pub fn connect<T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>> + ByCommand>(
        &self,
        first: QueuePair<T, Init>,
        second: QueuePair<T, Init>,
    ) -> (QueuePair<T, Rts>, QueuePair<T, Rts>) {
        let ends = [
            self.local.connection_data_of(first.number()),
            self.local.connection_data_of(second.number()),
        ];
        let up = |qp: QueuePair<T, Init>, mine, theirs| {
            let qp = qp.rtr(&self.local.rtr(mine, theirs).into()).expect("RTR");
            qp.rts(&self.local.rts(mine, theirs).into()).expect("RTS")
        };
        (up(first, &ends[0], &ends[1]), up(second, &ends[1], &ends[0]))
    }

    /// The same, where both send so.
    pub fn connect_with(
        &self,
        first: QueuePair<Rc, Init>,
        second: QueuePair<Rc, Init>,
        rts: RtsAttributes,
    ) -> (QueuePair<Rc, Rts>, QueuePair<Rc, Rts>) {
        let ends = [
            self.local.connection_data_of(first.number()),
            self.local.connection_data_of(second.number()),
        ];
        let up = |qp: QueuePair<Rc, Init>, mine: usize, theirs: usize| {
            let qp = qp.rtr(&self.local.rtr(&ends[mine], &ends[theirs])).expect("RTR");
            qp.rts(&RtsAttributes { sq_psn: ends[mine].psn, ..rts }).expect("RTS")
        };
        (up(first, 0, 1), up(second, 1, 0))
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
