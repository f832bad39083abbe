//! The safe layer on unreliable transports.

#![forbid(unsafe_code)]

use mlx5::Error;
use mlx5::cqe::{ReceiveKind, SendOperation, Status};
use mlx5::endpoint::{
    Buffers, ConnectionKey, Endpoint, Endpoints, MrSlice, Outcome, Receiver, Returned,
};
use mlx5::ib::{Receives, Transport, Uc, Ud};
use mlx5::ring::{CqReader, PostError, QueueError, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{QueuePair, QueuePairBuilder, Rts};
use mlx5::wqe::{Inline, Nop, RdmaWrite, RdmaWriteImm, SendImm, SendMessage};

use rig::{QKEY, Rig, until};

fn shape<T: Receives>(rig: &Rig, cq: &mlx5::verbs::CompletionQueue) -> QueuePairBuilder<T> {
    QueuePairBuilder::new(&rig.pd, cq).max_inline_data(64).max_send_wr(16).max_recv_wr(16)
}

fn wait<T: Transport>(channel: &mut Endpoint<T>) -> Returned {
    until(|| channel.poll().next()).unwrap()
}

fn wait_for_any<T: Transport>(all: &mut Endpoints<T>) -> (ConnectionKey, Returned) {
    until(|| all.poll_one().unwrap())
}

fn sent<T: Transport>(channel: &mut Endpoint<T>, id: u64, operation: SendOperation) -> Buffers {
    let returned = wait(channel);
    assert!(matches!(returned.outcome, Outcome::Sent(done) if done.operation == operation));
    assert_eq!(returned.id, id);
    returned.buffers
}

pub fn datagrams(rig: &Rig) -> Endpoint<Ud> {
    let cq = rig.cq(64);
    let qp = shape::<Ud>(rig, &cq).build().unwrap().init(&UdInitAttributes::new(1, QKEY)).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let qp: QueuePair<Ud, Rts> =
        qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap();
    Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap()
}

#[test]
fn connections_give_their_memory_back() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Uc>().endpoints();
    let target = rig.memory(64);
    let remote = target.remote(0).unwrap();
    for id in 0..3 {
        b.post_receive(id, MrSlice::from(rig.memory(32))).unwrap();
    }
    a.post(1, SendMessage::new(rig.text("one")).signaled()).unwrap();
    assert_eq!(sent(&mut a, 1, SendOperation::Send).one().unwrap().to_vec(), b"one");
    a.post(2, RdmaWrite::new(rig.text("two"), remote)).unwrap();
    a.post(3, RdmaWriteImm::new(Inline(b"three"), remote.offset(8), 33).signaled()).unwrap();
    // The unsignaled one comes first.
    let second = wait(&mut a);
    assert_eq!((second.id, second.outcome), (2, Outcome::SentUnsignaled { byte_len: 3 }));
    assert!(matches!(sent(&mut a, 3, SendOperation::WriteImm), Buffers::None));
    for (id, kind) in [(0, ReceiveKind::Send), (1, ReceiveKind::WriteImm(33))] {
        let returned = wait(&mut b);
        assert_eq!(returned.id, id);
        assert!(matches!(returned.outcome, Outcome::Received(done) if done.kind == kind));
        assert_eq!(returned.buffers.one().unwrap().to_vec().len(), 32);
    }
    let mut written = [0; 16];
    target.read(0, &mut written);
    assert_eq!(&written, b"two\0\0\0\0\0three\0\0\0");
    a.post(4, Nop::new().signaled()).unwrap();
    assert!(matches!(sent(&mut a, 4, SendOperation::Nop), Buffers::None));
    let closed = b.close().unwrap();
    assert_eq!(closed.receives.len(), 1);
}

#[test]
fn datagrams_give_their_memory_back() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, mut b) = (datagrams(&rig), datagrams(&rig));
    let to = rig.address(b.queue_pair(), QKEY);
    // Many laps of a ring in which each takes two blocks.
    for round in 0..100 {
        b.post_receive(round, MrSlice::from(rig.memory(64))).unwrap();
        b.post_receive(round, MrSlice::from(rig.memory(64))).unwrap();
        a.post(1, SendMessage::new(rig.text("first")).to(&to)).unwrap();
        a.post(2, SendImm::new(rig.text("second"), 9).signaled().to(to)).unwrap();
        let first = wait(&mut a);
        assert_eq!((first.id, first.outcome), (1, Outcome::SentUnsignaled { byte_len: 5 }));
        assert_eq!(first.buffers.one().unwrap().to_vec(), b"first");
        let second = sent(&mut a, 2, SendOperation::SendImm);
        assert_eq!(second.one().unwrap().to_vec(), b"second");
        for expected in ["first", "second"] {
            let Returned { buffers, outcome: Outcome::Received(done), .. } = wait(&mut b) else {
                panic!("a receive")
            };
            let memory = buffers.one().unwrap().to_vec();
            assert_eq!(memory[done.datagram()], *expected.as_bytes());
        }
    }
}

#[test]
fn what_fails_or_is_refused_comes_back_too() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, b) = (datagrams(&rig), datagrams(&rig));
    let to = rig.address(b.queue_pair(), QKEY);
    let long = MrSlice::from(rig.memory(rig.local.attributes().active_mtu.bytes() + 1));
    a.post(1, SendMessage::new(long).to(&to)).unwrap();
    let failed = wait(&mut a);
    assert!(matches!(failed.outcome, Outcome::Failed(f) if f.status == Status::LocalLength));
    assert!(failed.buffers.one().is_ok());
    let refused = a.post(2, SendMessage::new(rig.text("mine")).to(&to)).unwrap_err();
    assert_eq!(refused.error, PostError::WrongState);
    assert_eq!(refused.operation.into_operation().into_payload().to_vec(), b"mine");
}

/// A request beyond the MTU, which fails, and one behind it, which is flushed.
fn fail(rig: &Rig, mut post: impl FnMut(u64, MrSlice)) {
    post(1, rig.memory(rig.local.attributes().active_mtu.bytes() + 1).into());
    post(2, rig.text("flushed"));
}

#[test]
fn an_endpoint_recovers_after_a_datagram_beyond_the_mtu() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut a, mut b) = (datagrams(&rig), datagrams(&rig));
    let to = rig.address(b.queue_pair(), QKEY);
    let right = a.recover();
    assert!(matches!(right, Err(Error::Queue(QueueError::WrongState { .. }))), "{right:?}");
    fail(&rig, |id, slice| a.post(id, SendMessage::new(slice).to(&to)).unwrap());
    let failed = wait(&mut a);
    assert!(matches!(failed.outcome, Outcome::Failed(f) if f.status == Status::LocalLength));
    let early = a.recover();
    assert!(matches!(early, Err(Error::Queue(QueueError::NotIdle))), "{early:?}");
    let flushed = wait(&mut a);
    assert!(matches!(flushed.outcome, Outcome::Failed(f) if f.status == Status::Flushed));
    a.recover().unwrap();
    b.post_receive(3, MrSlice::from(rig.memory(64))).unwrap();
    a.post(3, SendMessage::new(rig.text("again")).signaled().to(&to)).unwrap();
    assert_eq!(sent(&mut a, 3, SendOperation::Send).one().unwrap().to_vec(), b"again");
    assert!(matches!(wait(&mut b).outcome, Outcome::Received(_)));
}

#[test]
fn one_of_several_connections_recovers() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let cq = rig.cq(64);
    let mut all = Endpoints::<Ud>::new(CqReader::new(&cq).unwrap());
    let config = SendConfig { requests: 8, ..SendConfig::default() };
    let [first, second] = [(); 2].map(|()| {
        let qp = shape::<Ud>(&rig, &cq).max_recv_wr(0).build().unwrap();
        let qp = qp.init(&UdInitAttributes::new(1, QKEY)).unwrap().rtr().unwrap();
        all.insert(qp.rts(&UnreliableRtsAttributes::default()).unwrap(), config).unwrap()
    });
    let to = rig.address(datagrams(&rig).queue_pair(), QKEY);
    fail(&rig, |id, slice| all.post(first, id, SendMessage::new(slice).to(&to)).unwrap());
    let fails = |polled: (_, Returned), id| {
        let (key, returned) = polled;
        assert!(matches!(returned.outcome, Outcome::Failed(_)), "{returned:?}");
        assert_eq!((key, returned.id), (first, id));
    };
    fails(wait_for_any(&mut all), 1);
    fails(wait_for_any(&mut all), 2);
    let hello = || SendMessage::new(Inline(b"hello")).signaled().to(&to);
    assert_eq!(all.post(first, 3, hello()).unwrap_err().error, PostError::WrongState);
    all.recover(first).unwrap();
    for (id, key) in [(4, first), (5, second)] {
        all.post(key, id, hello()).unwrap();
        let (polled, returned) = wait_for_any(&mut all);
        assert!(matches!(returned.outcome, Outcome::Sent(_)), "{returned:?}");
        assert_eq!((polled, returned.id), (key, id));
    }
    drop(all.remove(first).unwrap());
    let gone = all.recover(first);
    assert!(matches!(gone, Err(Error::Queue(QueueError::UnknownConnection))), "{gone:?}");
}
