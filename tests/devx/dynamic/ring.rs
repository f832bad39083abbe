//! Initiators by verbs, targets by command. Receives come from a ring; verbs use a linked list.

#[path = "../../repertoire/dynamic.rs"]
mod dynamic;

/// Creates the objects, by command.
mod made {
    use mlx5::devx::Firmware;
    use mlx5::ib::{Dct, HasQueues};
    use mlx5::verbs::Reset;
    use mlx5::verbs::{self, CompletionQueue, ProtectionDomain, Rtr, SharedReceiveQueueBuilder};
    pub use mlx5::verbs::{QueuePair, QueuePairBuilder};

    pub type SharedReceiveQueue = verbs::SharedReceiveQueue<Firmware>;

    /// A builder of shared receive queues.
    pub fn srq(pd: &ProtectionDomain) -> SharedReceiveQueueBuilder<Firmware> {
        SharedReceiveQueue::by_command(pd)
    }

    /// A builder of queue pairs.
    pub fn builder<T: HasQueues>(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
    ) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(pd, cq)
    }

    /// A target of dynamic connections that is ready.
    pub type DcTarget = QueuePair<Dct, Rtr, Firmware>;

    /// One that is new.
    pub fn dc_target(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        key: u64,
    ) -> QueuePair<Dct, Reset, Firmware> {
        QueuePair::dc_target_by_command(pd, cq, srq, key).unwrap().build().unwrap()
    }

    /// A shared receive queue.
    pub fn shared(builder: SharedReceiveQueueBuilder<Firmware>) -> SharedReceiveQueue {
        builder.cyclic(true).build().unwrap()
    }
}
