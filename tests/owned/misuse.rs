//! Misuse without `unsafe` code that must do no harm: owners mixed up, dropped, leaked or used in
//! the wrong order.

#![forbid(unsafe_code)]

use mlx5::Error;
use mlx5::endpoint::{Endpoint, MrSlice, Owned, Receiver};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{
    CqReader, PostError, QueueError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue,
};
use mlx5::verbs::{CompletionQueue, Init, ProtectionDomain, QueuePair, QueuePairBuilder};
use mlx5::wqe::{FetchAdd, Inline, PostOn, RdmaRead, RdmaWrite, SendMessage};
use rig::{Rig, process};

fn opened() -> Rig {
    Rig::new(mlx5_model::Mode::Trapped)
}

/// Memory of 64 bytes in its domain.
fn slice(card: &Rig) -> MrSlice {
    MrSlice::new(card.pd.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap())
}

/// A channel over a queue pair that is connected to itself.
fn channel(card: &Rig) -> Endpoint {
    let shape = |qp: QueuePairBuilder<Rc>| qp.max_send_sge(2).max_recv_sge(2).max_inline_data(16);
    card.pair::<Rc>().entries(64).qp(shape).looped_endpoint()
}

#[test]
fn a_channel_polls_where_its_receives_complete() {
    let card = opened();
    let (cq, receive_cq) = (card.cq(64), card.cq(64));
    let qp = QueuePair::builder(&card.pd, &cq).receive_cq(&receive_cq).build().unwrap();
    let qp = qp.init(&card.local.init()).unwrap();
    let mut receives = CqReader::new(&receive_cq).unwrap();
    let receiver = Receiver::new(&qp, &mut receives, ReceiveConfig::default()).unwrap();
    let (qp, completions) = (card.looped(qp), CqReader::new(&cq).unwrap());
    let refused = Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap_err();
    assert!(matches!(refused.error, Error::Queue(QueueError::CqMismatch)), "{refused}");
}

/// Send queues over queue pairs without thread domains, until one is refused.
fn queues_on_shared_registers(card: &Rig) -> (usize, Option<Error>) {
    let cq = CompletionQueue::new(&card.context, 1024).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut queues = Vec::new();
    for _ in 0..40 {
        let qp = QueuePair::builder(&card.pd, &cq).max_send_wr(4).build().unwrap();
        let qp = card.looped(qp.init(&card.local.init()).unwrap());
        let config = SendConfig { requests: 4, ..SendConfig::default() };
        match SendQueue::new(&qp, &mut completions, config) {
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
        let (made, refused) = queues_on_shared_registers(&opened());
        assert_eq!((made, refused.map(|error| error.to_string())), (40, None));
        return;
    }
    let (_, refused) = queues_on_shared_registers(&opened());
    assert!(matches!(refused, Some(Error::Queue(QueueError::RegisterShared))), "{refused:?}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "misuse::a_register_is_shared_where_nobody_copies_wqes_to_it"])
        .env(VARIABLE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn room_for_what_may_still_complete_is_not_given_away() {
    let card = opened();
    // A ring of eight entries: all of them for either receiver.
    let cq = CompletionQueue::new(&card.context, 7).unwrap();
    let queue_pair = || {
        let qp = QueuePair::builder(&card.pd, &cq).max_recv_wr(8).build().unwrap();
        qp.init(&card.local.init()).unwrap()
    };
    let (first, second) = (queue_pair(), queue_pair());
    let mut completions = CqReader::new(&cq).unwrap();
    let config = ReceiveConfig { receives: 8 };
    let receive = |completions: &mut CqReader, qp: &QueuePair<Rc, Init>| {
        let mut receiver = Receiver::new(qp, completions, config)?;
        let memory = card.pd.allocate(64, Access::LOCAL_WRITE)?;
        receiver.post(1, MrSlice::new(memory)).unwrap();
        Ok(())
    };
    // Each is dropped with a receive outstanding, which the first message would complete.
    receive(&mut completions, &first).unwrap();
    let refused: Error = receive(&mut completions, &second).unwrap_err();
    let full = QueueError::CqFull { cqes: 8, free: 0, needed: 8 };
    assert!(matches!(refused, Error::Queue(error) if error == full), "{refused}");
    // Not after a reset, nor when the queue pair is gone.
    let first = first.reset().unwrap().init(&card.local.init()).unwrap();
    receive(&mut completions, &first).unwrap();
    drop(first);
    receive(&mut completions, &second).unwrap();
    // The next reader finds room only when this one is gone, too.
    drop(second);
    drop(completions);
    let mut completions = CqReader::new(&cq).unwrap();
    receive(&mut completions, &queue_pair()).unwrap();
}

/// The queues of a pair with the default configuration, taken over in the order given.
fn slots_of_a_pair(card: &Rig, cqes: u32, sends_first: bool) -> (u32, u32) {
    let cq = CompletionQueue::new(&card.context, cqes).unwrap();
    let qp = QueuePair::builder(&card.pd, &cq).build().unwrap();
    let qp = card.looped(qp.init(&card.local.init()).unwrap());
    let mut completions = CqReader::new(&cq).unwrap();
    let sends = |completions: &mut _| SendQueue::new(&qp, completions, SendConfig::default());
    let receives =
        |completions: &mut _| ReceiveQueue::new(&qp, completions, ReceiveConfig::default());
    if sends_first {
        let send = sends(&mut completions).unwrap();
        let receive = receives(&mut completions).unwrap();
        return (send.request_limit(), receive.free());
    }
    let receive = receives(&mut completions).unwrap();
    let send = sends(&mut completions).unwrap();
    // A third queue is refused with the numbers, if the two share all entries.
    if completions.capacity() <= 128 {
        let other = QueuePair::builder(&card.pd, &cq).build().unwrap();
        let other = other.init(&card.local.init()).unwrap();
        let refused = ReceiveQueue::new(&other, &mut completions, ReceiveConfig::default());
        let full = QueueError::CqFull { cqes: completions.capacity(), free: 0, needed: 64 };
        assert!(matches!(refused, Err(Error::Queue(error)) if error == full));
        let text = full.to_string();
        assert!(text.contains("has 0 free, and the queue needs 64"), "{text}");
    }
    (send.request_limit(), receive.free())
}

#[test]
fn a_pair_with_the_default_shares_any_cq_whichever_queue_comes_first() {
    let card = opened();
    for sends_first in [true, false] {
        assert_eq!(slots_of_a_pair(&card, 1, sends_first), (1, 1));
        assert_eq!(slots_of_a_pair(&card, 15, sends_first), (8, 8));
        assert_eq!(slots_of_a_pair(&card, 63, sends_first), (32, 32));
        assert_eq!(slots_of_a_pair(&card, 127, sends_first), (64, 64));
        assert_eq!(slots_of_a_pair(&card, 255, sends_first), (64, 64));
    }
}

#[test]
fn slots_that_are_stated_are_reserved_exactly() {
    let card = opened();
    let cq = CompletionQueue::new(&card.context, 15).unwrap();
    let queue_pair = || {
        let qp = QueuePair::builder(&card.pd, &cq).build().unwrap();
        qp.init(&card.local.init()).unwrap()
    };
    let (first, second) = (queue_pair(), queue_pair());
    let mut completions = CqReader::new(&cq).unwrap();
    let mut receives =
        |qp, receives| ReceiveQueue::new(qp, &mut completions, ReceiveConfig { receives });
    let refused = receives(&first, 17).unwrap_err();
    let full = QueueError::CqFull { cqes: 16, free: 16, needed: 17 };
    assert!(matches!(refused, Error::Queue(error) if error == full), "{refused}");
    let queue = receives(&first, 10).unwrap();
    assert_eq!(queue.free(), 10);
    let refused = receives(&second, 7).unwrap_err();
    let full = QueueError::CqFull { cqes: 16, free: 6, needed: 7 };
    assert!(matches!(refused, Error::Queue(error) if error == full), "{refused}");
    assert_eq!(receives(&second, 6).unwrap().free(), 6);
}

/// Posts `operation` alone and in a batch, which is refused: it names memory of another domain.
fn refused<O: PostOn<Rc> + Owned>(channel: &mut Endpoint, operation: O) -> O {
    let slices = operation.slices().len();
    let refused = channel.post(1, operation).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    assert!(refused.to_string().contains("another protection domain or device"), "{refused}");
    let mut batch = channel.batch();
    let refused = batch.append(2, refused.operation).unwrap_err();
    assert_eq!((refused.error, batch.len()), (PostError::PdMismatch, 0));
    drop(batch);
    assert_eq!(refused.operation.slices().len(), slices);
    refused.operation
}

/// A channel of one domain and memory of another: no request, no receive, and nothing is lost.
fn keeps_memory_of_others_out(card: &Rig, other: &Rig) {
    let mut channel = channel(card);
    let target = slice(card);
    let remote = target.remote().unwrap();
    let foreign = refused(&mut channel, RdmaWrite::new(slice(other), remote)).into_payload();
    let foreign = refused(&mut channel, SendMessage::new(foreign)).into_payload();
    let foreign = refused(&mut channel, RdmaRead::new(foreign, remote)).into_payload();
    let foreign = refused(&mut channel, FetchAdd::new(foreign, remote, 1)).into_old();
    let lists = [vec![slice(card), foreign], vec![slice(other), slice(card)]];
    for list in lists {
        let list = refused(&mut channel, RdmaRead::new(list, remote)).into_payload();
        let refused = channel.post_receive(3, list).unwrap_err();
        assert_eq!((refused.error, refused.operation.len()), (PostError::PdMismatch, 2));
    }
    let refused = channel.post_receive(4, slice(other)).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    // All of it is the program's again: the region has no other slice.
    assert!(refused.operation.into_region().is_ok());
    // And the channel works with memory of its own, alone, in a list, and with none.
    channel.post_receive(5, vec![slice(card), slice(card)]).unwrap();
    channel.post(6, SendMessage::new(Inline(b"arrives"))).unwrap();
    channel.post(7, RdmaRead::new(slice(card), remote).signaled()).unwrap();
    let mut done = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while done.len() < 3 && std::time::Instant::now() < deadline {
        for returned in channel.poll() {
            let returned = returned.unwrap();
            done.push((returned.id, returned.buffers.slices().len()));
        }
    }
    done.sort_unstable();
    assert_eq!(done, [(5, 2), (6, 0), (7, 1)]);
}

/// Posts `operation` alone and in a batch, which is refused: it would write to `region`.
fn not_written<O: PostOn<Rc> + Owned>(channel: &mut Endpoint, operation: O, lkey: u32) -> O {
    let refused = channel.post(1, operation).unwrap_err();
    assert_eq!(refused.error, PostError::NoLocalWrite { lkey });
    let text = refused.to_string();
    assert!(text.contains(&format!("lkey {lkey:#x}, which has no LOCAL_WRITE")), "{text}");
    let mut batch = channel.batch();
    let refused = batch.append(2, refused.operation).unwrap_err();
    assert_eq!((refused.error, batch.len()), (PostError::NoLocalWrite { lkey }, 0));
    drop(batch);
    refused.operation
}

#[test]
fn read_only_memory_is_sent_from_and_never_written_to() {
    let card = opened();
    let mut channel = channel(&card);
    let target = slice(&card);
    let remote = target.remote().unwrap();
    let region = card.pd.allocate(16, Access::REMOTE_READ).unwrap();
    let lkey = region.lkey();
    let mut read_only = MrSlice::new(region);
    assert!(read_only.sge().unwrap_err().to_string().contains("has no LOCAL_WRITE"));
    assert_eq!(read_only.source().unwrap().lkey, lkey);
    // The parts of a slice have its right.
    let rest = read_only.split_off(8);
    let read = not_written(&mut channel, RdmaRead::new(rest, remote), lkey);
    let add = not_written(&mut channel, FetchAdd::new(read.into_payload(), remote, 1), lkey);
    let list = vec![slice(&card), add.into_old()];
    let mut list = not_written(&mut channel, RdmaRead::new(list, remote), lkey).into_payload();
    let refused = channel.post_receive(3, list).unwrap_err();
    assert_eq!(refused.error, PostError::NoLocalWrite { lkey });
    list = refused.operation;
    let rest = list.pop().unwrap();
    let refused = channel.post_receive(4, rest).unwrap_err();
    assert_eq!(refused.error, PostError::NoLocalWrite { lkey });
    let whole = read_only.join(refused.operation).unwrap();
    // It is a source like any other memory.
    channel.post_receive(5, slice(&card)).unwrap();
    channel.post(6, SendMessage::new(whole).signaled()).unwrap();
    let mut done = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while done.len() < 2 && std::time::Instant::now() < deadline {
        done.extend(channel.poll().map(|returned| returned.unwrap().id));
    }
    done.sort_unstable();
    assert_eq!(done, [5, 6]);
    // No peer may access memory without rights for it.
    let private = MrSlice::new(card.pd.allocate(16, Access::LOCAL_WRITE).unwrap());
    assert!(private.remote().unwrap_err().to_string().contains("has no REMOTE_WRITE"));
}

#[test]
fn memory_of_another_domain_is_refused_and_given_back() {
    let card = opened();
    let pd = ProtectionDomain::new(&card.context).unwrap();
    let other = Rig { context: card.context.clone(), local: opened().local, pd };
    keeps_memory_of_others_out(&card, &other);
    keeps_memory_of_others_out(&other, &card);
}

#[test]
fn memory_of_another_device_is_refused_and_given_back() {
    let name = "misuse::memory_of_another_device_is_refused_and_given_back";
    if let Some(text) = process::where_it_says("MLX5_MODEL_DEVICES", "2", &["--exact", name]) {
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let devices = mlx5::verbs::devices().unwrap();
    assert_eq!(devices.len(), 2);
    let [one, other] = [0, 1].map(|at| Rig::over(devices[at].open().unwrap()));
    assert_ne!(one.context.name(), other.context.name());
    keeps_memory_of_others_out(&one, &other);
    keeps_memory_of_others_out(&other, &one);
}

#[test]
fn memory_of_another_opening_of_the_device_is_refused() {
    keeps_memory_of_others_out(&opened(), &opened());
}
