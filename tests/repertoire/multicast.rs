//! Multicast: which members receive a group's messages, in one process.

use mlx5::Error;
use mlx5::cqe::{DatagramHeader, ReceiveDone, SendOperation};
use mlx5::ib::{Gid, Ud};
use mlx5::verbs::{AddressHandle, MulticastMembership, QueuePair, Rts};
use mlx5::wqe::{Inline, InlineBytes, SendMessage, UdAddress};

use rig::Rig;
use rig::{QKEY, Side};

/// In the environment of a process that is to have the groups of its parent.
pub const GROUPS: &str = "MLX5_TEST_GROUPS";

/// GID and LID of group `number`, of the kind that the port can send to. Groups reach all processes of
/// the machine: each run has groups of its own.
pub fn group(rig: &Rig, number: u8) -> (Gid, u16) {
    let parent = std::env::var(GROUPS).ok().map(|run| run.parse().unwrap());
    let [.., high, low] = parent.unwrap_or_else(std::process::id).to_be_bytes();
    match rig.local.attributes().is_ethernet() {
        true => (format!("239.{high}.{low}.{number}").parse().unwrap(), 0),
        false => {
            let gid = format!("ff12:401b::{high:x}:{low:x}:{number:x}");
            (gid.parse().unwrap(), 0xc000 + u16::from(number))
        }
    }
}

pub fn join(rig: &Rig, qp: &QueuePair<Ud, Rts>, number: u8) -> MulticastMembership {
    let (gid, lid) = group(rig, number);
    qp.attach_multicast(gid, lid).unwrap()
}

pub fn to_group(rig: &Rig, number: u8, qkey: u32) -> UdAddress {
    let (gid, lid) = group(rig, number);
    let handle = AddressHandle::new(&rig.pd, &rig.local.multicast(gid, lid)).unwrap();
    UdAddress::multicast(&handle, qkey)
}

/// The header that lies before a datagram.
pub fn header(side: &Side<Ud>, done: &ReceiveDone, at: usize) -> Option<DatagramHeader> {
    DatagramHeader::read(done, &side.memory.to_vec(at, 40).try_into().unwrap())
}

#[test]
fn every_member_gets_its_copy_and_nobody_else() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    // The sender is a member of the first group, too.
    let mut sides: Vec<_> = (0..4).map(|_| rig.datagrams()).collect();
    let mut memberships: Vec<_> = sides[..3].iter().map(|side| join(&rig, &side.qp, 1)).collect();
    let other = join(&rig, &sides[3].qp, 2);
    assert_eq!((other.group(), other.lid()), group(&rig, 2));
    let to = [1, 2].map(|number| to_group(&rig, number, QKEY));
    // SAFETY: memory lives to the end, and is read only after the requests on it complete.
    unsafe {
        for side in &mut sides {
            for id in 0..3 {
                side.receive.post(id, side.sge(id as usize * 1000, 200)).unwrap();
            }
        }
        sides[0].send.post(9, SendMessage::new(Inline(b"to all")).signaled().to(&to[0])).unwrap();
        let sender = sides[0].qp.number();
        for side in &mut sides[1..3] {
            let done = side.received();
            assert_eq!((done.id, done.src_qp, done.datagram()), (0, sender, 40..46));
            assert_eq!(side.memory.to_vec(40, 6), b"to all");
            let header = header(side, &done, 0).expect("multicast is global");
            assert_eq!((header.destination, header.hop_limit), (group(&rig, 1).0, 64));
            side.is_quiet();
        }
        // Its own copy, and that it was sent.
        let first = sides[0].wait();
        let second = sides[0].wait();
        assert!(format!("{first:?}{second:?}").contains("Receive(") && first != second);
        sides[3].is_quiet();

        // From outside of the group; by pointer.
        sides[3].memory.write(5000, b"from outside");
        let request = SendMessage::new(sides[3].sge(5000, 12)).signaled().to(&to[0]);
        sides[3].send.post(10, request).unwrap();
        assert_eq!(sides[3].sent(), (10, SendOperation::Send));
        for side in &mut sides[..3] {
            let done = side.received();
            assert_eq!((done.id, side.memory.to_vec(1040, 12)), (1, b"from outside".into()));
        }
        // A queue pair that has left gets nothing more.
        drop(memberships.remove(1));
        sides[3]
            .send
            .post(11, SendMessage::new(InlineBytes([7; 60])).signaled().to(&to[0]))
            .unwrap();
        assert_eq!(sides[3].sent(), (11, SendOperation::Send));
        for at in [0, 2] {
            assert_eq!(
                (sides[at].received().id, sides[at].memory.to_vec(2040, 60)),
                (2, vec![7; 60])
            );
        }
        sides[1].is_quiet();
        sides[3].is_quiet();
        // To a group that has the sender alone.
        sides[3].send.post(12, SendMessage::new(Inline(b"echo")).to(&to[1])).unwrap();
        assert_eq!((sides[3].received().id, sides[3].memory.to_vec(40, 4)), (0, b"echo".into()));
    }
}

#[test]
fn a_wrong_key_keeps_a_message_from_a_group() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let (mut sender, mut member) = (rig.datagrams(), rig.datagrams());
    let _membership = join(&rig, &member.qp, 3);
    let (wrong, right) = (to_group(&rig, 3, QKEY + 1), to_group(&rig, 3, QKEY));
    // SAFETY: memory lives to the end, and is read only after the requests on it complete.
    unsafe {
        member.receive.post(1, member.sge(0, 100)).unwrap();
        sender.send.post(1, SendMessage::new(Inline(b"no")).signaled().to(&wrong)).unwrap();
        assert_eq!(sender.sent().0, 1);
        member.is_quiet();
        sender.send.post(2, SendMessage::new(Inline(b"yes")).signaled().to(&right)).unwrap();
    }
    assert_eq!(
        (sender.sent().0, member.received().id, member.memory.to_vec(40, 3)),
        (2, 1, b"yes".into())
    );
}

#[test]
fn what_is_no_group_is_refused() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let side = rig.datagrams();
    let refused = side.qp.attach_multicast("fe80::1".parse().unwrap(), 0xc001).unwrap_err();
    assert!(matches!(refused, Error::Attribute { .. }), "{refused}");
    let ethernet = rig.local.attributes().is_ethernet();
    let (gid, lid) = group(&rig, 4);
    if !ethernet {
        let text = side.qp.attach_multicast(gid, 17).unwrap_err().to_string();
        assert!(text.contains("ibv_attach_mcast") && text.contains("0xc000"), "{text}");
        let way = rig.local.multicast(gid, 17);
        let text = AddressHandle::new(&rig.pd, &way).unwrap_err().to_string();
        assert!(text.contains("0xc000 to 0xfffe"), "{text}");
    }
    // A membership that is leaked keeps its queue pair alive.
    let membership = side.qp.attach_multicast(gid, lid).unwrap();
    drop(side);
    drop(membership);
    // The card has room for 240 members in a group.
    let mut memberships = Vec::new();
    let crowd: Vec<_> = (0..241).map(|_| datagrams_without_receives(&rig)).collect();
    for qp in &crowd[..240] {
        memberships.push(qp.attach_multicast(gid, lid).unwrap());
    }
    let text = crowd[240].attach_multicast(gid, lid).unwrap_err().to_string();
    assert!(text.contains("ENOMEM") && text.contains("max_mcast_qp_attach"), "{text}");
    memberships.pop();
    memberships.push(crowd[240].attach_multicast(gid, lid).unwrap());
}

fn datagrams_without_receives(rig: &Rig) -> QueuePair<Ud, mlx5::verbs::Init> {
    use mlx5::verbs::QueuePairBuilder;
    use mlx5::verbs::attr::UdInitAttributes;
    let builder = QueuePairBuilder::<Ud>::new(&rig.pd, &rig.cq(8)).max_send_wr(4).max_recv_wr(4);
    builder.build().unwrap().init(&UdInitAttributes::new(1, QKEY)).unwrap()
}
