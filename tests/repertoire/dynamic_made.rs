//! Properties of the ends of dynamic connections that only verbs report.

use mlx5::ib::{Access, Dci, Dct};
use mlx5::ring::{QueueError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{DciStreams, Mtu, QpState};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePairBuilder};
use mlx5_model::Mode;

use super::dynamic::Target;
use rig::Rig;

#[test]
fn a_target_says_what_it_was_made_with() {
    let rig = Rig::new(Mode::Trapped);
    let b = Target::new(&rig);
    let attributes = b.qp.query().unwrap();
    assert_eq!(attributes.state, QpState::Rtr);
    assert_eq!(attributes.path_mtu, Some(Mtu::Mtu1024));
    assert_eq!(attributes.port, 1);
    assert!(attributes.access.contains(Access::REMOTE_ATOMIC));
}

/// libmlx5 would read the register of its queues, which it does not have.
#[test]
fn a_target_has_no_queue_to_be_taken_over() {
    let rig = Rig::new(Mode::Trapped);
    let mut b = Target::new(&rig);
    let qp = b.qp.as_raw();
    // SAFETY: the target is alive, and has no queue that anything else posts to.
    let (sends, receives) = unsafe {
        let sends = SendQueue::<Dci>::from_raw(qp, &mut b.completions, SendConfig::default());
        let config = ReceiveConfig::default();
        (sends.err(), ReceiveQueue::from_raw(qp, &mut b.completions, config).err())
    };
    assert_eq!((sends, receives), (Some(QueueError::NoQueue), Some(QueueError::NoQueue)));
}

#[test]
fn what_cannot_be_made_is_named() {
    let context = Context::open_first().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 16).unwrap();
    let text = |error: mlx5::Error| error.to_string();
    let no_receives = QueuePairBuilder::<Dct>::new(&pd, &cq).build().map_err(text).unwrap_err();
    assert!(no_receives.contains("shared receive queue"), "{no_receives}");
    let streams = DciStreams { log_concurrent: 20, log_errored: 0 };
    let many = QueuePairBuilder::<Dci>::new(&pd, &cq).streams(streams).build().map_err(text);
    assert!(many.unwrap_err().contains("mlx5dv_create_qp"));
}
