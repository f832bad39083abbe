//! Maintenance of queues between two processes. A send queue recovers after an error, and the peer
//! gets the messages before and after it. Queues are drained while the peer sends. One of the two
//! posts and polls by libmlx5.

use std::mem::zeroed;

use mlx5::connect::Connection;
use mlx5::cqe::{Completion, ReceiveKind, Status};
use mlx5::ib::{Rc, Recoverable, Transport, Uc};
use mlx5::ring::PostError;
use mlx5::verbs::AddressHandle;
use mlx5::verbs::attr::{QpState, RtrAttributes, RtsAttributes};
use mlx5::wqe::{Inline, Nop, PostOn, RdmaWrite, SendImm, Sge, UdAddress};
use mlx5_sys::verbs::{
    ibv_modify_qp, ibv_qp_attr, ibv_qp_attr_mask as bit, ibv_qp_state, ibv_send_wr, ibv_wc,
    ibv_wc_opcode, ibv_wc_status as status, ibv_wr_opcode as wr,
};

use super::processes::{Library, connected, exchange_datagrams, with_peer};
use rig::{PATIENCE, Rig};
use rig::{QKEY, Side};

/// So many that rings wrap.
const ROUNDS: u32 = 50;
/// The bytes of a receive: a datagram needs 40 more than its payload.
const ROOM: usize = 64;
/// An unassigned key.
const NO_KEY: u32 = 0x7777_7700;
const BAD: u64 = 1000;
const FLUSHED: u64 = 1001;

/// Tags of the messages of a round: sent before the failure, never, by the other side meanwhile,
/// and after.
const BEFORE: u32 = 0;
const NEVER: u32 = 1 << 8;
const MEANWHILE: u32 = 2 << 8;
const AFTER: u32 = 3 << 8;

/// Returns memory that can be sent.
fn good<T: Transport>(side: &Side<T>) -> Sge {
    side.sge(0, 8)
}

fn bad() -> Sge {
    Sge::new(8, 8, NO_KEY)
}

fn imm_of(kind: ReceiveKind) -> u32 {
    let ReceiveKind::SendImm(imm) = kind else { panic!("{kind:?}") };
    imm
}

fn post_receive<T: Transport>(side: &mut Side<T>) {
    let room = side.sge(1024, ROOM);
    // SAFETY: memory lives as long as the queues, and the program does not access it.
    unsafe { side.receive.post(7, room).unwrap() };
}

/// A side whose send queue fails in every round, and goes on. `request` makes its requests.
fn fails<T: Recoverable, P: PostOn<T>>(side: &mut Side<T>, request: impl Fn(u32, Sge) -> P)
where
    Nop: PostOn<T>,
{
    for round in 0..ROUNDS {
        post_receive(side);
        let good = good(side);
        // SAFETY: memory lives to the end, or is none, which the card finds out.
        unsafe {
            side.send.post(1, request(BEFORE | round, good)).unwrap();
            side.send.post(BAD, request(NEVER | round, bad())).unwrap();
            side.send.post(FLUSHED, request(NEVER | round, good)).unwrap();
        }
        // The answer to the first comes beside the failures, and may be between them.
        let (mut failures, mut answered) = (Vec::new(), false);
        while failures.len() < 2 || !answered {
            match side.wait() {
                Completion::Failed(failure) => failures.push((failure.id, failure.status)),
                Completion::Receive(done) => {
                    assert_eq!(imm_of(done.kind), MEANWHILE | round);
                    answered = true;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(failures, [(BAD, Status::LocalProtection), (FLUSHED, Status::Flushed)]);
        assert_eq!(side.qp.query().unwrap().state, QpState::SqError);
        // SAFETY: a NOP names no memory.
        unsafe { assert_eq!(side.send.post(5, Nop::new()), Err(PostError::WrongState)) };
        side.send.recover().unwrap();
        assert_eq!(side.qp.query().unwrap().state, QpState::Rts);
        // SAFETY: memory lives to the end.
        unsafe { side.send.post(2, request(AFTER | round, good)).unwrap() };
        assert_eq!(side.sent().0, 2);
    }
}

/// The same, by libmlx5. `say` says where requests go.
fn fails_by_libmlx5<T: Transport>(side: &Library<T>, say: impl Fn(&mut ibv_send_wr)) {
    let post = |id, imm: u32, sge| {
        side.post(id, wr::IBV_WR_SEND_WITH_IMM, &[sge], |wr| {
            wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
            say(wr);
        });
    };
    let good = side.sge(0, 8);
    for round in 0..ROUNDS {
        side.receive(7, 1024, ROOM);
        post(1, BEFORE | round, good);
        post(BAD, NEVER | round, bad());
        post(FLUSHED, NEVER | round, good);
        let (mut sent, mut answered) = (Vec::new(), false);
        while sent.len() < 3 || !answered {
            let done = side.wait();
            match received(&done) {
                Some(imm) => {
                    assert_eq!(imm, MEANWHILE | round);
                    answered = true;
                }
                None => sent.push((done.wr_id, done.status)),
            }
        }
        let (success, failed) = (status::IBV_WC_SUCCESS, status::IBV_WC_LOC_PROT_ERR);
        assert_eq!(sent, [(1, success), (BAD, failed), (FLUSHED, status::IBV_WC_WR_FLUSH_ERR)]);
        assert_eq!(side.qp.query().unwrap().state, QpState::SqError);
        // SAFETY: integers and a union of integers; the queue pair is alive.
        unsafe {
            let mut attr: ibv_qp_attr = zeroed();
            attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
            attr.cur_qp_state = ibv_qp_state::IBV_QPS_SQE;
            let mask = bit::IBV_QP_STATE.0 | bit::IBV_QP_CUR_STATE.0;
            assert_eq!(ibv_modify_qp(side.qp.as_raw().as_ptr(), &mut attr, mask as i32), 0);
        }
        post(2, AFTER | round, good);
        assert_eq!(side.success().wr_id, 2);
    }
}

/// The immediate of a receive; `None` of a send.
fn received(done: &ibv_wc) -> Option<u32> {
    let receive =
        done.status == status::IBV_WC_SUCCESS && done.opcode & ibv_wc_opcode::IBV_WC_RECV != 0;
    // SAFETY: every message here has an immediate.
    receive.then(|| u32::from_be(unsafe { done.imm_data_invalidated_rkey_union.imm_data }))
}

/// The other side: gets what came before, sends, gets what comes after.
fn listens<T: Transport, P: PostOn<T>>(side: &mut Side<T>, request: impl Fn(u32, Sge) -> P) {
    for round in 0..ROUNDS {
        assert_eq!(imm_of(side.received().kind), BEFORE | round);
        post_receive(side);
        let good = good(side);
        // SAFETY: memory lives to the end.
        unsafe { side.send.post(3, request(MEANWHILE | round, good)).unwrap() };
        assert_eq!(side.sent().0, 3);
        assert_eq!(imm_of(side.received().kind), AFTER | round);
        post_receive(side);
    }
    side.is_quiet();
}

fn listens_by_libmlx5<T: Transport>(side: &Library<T>, say: impl Fn(&mut ibv_send_wr)) {
    let hears = |expected| {
        let done = side.success();
        assert_eq!(received(&done), Some(expected));
        side.receive(7, 1024, ROOM);
    };
    for round in 0..ROUNDS {
        hears(BEFORE | round);
        side.post(3, wr::IBV_WR_SEND_WITH_IMM, &[side.sge(0, 8)], |wr| {
            wr.imm_data_invalidated_rkey_union.imm_data = (MEANWHILE | round).to_be();
            say(wr);
        });
        assert_eq!(side.success().wr_id, 3);
        hears(AFTER | round);
    }
    assert!(side.poll().is_none());
}

/// Returns a change to requests of verbs that sets their datagram destination.
fn datagram_to((handle, number): &(AddressHandle, u32)) -> impl Fn(&mut ibv_send_wr) {
    move |wr| {
        wr.wr.ud.ah = handle.as_raw().as_ptr();
        wr.wr.ud.remote_qpn = *number;
        wr.wr.ud.remote_qkey = QKEY;
    }
}

/// Two receives, so that neither of two messages in a row is lost.
fn two<T: Transport>(side: &mut Side<T>) {
    post_receive(side);
    post_receive(side);
}

#[test]
fn datagrams_go_on_after_an_error_and_reach_libmlx5() {
    with_peer(
        datagrams_go_on_after_an_error_and_reach_libmlx5,
        peer_of_datagrams,
        |rig, mut control| {
            let mut side = rig.datagrams();
            let (handle, number) = exchange_datagrams(&rig, &mut control, &side.qp);
            let to = UdAddress::new(&handle, number, QKEY);
            control.barrier(1).unwrap();
            fails(&mut side, |imm, sge| SendImm::new(sge, imm).signaled_if(imm >= AFTER).to(to));
            control.barrier(2).unwrap();
        },
    );
}

fn peer_of_datagrams(rig: Rig, mut control: Connection) {
    let side = Library::datagrams(&rig);
    let to = exchange_datagrams(&rig, &mut control, &side.qp);
    side.receive(7, 1024, ROOM);
    side.receive(7, 1024, ROOM);
    control.barrier(1).unwrap();
    listens_by_libmlx5(&side, datagram_to(&to));
    control.barrier(2).unwrap();
}

#[test]
fn datagrams_of_libmlx5_go_on_after_an_error() {
    with_peer(
        datagrams_of_libmlx5_go_on_after_an_error,
        peer_whose_datagrams_fail,
        |rig, mut control| {
            let mut side = rig.datagrams();
            let (handle, number) = exchange_datagrams(&rig, &mut control, &side.qp);
            let to = UdAddress::new(&handle, number, QKEY);
            two(&mut side);
            control.barrier(1).unwrap();
            listens(&mut side, |imm, sge| SendImm::new(sge, imm).signaled().to(to));
            control.barrier(2).unwrap();
        },
    );
}

fn peer_whose_datagrams_fail(rig: Rig, mut control: Connection) {
    let side = Library::datagrams(&rig);
    let to = exchange_datagrams(&rig, &mut control, &side.qp);
    control.barrier(1).unwrap();
    fails_by_libmlx5(&side, datagram_to(&to));
    control.barrier(2).unwrap();
}

#[test]
fn an_unreliable_connection_goes_on_after_an_error_and_reaches_libmlx5() {
    with_peer(
        an_unreliable_connection_goes_on_after_an_error_and_reaches_libmlx5,
        peer_of_a_connection,
        |rig, mut control| {
            let (mut side, _) = connected::<Uc>(&rig, &mut control, &|_, _| {});
            control.barrier(1).unwrap();
            fails(&mut side, |imm, sge| SendImm::new(sge, imm).signaled_if(imm >= AFTER));
            control.barrier(2).unwrap();
        },
    );
}

fn peer_of_a_connection(rig: Rig, mut control: Connection) {
    let (side, _) = Library::<Uc>::connected(&rig, &mut control, &|_, _| {});
    side.receive(7, 1024, ROOM);
    side.receive(7, 1024, ROOM);
    control.barrier(1).unwrap();
    listens_by_libmlx5(&side, |_| {});
    control.barrier(2).unwrap();
}

#[test]
fn an_unreliable_connection_of_libmlx5_goes_on_after_an_error() {
    with_peer(
        an_unreliable_connection_of_libmlx5_goes_on_after_an_error,
        peer_whose_connection_fails,
        |rig, mut control| {
            let (mut side, _) = connected::<Uc>(&rig, &mut control, &|_, _| {});
            two(&mut side);
            control.barrier(1).unwrap();
            listens(&mut side, |imm, sge| SendImm::new(sge, imm).signaled());
            control.barrier(2).unwrap();
        },
    );
}

fn peer_whose_connection_fails(rig: Rig, mut control: Connection) {
    let (side, _) = Library::<Uc>::connected(&rig, &mut control, &|_, _| {});
    control.barrier(1).unwrap();
    fails_by_libmlx5(&side, |_| {});
    control.barrier(2).unwrap();
}

/// Receives that are posted, sends that the other process has outstanding, and WRITEs that are drained
/// at a time, and how often.
const RECEIVES: usize = 100;
const WINDOW: u32 = 24;
const WRITES: u32 = 5;
const DRAINS: u32 = 40;
/// Offset of the memory that WRITEs fill.
const WRITTEN: u64 = 8192;
const MARKER: u64 = 77;

/// The other process gives up after half a second.
fn impatient(_: &mut RtrAttributes, rts: &mut RtsAttributes) {
    rts.timeout = mlx5::verbs::attr::AckTimeout::from_code(12).unwrap();
}

#[test]
fn queues_are_drained_while_libmlx5_sends() {
    with_peer(queues_are_drained_while_libmlx5_sends, peer_that_sends_on, |rig, mut control| {
        let (mut side, remote) = connected::<Rc>(&rig, &mut control, &|_, _| {});
        (0..RECEIVES).for_each(|_| post_receive(&mut side));
        control.barrier(1).unwrap();
        // Messages arrive in order, whichever queue takes them.
        let mut next = 0;
        let mut in_order = |done: Completion| {
            let Completion::Receive(done) = done else { panic!("{done:?}") };
            assert_eq!(imm_of(done.kind), next);
            next += 1;
        };

        // What is there, while more comes.
        let (mut taken, mut deadline) = (0, std::time::Instant::now() + PATIENCE);
        while taken < 500 {
            let Side { completions, send, receive, .. } = &mut side;
            let mut here = 0;
            for done in completions.poll_all(&mut (send, receive)) {
                in_order(done.unwrap());
                here += 1;
            }
            (0..here).for_each(|_| post_receive(&mut side));
            if here == 0 {
                assert!(std::time::Instant::now() < deadline, "{taken} were taken");
                std::thread::yield_now();
                continue;
            }
            taken += here;
            deadline = std::time::Instant::now() + PATIENCE;
        }

        // Requests that nothing would report, with messages between.
        let mut between = 0;
        for round in 0..DRAINS {
            for _ in 0..WRITES {
                let bytes = round.to_be_bytes();
                let write = RdmaWrite::new(Inline(&bytes), remote.offset(WRITTEN));
                // SAFETY: the payload is copied into the WQE.
                unsafe { side.send.post(9, write).unwrap() };
            }
            let Side { completions, send, receive, .. } = &mut side;
            let mut here = 0;
            let each = |done| {
                in_order(done);
                here += 1;
            };
            completions.drain_sends(send, receive, MARKER, PATIENCE, each).unwrap();
            assert!(send.is_idle());
            (0..here).for_each(|_| post_receive(&mut side));
            between += here;
        }
        assert_ne!(between, 0, "the other process sends all the time");

        // The end, of which the other process hears when its sends fail.
        let Side { mut completions, mut receive, mut send, qp, .. } = side;
        let outstanding = receive.outstanding();
        assert!(outstanding > 0);
        let _qp = qp.to_error().unwrap();
        let (mut arrived, mut flushed) = (0, 0);
        completions
            .drain_receives(&mut receive, &mut send, PATIENCE, |done| match done {
                Completion::Failed(failure) => {
                    assert_eq!(failure.status, Status::Flushed);
                    flushed += 1;
                }
                done => {
                    assert_eq!(flushed, 0, "what was flushed comes last");
                    in_order(done);
                    arrived += 1;
                }
            })
            .unwrap();
        assert_eq!((receive.outstanding(), arrived + flushed), (0, outstanding));
        let told = control.exchange_data(&[]).unwrap();
        let sent = u32::from_be_bytes(told.try_into().unwrap());
        assert_eq!(next, sent, "what was acknowledged is here, and nothing else");
        control.barrier(2).unwrap();
    });
}

fn peer_that_sends_on(rig: Rig, mut control: Connection) {
    let (side, _) = Library::<Rc>::connected(&rig, &mut control, &impatient);
    control.barrier(1).unwrap();
    let (mut posted, mut sent) = (0, 0);
    let first_failure = loop {
        while posted - sent < WINDOW {
            side.post(posted.into(), wr::IBV_WR_SEND_WITH_IMM, &[side.sge(0, 8)], |wr| {
                wr.imm_data_invalidated_rkey_union.imm_data = posted.to_be();
            });
            posted += 1;
        }
        let done = side.wait();
        assert_eq!(done.wr_id, sent.into());
        match done.status {
            status::IBV_WC_SUCCESS => sent += 1,
            failed => break failed,
        }
    };
    assert_eq!(first_failure, status::IBV_WC_RETRY_EXC_ERR);
    for id in sent + 1..posted {
        let done = side.wait();
        assert_eq!((done.wr_id, done.status), (id.into(), status::IBV_WC_WR_FLUSH_ERR));
    }
    assert_eq!(side.memory.to_vec(WRITTEN as usize, 4), (DRAINS - 1).to_be_bytes());
    assert!(control.exchange_data(&sent.to_be_bytes()).unwrap().is_empty());
    control.barrier(2).unwrap();
}
