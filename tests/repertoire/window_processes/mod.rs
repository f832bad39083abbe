//! Memory windows between two processes. One process has the memory, binds windows to it, and
//! invalidates them. The other writes and reads by their keys, and invalidates them remotely. One
//! of the two, either one, posts and polls by libmlx5.

mod end;

use std::collections::BTreeSet;

use mlx5::connect::Connection;
use mlx5::cqe::ReceiveKind;
use mlx5::ib::{Access, Rc, Uc};
use mlx5::verbs::attr::QpState;
use mlx5::verbs::{EventSource, MemoryWindow, Type1, Type2};
use mlx5::wqe::Remote;
use mlx5_sys::verbs::{ibv_wc_status as status, ibv_wr_opcode as wr};

use self::end::{End, RECEIVED};
use super::processes::{Library, connected, heard, to, told, with_peer};
use rig::Side;
use rig::{PATIENCE, Rig};

const READ_AND_WRITE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
/// Connections: the first for what is granted at first, one that a window is bound for later, and
/// one for each refusal, which ends it.
const CONNECTIONS: usize = MESSAGES + 2;
const LATER: usize = 6;
/// Those from here on are for messages that are refused.
const MESSAGES: usize = 8;
/// Bytes of the memory that windows are bound to.
const REGION: usize = 4096;
/// The part of the process that has the memory. The other's is [`user`]: what each does between two
/// barriers stands at the same place.
fn owner<E: End>(rig: &Rig, control: &mut Connection) {
    let mut ends: Vec<E> = (0..CONNECTIONS).map(|_| E::new(rig, control)).collect();
    let region = rig.pd.allocate(REGION, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let is = |at: usize, expected: &[u8]| {
        let bytes = region.to_vec(at, expected.len());
        assert_eq!(bytes, expected, "at {at}");
    };
    let tell = |control: &mut Connection, rkey| {
        let place = Remote::new(region.address(), rkey);
        control.exchange_data(&told(&[place])).unwrap();
    };

    // A window of type 1, over some of the region; all connections of the domain may use it.
    let mut one = MemoryWindow::<Type1>::new(&rig.pd).unwrap();
    let first = ends[0].bind_1(&mut one, &region, 256..768, READ_AND_WRITE);
    tell(control, first);
    control.barrier(1).unwrap();
    is(0, &[[0; 256], [0x5a; 256], [0x5a; 256], [0; 256]].concat());

    // Bound anew as it is: elsewhere, with fewer rights, by another key.
    let second = ends[0].bind_1(&mut one, &region, 0..8, Access::REMOTE_READ);
    assert_ne!(first, second);
    tell(control, second);
    control.barrier(2).unwrap();
    is(0, &[0; 256]);

    // A window of type 2, for one connection, whose peer ends it.
    let mut two = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
    let bound = ends[0].bind_2(&mut two, 7, &region, 1024..1152);
    assert_eq!(bound & 0xff, 7);
    tell(control, bound);
    assert_eq!(ends[0].received(), (status::IBV_WC_SUCCESS, 12, Some(bound)));
    control.barrier(3).unwrap();
    is(1000, &[&[0; 24][..], &[0xa5; 128], &[0; 24]].concat());

    // For another connection, by another key; this side ends it.
    let bound = ends[LATER].bind_2(&mut two, 8, &region, 2048..2064);
    tell(control, bound);
    control.barrier(4).unwrap();
    is(2040, &[&[0; 8][..], &[0x77; 16], &[0; 8]].concat());
    assert_eq!(ends[LATER].invalidate(&mut two), status::IBV_WC_SUCCESS);
    control.barrier(5).unwrap();
    // The peer has tried it again, and then what is over.
    control.barrier(6).unwrap();
    is(2040, &[&[0; 8][..], &[0x77; 16], &[0; 8]].concat());

    // Every connection has failed at last: each refusal ended the one that it came by. Where a message
    // was refused, its receive says so; of the others an event does.
    let failed: BTreeSet<u32> = ends[..MESSAGES].iter().map(|end| end.qp().number()).collect();
    let mut told_of = BTreeSet::new();
    while told_of != failed {
        let event = rig.context.async_event(PATIENCE).unwrap();
        let event = event.unwrap_or_else(|| panic!("{told_of:x?} of {failed:x?}"));
        assert!(event.to_string().contains("QP_ACCESS_ERR"), "{event}");
        let EventSource::QueuePair(number) = event.source else { panic!("{event}") };
        assert!(told_of.insert(number), "{event} came twice");
    }
    for (at, end) in ends.iter_mut().enumerate() {
        assert_eq!(end.qp().query().unwrap().state, QpState::Error, "connection {at}");
        let status = match at {
            0 => continue,
            _ if at < MESSAGES => status::IBV_WC_WR_FLUSH_ERR,
            _ => status::IBV_WC_LOC_ACCESS_ERR,
        };
        assert_eq!(end.received(), (status, 0, None), "connection {at}");
    }
    control.barrier(7).unwrap();
}

/// The part of the process that uses the other's memory.
fn user<E: End>(rig: &Rig, control: &mut Connection) {
    let mut ends: Vec<E> = (0..CONNECTIONS).map(|_| E::new(rig, control)).collect();
    let hear = |control: &mut Connection| heard(&control.exchange_data(&[]).unwrap())[0];
    let (good, refused) = (status::IBV_WC_SUCCESS, status::IBV_WC_REM_ACCESS_ERR);

    let first = hear(control);
    assert_eq!(ends[0].write(first.offset(256), &[0x5a; 512]), good);
    assert_eq!(ends[0].read(first.offset(300), 100), Ok(vec![0x5a; 100]));
    // Across its start, across its end, and a byte behind it.
    assert_eq!(ends[1].write(first.offset(255), &[1; 2]), refused);
    assert_eq!(ends[2].read(first.offset(767), 2), Err(refused));
    assert_eq!(ends[3].write(first.offset(768), &[1]), refused);
    control.barrier(1).unwrap();

    let second = hear(control);
    assert_eq!(ends[0].read(second, 8), Ok(vec![0; 8]));
    assert_eq!(ends[4].write(second, &[1; 8]), refused);
    assert_eq!(ends[5].read(first.offset(256), 8), Err(refused), "the key that it had");
    control.barrier(2).unwrap();

    let third = hear(control);
    assert_eq!(ends[0].write(third.offset(1024), &[0xa5; 128]), good);
    assert_eq!(ends[7].write(third.offset(1024), &[1; 8]), refused, "another connection");
    assert_eq!(ends[0].send_invalidate(third.rkey, b"over and out"), good);
    assert_eq!(ends[0].write(third.offset(1024), &[1; 8]), refused);
    control.barrier(3).unwrap();

    let fourth = hear(control);
    assert_eq!(ends[LATER].write(fourth.offset(2048), &[0x77; 16]), good);
    control.barrier(4).unwrap();
    // The other side invalidates it.
    control.barrier(5).unwrap();
    assert_eq!(ends[LATER].write(fourth.offset(2048), &[1; 16]), refused);
    // What is bound no more, and what is of type 1, is not invalidated from afar.
    assert_eq!(ends[MESSAGES].send_invalidate(fourth.rkey, b""), refused);
    assert_eq!(ends[MESSAGES + 1].send_invalidate(second.rkey, b""), refused);
    control.barrier(6).unwrap();
    control.barrier(7).unwrap();
}

#[test]
fn windows_let_in_a_process_that_posts_by_libmlx5() {
    with_peer(
        windows_let_in_a_process_that_posts_by_libmlx5,
        peer_that_uses,
        |rig, mut control| {
            owner::<Side<Rc>>(&rig, &mut control);
        },
    );
}

fn peer_that_uses(rig: Rig, mut control: Connection) {
    user::<Library<Rc>>(&rig, &mut control);
}

#[test]
fn windows_of_a_process_that_posts_by_libmlx5_let_in() {
    with_peer(
        windows_of_a_process_that_posts_by_libmlx5_let_in,
        peer_that_owns,
        |rig, mut control| {
            user::<Side<Rc>>(&rig, &mut control);
        },
    );
}

fn peer_that_owns(rig: Rig, mut control: Connection) {
    owner::<Library<Rc>>(&rig, &mut control);
}

#[test]
fn a_window_of_an_unreliable_connection_lets_in_and_nobody_tells_who_is_kept_out() {
    with_peer(
        a_window_of_an_unreliable_connection_lets_in_and_nobody_tells_who_is_kept_out,
        peer_that_writes_blindly,
        |rig, mut control| {
            let (mut side, _) = connected::<Uc>(&rig, &mut control, &|_, _| {});
            let region = rig.pd.allocate(REGION, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
            let mut window = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
            let request =
                window.bind(side.qp.number(), 3, &region, 64, 64, READ_AND_WRITE).unwrap();
            // SAFETY: no code holds a reference to the region.
            let rkey = unsafe { side.send.bind(1, &mut window, request.signaled()) }.unwrap();
            assert_eq!(side.sent().0, 1);
            control.exchange_data(&told(&[Remote::new(region.address(), rkey)])).unwrap();
            let is = |expected: &[u8]| {
                let bytes = region.to_vec(0, 192);
                assert_eq!(bytes, [&[0; 64][..], expected, &[0; 64]].concat());
            };
            let wait = |side: &mut Side<Uc>, marker| {
                assert_eq!(side.received().kind, ReceiveKind::SendImm(marker));
            };
            let rooms = [1, 2].map(|id| (id, side.sge(RECEIVED, 64)));
            for (id, room) in rooms {
                // SAFETY: memory lives to the end.
                unsafe { side.receive.post(id, room).unwrap() };
            }
            control.barrier(1).unwrap();
            // What was sent behind the writes is here.
            wait(&mut side, 1);
            is(&[0x11; 64]);
            side.send.unbind(3, &mut window).unwrap();
            assert_eq!(side.sent().0, 3);
            control.barrier(2).unwrap();
            wait(&mut side, 2);
            is(&[0x11; 64]);
            control.barrier(3).unwrap();
        },
    );
}

fn peer_that_writes_blindly(rig: Rig, mut control: Connection) {
    let (mut side, _) = Library::<Uc>::connected(&rig, &mut control, &|_, _| {});
    let window = heard(&control.exchange_data(&[]).unwrap())[0];
    control.barrier(1).unwrap();
    for (marker, byte) in [(1, 0x11), (2, 0x22)] {
        side.memory.write(0, &[byte; 64]);
        for (offset, length) in [(64, 64), (63, 2), (127, 2), (128, 1)] {
            let list = [side.sge(0, length)];
            side.post(9, wr::IBV_WR_RDMA_WRITE, &list, to(window.offset(offset)));
            side.success();
        }
        side.post(9, wr::IBV_WR_SEND_WITH_IMM, &[], |wr| {
            wr.imm_data_invalidated_rkey_union.imm_data = u32::to_be(marker);
        });
        side.success();
        control.barrier(marker as u8 + 1).unwrap();
    }
}
