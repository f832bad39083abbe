//! Several threads post on one endpoint: every slice comes back once, to the thread that polls.

use std::collections::HashMap;
use std::time::Instant;

use mlx5::cqe::Status;
use mlx5::endpoint::{Endpoint, EndpointProducer, MrSlice, NoReceiver, Outcome, SharedEndpoint};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, PostError, SendConfig};
use mlx5::verbs::{ProtectionDomain, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{InlineBytes, Nop, RdmaRead, RdmaWrite, Remote};
use mlx5_model::Mode;
use rig::{PATIENCE, Rig};

const THREADS: u64 = 3;
const BYTES: usize = 16;

type Polling = SharedEndpoint<Rc, NoReceiver>;

struct Line {
    producer: EndpointProducer,
    polling: Polling,
    target: MrSlice,
    _peer: QueuePair<Rc, Rts>,
    rig: Rig,
}

impl Line {
    fn new(mode: Mode, requests: u32) -> Self {
        let rig = Rig::new(mode);
        let (cq, peer_cq) = (rig.cq(requests), rig.cq(8));
        let domain = ThreadDomain::new(&rig.context).unwrap();
        let shape = QueuePair::builder(&rig.pd, &cq).max_send_wr(requests).max_recv_wr(0);
        let qp = rig.init(shape.max_inline_data(16).max_send_sge(2).thread_domain(&domain));
        let (qp, peer) = rig.connect(qp, rig.init(QueuePair::builder(&rig.pd, &peer_cq)));
        let completions = CqReader::new(&cq).unwrap();
        let endpoint = Endpoint::sender(qp, completions, SendConfig::default()).unwrap();
        let (producer, polling) = endpoint.share();
        let target = MrSlice::new(rig.memory(4096));
        Self { producer, polling, target, _peer: peer, rig }
    }

    fn slice(&self) -> MrSlice {
        MrSlice::new(self.rig.memory(BYTES))
    }
}

/// Turns a slice into its region again, which succeeds only if no other slice of it exists.
fn alone(slice: MrSlice) {
    slice.into_region().expect("nobody else has a part of the region");
}

#[test]
fn every_slice_of_every_thread_comes_back_once() {
    const EACH: u64 = 300;
    for requests in [8, 64] {
        let mut line = Line::new(Mode::Trapped, requests);
        let remote = line.target.remote().unwrap();
        let pools: Vec<Vec<MrSlice>> =
            (0..THREADS).map(|_| (0..EACH).map(|_| line.slice()).collect()).collect();
        let mut returned = HashMap::new();
        std::thread::scope(|scope| {
            for (thread, pool) in (0..THREADS).zip(pools) {
                let producer = line.producer.clone();
                scope.spawn(move || {
                    let deadline = Instant::now() + PATIENCE;
                    for (sequence, mut slice) in (0..).zip(pool) {
                        let id = thread << 32 | sequence;
                        slice.write(0, &id.to_ne_bytes());
                        let to = remote.offset((thread * 8) % 64);
                        // Some are unsignaled, and some a list of two.
                        let last = sequence + 1 == EACH;
                        let mut list = vec![slice];
                        if sequence % 3 == 0 {
                            let tail = list[0].split_off(8);
                            list.push(tail);
                        }
                        let mut write = RdmaWrite::new(list, to);
                        if sequence % 2 == 0 || last {
                            write = write.signaled();
                        }
                        while let Err(refused) = producer.post(id, write) {
                            write = match refused.error {
                                PostError::QueueFull { .. } | PostError::CqFull { .. } => {
                                    refused.operation
                                }
                                // Its completion retires those of the other threads, too.
                                PostError::NothingSignaled { .. } => refused.operation.signaled(),
                                other => panic!("{other}"),
                            };
                            assert!(Instant::now() < deadline, "never any room");
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let deadline = Instant::now() + PATIENCE;
            while (returned.len() as u64) < THREADS * EACH {
                assert!(Instant::now() < deadline, "{} came back", returned.len());
                let Some(next) = line.polling.poll_one().unwrap() else {
                    std::thread::yield_now();
                    continue;
                };
                assert!(!matches!(next.outcome, Outcome::Failed(_)), "{next:?}");
                assert!(returned.insert(next.id, next.buffers).is_none(), "{} twice", next.id);
            }
        });
        for (id, buffers) in returned {
            let whole = buffers.into_iter().reduce(|all, next| all.join(next).unwrap()).unwrap();
            assert_eq!(whole.to_vec()[..8], id.to_ne_bytes());
            alone(whole);
        }
        // One thread's again.
        drop(line.producer);
        let mut endpoint = line.polling.unshare().unwrap();
        endpoint.post(1, Nop::new().signaled()).unwrap();
        assert!(endpoint.close().unwrap().sends.len() <= 1);
    }
}

/// A block is given to a producer only when its memory was taken.
#[test]
fn room_comes_with_the_memory() {
    let mut line = Line::new(Mode::Manual, 4);
    let remote = line.target.remote().unwrap();
    let mut posted = 0;
    let refused = loop {
        let write = RdmaWrite::new(line.slice(), remote);
        let write = if posted == 3 { write.signaled() } else { write };
        match line.producer.post(posted, write) {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.error, PostError::CqFull { slots: posted as u32 });
    alone(refused.operation.into_payload());
    mlx5_model::run();
    for id in 0..4 {
        let full = line.producer.post(9, RdmaWrite::new(line.slice(), remote));
        assert_eq!(full.is_err(), id == 0, "one block for each that came back");
        let next = line.polling.poll_one().unwrap().unwrap();
        assert_eq!(next.id, id);
        alone(next.buffers.one().unwrap());
    }
}

#[test]
fn a_failure_stops_the_producers_and_returns_the_memory() {
    let mut line = Line::new(Mode::Manual, 8);
    let nowhere = Remote::new(0x1000, 0x00de_ad00);
    line.producer.post(1, RdmaWrite::new(line.slice(), nowhere)).unwrap();
    line.producer.post(2, RdmaWrite::new(line.slice(), nowhere).signaled()).unwrap();
    mlx5_model::run();
    for (id, status) in [(1, Status::RemoteAccess), (2, Status::Flushed)] {
        let next = line.polling.poll_one().unwrap().unwrap();
        let Outcome::Failed(failure) = next.outcome else { panic!("{next:?}") };
        assert_eq!((next.id, failure.status), (id, status));
        alone(next.buffers.one().unwrap());
    }
    let refused = line.producer.post(3, RdmaWrite::new(line.slice(), nowhere)).unwrap_err();
    assert_eq!(refused.error, PostError::WrongState);
    alone(refused.operation.into_payload());
}

#[test]
fn memory_in_flight_outlives_either_half_and_goes_with_the_last() {
    for producer_first in [true, false] {
        let line = Line::new(Mode::Manual, 8);
        let mut slice = line.slice();
        let rest = slice.split_off(8);
        let other = ProtectionDomain::new(&line.rig.context).unwrap();
        let foreign = MrSlice::new(other.allocate(8, rig::all_rights()).unwrap());
        let remote = line.target.remote().unwrap();
        let refused = line.producer.post(1, RdmaWrite::new(foreign, remote)).unwrap_err();
        assert_eq!(refused.error, PostError::PdMismatch);
        let read_only = line.rig.pd.allocate(8, Access::REMOTE_READ).unwrap();
        let lkey = read_only.lkey();
        let read = RdmaRead::new(MrSlice::new(read_only), remote);
        let refused = line.producer.post(1, read).unwrap_err();
        assert_eq!(refused.error, PostError::NoLocalWrite { lkey });
        line.producer.post(1, RdmaWrite::new(slice, remote).signaled()).unwrap();
        line.producer.post(2, RdmaWrite::new(InlineBytes([7; 8]), remote)).unwrap();
        // Not one thread's while there is a producer.
        let polling = line.polling.unshare().unwrap_err();
        if producer_first {
            drop(line.producer);
            let region = line.target.to_vec();
            assert_eq!(region.len(), 4096);
            drop(polling);
        } else {
            drop(polling);
            drop(line.producer);
        }
        mlx5_model::run();
        assert_eq!(rest.into_region().unwrap_err().len(), 8);
    }
}

/// Requests that were posted before, and their memory, go over to the other form and back.
#[test]
fn requests_in_flight_are_shared_and_unshared() {
    let line = Line::new(Mode::Manual, 8);
    let remote = line.target.remote().unwrap();
    line.producer.post(1, RdmaWrite::new(line.slice(), remote)).unwrap();
    drop(line.producer);
    let mut endpoint = line.polling.unshare().unwrap();
    let second = MrSlice::new(line.rig.memory(BYTES));
    endpoint.post(2, RdmaWrite::new(second, remote).signaled()).unwrap();
    let (producer, mut polling) = endpoint.share();
    let third = MrSlice::new(line.rig.memory(BYTES));
    producer.post(3, RdmaWrite::new(third, remote).signaled()).unwrap();
    mlx5_model::run();
    // Converted while only some of what is retired has come back.
    let first = polling.poll_one().unwrap().unwrap();
    assert_eq!((first.id, first.outcome), (1, Outcome::SentUnsignaled { byte_len: BYTES }));
    alone(first.buffers.one().unwrap());
    drop(producer);
    let mut endpoint = polling.unshare().unwrap();
    for id in [2, 3] {
        let next = endpoint.poll_one().unwrap().unwrap();
        assert_eq!(next.id, id);
        alone(next.buffers.one().unwrap());
    }
    assert!(endpoint.poll_one().unwrap().is_none());
}
