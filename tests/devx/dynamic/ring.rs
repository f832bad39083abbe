//! Initiators by verbs, targets by command. Receives come from a ring; verbs use a linked list.

#[path = "../../repertoire/dynamic.rs"]
mod dynamic;

/// Creates the objects, by command.
mod made {
    pub use mlx5::devx::DevxSrq as SharedReceiveQueue;
    use mlx5::devx::{self, DevxSrqBuilder};
    use mlx5::verbs::Reset;
    use mlx5::verbs::{CompletionQueue, ProtectionDomain, Rtr};
    pub use mlx5::verbs::{QueuePair, QueuePairBuilder};

    /// A target of dynamic connections that is ready.
    pub type DcTarget = devx::DcTarget<Rtr>;

    /// One that is new.
    pub fn dc_target(
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        key: u64,
    ) -> devx::DcTarget<Reset> {
        devx::DcTarget::builder(pd, cq, srq, key).unwrap().build().unwrap()
    }

    /// A shared receive queue.
    pub fn shared(builder: DevxSrqBuilder<'_>) -> SharedReceiveQueue {
        builder.cyclic(true).build().unwrap()
    }
}
