//! What makes the objects of tests that others run on objects that were made by command: verbs.

pub use mlx5::verbs::SharedReceiveQueue;
use mlx5::verbs::state::Reset;
use mlx5::verbs::{
    CompletionQueue, Dct, ProtectionDomain, QueuePair, Rtr, SharedReceiveQueueBuilder,
};

/// A target of dynamic connections that is ready.
pub type DcTarget = QueuePair<Dct, Rtr>;

/// One that is new.
pub fn dc_target(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    srq: &SharedReceiveQueue,
    key: u64,
) -> QueuePair<Dct, Reset> {
    QueuePair::dc_target(pd, cq, srq, key).build().unwrap()
}

/// A shared receive queue.
pub fn shared(builder: SharedReceiveQueueBuilder) -> SharedReceiveQueue {
    builder.build().unwrap()
}
