//! Counter sets, on queue pairs made by verbs and by command, on a device that gives programs sets.

use std::time::Duration;

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::cqe::{Completion, Status};
use mlx5::devx::{DevxMkey, DevxPd, Firmware, QueueCounters, QueueCounts, Umem};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::attr::{InitAttributes, Mtu, RnrTimer};
use mlx5::verbs::{CompletionQueue, Context, Init, Pages, QueuePair, QueuePairBuilder};
use mlx5::wqe::{FetchAdd, RdmaRead, RdmaWrite, Remote, SendMessage, Sge};
use mlx5_model::CounterSets;

use crate::pair::{EVERYTHING, Pair, Setup};

/// A set of counters. Firmware gives programs none by default.
pub fn set(context: &Context) -> QueueCounters {
    mlx5_model::set_counter_sets(0, CounterSets::Allowed);
    QueueCounters::new(context).unwrap()
}

/// A pair of queue pairs each of which counts in a set of its own.
fn counted(setup: Setup) -> (Pair, [QueueCounters; 2]) {
    let mut pair = Pair::new(setup);
    let sets = [&mut pair.a, &mut pair.b].map(|end| {
        let set = set(&end.context);
        set.count(end.live().qp.verbs()).unwrap();
        set
    });
    (pair, sets)
}

#[test]
fn sets_have_numbers_and_start_at_zero() {
    let (_pair, [one, other]) = counted(Setup::default());
    assert_ne!(one.number(), 0);
    assert_ne!(one.number(), other.number());
    assert_eq!(one.read().unwrap(), QueueCounts::default());
    assert_eq!(one.read().unwrap().to_string(), "nothing");
}

#[test]
fn requests_are_counted_where_they_arrive() {
    let (mut pair, [own, peer]) = counted(Setup::default());
    let remote = pair.b.remote(0);
    pair.a.post(1, RdmaWrite::new(pair.a.sge(0, 5000), remote).signaled());
    pair.a.post(2, RdmaRead::new(pair.a.sge(0, 64), remote).signaled());
    pair.a.post(3, RdmaRead::new(pair.a.sge(0, 64), remote).signaled());
    let word = pair.a.region.word(0).unwrap();
    pair.a.post(4, FetchAdd::new(word, remote, 1).signaled());
    for id in 1..=4 {
        assert_eq!(pair.a.success(), id);
    }
    let counts = peer.take().unwrap();
    assert_eq!(
        counts.to_string(),
        "rx_write_requests = 1, rx_read_requests = 2, rx_atomic_requests = 1"
    );
    assert_eq!(own.read().unwrap(), QueueCounts::default());
    // It was taken, so it starts again.
    assert_eq!(peer.read().unwrap(), QueueCounts::default());
    pair.a.post(5, RdmaRead::new(pair.a.sge(0, 64), remote).signaled());
    assert_eq!(pair.a.success(), 5);
    assert_eq!(peer.read().unwrap().rx_read_requests, 1);
}

#[test]
fn a_receiver_that_is_not_ready_is_counted() {
    let rnr = RnrTimer::at_least(Duration::from_micros(10));
    let (mut pair, [own, peer]) = counted(Setup { rnr, ..Setup::default() });
    pair.a.post(1, SendMessage::new(pair.a.sge(0, 64)).signaled());
    while peer.read().unwrap().out_of_buffer == 0 {
        std::thread::yield_now();
    }
    pair.b.receive(2, pair.b.sge(0, 64));
    assert_eq!(pair.a.success(), 1);
    let (own, peer) = (own.read().unwrap(), peer.read().unwrap());
    assert_eq!(own.rnr_nak_retry_err, peer.out_of_buffer);
    assert_eq!(own, only(|counts| counts.rnr_nak_retry_err = peer.out_of_buffer));
}

/// Counts of which only this is not zero.
fn only(set: impl FnOnce(&mut QueueCounts)) -> QueueCounts {
    let mut counts = QueueCounts::default();
    set(&mut counts);
    counts
}

#[test]
fn errors_are_counted_by_cause_on_both_sides() {
    let (mut pair, [own, peer]) = counted(Setup::default());
    pair.b.receive(1, pair.b.sge(0, 64));
    let wrong = Remote::new(pair.b.region.address(), pair.b.region.rkey() ^ 0x100_0000);
    pair.a.post(2, RdmaWrite::new(pair.a.sge(0, 64), wrong).signaled());
    pair.a.send_fails(2, Status::RemoteAccess);
    pair.b.receive_fails(1, Status::Flushed);
    assert_eq!(
        own.take().unwrap(),
        only(|counts| {
            (counts.req_cqe_error, counts.req_remote_access_errors) = (1, 1);
        })
    );
    assert_eq!(
        peer.take().unwrap(),
        only(|counts| {
            // Devices count no refusal here (evidence E061).
            counts.rx_write_requests = 1;
            (counts.resp_cqe_error, counts.resp_cqe_flush_error) = (1, 1);
        })
    );
    // Through RESET the queue pairs went back to what they counted in before.
    pair.recover();
    for (set, end) in [(&own, &mut pair.a), (&peer, &mut pair.b)] {
        set.count(end.live().qp.verbs()).unwrap();
    }
    pair.b.receive(1, pair.b.sge(0, 63));
    pair.a.post(2, SendMessage::new(pair.a.sge(0, 64)).signaled());
    pair.a.send_fails(2, Status::RemoteInvalidRequest);
    pair.b.receive_fails(1, Status::LocalLength);
    assert_eq!(
        own.take().unwrap(),
        only(|counts| {
            (counts.req_cqe_error, counts.req_remote_invalid_request) = (1, 1);
        })
    );
    assert_eq!(
        peer.take().unwrap(),
        only(|counts| {
            (counts.resp_cqe_error, counts.resp_local_length_error) = (1, 1);
        })
    );
}

#[test]
fn what_the_queue_pair_does_not_allow_is_an_invalid_request() {
    let queue_pair = EVERYTHING - Access::REMOTE_WRITE;
    let (mut pair, [own, peer]) = counted(Setup { queue_pair, ..Setup::default() });
    pair.a.post(1, RdmaWrite::new(pair.a.sge(0, 64), pair.b.remote(0)).signaled());
    pair.a.send_fails(1, Status::RemoteInvalidRequest);
    assert_eq!(own.read().unwrap().req_remote_invalid_request, 1);
    // The peer counts neither the request nor its refusal, as devices do (evidence E061).
    assert_eq!(peer.read().unwrap(), only(|_| {}));
}

#[test]
fn several_queue_pairs_count_in_one_set() {
    let (mut pair, [_, peer]) = counted(Setup::default());
    let mut second = Pair::new(Setup::default());
    // Of another opened device, whose set is not to be named.
    let error = peer.count(second.b.live().qp.verbs()).unwrap_err();
    assert!(error.to_string().contains("counter set is one of another opened device"), "{error}");
    // Both of one opened device.
    peer.count(pair.a.live().qp.verbs()).unwrap();
    let (to_b, to_a) = (pair.b.remote(0), pair.a.remote(0));
    pair.a.post(1, RdmaRead::new(pair.a.sge(0, 64), to_b).signaled());
    pair.b.post(2, RdmaRead::new(pair.b.sge(0, 64), to_a).signaled());
    assert_eq!((pair.a.success(), pair.b.success()), (1, 2));
    assert_eq!(peer.read().unwrap().to_string(), "rx_read_requests = 2");
}

/// Both ends by command, in a domain by command, on memory that keys by command give: nothing of verbs
/// but the opened device.
#[test]
fn queue_pairs_by_command_count_from_init_on() {
    let context = Context::open_first().unwrap();
    let local = LocalPort::new(&context, 1, None).unwrap();
    let pd = DevxPd::new(&context).unwrap();
    let cq = CompletionQueue::by_command(&context, 64).build().unwrap();
    let sets = [0; 2].map(|_| set(&context));
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let pages = Pages::new(8192).unwrap();
    let memory = Umem::builder(&context).access(rights).pages(pages).unwrap();
    let key = DevxMkey::builder(&pd).access(rights).direct(&memory, 0, 8192).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let fresh = sets.each_ref().map(|set| {
        let qp = QueuePairBuilder::<Rc, _>::by_command(&pd, &cq).counters(set).build().unwrap();
        qp.init(&InitAttributes { access: rights, ..local.init() }).unwrap()
    });
    // What they stand on stays with them.
    drop(pd);
    let ends = fresh.each_ref().map(|qp| ConnectionData {
        lid: local.attributes().lid,
        gid: local.gid().map(|entry| entry.gid),
        ..ConnectionData::new(qp.number(), Mtu::Mtu1024)
    });
    let [a, b] = fresh;
    let up = |qp: QueuePair<Rc, Init, Firmware>, mine: &ConnectionData, theirs: &ConnectionData| {
        let qp = qp.rtr(&local.rtr(mine, theirs)).unwrap();
        qp.rts(&local.rts(mine, theirs)).unwrap()
    };
    let (a, b) = (up(a, &ends[0], &ends[1]), up(b, &ends[1], &ends[0]));
    let mut sends = SendQueue::new(&a, &mut completions, SendConfig::default()).unwrap();
    let at = |offset: u64| key.address() + offset;
    let remote = Remote::new(at(4096), key.rkey());
    let start = memory.start().unwrap();
    // SAFETY: the umem's memory, which no other code uses now.
    unsafe { start.write_bytes(0x5a, 100) };
    // SAFETY: the memory lives to the end, and is read after the requests complete.
    unsafe {
        let from = Sge::new(at(0), 100, key.lkey());
        sends.post(1, RdmaWrite::new(from, remote).signaled()).unwrap();
        sends.post(2, RdmaRead::new(Sge::new(at(200), 50, key.lkey()), remote).signaled()).unwrap();
    }
    for id in [1, 2] {
        match rig::wait(&mut completions, &mut sends) {
            Completion::Send(done) => assert_eq!(done.id, id),
            other => panic!("{other:?}"),
        }
    }
    // SAFETY: the memory is the umem's, which is mapped, and the requests on it are complete.
    let bytes = [4096, 4195, 200, 249].map(|at| unsafe { start.add(at).read_volatile() });
    assert_eq!(bytes, [0x5a; 4]);
    assert_eq!(sets[0].read().unwrap(), QueueCounts::default());
    let arrived = sets[1].read().unwrap();
    assert_eq!(arrived.to_string(), "rx_write_requests = 1, rx_read_requests = 1");
    // A set that queue pairs keep goes with them.
    drop((sets, sends, b, a));
}
