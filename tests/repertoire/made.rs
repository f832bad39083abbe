//! Creates, by verbs, the objects of tests that others run on objects made by command.

use std::time::Duration;

use mlx5::ib::{Dct, HasQueues, Rc, Transport, XrcRecv};
use mlx5::verbs::{AsyncEvent, EventSource, ProtectionDomain, Rtr, SharedReceiveQueueBuilder};
pub use mlx5::verbs::{
    CompletionQueue, QueuePair, QueuePairBuilder, SharedReceiveQueue, XrcDomain,
};
use mlx5::verbs::{Reset, State};

use rig::PATIENCE;
pub use rig::Rig;

/// A builder of shared receive queues.
pub fn srq(pd: &ProtectionDomain) -> SharedReceiveQueueBuilder {
    SharedReceiveQueue::builder(pd)
}

/// A builder of reliable connections.
pub fn rc(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePairBuilder<Rc> {
    builder(pd, cq)
}

/// A builder of queue pairs of any transport with queues.
pub fn builder<T: HasQueues>(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePairBuilder<T> {
    QueuePairBuilder::new(pd, cq)
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
    QueuePair::dc_target(pd, cq, srq, key).build().unwrap()
}

/// A shared receive queue.
pub fn shared(builder: SharedReceiveQueueBuilder) -> SharedReceiveQueue {
    builder.build().unwrap()
}

/// An answering end of extended reliable connections.
pub fn xrc_target(_: &Rig, domain: &XrcDomain) -> QueuePair<XrcRecv, Reset> {
    QueuePair::target(domain).unwrap()
}

/// The next event of the context that is not of a connection that came up.
fn event(rig: &Rig) -> AsyncEvent {
    const ESTABLISHED: u32 = 4;
    loop {
        let event = rig.context.async_event(PATIENCE).unwrap().expect("an event");
        if event.code != ESTABLISHED {
            return event;
        }
    }
}

/// Waits for the event that a queue pair takes no more from its shared receive queue.
pub fn last_wqe_is_told<T: Transport, S: State>(rig: &Rig, qp: &QueuePair<T, S>) {
    let last = loop {
        let event = event(rig);
        if event.code == 16 {
            break event;
        }
    };
    assert_eq!(last.source, EventSource::QueuePair(qp.number()));
    assert!(last.to_string().contains("QP_LAST_WQE_REACHED"), "{last}");
}

/// Waits for the event that a shared receive queue has reached its limit.
pub fn limit_is_told(rig: &Rig, srq: &SharedReceiveQueue) {
    let event = event(rig);
    let address = srq.as_raw().as_ptr().addr();
    assert_eq!((event.code, event.source), (15, EventSource::SharedReceiveQueue(address)));
}

/// There is no event.
pub fn nothing_is_told(rig: &Rig) {
    assert_eq!(rig.context.async_event(Duration::ZERO).unwrap(), None);
}
