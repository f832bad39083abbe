//! Both ends by command. Receives come from a linked list, as with verbs.

#[path = "../../repertoire/dynamic.rs"]
mod dynamic;

/// Creates the objects, by command.
mod made {
    pub use mlx5::devx::DevxSrq as SharedReceiveQueue;
    use mlx5::devx::{ByCommand, DevxSrqBuilder, Firmware};
    use mlx5::ib::{Dct, HasQueues};
    use mlx5::verbs::Reset;
    use mlx5::verbs::{self, CompletionQueue, ProtectionDomain, Rtr};

    pub type QueuePair<T, S> = verbs::QueuePair<T, S, Firmware>;
    pub type QueuePairBuilder<T> = verbs::QueuePairBuilder<T, Firmware>;

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
    pub fn shared(builder: DevxSrqBuilder<'_>) -> SharedReceiveQueue {
        builder.build().unwrap()
    }
}
