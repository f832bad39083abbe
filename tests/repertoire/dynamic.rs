//! Dynamic connections: initiators, targets, keys, streams, and the form of each error.

#[path = "dynamic/windows.rs"]
mod windows;

use mlx5::cqe::{Completion, Failure, QueueKind, ReceiveDone, ReceiveKind, SendOperation, Status};
use mlx5::ib::Dci;
use mlx5::ring::{
    CqReader, PostError, QueueError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue, Srq,
};
use mlx5::verbs::attr::{
    AddressVector, DciStreams, DctRtrAttributes, InitAttributes, Mtu, QpState, RtsAttributes,
};
use mlx5::verbs::{AddressHandle, CompletionQueue, MemoryRegion, Rts};
use mlx5::wqe::{
    Bits, CompareSwap, DcAddress, DmaMemcpy, FetchAdd, Inline, MaskedCompareSwap, MaskedFetchAdd,
    Nop, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage,
};
use mlx5_model::Mode;

use super::made::{self, DcTarget, QueuePair, QueuePairBuilder, SharedReceiveQueue};
use rig::{Rig, wait};

/// Bytes of each side's memory.
const MEMORY: usize = 1 << 16;
/// The access key of the targets.
pub const KEY: u64 = 0x0dc0_ffee_1234_5678;

/// One that sends.
pub struct Initiator {
    pub memory: MemoryRegion,
    pub send: SendQueue<Dci>,
    pub completions: CqReader,
    pub qp: QueuePair<Dci, Rts>,
}

/// An initiator in RTS.
pub fn rts(rig: &Rig, shape: QueuePairBuilder<Dci>, last: &RtsAttributes) -> QueuePair<Dci, Rts> {
    let qp = shape.max_send_sge(4).max_inline_data(200).build().unwrap();
    let qp = qp.init(&InitAttributes::new(rig.local.attributes().port)).unwrap();
    qp.rtr(Mtu::Mtu1024).unwrap().rts(last).unwrap()
}

impl Initiator {
    pub fn new(rig: &Rig) -> Self {
        Self::like(rig, &RtsAttributes::default(), None)
    }

    fn like(rig: &Rig, last: &RtsAttributes, streams: Option<DciStreams>) -> Self {
        let cq = rig.cq(256);
        let mut shape = made::builder(&rig.pd, &cq);
        if let Some(streams) = streams {
            shape = shape.streams(streams);
        }
        let qp = rts(rig, shape, last);
        let mut completions = CqReader::new(&cq).unwrap();
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        Self { memory: rig.memory(MEMORY), send, completions, qp }
    }

    pub fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut self.send)
    }

    pub fn sent(&mut self) -> (u64, SendOperation) {
        match self.wait() {
            Completion::Send(done) => (done.id, done.operation),
            other => panic!("{other:?}"),
        }
    }

    fn failed(&mut self) -> (u64, Status) {
        match self.wait() {
            Completion::Failed(failure) => {
                assert_eq!((failure.queue, failure.qpn), (QueueKind::Send, self.qp.number()));
                (failure.id, failure.status)
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_quiet(&mut self) {
        assert_eq!(self.completions.poll(&mut self.send), Ok(None));
    }
}

/// One that receives.
pub struct Target {
    pub memory: MemoryRegion,
    pub shared: Srq,
    pub completions: CqReader,
    pub qp: DcTarget,
}

/// A target in RTR.
pub fn rtr(
    rig: &Rig,
    cq: &CompletionQueue,
    srq: &SharedReceiveQueue,
    init: &InitAttributes,
) -> DcTarget {
    let qp = made::dc_target(&rig.pd, cq, srq, KEY);
    assert_eq!(qp.number(), 0, "the card does not know it yet");
    let qp = qp.init(init).unwrap();
    let qp = qp.rtr(&DctRtrAttributes::new(own_address(rig, 0))).unwrap();
    assert_ne!(qp.number(), 0);
    qp
}

/// The way to this very port, where the queue pair of that number is.
pub fn own_address(rig: &Rig, number: u32) -> AddressVector {
    rig.local.address(&rig.local.connection_data_of(number))
}

impl Target {
    pub fn new(rig: &Rig) -> Self {
        Self::open_to(rig, &rig.local.init())
    }

    fn open_to(rig: &Rig, init: &InitAttributes) -> Self {
        let cq = rig.cq(255);
        let srq = made::shared(made::srq(&rig.pd).max_sge(3));
        let qp = rtr(rig, &cq, &srq, init);
        let mut completions = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut shared = Srq::new(&srq, &mut completions, config).unwrap();
        shared.attach(&qp, &mut completions).unwrap();
        Self { memory: rig.memory(MEMORY), shared, completions, qp }
    }

    pub fn address(&self, rig: &Rig) -> DcAddress {
        self.address_by(rig, KEY)
    }

    fn address_by(&self, rig: &Rig, key: u64) -> DcAddress {
        let handle = AddressHandle::new(&rig.pd, &own_address(rig, self.qp.number())).unwrap();
        DcAddress::new(&handle, self.qp.number(), key)
    }

    pub fn remote(&self, offset: usize) -> Remote {
        self.memory.remote(offset).unwrap()
    }

    /// Posts a receive for so many bytes at an offset, which is its id.
    pub fn receive(&mut self, offset: usize, length: usize) {
        // SAFETY: for every post here, the memory lives as long as the queue, and is looked at only
        // when the receive is complete.
        unsafe { self.shared.post(offset as u64, self.memory.sge(offset, length).unwrap()) }
            .unwrap();
    }

    pub fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut self.shared)
    }

    pub fn received(&mut self) -> ReceiveDone {
        match self.wait() {
            Completion::Receive(done) => done,
            other => panic!("{other:?}"),
        }
    }

    fn is_quiet(&mut self) {
        assert_eq!(self.completions.poll(&mut self.shared), Ok(None));
    }
}

#[test]
fn each_operation_reaches_its_target() {
    let rig = Rig::new(Mode::Trapped);
    let (mut a, mut b) = (Initiator::new(&rig), Target::new(&rig));
    let to = b.address(&rig);
    a.memory.write(0, b"sent by entries");
    b.receive(100, 64);
    b.receive(300, 64);
    b.receive(500, 0);
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        let entries = [a.memory.sge(0, 5).unwrap(), a.memory.sge(5, 10).unwrap()];
        a.send.post(2, SendMessage::new(entries).signaled().to(&to)).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind, done.byte_len), (100, ReceiveKind::Send, 15));
        assert_eq!((done.qpn, done.src_qp), (b.qp.number(), a.qp.number()));
        assert_eq!(b.memory.to_vec(100, 15), b"sent by entries");
        assert_eq!(a.sent(), (2, SendOperation::Send));

        a.send.post(3, SendImm::new(Inline(b"inline"), 0x1234_5678).signaled().to(to)).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind), (300, ReceiveKind::SendImm(0x1234_5678)));
        assert_eq!(
            (a.sent(), b.memory.to_vec(300, 6)),
            ((3, SendOperation::SendImm), b"inline".into())
        );

        a.memory.write(1000, &[0x5a; 5000]);
        let write = RdmaWrite::new(a.memory.sge(1000, 5000).unwrap(), b.remote(2000));
        a.send.post(4, write.signaled().to(&to)).unwrap();
        let write = RdmaWriteImm::new(Inline(&[7; 150]), b.remote(9000), 99);
        a.send.post(5, write.signaled().to(&to)).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind, done.byte_len), (500, ReceiveKind::WriteImm(99), 150));
        assert_eq!(b.memory.to_vec(1999, 5002), [&[0][..], &[0x5a; 5000], &[0]].concat());
        assert_eq!(b.memory.to_vec(9000, 150), [7; 150]);
        assert_eq!((a.sent(), a.sent()), ((4, SendOperation::Write), (5, SendOperation::WriteImm)));

        let read = RdmaRead::new(a.memory.sge(20_000, 5000).unwrap(), b.remote(2000));
        a.send.post(6, read.signaled().to(&to)).unwrap();
        assert_eq!(a.sent(), (6, SendOperation::Read));
        assert_eq!(a.memory.to_vec(20_000, 5000), [0x5a; 5000]);

        b.memory.write(0, &40u64.to_ne_bytes());
        let old = |at| a.memory.word(at).unwrap();
        let add = FetchAdd::new(old(0), b.remote(0), 2).signaled();
        let swap = CompareSwap::new(old(8), b.remote(0), 42, 7).signaled();
        a.send.post(7, add.to(&to)).unwrap();
        a.send.post(8, swap.to(to)).unwrap();
        a.send.post(9, Nop::new().signaled()).unwrap();
        assert_eq!(a.sent(), (7, SendOperation::FetchAdd));
        assert_eq!(a.sent(), (8, SendOperation::CompareSwap));
        assert_eq!(a.sent(), (9, SendOperation::Nop));
    }
    let words = a.memory.to_vec(0, 16);
    assert_eq!(words, [40u64.to_ne_bytes(), 42u64.to_ne_bytes()].concat());
    assert_eq!(b.memory.to_vec(0, 8), 7u64.to_ne_bytes());
    a.is_quiet();
    b.is_quiet();
}

#[test]
fn atomics_under_masks_reach_their_target() {
    let rig = Rig::new(Mode::Trapped);
    let (mut a, mut b) = (Initiator::new(&rig), Target::new(&rig));
    let to = b.address(&rig);
    let old = |at| a.memory.word(at).unwrap();
    let (first, second) = (old(0), old(8));
    b.memory.write(0, &0x0000_ffff_0000_00ff_u64.to_ne_bytes());
    // Two sums of 32 bits, of which neither carries into the other; then the lower half is swapped,
    // which is as it is compared with.
    let add = MaskedFetchAdd::new(first, b.remote(0), 0x0000_0001_ffff_ff01_u64).fields(1 << 31);
    let lower = 0xffff_ffff_u64;
    let swap =
        MaskedCompareSwap::new(second, b.remote(0), Bits::new(0, lower), Bits::new(7, lower));
    // SAFETY: memory lives to the end, and is read after the requests complete.
    unsafe {
        a.send.post(1, add.signaled().to(&to)).unwrap();
        a.send.post(2, swap.signaled().to(to)).unwrap();
    }
    assert!(matches!(a.wait(), Completion::Send(done) if done.id == 1));
    assert!(matches!(a.wait(), Completion::Send(done) if done.id == 2));
    assert_eq!(a.memory.to_vec(0, 8), 0x0000_ffff_0000_00ff_u64.to_ne_bytes());
    assert_eq!(a.memory.to_vec(8, 8), 0x0001_0000_0000_0000_u64.to_ne_bytes());
    assert_eq!(b.memory.to_vec(0, 8), 0x0001_0000_0000_0007_u64.to_ne_bytes());
}

#[test]
fn the_card_copies_for_an_initiator() {
    let rig = Rig::new(Mode::Trapped);
    let mut a = Initiator::new(&rig);
    a.memory.write(0, b"here and there");
    let word = |at| a.memory.word(at).unwrap();
    let copy = DmaMemcpy::new(a.memory.sge(0, 14).unwrap(), word(1000), word(2048));
    // SAFETY: memory lives to the end, and is looked at when the request is complete.
    unsafe { a.send.post(1, copy.signaled()).unwrap() };
    assert!(matches!(a.wait(), Completion::Send(done) if done.id == 1));
    assert_eq!(a.memory.to_vec(1000, 14), b"here and there");
}

#[test]
fn one_initiator_reaches_many_targets_in_the_order_of_its_requests() {
    let rig = Rig::new(Mode::Trapped);
    let mut a = Initiator::new(&rig);
    let mut targets: Vec<Target> = (0..5).map(|_| Target::new(&rig)).collect();
    let addresses: Vec<DcAddress> = targets.iter().map(|target| target.address(&rig)).collect();
    for round in 0..3u8 {
        // SAFETY: inline payloads are copied.
        unsafe {
            let mut batch = a.send.batch();
            for (at, (target, to)) in targets.iter_mut().zip(&addresses).enumerate() {
                target.receive(64, 64);
                let payload = [round, at as u8];
                let request = SendMessage::new(Inline(&payload)).signaled().to(to);
                batch.append(at as u64, request).unwrap();
            }
            batch.ring();
        }
        for (at, target) in targets.iter_mut().enumerate() {
            assert_eq!(a.sent(), (at as u64, SendOperation::Send));
            assert_eq!(target.received().byte_len, 2);
            assert_eq!(target.memory.to_vec(64, 2), [round, at as u8]);
        }
    }
}

#[test]
fn many_initiators_reach_one_target() {
    let rig = Rig::new(Mode::Trapped);
    let mut b = Target::new(&rig);
    let to = b.address(&rig);
    let mut initiators: Vec<Initiator> = (0..6).map(|_| Initiator::new(&rig)).collect();
    for at in 0..initiators.len() {
        b.receive(at * 100, 100);
    }
    for initiator in &mut initiators {
        let number = initiator.qp.number();
        // SAFETY: the payload is copied.
        unsafe {
            let request = SendImm::new(Inline(b"mine"), number).signaled();
            initiator.send.post(1, request.to(&to)).unwrap();
        }
    }
    for initiator in &mut initiators {
        let done = b.received();
        assert_eq!(done.src_qp, initiator.qp.number());
        assert_eq!(done.kind, ReceiveKind::SendImm(initiator.qp.number()));
        assert_eq!(initiator.sent(), (1, SendOperation::SendImm));
    }
}

/// Posts a WRITE that is refused, and one behind it, and says how they end.
fn refused(a: &mut Initiator, b: &Target, remote: Remote, to: DcAddress) -> Status {
    // SAFETY: memory lives to the end.
    unsafe {
        let write = RdmaWrite::new(a.memory.sge(0, 8).unwrap(), remote).signaled();
        a.send.post(1, write.to(to)).unwrap();
    }
    let (id, status) = a.failed();
    assert_eq!(id, 1);
    let write = RdmaWrite::new(a.memory.sge(0, 8).unwrap(), b.remote(0)).signaled();
    // SAFETY: memory lives to the end, and the request is not posted.
    assert_eq!(unsafe { a.send.post(2, write.to(to)) }, Err(PostError::WrongState));
    assert_eq!(a.qp.query().unwrap().state, QpState::Error);
    assert!(matches!(a.send.go_on(), Err(QueueError::WrongState { .. })));
    status
}

#[test]
fn what_a_target_refuses_fails_the_initiator_alone() {
    let rig = Rig::new(Mode::Trapped);
    let mut b = Target::new(&rig);
    let to = b.address(&rig);
    let own = b.remote(0);
    let wrong_key = b.address_by(&rig, KEY ^ 1);
    for (remote, to, status) in [
        (own, wrong_key, Status::RemoteInvalidRequest),
        (Remote { rkey: own.rkey ^ 0x100, ..own }, to, Status::RemoteAccess),
        (own.offset(MEMORY as u64 - 4), to, Status::RemoteAccess),
    ] {
        assert_eq!(refused(&mut Initiator::new(&rig), &b, remote, to), status);
    }
    // A receive that is too small.
    let mut a = Initiator::new(&rig);
    b.receive(0, 4);
    // SAFETY: the payload is copied.
    unsafe { a.send.post(1, SendMessage::new(Inline(b"long")).signaled().to(&to)).unwrap() };
    assert_eq!((a.sent().0, b.received().byte_len), (1, 4));
    b.receive(0, 4);
    // SAFETY: the payload is copied.
    unsafe { a.send.post(2, SendMessage::new(Inline(b"longer")).signaled().to(&to)).unwrap() };
    assert_eq!(a.failed(), (2, Status::RemoteInvalidRequest));
    match b.wait() {
        Completion::Failed(Failure { id: 0, status: Status::LocalLength, qpn, .. }) => {
            assert_eq!(qpn, b.qp.number());
        }
        other => panic!("{other:?}"),
    }
    // The target serves others, and the same one when it comes back.
    let mut other = Initiator::new(&rig);
    b.receive(0, 64);
    // SAFETY: the payload is copied.
    unsafe { other.send.post(1, SendMessage::new(Inline(b"fine")).signaled().to(&to)).unwrap() };
    assert_eq!((other.sent().0, b.received().byte_len), (1, 4));
    b.is_quiet();
}

#[test]
fn rights_that_a_target_does_not_give_are_missed() {
    use mlx5::ib::Access;
    let rig = Rig::new(Mode::Trapped);
    let init = InitAttributes { access: Access::REMOTE_READ, ..rig.local.init() };
    let b = Target::open_to(&rig, &init);
    let to = b.address(&rig);
    let mut a = Initiator::new(&rig);
    // SAFETY: memory lives to the end.
    unsafe {
        let read = RdmaRead::new(a.memory.sge(0, 8).unwrap(), b.remote(0)).signaled();
        a.send.post(1, read.to(to)).unwrap();
    }
    assert_eq!(a.sent(), (1, SendOperation::Read));
    assert_eq!(refused(&mut a, &b, b.remote(0), to), Status::RemoteInvalidRequest);
}

#[test]
fn nobody_there_and_nothing_to_receive_in_are_told_apart() {
    let rig = Rig::new(Mode::Trapped);
    let last = RtsAttributes { retry_cnt: 1, rnr_retry: 1, ..RtsAttributes::default() };
    let b = Target::new(&rig);
    let mut a = Initiator::like(&rig, &last, None);
    let request = || SendMessage::new(Inline(b"?")).signaled();
    // SAFETY: the payload is copied.
    unsafe { a.send.post(1, request().to(b.address(&rig))).unwrap() };
    assert_eq!(a.failed(), (1, Status::RnrRetriesExceeded));
    let mut a = Initiator::like(&rig, &last, None);
    let gone = b.address(&rig);
    drop(b);
    // SAFETY: the payload is copied.
    unsafe { a.send.post(1, request().to(gone)).unwrap() };
    assert_eq!(a.failed(), (1, Status::RetriesExceeded));
}

#[test]
fn an_initiator_comes_back_from_an_error() {
    let rig = Rig::new(Mode::Trapped);
    let mut b = Target::new(&rig);
    let mut a = Initiator::new(&rig);
    // SAFETY: the payload is copied.
    unsafe {
        let request = SendMessage::new(Inline(b"?")).signaled();
        a.send.post(1, request.to(b.address_by(&rig, !KEY))).unwrap();
    }
    assert_eq!(a.failed(), (1, Status::RemoteInvalidRequest));
    let Initiator { memory, send, mut completions, qp } = a;
    drop(send);
    let qp = qp.reset().unwrap().init(&InitAttributes::new(1)).unwrap();
    let qp = qp.rtr(Mtu::Mtu1024).unwrap().rts(&RtsAttributes::default()).unwrap();
    let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let mut a = Initiator { memory, send, completions, qp };
    b.receive(0, 16);
    // SAFETY: the payload is copied.
    unsafe {
        a.send.post(2, SendMessage::new(Inline(b"!")).signaled().to(b.address(&rig))).unwrap()
    };
    assert_eq!((a.sent().0, b.received().byte_len), (2, 1));
}

#[test]
fn a_stream_that_fails_leaves_the_others_going() {
    let rig = Rig::new(Mode::Trapped);
    let b = Target::new(&rig);
    let streams = DciStreams { log_concurrent: 2, log_errored: 2 };
    let mut a = Initiator::like(&rig, &RtsAttributes::default(), Some(streams));
    let to = b.address(&rig);
    let post = |a: &mut Initiator, id, stream, good: bool| {
        let mut from = a.memory.sge(0, 8).unwrap();
        from.lkey ^= u32::from(!good) << 8;
        let write = RdmaWrite::new(from, b.remote(0)).signaled();
        // SAFETY: memory lives to the end.
        unsafe { a.send.post(id, write.to(to.on_stream(stream))) }
    };
    assert_eq!(post(&mut a, 1, 1, true), Ok(()));
    assert_eq!(a.sent().0, 1);
    assert_eq!(post(&mut a, 2, 2, false), Ok(()));
    assert_eq!(a.failed(), (2, Status::LocalProtection));
    // The queue stops until `go_on` says that the queue pair has not failed.
    assert_eq!(post(&mut a, 3, 1, true), Err(PostError::WrongState));
    assert_eq!(a.qp.query().unwrap().state, QpState::Rts);
    a.send.go_on().unwrap();
    for (id, stream) in [(3, 1), (4, 2), (5, 3)] {
        assert_eq!(post(&mut a, id, stream, true), Ok(()));
    }
    assert_eq!(a.sent().0, 3);
    assert_eq!(a.failed(), (4, Status::Flushed));
    assert_eq!(a.sent().0, 5);
    a.send.go_on().unwrap();
    assert!(a.qp.reset_stream(3).is_err(), "it has not failed");
    a.qp.reset_stream(2).unwrap();
    assert_eq!(post(&mut a, 6, 2, true), Ok(()));
    assert_eq!(a.sent().0, 6);
    // The fourth that has failed at a time takes the queue pair with it.
    for stream in 10..14 {
        assert_eq!(post(&mut a, 7, stream, false), Ok(()));
        assert_eq!(a.failed(), (7, Status::LocalProtection));
        assert_eq!(a.send.go_on().is_ok(), stream < 13);
    }
    assert_eq!(a.qp.query().unwrap().state, QpState::Error);
    a.is_quiet();
}

#[test]
fn a_target_has_no_queue_of_its_own() {
    let rig = Rig::new(Mode::Trapped);
    let mut b = Target::new(&rig);
    let none = ReceiveQueue::new(&b.qp, &mut b.completions, ReceiveConfig::default());
    assert!(matches!(none, Err(mlx5::Error::Queue(QueueError::NoQueue))), "{none:?}");
}
