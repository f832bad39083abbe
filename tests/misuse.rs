//! What a program may try without a word of `unsafe`, and must not get away with: owners mixed up,
//! dropped, leaked or used in the wrong order.

#![forbid(unsafe_code)]

use mlx5::Error;
use mlx5::connect::LocalPort;
use mlx5::ring::owned::{Channel, Receiver, Slice};
use mlx5::ring::{Completions, QueueError, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::{Access, CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rc, Rts};
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

/// Send queues over queue pairs without thread domains, until one is refused.
fn queues_on_shared_registers(card: &Card) -> (usize, Option<Error>) {
    let cq = CompletionQueue::new(&card.context, 1024).unwrap();
    let mut completions = Completions::new(&cq).unwrap();
    let mut queues = Vec::new();
    for _ in 0..40 {
        let qp = QueuePair::builder(&card.pd, &cq).max_send_wr(4).build().unwrap();
        let qp = card.connect(qp.init(&card.local.init()).unwrap());
        let signals = SendConfig { signals: 4, ..SendConfig::default() };
        match SendQueue::new(&qp, &mut completions, signals) {
            Ok(queue) => queues.push((qp, queue)),
            Err(error) => return (queues.len(), Some(error)),
        }
    }
    (queues.len(), None)
}

#[test]
fn a_register_is_shared_where_nobody_copies_wqes_to_it() {
    const VARIABLE: &str = "MLX5_SHUT_UP_BF";
    if std::env::var_os(VARIABLE).is_some() {
        // The run below: libmlx5 says that BlueFlame is not to be used.
        let (made, refused) = queues_on_shared_registers(&Card::new());
        assert_eq!((made, refused.map(|error| error.to_string())), (40, None));
        return;
    }
    let (_, refused) = queues_on_shared_registers(&Card::new());
    assert!(matches!(refused, Some(Error::Queue(QueueError::RegisterShared))), "{refused:?}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_register_is_shared_where_nobody_copies_wqes_to_it"])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn room_for_what_may_still_complete_is_not_given_away() {
    let card = Card::new();
    // A ring of eight entries: all of them for either receiver.
    let cq = CompletionQueue::new(&card.context, 7).unwrap();
    let queue_pair = || {
        let qp = QueuePair::builder(&card.pd, &cq).max_recv_wr(8).build().unwrap();
        qp.init(&card.local.init()).unwrap()
    };
    let (first, second) = (queue_pair(), queue_pair());
    let mut completions = Completions::new(&cq).unwrap();
    let config = ReceiveConfig::default();
    let receive = |completions: &mut Completions, qp: &QueuePair<Rc, Init>| {
        let mut receiver = Receiver::new(qp, completions, config)?;
        let memory = card.pd.allocate(64, Access::LOCAL_WRITE)?;
        receiver.post(1, Slice::new(memory)).unwrap();
        Ok(())
    };
    // Each is dropped with a receive outstanding, which the first message would complete.
    receive(&mut completions, &first).unwrap();
    let refused: Error = receive(&mut completions, &second).unwrap_err();
    assert!(matches!(refused, Error::Queue(QueueError::CqFull { cqes: 8 })), "{refused}");
    // Not after a reset, nor when the queue pair is gone.
    let first = first.reset().unwrap().init(&card.local.init()).unwrap();
    receive(&mut completions, &first).unwrap();
    drop(first);
    receive(&mut completions, &second).unwrap();
    // The next reader finds room only when this one is gone, too.
    drop(second);
    drop(completions);
    let mut completions = Completions::new(&cq).unwrap();
    receive(&mut completions, &queue_pair()).unwrap();
}
