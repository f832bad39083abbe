//! Every error that a program can provoke on a reliable connection, on both sides. Checks the
//! status of each request and its explanation. Afterwards the same queue pairs, moved through RESET
//! to RTS, carry messages again.

mod device;
mod pair;

use std::time::{Duration, Instant};

use mlx5::cqe::{Completion, QueueKind, Status};
use mlx5::ib::Access;
use mlx5::ring::PostError;
use mlx5::verbs::ProtectionDomain;
use mlx5::verbs::attr::{AckTimeout, QpState, RnrTimer, RtsAttributes};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage,
    Sge,
};
use mlx5_model as _;

use rig::made::{BY, By};

use pair::{EVERYTHING, LENGTH, Live, PATIENCE, Pair, Setup, check_text};

#[test]
fn a_wrong_lkey_of_a_send_is_a_local_protection_error() {
    let mut pair = Pair::new(Setup::default());
    let mut sge = pair.a.sge(0, 64);
    sge.lkey ^= 0x5500;
    pair.b.receive(1, pair.b.sge(0, 64));
    pair.a.post(2, SendMessage::new(sge).signaled());
    pair.a.send_fails(2, Status::LocalProtection);
    // The peer is not concerned.
    assert_eq!(pair.b.state(), QpState::Rts);
    assert_eq!(pair.b.try_next(), None);
    pair.works_again();
}

#[test]
fn local_memory_beyond_its_region_is_a_local_protection_error() {
    let mut pair = Pair::new(Setup::default());
    let beyond = Sge { length: 64, ..pair.a.sge(LENGTH - 63, 63) };
    pair.b.receive(1, pair.b.sge(0, LENGTH));
    pair.a.post(2, RdmaWrite::new(beyond, pair.b.remote(0)).signaled());
    pair.a.send_fails(2, Status::LocalProtection);
    pair.works_again();
}

#[test]
fn memory_of_another_protection_domain_is_out_of_reach() {
    // As local memory …
    let mut pair = Pair::new(Setup::default());
    let foreign = ProtectionDomain::new(&pair.a.context).unwrap();
    let foreign = foreign.allocate(4096, EVERYTHING).unwrap();
    let sge = foreign.sge(0, 64).unwrap();
    pair.a.post(1, RdmaWrite::new(sge, pair.b.remote(0)).signaled());
    pair.a.send_fails(1, Status::LocalProtection);
    pair.works_again();
    // … and as the peer's.
    let remote = foreign.remote(0).unwrap();
    pair.a.post(2, RdmaWrite::new(pair.a.sge(0, 64), remote).signaled());
    pair.a.send_fails(2, Status::RemoteAccess);
    pair.b.failed_by(Status::General(0xff), [0x22, 0, 0x95]);
    pair.works_again();
}

#[test]
fn a_read_into_memory_that_may_not_be_written_is_a_local_protection_error() {
    let mut pair = Pair::new(Setup::default());
    let only = pair.a.pd.allocate(4096, Access::REMOTE_READ).unwrap();
    let sge = only.source(0, 64).unwrap();
    pair.a.post(1, RdmaRead::new(sge, pair.b.remote(0)).signaled());
    pair.a.send_fails(1, Status::LocalProtection);
    pair.works_again();
}

#[test]
fn a_region_that_was_deregistered_is_gone() {
    let mut pair = Pair::new(Setup::default());
    let region = pair.a.pd.allocate(4096, EVERYTHING).unwrap();
    let sge = region.sge(0, 64).unwrap();
    pair.a.post(1, RdmaWrite::new(sge, pair.b.remote(0)).signaled());
    assert_eq!(pair.a.success(), 1);
    drop(region);
    pair.a.post(2, RdmaWrite::new(sge, pair.b.remote(0)).signaled());
    pair.a.send_fails(2, Status::LocalProtection);
    pair.works_again();
}

#[test]
fn a_message_longer_than_the_transport_carries_is_a_local_length_error() {
    let mut pair = Pair::new(Setup::default());
    pair.b.receive(1, pair.b.sge(0, 64));
    let gigabyte = Sge { length: 1 << 30, ..pair.a.sge(0, 0) };
    pair.a.post(2, SendMessage::new([gigabyte; 3]).signaled());
    pair.a.send_fails(2, Status::LocalLength);
    pair.works_again();
}

#[test]
fn a_receive_shorter_than_the_message_fails_on_both_sides() {
    for length in [65, 2000, 5000] {
        let mut pair = Pair::new(Setup::default());
        pair.b.receive(1, pair.b.sge(0, length - 1));
        pair.b.receive(2, pair.b.sge(0, 64));
        pair.a.post(3, SendMessage::new(pair.a.sge(0, length)).signaled());
        pair.a.send_fails(3, Status::RemoteInvalidRequest);
        pair.b.receive_fails(1, Status::LocalLength);
        pair.b.receive_fails(2, Status::Flushed);
        pair.works_again();
    }
}

#[test]
fn a_wrong_lkey_of_a_receive_fails_on_both_sides() {
    let mut pair = Pair::new(Setup::default());
    let mut sge = pair.b.sge(0, 256);
    sge.lkey ^= 0x5500;
    pair.b.receive(1, sge);
    pair.a.post(2, SendMessage::new(pair.a.sge(0, 256)).signaled());
    pair.a.send_fails(2, Status::RemoteOperation);
    pair.b.receive_fails(1, Status::LocalProtection);
    pair.works_again();
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_fails_on_both_sides() {
    let mut pair = Pair::new(Setup::default());
    let only = pair.b.pd.allocate(4096, Access::REMOTE_READ).unwrap();
    pair.b.receive(1, only.source(0, 256).unwrap());
    pair.a.post(2, SendImm::new(pair.a.sge(0, 256), 5).signaled());
    pair.a.send_fails(2, Status::RemoteOperation);
    pair.b.receive_fails(1, Status::LocalProtection);
    pair.works_again();
}

#[test]
fn a_wrong_rkey_is_a_remote_access_error() {
    let mut pair = Pair::new(Setup::default());
    let remote = Remote { rkey: pair.b.region.rkey() ^ 0x5500, ..pair.b.remote(0) };
    let sge = pair.a.sge(0, 64);
    let word = pair.a.region.word(0).unwrap();
    for kind in 0..5 {
        match kind {
            0 => pair.a.post(1, RdmaWrite::new(sge, remote).signaled()),
            1 => pair.a.post(1, RdmaRead::new(sge, remote).signaled()),
            2 => pair.a.post(1, CompareSwap::new(word, remote, 0, 1).signaled()),
            3 => pair.a.post(1, FetchAdd::new(word, remote, 1).signaled()),
            _ => {
                pair.b.receive(9, pair.b.sge(0, 64));
                pair.a.post(1, RdmaWriteImm::new(sge, remote, 7).signaled());
            }
        }
        let failure = pair.a.send_fails(1, Status::RemoteAccess);
        assert_ne!(failure.opcode, 0, "{failure}");
        // The responder fails with it, without a completion of its own request to say so.
        // Events of queue pairs by command do not come to the context's event file.
        if By::of_environment() == By::Verbs {
            let event = pair.b.event();
            assert!(event.to_string().contains("QP_ACCESS_ERR"), "{event}");
        }
        assert_eq!(pair.b.state(), QpState::Error);
        if kind == 4 {
            pair.b.receive_fails(9, Status::Flushed);
        }
        // The contexts of both tell the cause, until RESET.
        pair.a.failed_by(Status::RemoteAccess, [0x88, 0, 0]);
        pair.b.failed_by(Status::LocalProtection, [0x3a, 0, 0x93]);
        pair.works_again();
        assert_eq!((pair.a.cause(), pair.b.cause()), (None, None));
    }
}

#[test]
fn remote_memory_beyond_its_region_is_a_remote_access_error() {
    let mut pair = Pair::new(Setup::default());
    for (offset, length) in [(LENGTH as u64 - 63, 64), (u64::MAX, 64), (LENGTH as u64, 1)] {
        let address = pair.b.region.address().wrapping_add(offset);
        let remote = Remote::new(address, pair.b.region.rkey());
        pair.a.post(1, RdmaWrite::new(pair.a.sge(0, length), remote).signaled());
        pair.a.send_fails(1, Status::RemoteAccess);
        pair.b.failed_by(Status::LocalProtection, [0x3b, 0, 0x9d]);
        pair.works_again();
        pair.a.post(2, RdmaRead::new(pair.a.sge(0, length), remote).signaled());
        pair.a.send_fails(2, Status::RemoteAccess);
        pair.works_again();
    }
    // What lies inside is reached to the last byte.
    let remote = pair.b.remote(LENGTH - 64);
    pair.a.post(3, RdmaWrite::new(pair.a.sge(0, 64), remote).signaled());
    assert_eq!(pair.a.success(), 3);
}

#[test]
fn rights_that_the_region_lacks_are_remote_access_errors() {
    for (region, kind) in [
        (EVERYTHING - Access::REMOTE_WRITE, "write"),
        (EVERYTHING - Access::REMOTE_READ, "read"),
        (EVERYTHING - Access::REMOTE_ATOMIC, "atomic"),
    ] {
        let mut pair = Pair::new(Setup { region, ..Setup::default() });
        post(&mut pair, kind);
        pair.a.send_fails(1, Status::RemoteAccess);
        pair.works_again();
    }
}

#[test]
fn rights_that_the_queue_pair_lacks_make_a_request_invalid() {
    for (queue_pair, kind) in [
        (EVERYTHING - Access::REMOTE_WRITE, "write"),
        (EVERYTHING - Access::REMOTE_READ, "read"),
        (EVERYTHING - Access::REMOTE_ATOMIC, "atomic"),
    ] {
        let mut pair = Pair::new(Setup { queue_pair, ..Setup::default() });
        post(&mut pair, kind);
        pair.a.send_fails(1, Status::RemoteInvalidRequest);
        assert_eq!(pair.b.state(), QpState::Error);
        pair.b.failed_by(Status::RemoteInvalidRequest, [0x8a, 0, 0]);
        // Recovering gives the queue pair every right.
        pair.works_again();
        post(&mut pair, kind);
        assert_eq!(pair.a.success(), 1);
    }
}

fn post(pair: &mut Pair, kind: &str) {
    let sge = pair.a.sge(0, 64);
    let word = pair.a.region.word(0).unwrap();
    let remote = pair.b.remote(0);
    match kind {
        "write" => pair.a.post(1, RdmaWrite::new(sge, remote).signaled()),
        "read" => pair.a.post(1, RdmaRead::new(sge, remote).signaled()),
        _ => pair.a.post(1, FetchAdd::new(word, remote, 1).signaled()),
    }
}

#[test]
fn an_atomic_at_an_odd_address_is_refused() {
    let mut pair = Pair::new(Setup::default());
    let word = pair.a.region.word(0).unwrap();
    pair.a.post(1, FetchAdd::new(word, pair.b.remote(4), 1).signaled());
    // Cards of different age call it an invalid request or an access error.
    match pair.a.next() {
        Completion::Failed(failure) => {
            let status = failure.status;
            assert!(
                matches!(status, Status::RemoteInvalidRequest | Status::RemoteAccess),
                "{failure}"
            );
        }
        other => panic!("{other:?}"),
    }
    pair.works_again();
}

#[test]
fn a_peer_without_receives_is_tried_again_and_given_up() {
    let rts = RtsAttributes { rnr_retry: 2, ..Setup::default().rts };
    let rnr = RnrTimer::at_least(Duration::from_millis(1));
    let mut pair = Pair::new(Setup { rts, rnr, ..Setup::default() });
    let start = Instant::now();
    pair.a.post(1, SendMessage::new(Inline(b"anybody there?")).signaled());
    pair.a.send_fails(1, Status::RnrRetriesExceeded);
    // The peer asked for a millisecond each time.
    assert!(start.elapsed() >= Duration::from_millis(2), "{:?}", start.elapsed());
    // It has not failed.
    assert_eq!(pair.b.state(), QpState::Rts);
    pair.works_again();
}

#[test]
fn a_receive_posted_while_the_sender_waits_is_found() {
    let rnr = RnrTimer::at_least(Duration::from_millis(5));
    let mut pair = Pair::new(Setup { rnr, ..Setup::default() });
    pair.a.post(1, SendMessage::new(pair.a.sge(0, 64)).signaled());
    assert_eq!(pair.a.try_next(), None);
    pair.b.receive(2, pair.b.sge(0, 64));
    assert_eq!(pair.a.success(), 1);
    assert!(matches!(pair.b.next(), Completion::Receive(done) if done.id == 2));
}

/// Gives up after a fraction of a second.
fn impatient() -> Setup {
    let timeout = AckTimeout::at_least(Duration::from_millis(4));
    let rts = RtsAttributes { timeout, retry_cnt: 2, ..Setup::default().rts };
    Setup { rts, ..Setup::default() }
}

#[test]
fn a_peer_that_is_gone_is_tried_again_and_given_up() {
    let mut pair = Pair::new(impatient());
    pair.b.live = None;
    pair.a.post(1, RdmaWrite::new(pair.a.sge(0, 64), pair.b.remote(0)).signaled());
    pair.a.send_fails(1, Status::RetriesExceeded);
    pair.works_again();
}

#[test]
fn a_peer_that_has_failed_does_not_answer() {
    let mut pair = Pair::new(impatient());
    let Live { sends, receives, qp } = pair.b.live.take().unwrap();
    drop((sends, receives));
    let failed = qp.to_error().unwrap();
    pair.a.post(1, SendMessage::new(pair.a.sge(0, 64)).signaled());
    pair.a.send_fails(1, Status::RetriesExceeded);
    drop(failed);
    pair.works_again();
}

#[test]
fn requests_after_the_one_that_failed_are_flushed_in_order() {
    let mut pair = Pair::new(Setup::default());
    for id in 10..13 {
        pair.a.receive(id, pair.a.sge(0, 64));
    }
    let wrong = Remote { rkey: !0, ..pair.b.remote(0) };
    let (sge, right) = (pair.a.sge(0, 64), pair.b.remote(0));
    let mut batch = pair.a.live().sends.batch();
    for (id, remote) in [(1, right), (2, wrong), (3, right), (4, right)] {
        batch.append(id, RdmaWrite::new(sge, remote)).unwrap();
    }
    // SAFETY: as for `End::post`.
    unsafe { batch.ring() };
    // No request was signaled, but failed requests complete all the same.
    pair.a.failure(QueueKind::Send, 2, Status::RemoteAccess);
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        match pair.a.next() {
            Completion::Failed(failure) => {
                assert_eq!(failure.status, Status::Flushed, "{failure}");
                check_text(&failure);
                match failure.queue {
                    QueueKind::Send => sent.push(failure.id),
                    QueueKind::Receive => received.push(failure.id),
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((sent, received), (vec![3, 4], vec![10, 11, 12]));
    assert_eq!(pair.a.try_next(), None);
    // The queue refuses more, and says why; the queue pair needs RESET first.
    let again = RdmaWrite::new(pair.a.sge(0, 64), pair.b.remote(0));
    // SAFETY: as for `End::post`.
    let refused = unsafe { pair.a.live().sends.post(3, again) };
    assert_eq!(refused, Err(PostError::WrongState));
    pair.works_again();
}

#[test]
fn moving_to_error_flushes_both_queues() {
    // A peer without receives, asked for ever: the sends stay outstanding.
    let mut pair = Pair::new(Setup::default());
    for id in 0..3 {
        pair.a.receive(10 + id, pair.a.sge(0, 64));
        pair.a.post(20 + id, SendMessage::new(pair.a.sge(0, 64)));
    }
    assert_eq!(pair.a.try_next(), None);
    let Live { sends, receives, qp } = pair.a.live.take().unwrap();
    let failed = qp.to_error().unwrap();
    let mut queues = (sends, receives);
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while sent.len() + received.len() < 6 {
        assert!(Instant::now() < deadline, "flushed: {sent:?}, {received:?}");
        match pair.a.completions.poll(&mut queues).unwrap() {
            Some(Completion::Failed(failure)) => {
                assert_eq!(failure.status, Status::Flushed, "{failure}");
                match failure.queue {
                    QueueKind::Send => sent.push(failure.id),
                    QueueKind::Receive => received.push(failure.id),
                }
            }
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
    assert_eq!((sent, received), (vec![20, 21, 22], vec![10, 11, 12]));
    // A queue pair whose queues are in use cannot be pulled away under them.
    let (failed, refused) = failed.reset().unwrap_err();
    assert!(refused.to_string().contains("is taken: drop the queue"), "{refused}");
    drop(queues);
    let a = failed.reset().unwrap();
    let b = pair.b.reset();
    pair.connect(a, b);
    pair.works_again();
}

#[test]
fn an_operation_that_the_card_does_not_know_is_a_local_operation_error() {
    let mut pair = Pair::new(Setup::default());
    let live = pair.a.live();
    // The direct path cannot be brought to write such a WQE, so its opcode is changed in the ring
    // before the doorbell rings.
    let ring = live.qp.send_ring();
    let mut batch = live.sends.batch();
    batch.append(1, SendMessage::new(Inline(b"x")).signaled()).unwrap();
    // SAFETY: the first WQE of the ring, which is written and not rung; its opcode is the last byte
    // of the first word.
    unsafe { ring.add(3).write_volatile(0x3f) };
    // SAFETY: the request names no memory.
    unsafe { batch.ring() };
    pair.a.send_fails(1, Status::LocalQpOperation);
    pair.works_again();
}

/// The model can also look at its registers from a thread, which sees fewer stores: everything above
/// holds all the same.
#[test]
fn all_of_it_holds_where_registers_are_polled() {
    if std::env::var_os("MLX5_MODEL_MODE").is_some() || std::env::var_os(BY).is_some() {
        // This process is the inner run below, or the user chose a mode for all tests.
        return;
    }
    again("MLX5_MODEL_MODE", "polled");
}

/// Queue pairs and CQs that were made by command fail as those of verbs.
#[test]
fn all_of_it_holds_where_commands_make_the_queues() {
    if std::env::var_os(BY).is_none() && std::env::var_os("MLX5_MODEL_MODE").is_none() {
        again(BY, "command");
    }
}

/// Runs all tests again, with a variable of the environment set.
fn again(name: &str, value: &str) {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .env(name, value)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}
