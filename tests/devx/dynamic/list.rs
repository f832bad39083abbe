//! Both ends by command. Receives come from a linked list, as with verbs.

#[path = "../../repertoire/dynamic.rs"]
mod dynamic;

/// Creates the objects, by command.
mod made {
    use mlx5::devx::{ByCommand, Firmware};
    use mlx5::ib::{Dct, HasQueues};
    use mlx5::verbs::Reset;
    use mlx5::verbs::{self, CompletionQueue, ProtectionDomain, Rtr, SharedReceiveQueueBuilder};

    pub type QueuePair<T, S> = verbs::QueuePair<T, S, Firmware>;
    pub type QueuePairBuilder<T> = verbs::QueuePairBuilder<T, Firmware>;

    pub type SharedReceiveQueue = verbs::SharedReceiveQueue<Firmware>;

    /// A builder of shared receive queues.
    pub fn srq(pd: &ProtectionDomain) -> SharedReceiveQueueBuilder<Firmware> {
        SharedReceiveQueue::by_command(pd)
    }

    /// A builder of queue pairs.
    pub fn builder<T: HasQueues + ByCommand>(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
    ) -> QueuePairBuilder<T> {
        QueuePairBuilder::by_command(pd, cq)
    }

    /// A target of dynamic connections that is ready.
    pub type DcTarget = QueuePair<Dct, Rtr>;

    /// One that is new.
    pub fn dc_target(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        key: u64,
    ) -> QueuePair<Dct, Reset> {
        QueuePair::dc_target_by_command(pd, cq, srq, key).unwrap().build().unwrap()
    }

    /// A shared receive queue.
    pub fn shared(builder: SharedReceiveQueueBuilder<Firmware>) -> SharedReceiveQueue {
        builder.build().unwrap()
    }
}
