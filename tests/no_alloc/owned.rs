//! The owned layer allocates and frees no memory when it posts lists and batches, and when it
//! returns the requests retired by one completion one by one. (`direct.rs` covers the rest of the
//! data path.)

use std::hint::black_box;

use mlx5::endpoint::{
    Buffers, Endpoint, Endpoints, MrSlice, Outcome, Receiver, Returned, SharedReceiver,
};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{QueuePair, SharedReceiveQueue};
use mlx5::wqe::{Inline, RdmaRead, RdmaWrite, SendMessage};
use rig::Rig;

use super::watched;

fn returned(channel: &mut Endpoint) -> Returned {
    channel.poll().next().expect("a request is retired").unwrap()
}

#[test]
fn lists_batches_and_giving_back_allocate_nothing() {
    // The control: it sees what it is to see.
    assert_eq!(watched(|| drop(black_box(Box::new(7)))).1, 2);

    let rig = Rig::new(mlx5_model::Mode::Manual);
    let (cq, peer_cq) = (rig.cq(64), rig.cq(64));
    let builder = QueuePair::builder(&rig.pd, &cq).max_send_sge(4).max_recv_sge(4);
    let qp = rig.init(builder.max_send_wr(16).max_inline_data(64));
    let mut completions = CqReader::new(&cq).unwrap();
    let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let (qp, _peer) = rig.connect(qp, rig.init(QueuePair::builder(&rig.pd, &peer_cq)));
    let mut channel = Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap();
    let target = rig.memory(4096);
    let remote = target.remote(0).unwrap();

    let mut whole = MrSlice::new(rig.memory(256));
    let mut list: Vec<_> = (0..3).map(|_| whole.split_off(whole.len() - 32)).collect();
    // Enough for the ring to wrap, also within WQEs.
    for round in 0..50 {
        let ((), calls) = watched(|| {
            let mut batch = channel.batch();
            let write = RdmaWrite::new(Inline(b"at run time"), remote);
            batch.append(1, write).unwrap();
            // Two blocks, gathered from what is not in flight.
            batch.append(2, RdmaRead::new(std::mem::take(&mut list), remote)).unwrap();
            batch.ring();
            let mut batch = channel.batch();
            batch.append(9, RdmaWrite::new(Inline(b"dropped"), remote)).unwrap();
            drop(batch);
        });
        assert_eq!(calls, 0, "posting, round {round}");
        let end = RdmaWrite::new(whole, remote).signaled();
        let (result, calls) = watched(|| channel.post(3, end));
        assert_eq!((result.is_ok(), calls), (true, 0), "posting, round {round}");
        mlx5_model::run();
        let (ends, calls) = watched(|| [(); 3].map(|()| returned(&mut channel)));
        assert_eq!(calls, 0, "polling, round {round}");
        assert_eq!(ends.each_ref().map(|returned| returned.id), [1, 2, 3]);
        assert!(matches!(ends[2].outcome, Outcome::Sent(_)));
        let [_, second, third] = ends;
        let (slices, calls) = watched(|| (second.buffers, third.buffers));
        assert_eq!(calls, 0, "taking apart, round {round}");
        let (Buffers::Many(slices), Buffers::One(slice)) = slices else { panic!("{slices:?}") };
        (list, whole) = (slices, slice);
        assert_eq!((list.len(), whole.len()), (3, 160));
    }
}

/// Requests and answers of several connections, over shared receive queues at both ends.
#[test]
fn endpoints_allocate_nothing_once_they_are_connected() {
    const CONNECTIONS: usize = 5;
    let rig = Rig::new(mlx5_model::Mode::Manual);
    let cqs = [rig.cq(511), rig.cq(511)];
    let srqs = [(); 2].map(|()| SharedReceiveQueue::builder(&rig.pd).max_wr(16).build().unwrap());
    let mut sides: Vec<Endpoints> = cqs
        .iter()
        .zip(&srqs)
        .map(|(cq, srq)| {
            let mut completions = CqReader::new(cq).unwrap();
            let receiver = SharedReceiver::new(srq, &mut completions, ReceiveConfig::default());
            let mut receiver = receiver.unwrap();
            (0..16).for_each(|id| receiver.post(id, MrSlice::new(rig.memory(64))).unwrap());
            Endpoints::with_receiver(completions, receiver).unwrap()
        })
        .collect();
    let mut keys = Vec::new();
    for _ in 0..CONNECTIONS {
        let make = |at: usize| {
            let qp = QueuePair::builder(&rig.pd, &cqs[at]).shared_receive_queue(&srqs[at]);
            rig.init(qp.max_send_wr(4).max_inline_data(16))
        };
        let (first, second) = (make(0), make(1));
        sides[0].attach(&first).unwrap();
        sides[1].attach(&second).unwrap();
        let (first, second) = rig.connect(first, second);
        sides[0].insert(first, SendConfig::default()).unwrap();
        keys.push(sides[1].insert(second, SendConfig::default()).unwrap());
    }
    let [server, clients] = &mut sides[..] else { unreachable!() };
    for round in 0..50 {
        let ((), calls) = watched(|| {
            for &key in &keys {
                clients.post(key, 1, SendMessage::new(Inline(b"request")).signaled()).unwrap();
            }
        });
        assert_eq!(calls, 0, "asking, round {round}");
        let mut polled = 0;
        for _ in 0..3 {
            mlx5_model::run();
            let ((), calls) = watched(|| {
                while let Some((key, returned)) = server.poll_one().unwrap() {
                    let memory = returned.buffers.one().unwrap();
                    if let Outcome::Received(_) = returned.outcome {
                        let answer = SendMessage::new(memory).signaled();
                        server.post(key, returned.id, answer).unwrap();
                    } else {
                        server.post_receive(returned.id, memory).unwrap();
                    }
                    polled += 1;
                }
                while let Some((_, returned)) = clients.poll_one().unwrap() {
                    if let Outcome::Received(_) = returned.outcome {
                        let memory = returned.buffers.one().unwrap();
                        clients.post_receive(returned.id, memory).unwrap();
                    }
                    polled += 1;
                }
            });
            assert_eq!(calls, 0, "answering, round {round}");
        }
        assert_eq!(polled, 4 * CONNECTIONS, "round {round}");
    }
}
