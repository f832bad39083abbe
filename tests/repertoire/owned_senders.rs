//! The safe layer over queue pairs without a receive queue: they only request.

#![forbid(unsafe_code)]

use mlx5::cqe::{SendOperation, Status};
use mlx5::endpoint::{Buffers, Endpoint, Endpoints, MrSlice, Outcome, Returned, SendEndpoint};
use mlx5::ib::{Dci, Rc, Transport, XrcSend};
use mlx5::ring::{CqReader, PostError, SendConfig};
use mlx5::verbs::attr::{DciStreams, RtsAttributes, ScatterToCqe};
use mlx5::verbs::{ProtectionDomain, QueuePair, XrcDomain};
use mlx5::wqe::{
    FetchAdd, Inline, InlineBytes, RdmaRead, RdmaWrite, Remote, SendMessage, XrcAddress,
};
use mlx5_model::Mode;

use super::{dynamic, made, xrc};
use rig::{Rig, until};

fn wait<T: Transport>(endpoint: &mut SendEndpoint<T>) -> Returned {
    until(|| endpoint.poll().next()).unwrap()
}

fn sent<T: Transport>(
    endpoint: &mut SendEndpoint<T>,
    id: u64,
    operation: SendOperation,
) -> Buffers {
    let returned = wait(endpoint);
    assert!(matches!(returned.outcome, Outcome::Sent(done) if done.operation == operation));
    assert_eq!(returned.id, id);
    returned.buffers
}

fn foreign(rig: &Rig) -> MrSlice {
    let other = ProtectionDomain::new(&rig.context).unwrap();
    other.allocate(8, rig::all_rights()).unwrap().into()
}

/// Connections whose peers have no receive queue, either.
fn writer(rig: &Rig) -> (SendEndpoint, QueuePair<Rc, mlx5::verbs::Rts>) {
    let (cq, peer_cq) = (rig.cq(15), rig.cq(15));
    let [qp, peer] = [&cq, &peer_cq].map(|cq| {
        let shape = QueuePair::builder(&rig.pd, cq).max_recv_wr(0).max_send_wr(16);
        rig.init(shape.max_inline_data(16))
    });
    let (qp, peer) = rig.connect(qp, peer);
    let completions = CqReader::new(&cq).unwrap();
    let endpoint = Endpoint::sender(qp, completions, SendConfig::default()).unwrap();
    // The whole CQ is its own: no receive queue wants any of it.
    assert_eq!(endpoint.send_queue().request_limit(), 16);
    (endpoint, peer)
}

#[test]
fn a_queue_pair_without_receives_writes_and_reads() {
    let rig = Rig::new(Mode::Trapped);
    let (mut writer, _peer) = writer(&rig);
    let target = MrSlice::from(rig.memory(64));
    let remote = target.remote().unwrap();
    writer.post(1, RdmaWrite::new(rig.text("written"), remote)).unwrap();
    writer.post(2, RdmaWrite::new(Inline(b"inline"), remote.offset(8)).signaled()).unwrap();
    let first = wait(&mut writer);
    assert_eq!((first.id, first.outcome), (1, Outcome::SentUnsignaled { byte_len: 7 }));
    assert_eq!(first.buffers.one().unwrap().to_vec(), b"written");
    sent(&mut writer, 2, SendOperation::Write);
    assert_eq!(target.to_vec()[..14], *b"written\0inline");
    writer.post(3, RdmaRead::new(MrSlice::from(rig.memory(14)), remote).signaled()).unwrap();
    let read = sent(&mut writer, 3, SendOperation::Read).one().unwrap();
    assert_eq!(read.to_vec(), b"written\0inline");
    let refused = writer.post(4, RdmaWrite::new(foreign(&rig), remote)).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    // What is in flight comes back, and the receives that there are: none.
    writer.post(5, RdmaWrite::new(rig.text("late"), Remote::new(0, 0))).unwrap();
    let closed = writer.close().unwrap();
    assert_eq!((closed.sends.len(), closed.receives.len()), (1, 0));
}

/// Places of answers. One in a CQE is copied to the memory that its WQE names behind an address.
const ANSWERS: [ScatterToCqe; 2] = [ScatterToCqe::Never, ScatterToCqe::Always];

#[test]
fn an_initiator_of_dynamic_connections_owns_its_memory() {
    ANSWERS.into_iter().for_each(initiator_of_dynamic_connections);
}

fn initiator_of_dynamic_connections(answers: ScatterToCqe) {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(255);
    let shape = made::builder(&rig.pd, &cq).scatter_to_cqe(answers);
    let qp = dynamic::rts(&rig, shape, &RtsAttributes::default());
    let completions = CqReader::new(&cq).unwrap();
    let mut initiator: SendEndpoint<Dci> =
        Endpoint::sender(qp, completions, SendConfig::default()).unwrap();
    let mut targets = [dynamic::Target::new(&rig), dynamic::Target::new(&rig)];
    let to = [0, 1].map(|at: usize| targets[at].address(&rig));
    for round in 0..40u64 {
        let at = (round % 2) as usize;
        targets[at].receive(0, 64);
        let message = SendMessage::new(rig.text("to a target"));
        initiator.post(round, message.signaled().to(&to[at])).unwrap();
        let buffers = sent(&mut initiator, round, SendOperation::Send);
        assert_eq!(buffers.one().unwrap().to_vec(), b"to a target");
        assert_eq!(targets[at].received().byte_len, 11);
        let write = RdmaWrite::new(InlineBytes(round.to_ne_bytes()), targets[at].remote(128));
        initiator.post(round, write.to(&to[at])).unwrap();
        let add = FetchAdd::new(MrSlice::from(rig.memory(8)), targets[at].remote(128), 1);
        initiator.post(round + 1, add.signaled().to(&to[at])).unwrap();
        assert!(matches!(wait(&mut initiator).outcome, Outcome::SentUnsignaled { byte_len: 0 }));
        let old = sent(&mut initiator, round + 1, SendOperation::FetchAdd).one().unwrap();
        assert_eq!(old.to_vec(), round.to_ne_bytes());
        let read = RdmaRead::new(MrSlice::from(rig.memory(8)), targets[at].remote(128));
        initiator.post(round, read.signaled().to(&to[at])).unwrap();
        let read = sent(&mut initiator, round, SendOperation::Read).one().unwrap();
        assert_eq!(read.to_vec(), (round + 1).to_ne_bytes());
    }
    let refused = initiator.post(1, SendMessage::new(foreign(&rig)).to(&to[0])).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    initiator.close().unwrap();
}

/// An initiator with streams.
fn with_streams(rig: &Rig, streams: DciStreams) -> SendEndpoint<Dci> {
    let cq = rig.cq(255);
    let shape = made::builder(&rig.pd, &cq).streams(streams);
    let qp = dynamic::rts(rig, shape, &RtsAttributes::default());
    Endpoint::sender(qp, CqReader::new(&cq).unwrap(), SendConfig::default()).unwrap()
}

#[test]
fn an_endpoint_goes_on_after_a_stream_failed() {
    let rig = Rig::new(Mode::Trapped);
    let streams = DciStreams { log_concurrent: 2, log_errored: 2 };
    let mut initiator = with_streams(&rig, streams);
    let target = dynamic::Target::new(&rig);
    let to = target.address(&rig);
    let good = target.remote(0);
    let bad = Remote { rkey: good.rkey ^ 0x5500, ..good };
    let write = |remote, stream| {
        RdmaWrite::new(rig.text("a stream"), remote).signaled().to(to.on_stream(stream))
    };
    initiator.post(1, write(bad, 2)).unwrap();
    let failed = wait(&mut initiator);
    assert!(matches!(failed.outcome, Outcome::Failed(f) if f.status == Status::RemoteAccess));
    assert_eq!(failed.buffers.one().unwrap().to_vec(), b"a stream");
    let refused = initiator.post(2, write(good, 1)).unwrap_err();
    assert_eq!(refused.error, PostError::WrongState);
    initiator.go_on().unwrap();
    initiator.post(3, write(good, 1)).unwrap();
    sent(&mut initiator, 3, SendOperation::Write);
    // The failed one flushes, until it is reset.
    initiator.post(4, write(good, 2)).unwrap();
    let flushed = wait(&mut initiator);
    assert!(matches!(flushed.outcome, Outcome::Failed(f) if f.status == Status::Flushed));
    initiator.queue_pair().reset_stream(2).unwrap();
    initiator.go_on().unwrap();
    initiator.post(5, write(good, 2)).unwrap();
    sent(&mut initiator, 5, SendOperation::Write);
}

/// Several initiators on one CQ.
#[test]
fn initiators_share_a_cq() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(255);
    let mut all: Endpoints<Dci> = Endpoints::new(CqReader::new(&cq).unwrap());
    let config = SendConfig { requests: 4, ..SendConfig::default() };
    let keys = [(); 5].map(|()| {
        let qp = dynamic::rts(&rig, made::builder(&rig.pd, &cq), &RtsAttributes::default());
        all.insert(qp, config).unwrap()
    });
    let target = dynamic::Target::new(&rig);
    let to = target.address(&rig);
    for (at, key) in (0..).zip(keys) {
        let write = RdmaWrite::new(rig.text("each"), target.remote(at * 8));
        all.post(key, at as u64, write.signaled().to(&to)).unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < keys.len() {
        let (key, returned) = until(|| all.poll().next()).unwrap();
        assert_eq!(key, keys[returned.id as usize]);
        assert_eq!(returned.buffers.one().unwrap().to_vec(), b"each");
        seen.push(returned.id);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
}

#[test]
fn an_initiator_of_extended_connections_owns_its_memory() {
    ANSWERS.into_iter().for_each(initiator_of_extended_connections);
}

fn initiator_of_extended_connections(answers: ScatterToCqe) {
    let rig = Rig::new(Mode::Trapped);
    let domain = XrcDomain::new(&rig.context).unwrap();
    let mut receiver = xrc::receiver(&rig, &domain);
    let cq = rig.cq(127);
    let shape = made::builder(&rig.pd, &cq).scatter_to_cqe(answers);
    let (qp, _target) = xrc::ends_of(&rig, &domain, shape);
    let completions = CqReader::new(&cq).unwrap();
    let mut initiator: SendEndpoint<XrcSend> =
        Endpoint::sender(qp, completions, SendConfig::default()).unwrap();
    let to = XrcAddress::new(receiver.number);
    let memory = rig.memory(64);
    receiver.accept(1, &memory);
    initiator.post(1, SendMessage::new(rig.text("to a queue")).signaled().to(to)).unwrap();
    let buffers = sent(&mut initiator, 1, SendOperation::Send);
    assert_eq!(buffers.one().unwrap().to_vec(), b"to a queue");
    assert_eq!(receiver.taken().byte_len, 10);
    let remote = memory.remote(32).unwrap();
    initiator.post(2, RdmaWrite::new(rig.text("written"), remote).to(to)).unwrap();
    let read = RdmaRead::new(MrSlice::from(rig.memory(7)), remote).signaled().to(to);
    initiator.post(3, read).unwrap();
    assert_eq!(wait(&mut initiator).outcome, Outcome::SentUnsignaled { byte_len: 7 });
    let read = sent(&mut initiator, 3, SendOperation::Read).one().unwrap();
    assert_eq!(read.to_vec(), b"written");
    for old in [0_u64, 5] {
        let add = FetchAdd::new(MrSlice::from(rig.memory(8)), remote.offset(8), 5);
        initiator.post(5, add.signaled().to(to)).unwrap();
        let found = sent(&mut initiator, 5, SendOperation::FetchAdd).one().unwrap();
        assert_eq!(found.to_vec(), old.to_ne_bytes());
    }
    let refused = initiator.post(4, SendMessage::new(foreign(&rig)).to(to)).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    initiator.close().unwrap();
}
