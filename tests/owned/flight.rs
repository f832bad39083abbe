//! In-flight memory of the owned layer is returned, all of it and once, in every order of events.

use std::collections::VecDeque;

use mlx5::Error;
use mlx5::endpoint::{
    Buffers, CallFailed, Endpoint, EndpointError, MrSlice, Outcome, PreparedEndpoint, Receiver,
    Returned,
};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, PostError, QueueError, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::attr::{AddressVector, RtrAttributes};
use mlx5::verbs::{Init, QueuePair};
use mlx5::wqe::{InlineBytes, Nop, RdmaRead, RdmaWrite, Remote, SendMessage};
use mlx5_model::Mode;
use rig::Rig;

/// Requests that a queue takes.
const REQUESTS: u32 = 16;

struct Pair {
    channel: Endpoint,
    remote: Remote,
    target: MrSlice,
    peer: Endpoint,
    rig: Rig,
}

impl Pair {
    /// A channel, with a CQ of its own for receives or not, in a world that moves when it is told to.
    fn new(apart: bool) -> Self {
        let rig = Rig::new(Mode::Manual);
        let (cq, receive_cq, peer_cq) = (rig.cq(64), rig.cq(64), rig.cq(64));
        let builder = QueuePair::builder(&rig.pd, &cq).max_send_wr(REQUESTS).max_recv_wr(REQUESTS);
        let builder = builder.max_send_sge(4).max_recv_sge(2).max_inline_data(64);
        let builder = if apart { builder.receive_cq(&receive_cq) } else { builder };
        let qp = rig.init(builder);
        let mut completions = CqReader::new(&cq).unwrap();
        let mut receives = apart.then(|| CqReader::new(&receive_cq).unwrap());
        let receiver = Receiver::new(
            &qp,
            receives.as_mut().unwrap_or(&mut completions),
            ReceiveConfig::default(),
        );
        let peer = rig.init(QueuePair::builder(&rig.pd, &peer_cq).max_inline_data(64));
        let mut peer_completions = CqReader::new(&peer_cq).unwrap();
        let peer_receiver =
            Receiver::new(&peer, &mut peer_completions, ReceiveConfig::default()).unwrap();
        let (qp, peer) = rig.connect(qp, peer);
        let (receiver, config) = (receiver.unwrap(), SendConfig::default());
        let peer = Endpoint::new(peer, peer_receiver, peer_completions, config).unwrap();
        let channel = match receives {
            None => Endpoint::new(qp, receiver, completions, config).unwrap(),
            Some(receives) => {
                Endpoint::with_receive_completions(qp, receiver, completions, receives, config)
                    .unwrap()
            }
        };
        let target = MrSlice::new(rig.memory(4096));
        let remote = target.remote().unwrap();
        Self { channel, remote, target, peer, rig }
    }

    fn slice(&self, length: usize) -> MrSlice {
        MrSlice::new(self.rig.memory(length))
    }

    fn poll(&mut self) -> Option<Returned> {
        self.channel.poll().next().map(Result::unwrap)
    }
}

/// Turns a slice into its region again, which succeeds only if no other slice of it exists.
fn alone(slice: MrSlice) {
    slice.into_region().expect("nobody else has a part of the region");
}

#[test]
fn buffers_are_what_they_were_made_of() {
    let pair = Pair::new(false);
    assert!(matches!(Buffers::default(), Buffers::None));
    assert!(Buffers::None.slices().is_empty());
    assert!(matches!(Buffers::None.one(), Err(Buffers::None)));
    assert!(Buffers::None.into_iter().next().is_none());
    let one = Buffers::from(pair.slice(7));
    assert!(!matches!(one, Buffers::None));
    assert_eq!((one.slices().len(), one.slices()[0].len()), (1, 7));
    alone(one.one().unwrap());
    let mut all = Buffers::from(pair.slice(7)).into_iter();
    assert_eq!(all.size_hint(), (1, Some(1)));
    alone(all.next().unwrap());
    assert!(all.next().is_none());
    for count in 0..4 {
        let mut list = Vec::with_capacity(count + 2);
        list.extend((0..count).map(|at| pair.slice(10 + at)));
        let buffers = Buffers::from(list);
        assert!(!matches!(buffers, Buffers::None));
        let lengths: Vec<_> = buffers.slices().iter().map(MrSlice::len).collect();
        assert_eq!(lengths, (10..10 + count).collect::<Vec<_>>());
        // Asked for in the wrong shape, nothing is lost.
        let buffers = buffers.one().unwrap_err();
        assert!(matches!(&buffers, Buffers::Many(list) if list.len() == count));
        let all = buffers.into_iter();
        assert_eq!(all.size_hint(), (count, Some(count)));
        let mut seen = 0;
        for slice in all {
            assert_eq!(slice.len(), 10 + seen);
            alone(slice);
            seen += 1;
        }
        assert_eq!(seen, count);
    }
    // What is dropped lets go of the region.
    let mut whole = pair.slice(100);
    let (last, middle) = (whole.split_off(60), whole.split_off(20));
    drop(Buffers::from(vec![last, middle]));
    let rest = whole.split_off(10);
    drop(Buffers::from(rest));
    let whole = whole.into_region().unwrap_err();
    assert_eq!(whole.len(), 10);
}

#[test]
fn what_one_completion_retires_comes_back_one_by_one() {
    for apart in [false, true] {
        let mut pair = Pair::new(apart);
        // Twice round the ring, and then some.
        for round in 0..23u64 {
            let mut expected = VecDeque::new();
            let count = 1 + round % 7;
            for id in 0..count {
                let id = round * 100 + id;
                let last = id % 100 == count - 1;
                let remote = pair.remote;
                let length = match id % 4 {
                    0 => {
                        let slice = pair.slice(32);
                        pair.channel
                            .post(id, RdmaWrite::new(slice, remote).signaled_if(last))
                            .unwrap();
                        32
                    }
                    1 => {
                        // Of two blocks.
                        let list: Vec<_> = (0..3).map(|_| pair.slice(8)).collect();
                        pair.channel
                            .post(id, RdmaRead::new(list, remote).signaled_if(last))
                            .unwrap();
                        24
                    }
                    2 => {
                        let write = RdmaWrite::new(InlineBytes([1; 8]), remote);
                        pair.channel.post(id, write.signaled_if(last)).unwrap();
                        0
                    }
                    _ => {
                        pair.channel.post(id, Nop::new().signaled_if(last)).unwrap();
                        0
                    }
                };
                expected.push_back((id, length));
            }
            assert!(pair.poll().is_none());
            mlx5_model::run();
            let free = pair.channel.send_queue().free_blocks();
            for (id, length) in expected {
                let returned = pair.poll().unwrap();
                assert_eq!(returned.id, id);
                let found: usize = returned.buffers.slices().iter().map(MrSlice::len).sum();
                assert_eq!(found, length);
                match returned.outcome {
                    Outcome::SentUnsignaled { byte_len } => assert_eq!(byte_len, length),
                    Outcome::Sent(done) => assert_eq!((done.id, id % 100), (id, count - 1)),
                    other => panic!("{other:?}"),
                }
                returned.buffers.into_iter().for_each(alone);
            }
            assert!(pair.channel.send_queue().free_blocks() > free);
            assert!(pair.poll().is_none() && pair.channel.send_queue().is_idle());
        }
    }
}

#[test]
fn a_poll_goes_on_where_the_one_before_was_dropped() {
    let mut pair = Pair::new(false);
    let remote = pair.remote;
    for id in 0..6 {
        // Two completions, of three requests each.
        let slice = pair.slice(8);
        pair.channel.post(id, RdmaWrite::new(slice, remote).signaled_if(id % 3 == 2)).unwrap();
    }
    mlx5_model::run();
    let mut ids = Vec::new();
    for count in [0, 1, 3, 1] {
        for returned in pair.channel.poll().take(count) {
            let returned = returned.unwrap();
            ids.push(returned.id);
            alone(returned.buffers.one().unwrap());
        }
        std::mem::forget(pair.channel.poll());
    }
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    ids.extend(pair.channel.poll().map(|returned| returned.unwrap().id));
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_completion_of_no_request_is_an_error_that_ends_one_poll() {
    let rig = Rig::new(Mode::Manual);
    let (cq, peer_cq) = (rig.cq(256), rig.cq(256));
    let qp = || rig.init(QueuePair::builder(&rig.pd, &cq).max_send_wr(REQUESTS));
    let peer = || rig.init(QueuePair::builder(&rig.pd, &peer_cq).max_send_wr(REQUESTS));
    let mut completions = CqReader::new(&cq).unwrap();
    let (other, _other_peer) = rig.connect(qp(), peer());
    let mut queue = SendQueue::new(&other, &mut completions, SendConfig::default()).unwrap();
    // SAFETY: a NOP names no memory.
    unsafe { queue.post(1, Nop::new().signaled()).unwrap() };
    mlx5_model::run();
    drop(queue);
    let qp = qp();
    let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let (qp, _peer) = rig.connect(qp, peer());
    let mut endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap();
    endpoint.post(2, Nop::new().signaled()).unwrap();
    mlx5_model::run();
    let mut polled = endpoint.poll();
    let error = polled.next().unwrap().unwrap_err();
    assert!(
        matches!(error, EndpointError::UnexpectedCqe(cqe) if cqe.qpn == other.number()),
        "{error}"
    );
    assert!(polled.next().is_none());
    drop(polled);
    let ids: Vec<_> = endpoint.poll().map(|returned| returned.unwrap().id).collect();
    assert_eq!(ids, [2]);
}

#[test]
fn what_has_not_come_back_holds_its_place() {
    let mut pair = Pair::new(false);
    let slots = pair.channel.send_queue().request_limit();
    let remote = pair.remote;
    // The queue is full, of requests that one completion retires.
    for id in 0..slots {
        let slice = pair.slice(16);
        let write = RdmaWrite::new(slice, remote).signaled_if(id + 1 == slots);
        pair.channel.post(id.into(), write).unwrap();
    }
    mlx5_model::run();
    for id in 0..slots {
        let refused = pair.channel.post(99, RdmaWrite::new(pair.slice(5), remote)).unwrap_err();
        assert_eq!(refused.error, PostError::CqFull { slots });
        assert_eq!(refused.operation.into_payload().len(), 5);
        let returned = pair.poll().unwrap();
        assert_eq!(returned.id, id.into());
        alone(returned.buffers.one().unwrap());
        // The place can be used from now on.
        let slice = pair.slice(17);
        let signaled = id + 1 == slots;
        pair.channel
            .post((1000 + id).into(), RdmaWrite::new(slice, remote).signaled_if(signaled))
            .unwrap();
        if id == slots / 2 {
            // Also while the card works on what is new.
            mlx5_model::run();
        }
    }
    mlx5_model::run();
    for id in 0..slots {
        let returned = pair.poll().unwrap();
        assert_eq!(returned.id, (1000 + id).into());
        assert_eq!(returned.buffers.one().unwrap().len(), 17);
    }
    assert!(pair.poll().is_none());
}

#[test]
fn receives_come_back_between_requests() {
    for apart in [false, true] {
        let mut pair = Pair::new(apart);
        let remote = pair.remote;
        let mut receives = VecDeque::new();
        // Several times round both rings.
        for round in 0..40u64 {
            // A receive of one slice, or of two.
            let id = 1000 + round;
            let lengths: &[usize] = if round % 3 == 0 { &[4, 60] } else { &[64] };
            let list: Vec<_> = lengths.iter().map(|&length| pair.slice(length)).collect();
            match <[MrSlice; 1]>::try_from(list) {
                Ok([slice]) => pair.channel.post_receive(id, slice).unwrap(),
                Err(list) => pair.channel.post_receive(id, list).unwrap(),
            }
            receives.push_back((id, lengths));
            // One completion for three requests; the message comes before or after it.
            let send = |pair: &mut Pair| {
                let message = SendMessage::new(InlineBytes(id.to_ne_bytes())).signaled();
                pair.peer.post(id, message).unwrap();
                mlx5_model::run();
            };
            if round % 2 == 0 {
                send(&mut pair);
            }
            for at in 0..3 {
                let slice = pair.slice(8);
                pair.channel.post(at, RdmaWrite::new(slice, remote).signaled_if(at == 2)).unwrap();
            }
            mlx5_model::run();
            let mut sends = VecDeque::from([0, 1, 2]);
            let mut late = round % 2 != 0;
            while !sends.is_empty() || !receives.is_empty() {
                let Some(returned) = pair.poll() else {
                    assert!(late, "something is missing");
                    late = false;
                    send(&mut pair);
                    continue;
                };
                if let Outcome::Received(done) = returned.outcome {
                    let (id, lengths) = receives.pop_front().unwrap();
                    assert_eq!((returned.id, done.id, done.byte_len), (id, id, 8));
                    let slices = returned.buffers.slices();
                    let found: Vec<_> = slices.iter().map(MrSlice::len).collect();
                    assert_eq!(found, lengths);
                    let bytes: Vec<_> = slices.iter().flat_map(MrSlice::to_vec).collect();
                    assert_eq!(bytes[..8], id.to_ne_bytes());
                    continue;
                }
                assert_eq!(Some(returned.id), sends.pop_front());
                alone(returned.buffers.one().unwrap());
                if late && sends.len() == 1 {
                    // While requests wait to be given back.
                    late = false;
                    send(&mut pair);
                }
            }
            assert!(pair.poll().is_none());
            assert!(matches!(pair.peer.poll().next(), Some(Ok(_))));
        }
        // What no message has taken is given back by RESET.
        for id in 0..3 {
            let slice = pair.slice(8);
            pair.channel.post_receive(id, slice).unwrap();
        }
        let closed = pair.channel.close().unwrap();
        let ids: Vec<_> = closed.receives.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [0, 1, 2]);
        for (_, buffers) in closed.receives {
            alone(buffers.one().unwrap());
        }
    }
}

#[test]
fn closing_gives_back_what_polls_have_not() {
    let mut pair = Pair::new(false);
    let remote = pair.remote;
    for id in 0..5 {
        let slice = pair.slice(10);
        pair.channel.post(id, RdmaWrite::new(slice, remote).signaled_if(id == 3)).unwrap();
    }
    mlx5_model::run();
    // Two of four are given back before, one was never completed.
    for id in 0..2 {
        assert_eq!(pair.poll().unwrap().id, id);
    }
    let closed = pair.channel.close().unwrap();
    let ids: Vec<_> = closed.sends.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [2, 3, 4]);
    for (_, buffers) in closed.sends {
        alone(buffers.one().unwrap());
    }
    alone(pair.target);
}

#[test]
fn whatever_is_leaked_or_dropped_does_no_harm() {
    let mut pair = Pair::new(false);
    let remote = pair.remote;
    let mut whole = pair.slice(64);
    for id in 0..3 {
        // Parts without bytes, of the region whose rest stays here.
        let (slice, other) = (whole.split_off(64), whole.split_off(64));
        pair.channel.post(id, RdmaWrite::new(slice, remote).signaled_if(id == 2)).unwrap();
        pair.channel.post(10 + id, RdmaWrite::new(vec![pair.slice(8), other], remote)).unwrap();
        let receive = vec![pair.slice(8), whole.split_off(64)];
        pair.channel.post_receive(id, receive).unwrap();
    }
    assert!(pair.poll().is_none());
    let mut whole = whole.into_region().expect_err("parts of it are in flight");
    drop(pair.channel);
    // What was in flight is gone with the channel.
    whole.write(0, &[1; 64]);
    alone(whole);

    let mut pair = Pair::new(false);
    let (first, second) = (pair.slice(8), pair.slice(8));
    let remote = pair.remote;
    pair.channel.post(1, RdmaWrite::new(first, remote).signaled()).unwrap();
    pair.channel.post(2, RdmaWrite::new(second, remote).signaled()).unwrap();
    mlx5_model::run();
    std::mem::forget(pair.poll());
    assert_eq!(pair.poll().unwrap().id, 2);
    std::mem::forget(pair.channel);
}

#[test]
fn batches_come_back_like_single_requests() {
    let mut pair = Pair::new(false);
    let remote = pair.remote;
    for round in 0..30u64 {
        let count = 1 + round % 5;
        let mut memory = VecDeque::new();
        for at in 0..count {
            memory.push_back(pair.slice(16 + at as usize));
        }
        let list = vec![pair.slice(1), pair.slice(2), pair.slice(3)];
        let mut batch = pair.channel.batch();
        for (id, slice) in memory.drain(..).enumerate() {
            batch.append(id as u64, RdmaWrite::new(slice, remote)).unwrap();
        }
        batch.append(100, RdmaWrite::new(InlineBytes([7; 8]), remote)).unwrap();
        batch.append(101, RdmaRead::new(list, remote).signaled()).unwrap();
        let refused =
            batch.append(102, SendMessage::new(mlx5::wqe::Inline(&[0; 1000]))).unwrap_err();
        let asked = 1000;
        assert!(matches!(refused.error, PostError::InlineTooLong(by) if by.asked() == asked));
        assert_eq!(u64::from(batch.len()), count + 2);
        batch.ring();
        mlx5_model::run();
        for id in 0..count {
            let returned = pair.poll().unwrap();
            assert_eq!(returned.id, id);
            let slice = returned.buffers.one().unwrap();
            assert_eq!(slice.len() as u64, 16 + id);
            alone(slice);
        }
        assert!(matches!(pair.poll().unwrap(), Returned { id: 100, buffers: Buffers::None, .. }));
        let list = pair.poll().unwrap().buffers;
        assert!(matches!(list, Buffers::Many(_)));
        assert_eq!(list.slices().iter().map(MrSlice::len).collect::<Vec<_>>(), [1, 2, 3]);
        list.into_iter().for_each(alone);
        assert!(pair.poll().is_none());
    }
}

#[test]
fn batches_that_are_not_rung_leave_nothing_behind() {
    for leaked in [false, true] {
        let mut pair = Pair::new(false);
        let remote = pair.remote;
        for round in 0..40 {
            // Parts without bytes: their regions are alone again when they are gone.
            let mut regions = [pair.slice(64), pair.slice(64)];
            let [first, second] = regions.each_mut().map(|slice| slice.split_off(64));
            let (one, other) = (pair.slice(8), pair.slice(8));
            let mut batch = pair.channel.batch();
            assert!(batch.is_empty());
            batch.append(0, RdmaWrite::new(one, remote).signaled()).unwrap();
            batch.append(1, RdmaWrite::new(first, remote).signaled()).unwrap();
            batch.append(2, RdmaWrite::new(vec![other, second], remote).signaled()).unwrap();
            if leaked {
                std::mem::forget(batch);
            } else {
                drop(batch);
            }
            assert!(pair.poll().is_none());
            // What is posted in their places has its own memory only.
            match round % 3 {
                0 => {
                    let write = RdmaWrite::new(InlineBytes([1; 8]), remote).signaled();
                    pair.channel.post(7, write).unwrap();
                }
                1 => pair.channel.post(7, Nop::new().signaled()).unwrap(),
                _ => {
                    let mut batch = pair.channel.batch();
                    batch.append(7, Nop::new().signaled()).unwrap();
                    batch.ring();
                }
            }
            for _ in 0..2 {
                pair.channel.post(8, Nop::new().signaled()).unwrap();
            }
            mlx5_model::run();
            for id in [7, 8, 8] {
                let returned = pair.poll().unwrap();
                assert_eq!(returned.id, id);
                assert!(matches!(returned.buffers, Buffers::None));
            }
            // And theirs is gone.
            regions.into_iter().for_each(alone);
        }
    }
}

/// Firing a prepared request does not use its slot of memory in flight, where a leaked batch may have
/// left some.
#[test]
fn prepared_requests_return_no_memory_of_leaked_batches() {
    let mut pair = Pair::new(false);
    let remote = pair.remote;
    // One request is outstanding, and keeps its memory.
    let (kept, mut region) = (pair.slice(32), pair.slice(64));
    pair.channel.post(1, RdmaWrite::new(kept, remote).signaled()).unwrap();
    let mut batch = pair.channel.batch();
    let nothing = region.split_off(64);
    batch.append(2, Nop::new()).unwrap();
    batch.append(3, RdmaWrite::new(nothing, remote)).unwrap();
    std::mem::forget(batch);
    let Pair { channel, rig, target, peer, .. } = pair;
    let mut prepared: PreparedEndpoint<RdmaWrite<InlineBytes<8>>> = channel.into_prepared();
    // The memory of the batch is gone.
    alone(region);
    for id in 4..8 {
        prepared.prepare(id, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled()).unwrap();
        prepared.fire([1; 8]).unwrap();
    }
    mlx5_model::run();
    let returned = prepared.poll_one().unwrap().unwrap();
    assert_eq!((returned.id, returned.buffers.one().unwrap().len()), (1, 32));
    for id in 4..8 {
        let returned = prepared.poll_one().unwrap().unwrap();
        assert_eq!(returned.id, id);
        assert!(matches!(returned.buffers, Buffers::None), "{returned:?}");
    }
    drop((rig, target, peer));
}

/// A queue pair in INIT with two receives posted, the region that their memory is of, and its CQ.
fn receives_before_connecting(rig: &Rig) -> (QueuePair<Rc, Init>, Receiver, MrSlice, CqReader) {
    let cq = rig.cq(7);
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq));
    let mut reader = CqReader::new(&cq).unwrap();
    let mut receiver = Receiver::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let mut region = MrSlice::new(rig.memory(64));
    let (second, first) = (region.split_off(48), region.split_off(32));
    receiver.post(1, first).unwrap();
    receiver.post(2, vec![second]).unwrap();
    (qp, receiver, region, reader)
}

/// Checks that these are all receives, and joins their memory to the rest of the region.
fn joins(rest: MrSlice, receives: Vec<(u64, Buffers)>) {
    assert_eq!(receives.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2]);
    let parts = receives.into_iter().flat_map(|(_, buffers)| buffers);
    alone(parts.fold(rest, |whole, part| whole.join(part).unwrap()));
}

#[test]
fn receives_come_back_if_a_transition_fails() {
    let rig = Rig::new(Mode::Trapped);
    let (qp, receiver, rest, mut reader) = receives_before_connecting(&rig);
    let end = rig.local.connection_data(&qp);
    let wrong = rig.local.rtr(&end, &end);
    let wrong = RtrAttributes { address: AddressVector { port: 9, ..wrong.address }, ..wrong };
    let failed = qp.rtr(&wrong).unwrap_err();
    // The receiver of another queue pair comes back whole.
    let (other, other_receiver, other_rest, _other_reader) = receives_before_connecting(&rig);
    let CallFailed { error, arguments: (queue_pair, receiver) } =
        receiver.close(other).unwrap_err();
    assert!(matches!(error, Error::Queue(QueueError::QpMismatch)), "{error}");
    let closed = other_receiver.close(queue_pair).unwrap();
    joins(other_rest, closed.receives);
    let closed = receiver.expect("the receiver").close(failed.queue_pair).unwrap();
    joins(rest, closed.receives);
    // Queue pair and CQ can be connected now.
    let qp = rig.to_init(closed.qp);
    let receiver = Receiver::new(&qp, &mut reader, ReceiveConfig::default()).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&end, &end)).unwrap().rts(&rig.local.rts(&end, &end)).unwrap();
    Endpoint::new(qp, receiver, reader, SendConfig::default()).unwrap();
}

#[test]
fn receives_come_back_if_no_endpoint_is_built() {
    let rig = Rig::new(Mode::Trapped);
    let (qp, receiver, rest, reader) = receives_before_connecting(&rig);
    let qp = rig.looped(qp);
    let foreign = CqReader::new(&rig.cq(64)).unwrap();
    let failed = Endpoint::new(qp, receiver, foreign, SendConfig::default()).unwrap_err();
    assert!(matches!(failed.error, Error::Queue(QueueError::CqMismatch)), "{failed}");
    // The CQ has not as many slots as the send queue is to reserve.
    let CallFailed { arguments: (queue_pair, receiver, foreign), .. } = failed;
    let many = SendConfig { requests: 64, ..SendConfig::default() };
    let failed = Endpoint::new(queue_pair, receiver, reader, many).unwrap_err();
    assert!(matches!(failed.error, Error::Queue(QueueError::CqFull { .. })), "{failed}");
    let (queue_pair, receiver, _reader) = failed.arguments;
    let closed = receiver.close(queue_pair).unwrap();
    joins(rest, closed.receives);
    drop(foreign);
}
