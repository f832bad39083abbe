//! Both ends by command. Receives come from a linked list, as with verbs.

#[path = "../../repertoire/dynamic.rs"]
mod dynamic;

/// Creates the objects, by command.
mod made {
    use mlx5::devx::{self, DevxSrqBuilder};
    pub use mlx5::devx::{
        DevxQp as QueuePair, DevxQpBuilder as QueuePairBuilder, DevxSrq as SharedReceiveQueue,
    };
    use mlx5::verbs::Reset;
    use mlx5::verbs::{CompletionQueue, ProtectionDomain, Rtr};

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
        builder.build().unwrap()
    }
}
