//! What a program may try without a word of `unsafe`, and must not get away with: owners mixed up,
//! dropped, leaked or used in the wrong order.

#![forbid(unsafe_code)]

use mlx5::Error;
use mlx5::connect::LocalPort;
use mlx5::ring::owned::{Channel, Receiver};
use mlx5::ring::{Completions, QueueError, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rc, Rts};
use mlx5_model as _;

/// A card, opened, with what its queue pairs need.
struct Card {
    context: Context,
    local: LocalPort,
    pd: ProtectionDomain,
}

impl Card {
    fn new() -> Self {
        let context = Context::open_first().unwrap();
        let local = LocalPort::new(&context, 1, None).unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        Self { context, local, pd }
    }

    fn cq(&self) -> CompletionQueue {
        CompletionQueue::new(&self.context, 64).unwrap()
    }

    /// Connects a queue pair to itself.
    fn connect(&self, qp: QueuePair<Rc, Init>) -> QueuePair<Rc, Rts> {
        let mine = self.local.endpoint(&qp);
        let qp = qp.rtr(&self.local.rtr(&mine, &mine)).unwrap();
        qp.rts(&self.local.rts(&mine, &mine)).unwrap()
    }
}

#[test]
fn a_channel_polls_where_its_receives_complete() {
    let card = Card::new();
    let (cq, receive_cq) = (card.cq(), card.cq());
    let qp = QueuePair::builder(&card.pd, &cq).receive_cq(&receive_cq).build().unwrap();
    let qp = qp.init(&card.local.init()).unwrap();
    let mut receives = Completions::new(&receive_cq).unwrap();
    let receiver = Receiver::new(&qp, &mut receives, ReceiveConfig::default()).unwrap();
    let (qp, completions) = (card.connect(qp), Completions::new(&cq).unwrap());
    let refused = Channel::new(qp, receiver, completions, SendConfig::default()).unwrap_err();
    assert!(matches!(refused, Error::Queue(QueueError::ForeignCq)), "{refused}");
}
