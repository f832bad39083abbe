//! Initiators by verbs, targets by command. Receives come from a ring; verbs use a linked list.

#[path = "../../repertoire/dynamic.rs"]
mod dynamic;

/// Creates the objects, by command.
mod made {
    pub use mlx5::devx::DevxSrq as SharedReceiveQueue;
    use mlx5::devx::{DevxSrqBuilder, Firmware};
    use mlx5::ib::{Dct, HasQueues};
    use mlx5::verbs::Reset;
    use mlx5::verbs::{CompletionQueue, ProtectionDomain, Rtr};
    pub use mlx5::verbs::{QueuePair, QueuePairBuilder};

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
    pub fn shared(builder: DevxSrqBuilder<'_>) -> SharedReceiveQueue {
        builder.cyclic(true).build().unwrap()
    }
}
