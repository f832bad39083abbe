//! The safe layer end to end on the model, without `unsafe`; and events armed by the direct path.

#![forbid(unsafe_code)]

use std::ops::Deref;
use std::time::{Duration, Instant};

use mlx5::cqe::{QueueKind, ReceiveKind, SendOperation, Status};
use mlx5::endpoint::{
    Buffers, Endpoint, MrSlice, Outcome, ReceiveHalf, Receiver, Returned, SendHalf,
};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, Excess, PostError, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionChannel, CompletionQueue, QueuePair, QueuePairBuilder};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, InlineBytes, Nop, RdmaRead, RdmaWrite, RdmaWriteImm, Remote,
    SendImm, SendMessage,
};
use rig::{PATIENCE, Rig, until};

/// The rig, with channels.
struct World(Rig);

impl Deref for World {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.0
    }
}

impl World {
    fn new() -> Self {
        Self(Rig::new(mlx5_model::Mode::Trapped))
    }

    fn private(&self, length: usize) -> MrSlice {
        self.pd.allocate(length, Access::LOCAL_WRITE).unwrap().into()
    }

    /// Two channels connected to each other; the second has receives of these slices posted, with
    /// ids from 100 on. With `events`, the first one's CQ has a completion channel.
    fn channels(
        &self,
        receives: Vec<MrSlice>,
        events: Option<&CompletionChannel>,
    ) -> (Endpoint, Endpoint) {
        let first_cq = CompletionQueue::builder(&self.context, 64);
        let first_cq = match events {
            Some(channel) => first_cq.channel(channel),
            None => first_cq,
        };
        let first_cq = first_cq.build().unwrap();
        let (second_cq, second_receive_cq) = (self.cq(64), self.cq(64));
        let make = |builder: QueuePairBuilder<Rc>| {
            let builder = builder.max_send_wr(16).max_recv_wr(16).max_send_sge(4).max_recv_sge(4);
            self.init(builder.max_inline_data(64))
        };
        let first = make(QueuePair::builder(&self.pd, &first_cq));
        let second = QueuePair::builder(&self.pd, &second_cq).receive_cq(&second_receive_cq);
        let second = make(second);
        let mut first_completions = CqReader::new(&first_cq).unwrap();
        let second_completions = CqReader::new(&second_cq).unwrap();
        let mut second_receives = CqReader::new(&second_receive_cq).unwrap();
        let config = ReceiveConfig::default();
        let first_receiver = Receiver::new(&first, &mut first_completions, config).unwrap();
        let mut second_receiver = Receiver::new(&second, &mut second_receives, config).unwrap();
        for (id, slice) in (100..).zip(receives) {
            second_receiver.post(id, slice).unwrap();
        }
        let (first, second) = self.connect(first, second);
        let config = SendConfig::default();
        (
            Endpoint::new(first, first_receiver, first_completions, config).unwrap(),
            Endpoint::with_receive_completions(
                second,
                second_receiver,
                second_completions,
                second_receives,
                config,
            )
            .unwrap(),
        )
    }
}

fn wait<R: ReceiveHalf, S: SendHalf>(channel: &mut Endpoint<Rc, R, S>) -> Returned {
    until(|| channel.poll().next()).unwrap()
}

fn sent(returned: Returned, id: u64, operation: SendOperation) -> Buffers {
    let Outcome::Sent(done) = returned.outcome else { panic!("{returned:?}") };
    assert_eq!((returned.id, done.id, done.operation), (id, id, operation));
    returned.buffers
}

fn received(returned: Returned, id: u64) -> (ReceiveKind, u32, Buffers) {
    let Outcome::Received(done) = returned.outcome else { panic!("{returned:?}") };
    assert_eq!((returned.id, done.id), (id, id));
    (done.kind, done.byte_len, returned.buffers)
}

#[test]
fn every_operation_gives_its_memory_back() {
    let rig = World::new();
    let (mut a, mut b) = rig.channels((0..3).map(|_| rig.private(128)).collect(), None);
    let target = MrSlice::new(rig.memory(256));
    let remote = target.remote().unwrap();

    let mut text = rig.private(64);
    text.write(0, b"sent by the safe layer");
    let tail = text.split_off(22);
    a.post(1, SendMessage::new(text).signaled()).unwrap();
    let text = sent(wait(&mut a), 1, SendOperation::Send).one().unwrap();
    let (kind, length, buffers) = received(wait(&mut b), 100);
    assert_eq!((kind, length), (ReceiveKind::Send, 22));
    assert_eq!(&buffers.one().unwrap().to_vec()[..22], b"sent by the safe layer");

    // Gathered from two slices of one region, in the other order.
    a.post(2, SendImm::new(vec![tail, text], 0xfeed).signaled().solicited()).unwrap();
    let buffers = sent(wait(&mut a), 2, SendOperation::SendImm);
    let Buffers::Many(mut pieces) = buffers else { panic!("{buffers:?}") };
    let (kind, length, buffers) = received(wait(&mut b), 101);
    assert_eq!((kind, length), (ReceiveKind::SendImm(0xfeed), 64));
    assert_eq!(&buffers.one().unwrap().to_vec()[42..64], b"sent by the safe layer");
    let (text, tail) = (pieces.pop().unwrap(), pieces.pop().unwrap());
    let whole = text.join(tail).unwrap();
    assert_eq!(whole.len(), 64);

    // Unsignaled requests come back before the one that retires them.
    a.post(3, RdmaWrite::new(whole, remote)).unwrap();
    a.post(4, RdmaWrite::new(Inline(b"inline"), remote.offset(64))).unwrap();
    a.post(5, RdmaWriteImm::new(Inline(b"last"), remote.offset(72), 5).signaled()).unwrap();
    let returned = wait(&mut a);
    assert_eq!(returned.id, 3);
    assert_eq!(returned.outcome, Outcome::SentUnsignaled { byte_len: 64 });
    let whole = returned.buffers.one().unwrap();
    assert_eq!(wait(&mut a).outcome, Outcome::SentUnsignaled { byte_len: 0 });
    assert!(matches!(sent(wait(&mut a), 5, SendOperation::WriteImm), Buffers::None));
    let (kind, length, _) = received(wait(&mut b), 102);
    assert_eq!((kind, length), (ReceiveKind::WriteImm(5), 4));
    let bytes = target.to_vec();
    assert_eq!(&bytes[..22], b"sent by the safe layer");
    assert_eq!((&bytes[64..70], &bytes[72..76]), (&b"inline"[..], &b"last"[..]));

    a.post(6, RdmaRead::new(whole, remote.offset(60)).signaled()).unwrap();
    let whole = sent(wait(&mut a), 6, SendOperation::Read).one().unwrap();
    assert_eq!(whole.to_vec(), bytes[60..124]);

    a.post(7, FetchAdd::new(whole, remote.offset(128), 7).signaled()).unwrap();
    let whole = sent(wait(&mut a), 7, SendOperation::FetchAdd).one().unwrap();
    assert_eq!(whole.to_vec()[..8], 0u64.to_ne_bytes());
    a.post(8, CompareSwap::new(whole, remote.offset(128), 7, 9).signaled().fenced()).unwrap();
    let mut whole = sent(wait(&mut a), 8, SendOperation::CompareSwap).one().unwrap();
    assert_eq!(whole.to_vec()[..8], 7u64.to_ne_bytes());
    assert_eq!(target.to_vec()[128..136], 9u64.to_ne_bytes());
    a.post(9, Nop::new().signaled()).unwrap();
    assert!(matches!(sent(wait(&mut a), 9, SendOperation::Nop), Buffers::None));

    // Memory that no peer may write is lent; the target's is not.
    whole.as_mut_slice().unwrap()[0] = 1;
    assert_eq!(whole.as_slice().unwrap()[0], 1);
    assert!(target.as_slice().is_none(), "a peer may write it");
    assert!(MrSlice::as_mut_slice(&mut { target }).is_none());
    assert_eq!(whole.into_region().unwrap().len(), 64);
}

#[test]
fn what_is_refused_is_given_back() {
    let rig = World::new();
    let (mut a, _b) = rig.channels(vec![], None);
    let remote = Remote::new(0, 0);
    let refused = a.post(1, RdmaWrite::new(vec![], remote)).err();
    assert!(refused.is_none(), "an empty list is a WRITE of nothing");
    let mut whole = rig.private(100);
    let five: Vec<_> = (0..4).map(|_| whole.split_off(20)).chain([rig.private(1)]).collect();
    let refused = a.post(2, RdmaRead::new(five, remote)).unwrap_err();
    let many = PostError::TooManySges(Excess::new(5, 4));
    assert_eq!(refused.error, many);
    assert_eq!(refused.operation.into_payload().len(), 5);
    let refused = a.post(3, FetchAdd::new(rig.private(7), remote, 1)).unwrap_err();
    assert_eq!(refused.error, PostError::WordTooShort);
    assert_eq!(refused.operation.into_old().len(), 7);
    let refused = a.post(4, SendMessage::new(Inline(&[0; 1000]))).unwrap_err();
    let long = matches!(refused.error, PostError::InlineTooLong(by) if by.asked() == 1000);
    assert!(long, "{refused}");
    let mut slice = rig.private(8);
    for id in 0.. {
        match a.post(id, RdmaWrite::new(slice, remote).signaled()) {
            Ok(()) => slice = rig.private(8),
            Err(refused) => {
                // As many signaled requests as the queue pair was made for, none polled.
                let slots = a.send_queue().request_limit();
                assert_eq!(refused.error, PostError::CqFull { slots });
                assert_eq!(refused.operation.into_payload().len(), 8);
                break;
            }
        }
    }
}

#[test]
fn a_failure_gives_memory_back_and_close_the_rest() {
    let rig = World::new();
    let (mut a, b) = rig.channels(vec![rig.private(16)], None);
    a.post_receive(50, rig.private(32)).unwrap();
    a.post_receive(51, vec![rig.private(4), rig.private(4)]).unwrap();
    let nowhere = Remote::new(0x1000, 0x00de_ad00);
    a.post(1, RdmaWrite::new(rig.private(8), nowhere)).unwrap();
    a.post(2, SendMessage::new(rig.private(9)).signaled()).unwrap();
    // Two queues of one QP are flushed in any order.
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    while sends.len() < 2 {
        let returned = wait(&mut a);
        let Outcome::Failed(failure) = returned.outcome else { panic!("{returned:?}") };
        assert_eq!(failure.id, returned.id);
        match failure.queue {
            QueueKind::Send => {
                let length = returned.buffers.one().unwrap().len();
                sends.push((returned.id, failure.status, length));
            }
            QueueKind::Receive => {
                assert_eq!(failure.status, Status::Flushed);
                receives.push(returned.id);
            }
        }
    }
    assert_eq!(sends, [(1, Status::RemoteAccess, 8), (2, Status::Flushed, 9)]);
    let refused = a.post(3, Nop::new()).unwrap_err();
    assert_eq!(refused.error, PostError::WrongState);

    // RESET returns the requests whose completions were not polled.
    let closed = a.close().unwrap();
    assert!(closed.sends.is_empty());
    receives.extend(closed.receives.into_iter().map(|(id, _)| id));
    assert_eq!(receives, [50, 51]);
    let closed = b.close().unwrap();
    assert_eq!(closed.receives.len(), 1);
}

#[test]
fn dropping_and_leaking_in_flight_is_harmless() {
    let rig = World::new();
    let (a, mut b) = rig.channels(vec![], None);
    let mut kept = rig.private(64);
    let posted = kept.split_off(32);
    b.post_receive(1, posted).unwrap();
    drop(b);
    // The other half is still this side's, and its region with it; the whole is gone for good.
    kept.write(0, &[7; 32]);
    assert_eq!(kept.to_vec(), [7; 32]);
    assert!(kept.into_region().is_err());
    std::mem::forget(a);
}

#[test]
fn events_come_for_what_was_asked() {
    let rig = World::new();
    let events = CompletionChannel::new(&rig.context).unwrap();
    let (mut a, mut b) = rig.channels(vec![], Some(&events));
    for id in 0..6 {
        // Asked for solicited events only, a plain SEND makes none.
        let solicited = id % 2 == 1;
        a.post_receive(id, rig.private(8)).unwrap();
        if id < 2 {
            a.arm()
        } else {
            a.arm_solicited()
        }
        b.post(id, {
            let send = SendMessage::new(Inline(b"event")).signaled();
            if solicited { send.solicited() } else { send }
        })
        .unwrap();
        let expected = id < 2 || solicited;
        let patience = if expected { PATIENCE } else { Duration::from_millis(50) };
        let event = events.get_event(patience).unwrap();
        assert_eq!(event.is_some(), expected, "message {id}");
        let (_, length, _) = received(wait(&mut a), id);
        assert_eq!(length, 5);
        sent(wait(&mut b), id, SendOperation::Send);
    }
}

/// A program that posts only unsignaled requests and then idles still gets its memory back.
#[test]
fn an_idle_channel_gives_back_what_nothing_reports() {
    let rig = World::new();
    let (mut first, _second) = rig.channels(Vec::new(), None);
    let target = rig.memory(64);
    let remote = target.remote(0).unwrap();
    assert_eq!(first.reclaim(9), Ok(false));
    for id in 0..3 {
        first.post(id, RdmaWrite::new(rig.private(64), remote)).unwrap();
    }
    assert!(first.poll().next().is_none());
    assert_eq!(first.reclaim(9), Ok(true));
    let mut returned = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while returned.len() < 4 {
        assert!(Instant::now() < deadline, "{returned:?}");
        for back in first.poll() {
            let back = back.unwrap();
            returned.push((back.id, back.buffers.one().is_ok()));
        }
    }
    assert_eq!(returned, [(0, true), (1, true), (2, true), (9, false)]);
    assert_eq!(first.reclaim(9), Ok(false));
}

/// Prepared requests, receives and polls on one queue pair; then any request again.
#[test]
fn prepared_requests_are_fired_between_receives() {
    let rig = World::new();
    let (a, mut b) = rig.channels(vec![], None);
    let target = MrSlice::new(rig.memory(256));
    let mut a = a;
    a.post_receive(50, rig.private(32)).unwrap();
    // In flight while the endpoint is converted.
    a.post(1, RdmaWrite::new(rig.private(8), target.remote().unwrap())).unwrap();
    let mut a = a.into_prepared::<RdmaWrite<InlineBytes<8>>>();
    for id in 2..6u64 {
        let write = RdmaWrite::new(InlineBytes([0; 8]), target.remote().unwrap().offset(8 * id));
        a.prepare(id, if id % 2 == 1 { write.signaled() } else { write }).unwrap();
    }
    assert_eq!(a.prepared().len(), 4);
    b.post(9, SendMessage::new(Inline(b"meanwhile")).signaled()).unwrap();
    let (kind, length, buffers) = received(wait(&mut a), 50);
    assert_eq!((kind, length, buffers.slices().len()), (ReceiveKind::Send, 9, 1));
    a.post_receive(51, buffers.one().unwrap()).unwrap();
    a.fire([2; 8]).unwrap();
    a.fire([3; 8]).unwrap();
    let first = wait(&mut a);
    assert_eq!((first.id, first.outcome), (1, Outcome::SentUnsignaled { byte_len: 8 }));
    assert_eq!(first.buffers.one().unwrap().len(), 8);
    assert_eq!(wait(&mut a).id, 2);
    assert!(matches!(sent(wait(&mut a), 3, SendOperation::Write), Buffers::None));
    assert_eq!(target.to_vec()[16..40], [[2; 8], [3; 8], [0; 8]].concat());
    a.fire([4; 8]).unwrap();
    assert!(a.poll().next().is_none());
    // The last one is never posted.
    let mut a = a.into_endpoint();
    a.post(7, FetchAdd::new(rig.private(8), target.remote().unwrap(), 1).signaled()).unwrap();
    assert_eq!(wait(&mut a).id, 4);
    assert!(sent(wait(&mut a), 7, SendOperation::FetchAdd).one().is_ok());
    assert_eq!(target.to_vec()[32..48], [[4; 8], [0; 8]].concat());
    let closed = a.close().unwrap();
    assert!(closed.sends.is_empty());
    assert_eq!(closed.receives.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [51]);
}
