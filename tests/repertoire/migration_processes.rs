//! Alternate paths between two processes, each with its own slice of the HCA. Both sides arm
//! migration; the path of one breaks under traffic, or one is told to move. Both move, are
//! notified, and lose nothing. One of the two, either one, posts and polls by libmlx5.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;

use mlx5::connect::Connection;
use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ib::Rc;
use mlx5::verbs::attr::{
    AckTimeout, AddressVector, AlternatePath, MigrationState, QpState, RtrAttributes, RtsAttributes,
};
use mlx5::verbs::{EventSource, QueuePair, Rts};
use mlx5::wqe::{Inline, SendImm};
use mlx5_sys::verbs::{ibv_wc_opcode, ibv_wc_status as status, ibv_wr_opcode as wr};

use super::processes::{Library, connected, with_peer};
use rig::Side;
use rig::{PATIENCE, Rig};

/// Messages each way in a round.
const MESSAGES: u32 = 200;
/// The one at which the way breaks.
const BREAKS: u32 = 80;
/// Sends that are outstanding at most, and receives that are posted.
const WINDOW: u32 = 16;
const RECEIVES: u64 = 64;
const ROOM: usize = 64;
/// The service level of every alternate path. Those of the first paths differ by test, since ways
/// break for the whole process.
const ALTERNATE: u8 = 3;

/// An event at an end.
enum Happened {
    Sent,
    Received { id: u64, imm: u32 },
    Failed(status::Type),
}

/// An end of a connection, posted to and polled by either library.
trait End: Sized {
    /// With this as the first path's service level.
    fn new(rig: &Rig, control: &mut Connection, level: u8) -> Self;
    fn qp(&self) -> &QueuePair<Rc, Rts>;
    fn send(&mut self, imm: u32);
    fn receive(&mut self, id: u64);
    fn poll(&mut self) -> Option<Happened>;
}

/// Tries as often as can be, since the other process may have to wait for a processor.
fn change(level: u8) -> impl Fn(&mut RtrAttributes, &mut RtsAttributes) {
    move |rtr, rts| {
        rtr.address.service_level = level;
        rts.retry_cnt = 7;
        rts.timeout = timeout();
    }
}

fn timeout() -> AckTimeout {
    AckTimeout::from_code(12).unwrap()
}

impl End for Side<Rc> {
    fn new(rig: &Rig, control: &mut Connection, level: u8) -> Self {
        connected(rig, control, &change(level)).0
    }

    fn qp(&self) -> &QueuePair<Rc, Rts> {
        &self.qp
    }

    fn send(&mut self, imm: u32) {
        let bytes = imm.to_be_bytes();
        // SAFETY: the payload is copied into the WQE.
        unsafe { self.send.post(0, SendImm::new(Inline(&bytes), imm).signaled()).unwrap() };
    }

    fn receive(&mut self, id: u64) {
        let room = self.sge(id as usize * ROOM, ROOM);
        // SAFETY: memory lives as long as the queues.
        unsafe { self.receive.post(id, room).unwrap() };
    }

    fn poll(&mut self) -> Option<Happened> {
        let queues = &mut (&mut self.send, &mut self.receive);
        Some(match self.completions.poll(queues).unwrap()? {
            Completion::Send(_) => Happened::Sent,
            Completion::Receive(done) => {
                let ReceiveKind::SendImm(imm) = done.kind else { panic!("{done:?}") };
                assert_eq!(self.memory.to_vec(done.id as usize * ROOM, 4), imm.to_be_bytes());
                Happened::Received { id: done.id, imm }
            }
            Completion::Failed(failure) => Happened::Failed(failure.status.wc_status()),
            other => panic!("{other:?}"),
        })
    }
}

impl End for Library<Rc> {
    fn new(rig: &Rig, control: &mut Connection, level: u8) -> Self {
        Library::connected(rig, control, &change(level)).0
    }

    fn qp(&self) -> &QueuePair<Rc, Rts> {
        &self.qp
    }

    fn send(&mut self, imm: u32) {
        // Each request of a window has a place of its own.
        let at = RECEIVES as usize * ROOM + (imm % WINDOW) as usize * 4;
        self.memory.write(at, &imm.to_be_bytes());
        self.post(1 << 32, wr::IBV_WR_SEND_WITH_IMM, &[self.sge(at, 4)], |wr| {
            wr.imm_data_invalidated_rkey_union.imm_data = imm.to_be();
        });
    }

    fn receive(&mut self, id: u64) {
        Library::receive(self, id, id as usize * ROOM, ROOM);
    }

    fn poll(&mut self) -> Option<Happened> {
        let done = Library::poll(self)?;
        Some(match done.status {
            status::IBV_WC_SUCCESS if done.opcode & ibv_wc_opcode::IBV_WC_RECV == 0 => {
                Happened::Sent
            }
            status::IBV_WC_SUCCESS => {
                // SAFETY: every message has an immediate.
                let imm = u32::from_be(unsafe { done.imm_data_invalidated_rkey_union.imm_data });
                assert_eq!(self.memory.to_vec(done.wr_id as usize * ROOM, 4), imm.to_be_bytes());
                Happened::Received { id: done.wr_id, imm }
            }
            failed => Happened::Failed(failed),
        })
    }
}

/// Sends these messages and receives as many, all of them in order. `arrived` is told how many have.
fn traffic<E: End>(end: &mut E, messages: Range<u32>, mut arrived: impl FnMut(u32)) {
    let (mut posted, mut sent, mut received) = (messages.start, messages.start, messages.start);
    let mut deadline = Instant::now() + PATIENCE;
    while sent < messages.end || received < messages.end {
        while posted < messages.end && posted - sent < WINDOW {
            end.send(posted);
            posted += 1;
        }
        match end.poll() {
            None => {
                assert!(Instant::now() < deadline, "{sent} sent, {received} received");
                std::thread::yield_now();
                continue;
            }
            Some(Happened::Sent) => sent += 1,
            Some(Happened::Received { id, imm }) => {
                assert_eq!(imm, received, "each comes once, and in order");
                received += 1;
                end.receive(id);
                arrived(received - messages.start);
            }
            Some(Happened::Failed(status)) => panic!("status {status}"),
        }
        deadline = Instant::now() + PATIENCE;
    }
}

/// Gives a queue pair another way to where it is connected to.
fn offer(qp: &QueuePair<Rc, Rts>, level: u8) {
    let address = AddressVector { service_level: level, ..qp.query().unwrap().address };
    let path = AlternatePath { address, pkey_index: 0, timeout: timeout() };
    qp.set_alternate_path(&path).unwrap();
    assert_eq!(qp.query().unwrap().migration, MigrationState::Rearm);
}

/// Returns the port of a queue pair's packets, and its migration state.
fn path(qp: &QueuePair<Rc, Rts>) -> (u8, MigrationState) {
    let now = qp.query().unwrap();
    (now.address.service_level, now.migration)
}

/// The next event, which is of that queue pair.
fn event(rig: &Rig, qp: &QueuePair<Rc, Rts>) -> &'static str {
    let event = rig.context.async_event(PATIENCE).unwrap().expect("an event");
    assert_eq!(event.source, EventSource::QueuePair(qp.number()), "{event}");
    event.explanation().unwrap().0
}

/// Nothing more is reported.
fn is_quiet(rig: &Rig) {
    let more = rig.context.async_event(std::time::Duration::ZERO).unwrap();
    assert!(more.is_none(), "{more:?}");
}

/// Service levels whose way is broken: tests of this process share its port.
static BROKEN: Mutex<BTreeSet<u8>> = Mutex::new(BTreeSet::new());

/// Loses all packets of a service level, in both directions.
fn break_way(level: u8) {
    change_ways(|broken| broken.insert(level));
}

fn mend_way(level: u8) {
    change_ways(|broken| broken.remove(&level));
}

fn change_ways(change: impl FnOnce(&mut BTreeSet<u8>) -> bool) {
    let mut broken = BROKEN.lock().unwrap();
    assert!(change(&mut broken));
    let rules: Vec<String> = broken.iter().map(|level| format!("sl {level} loss")).collect();
    assert!(mlx5_model::set_faults(0, &rules.join("\n")).unwrap());
}

/// Either side's part. The way of the first service level breaks at the one that `breaks`; later the
/// other is told to move.
fn both<E: End>(rig: &Rig, control: &mut Connection, level: u8, breaks: bool) {
    let mut end = E::new(rig, control, level);
    for id in 0..RECEIVES {
        end.receive(id);
    }
    offer(end.qp(), ALTERNATE);
    control.barrier(1).unwrap();
    // Packets say that their sender is ready.
    traffic(&mut end, 0..10, |_| {});
    control.barrier(2).unwrap();
    assert_eq!(path(end.qp()), (level, MigrationState::Armed));
    is_quiet(rig);
    control.barrier(3).unwrap();

    let count = |arrived| {
        if breaks && arrived == BREAKS {
            break_way(level);
        }
    };
    traffic(&mut end, 10..MESSAGES, count);
    assert_eq!(event(rig, end.qp()), "PATH_MIG");
    assert_eq!(path(end.qp()), (ALTERNATE, MigrationState::Migrated));
    control.barrier(4).unwrap();

    // The way is mended, and is the alternate path from now on.
    if breaks {
        mend_way(level);
    }
    offer(end.qp(), level);
    control.barrier(5).unwrap();
    traffic(&mut end, 0..10, |_| {});
    control.barrier(6).unwrap();
    assert_eq!(path(end.qp()), (ALTERNATE, MigrationState::Armed));
    control.barrier(7).unwrap();
    if !breaks {
        end.qp().migrate().unwrap();
    }
    traffic(&mut end, 0..MESSAGES, |_| {});
    assert_eq!(event(rig, end.qp()), "PATH_MIG");
    assert_eq!(path(end.qp()), (level, MigrationState::Migrated));
    control.barrier(8).unwrap();
    is_quiet(rig);
}

#[test]
fn a_side_whose_way_breaks_moves_and_takes_a_peer_of_libmlx5_along() {
    with_peer(
        a_side_whose_way_breaks_moves_and_takes_a_peer_of_libmlx5_along,
        peer_that_follows,
        |rig, mut control| {
            both::<Side<Rc>>(&rig, &mut control, 5, true);
        },
    );
}

fn peer_that_follows(rig: Rig, mut control: Connection) {
    both::<Library<Rc>>(&rig, &mut control, 5, false);
}

#[test]
fn a_side_follows_a_peer_of_libmlx5_whose_way_breaks() {
    with_peer(
        a_side_follows_a_peer_of_libmlx5_whose_way_breaks,
        peer_that_moves,
        |rig, mut control| {
            both::<Side<Rc>>(&rig, &mut control, 6, false);
        },
    );
}

fn peer_that_moves(rig: Rig, mut control: Connection) {
    both::<Library<Rc>>(&rig, &mut control, 6, true);
}

#[test]
fn a_way_that_breaks_is_the_end_where_the_peer_has_no_other() {
    with_peer(
        a_way_that_breaks_is_the_end_where_the_peer_has_no_other,
        peer_without_another_way,
        |rig, mut control| {
            let level = 7;
            let mut end = <Side<Rc> as End>::new(&rig, &mut control, level);
            offer(end.qp(), ALTERNATE);
            end.receive(0);
            control.barrier(1).unwrap();
            traffic(&mut end, 0..1, |_| {});
            assert_eq!(path(end.qp()), (level, MigrationState::Rearm));
            break_way(level);
            end.send(1);
            match end.wait() {
                Completion::Failed(failure) => {
                    assert_eq!(failure.status.wc_status(), status::IBV_WC_RETRY_EXC_ERR);
                }
                other => panic!("{other:?}"),
            }
            mend_way(level);
            assert_eq!(end.qp.query().unwrap().state, QpState::Error);
            is_quiet(&rig);
            control.barrier(2).unwrap();
        },
    );
}

fn peer_without_another_way(rig: Rig, mut control: Connection) {
    let mut end = <Library<Rc> as End>::new(&rig, &mut control, 7);
    End::receive(&mut end, 0);
    control.barrier(1).unwrap();
    traffic(&mut end, 0..1, |_| {});
    control.barrier(2).unwrap();
    // No message has arrived, and the end was not told to migrate.
    assert!(Library::poll(&end).is_none());
    assert_eq!(end.qp.query().unwrap().state, QpState::Rts);
    is_quiet(&rig);
}
