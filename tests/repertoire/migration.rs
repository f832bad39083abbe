//! Connections that move to their alternate path: automatically, after their peer, on demand.

use mlx5::cqe::{Completion, Status};
use mlx5::ib::Rc;
use mlx5::verbs::attr::{AckTimeout, AddressVector, AlternatePath, MigrationState};
use mlx5::verbs::{AsyncEvent, EventSource, QueuePair, Rts};
use mlx5::wqe::{Inline, Nop, RdmaWrite, Remote, SendMessage};

use rig::Side;
use rig::{PATIENCE, Rig};

/// An unassigned LID.
const NOWHERE: u16 = 0x1234;

/// Two connected sides; the path of the first leads to `first`, that of the second to the other.
fn pair(rig: &Rig, first: Option<u16>) -> [Side<Rc>; 2] {
    let pair = rig.pair::<Rc>().attributes(|side, rtr, rts| {
        rtr.address = way(rig, [first, None][side].unwrap_or(rtr.address.dlid));
        // The second waits longer than the first.
        (rts.timeout, rts.retry_cnt) = (AckTimeout::from_code(12).unwrap(), [1, 7][side]);
    });
    pair.sides()
}

/// A way to the port itself, known by its GID, over a LID that may be right or not.
fn way(rig: &Rig, dlid: u16) -> AddressVector {
    AddressVector { dlid, ..AddressVector::gid(1, 0, rig.context.gid(1, 0).unwrap().gid) }
}

/// Gives a side an alternate path of service level 3.
fn offer(side: &Side<Rc>, way: AddressVector) {
    let address = AddressVector { service_level: 3, ..way };
    let timeout = AckTimeout::from_code(12).unwrap();
    side.qp.set_alternate_path(&AlternatePath { address, pkey_index: 0, timeout }).unwrap();
    assert_eq!(migration(&side.qp), MigrationState::Rearm);
}

fn migration(qp: &QueuePair<Rc, Rts>) -> MigrationState {
    qp.query().unwrap().migration
}

fn lid(rig: &Rig) -> u16 {
    rig.context.port(1).unwrap().lid
}

fn write(side: &mut Side<Rc>, id: u64, to: Remote) {
    // SAFETY: the payload is copied into the WQE.
    unsafe { side.send.post(id, RdmaWrite::new(Inline(b"moving"), to).signaled()).unwrap() };
    assert_eq!(side.sent().0, id);
}

/// The next event, of whichever queue pair.
fn event(rig: &Rig) -> (&'static str, u32) {
    let event: AsyncEvent = rig.context.async_event(PATIENCE).unwrap().expect("an event");
    let EventSource::QueuePair(number) = event.source else { panic!("{event}") };
    (event.explanation().unwrap().0, number)
}

#[test]
fn a_broken_path_is_left_when_the_peer_is_ready() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = pair(&rig, Some(NOWHERE));
    offer(&a, way(&rig, lid(&rig)));
    offer(&b, way(&rig, lid(&rig)));
    // A message from the peer arms the first side, whose acknowledge goes nowhere yet.
    // SAFETY: memory lives to the end.
    unsafe {
        a.receive.post(1, a.memory.sge(0, 64).unwrap()).unwrap();
        b.send.post(2, SendMessage::new(Inline(b"are you ready?")).signaled()).unwrap();
    }
    assert_eq!(a.received().byte_len, 14);
    assert_eq!(migration(&a.qp), MigrationState::Armed);
    let to = b.remote(0);
    write(&mut a, 3, to);
    assert_eq!(b.memory.to_vec(0, 6), b"moving");
    assert_eq!(event(&rig), ("PATH_MIG", a.qp.number()));
    let now = a.qp.query().unwrap();
    assert_eq!((now.migration, now.address.dlid), (MigrationState::Migrated, lid(&rig)));
    assert_eq!(now.address.service_level, 3);
    // The peer's message was acknowledged after all, or tried again until it was.
    assert_eq!(b.sent().0, 2);
}

#[test]
fn without_an_agreement_a_broken_path_is_the_end() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, b] = pair(&rig, Some(NOWHERE));
    // Offered, but the peer has said nothing.
    offer(&a, way(&rig, lid(&rig)));
    // SAFETY: the payload is copied into the WQE.
    unsafe { a.send.post(1, RdmaWrite::new(Inline(b"lost"), b.remote(0)).signaled()).unwrap() };
    match a.wait() {
        Completion::Failed(failure) => {
            assert_eq!((failure.id, failure.status), (1, Status::RetriesExceeded));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(migration(&a.qp), MigrationState::Rearm);
}

/// Both sides armed by a message each way.
fn armed(rig: &Rig, second: Option<AddressVector>) -> [Side<Rc>; 2] {
    let [mut a, mut b] = pair(rig, None);
    let right = way(rig, lid(rig));
    offer(&a, right);
    offer(&b, second.unwrap_or(right));
    let (to_a, to_b) = (a.remote(0), b.remote(0));
    write(&mut a, 1, to_b);
    write(&mut b, 2, to_a);
    for side in [&a, &b] {
        assert_eq!(migration(&side.qp), MigrationState::Armed);
    }
    [a, b]
}

#[test]
fn who_is_told_to_move_takes_the_peer_along() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = armed(&rig, None);
    a.qp.migrate().unwrap();
    assert_eq!(event(&rig), ("PATH_MIG", a.qp.number()));
    let (to_a, to_b) = (a.remote(0), b.remote(64));
    write(&mut a, 3, to_b);
    assert_eq!(event(&rig), ("PATH_MIG", b.qp.number()));
    for side in [&a, &b] {
        let now = side.qp.query().unwrap();
        assert_eq!((now.migration, now.address.service_level), (MigrationState::Migrated, 3));
    }
    write(&mut b, 4, to_a);
    // Armed again, they can move again.
    offer(&a, way(&rig, lid(&rig)));
    offer(&b, way(&rig, lid(&rig)));
    write(&mut a, 5, to_b);
    write(&mut b, 6, to_a);
    assert_eq!(migration(&a.qp), MigrationState::Armed);
}

#[test]
fn a_peer_whose_alternate_path_leads_elsewhere_says_so() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = armed(&rig, Some(AddressVector::lid(1, NOWHERE)));
    a.qp.migrate().unwrap();
    assert_eq!(event(&rig), ("PATH_MIG", a.qp.number()));
    let (to_a, to_b) = (a.remote(0), b.remote(64));
    write(&mut a, 3, to_b);
    assert_eq!(event(&rig), ("PATH_MIG_ERR", b.qp.number()));
    assert_eq!(b.qp.query().unwrap().address.service_level, 0);
    // It goes on where it was, and says it once.
    write(&mut b, 4, to_a);
    // SAFETY: a NOP names no memory.
    unsafe { a.send.post(5, Nop::new().signaled()).unwrap() };
    assert_eq!(a.sent().0, 5);
    let none = rig.context.async_event(std::time::Duration::ZERO).unwrap();
    assert!(none.is_none(), "{none:?}");
}
