//! UC, UD and multicast between two processes.

use mlx5::connect::Connection;
use mlx5::cqe::ReceiveKind;
use mlx5::ib::Uc;
use mlx5::verbs::AddressHandle;
use mlx5::wqe::{Inline, RdmaWriteImm, SendImm, SendMessage, UdAddress};

use super::multicast::{header, join, to_group};
use super::processes::{connected, with_peer};
use rig::Rig;
use rig::{QKEY, Side};

const MESSAGES: u32 = 100;
/// Bytes of a receive.
const ROOM: usize = 200;

fn post_receives<T: mlx5::ib::Transport>(side: &mut Side<T>, receives: u64) {
    for id in 0..receives {
        let sge = side.sge(id as usize * ROOM, ROOM);
        // SAFETY: memory lives as long as the queues, and is read when receives are complete.
        unsafe { side.receive.post(id, sge) }.unwrap();
    }
}

#[test]
fn a_group_has_members_in_both_processes() {
    with_peer(a_group_has_members_in_both_processes, peer_of_a_group, |rig, mut connection| {
        let (mut sender, mut member) = (rig.datagrams(), rig.datagrams());
        let _membership = join(&rig, &member.qp, 40);
        post_receives(&mut member, 8);
        post_receives(&mut sender, 8);
        // The peer has joined.
        connection.barrier(1).unwrap();
        let group = to_group(&rig, 40, QKEY);
        let wrong = to_group(&rig, 40, QKEY ^ 1);
        // SAFETY: the payload is copied into the WQE.
        unsafe {
            sender.send.post(0, SendMessage::new(Inline(b"nobody")).signaled().to(&wrong)).unwrap();
            sender
                .send
                .post(1, SendMessage::new(Inline(b"everybody")).signaled().to(&group))
                .unwrap();
        }
        assert_eq!((sender.sent().0, sender.sent().0), (0, 1));
        let done = member.received();
        assert_eq!(
            (done.src_qp, member.memory.to_vec(40, 9)),
            (sender.qp.number(), b"everybody".into())
        );
        // The peer answers this one of two that it has never heard of.
        let done = sender.received();
        assert_eq!(
            (done.kind, sender.memory.to_vec(40, 6)),
            (ReceiveKind::SendImm(7), b"answer".into())
        );
        // And multicasts itself, to the member here.
        assert_eq!((member.received().id, member.memory.to_vec(ROOM + 40, 4)), (1, b"back".into()));
        sender.is_quiet();
        member.is_quiet();
        connection.barrier(2).unwrap();
        // The peer has left, and this one too: only the card knows.
        connection.barrier(3).unwrap();
        // SAFETY: the payload is copied into the WQE.
        unsafe {
            sender
                .send
                .post(2, SendMessage::new(Inline(b"who is left")).signaled().to(&group))
                .unwrap()
        };
        assert_eq!((sender.sent().0, member.received().id), (2, 2));
        connection.barrier(4).unwrap();
    });
}

fn peer_of_a_group(rig: Rig, mut connection: Connection) {
    let mut member = rig.datagrams();
    let membership = join(&rig, &member.qp, 40);
    post_receives(&mut member, 8);
    connection.barrier(1).unwrap();
    let done = member.received();
    assert_eq!(member.memory.to_vec(40, 9), b"everybody");
    let header = header(&member, &done, 0);
    assert!(header.is_some_and(|header| header.destination.is_multicast()));
    let way = rig.local.sender(&done, header.as_ref());
    let way = AddressHandle::new(&rig.pd, &way).unwrap();
    let to = UdAddress::new(&way, done.src_qp, QKEY);
    let group = to_group(&rig, 40, QKEY);
    // SAFETY: the payload is copied into the WQE.
    unsafe {
        member.send.post(1, SendImm::new(Inline(b"answer"), 7).to(&to)).unwrap();
        member.send.post(2, SendMessage::new(Inline(b"back")).signaled().to(&group)).unwrap();
    }
    // Its own copy comes back.
    let outcomes = [member.wait(), member.wait()].map(|done| format!("{done:?}"));
    assert!(outcomes.iter().any(|outcome| outcome.starts_with("Receive")), "{outcomes:?}");
    assert!(outcomes.iter().any(|outcome| outcome.starts_with("Send")), "{outcomes:?}");
    connection.barrier(2).unwrap();
    drop(membership);
    connection.barrier(3).unwrap();
    connection.barrier(4).unwrap();
    member.is_quiet();
}

#[test]
fn an_unreliable_connection_reaches_another_process() {
    with_peer(
        an_unreliable_connection_reaches_another_process,
        peer_of_a_connection,
        |rig, mut control| {
            let (mut side, remote) = connected::<Uc>(&rig, &mut control, &|_, _| {});
            control.barrier(1).unwrap();
            for message in 0..MESSAGES {
                let bytes = message.to_be_bytes();
                // SAFETY: the payload is copied into the WQE.
                unsafe {
                    let request = match message % 2 {
                        0 => side.send.post(0, SendImm::new(Inline(&bytes), message).signaled()),
                        _ => {
                            let at = remote.offset(40_000 + u64::from(message) * 4);
                            let write = RdmaWriteImm::new(Inline(&bytes), at, message);
                            side.send.post(0, write.signaled())
                        }
                    };
                    request.unwrap();
                }
                let _ = side.sent();
            }
            control.barrier(2).unwrap();
            side.is_quiet();
        },
    );
}

fn peer_of_a_connection(rig: Rig, mut control: Connection) {
    let (mut side, _) = connected::<Uc>(&rig, &mut control, &|_, _| {});
    post_receives(&mut side, MESSAGES.into());
    control.barrier(1).unwrap();
    for message in 0..MESSAGES {
        let done = side.received();
        let (kind, at) = match message % 2 {
            0 => (ReceiveKind::SendImm(message), message as usize * ROOM),
            _ => (ReceiveKind::WriteImm(message), 40_000 + message as usize * 4),
        };
        assert_eq!((done.id, done.kind), (message.into(), kind));
        assert_eq!(side.memory.to_vec(at, 4), message.to_be_bytes());
    }
    control.barrier(2).unwrap();
}
