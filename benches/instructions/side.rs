//! The counted operations, and the code common to all sides.

use std::cell::RefCell;
use std::ptr::NonNull;

use mlx5::expert::BlueFlameCopy;
use mlx5::ib::Rc;
use mlx5::verbs::attr::{CqeSize, ScatterToCqe};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Rts};
use mlx5::wqe::{Remote, Sge};
use mlx5_sys::verbs::{ibv_cq, ibv_qp};

use crate::MODE;
pub use crate::rows::{How, LIST, Row, column};
use rig::Rig;

#[path = "atomics.rs"]
mod atomics;
#[path = "copies.rs"]
mod copies;
#[path = "datagram.rs"]
mod datagram;
#[path = "dynamic.rs"]
mod dynamic;
#[path = "fired.rs"]
mod fired;
#[path = "floor.rs"]
mod floor;
#[path = "inline.rs"]
mod inline;
#[path = "keys.rs"]
mod keys;
#[path = "libmlx5.rs"]
mod libmlx5;
#[path = "native.rs"]
mod native;
#[path = "packets.rs"]
pub mod packets;
#[path = "polls.rs"]
mod polls;
#[path = "pool.rs"]
mod pool;
#[path = "prepared.rs"]
mod prepared;
#[path = "raw.rs"]
mod raw;
#[path = "receives.rs"]
mod receives;
#[path = "recordless.rs"]
mod recordless;
#[path = "safe.rs"]
mod safe;
#[path = "shared_receives.rs"]
mod shared_receives;
#[path = "tags.rs"]
mod tags;

/// Bytes that a request by pointer, or a receive, names.
pub const LENGTH: u32 = 64;

/// A way to post and poll.
pub trait Side {
    /// Makes `calls` calls in a loop. Returns the requests posted or completions found, `None`
    /// where this side has no such call.
    ///
    /// Each row's loop is a function of its own that is never inlined: it is what is disassembled.
    fn run(&mut self, row: Row, calls: usize) -> Option<usize>;

    /// Does what a row's so many requests or completions find done.
    fn prepare(&mut self, _: Row, _: usize) {}
}

/// A side that has nothing behind it yet.
pub struct Maker {
    /// The side's column. Several sides may share one, as long as they have no row in common.
    pub column: &'static str,
    /// The rows that are measured on it: it is made for these only.
    pub rows: &'static [Row],
    pub make: fn() -> Box<dyn Side>,
}

impl Maker {
    const fn new(column: &'static str, rows: &'static [Row], make: fn() -> Box<dyn Side>) -> Self {
        Self { column, rows, make }
    }
}

/// Rows that several sides have.
mod rows_of {
    use super::Row::{self, *};

    pub const POSTS: &[Row] = &[Inline, Pointer, List, Poll, Empty];
    pub const QUEUES: &[Row] = &[Inline, Pointer, List, Poll, Empty, Receive];
    pub const KNOWN: &[Row] =
        &[Inline12, Inline16, Inline24, Inline28, Inline32, Inline44, Inline64];
    pub const LENGTHS: &[Row] = &[
        Inline12, Inline16, Inline24, Inline28, Inline32, Inline44, Inline64, Inline96, RunTime,
        RunTime16, RunTime28,
    ];
    pub const QUEUES_FLOOR: &[Row] = &[
        Inline, Pointer, List, Poll, Empty, Receive, Inline12, Inline16, Inline24, Inline28,
        Inline32, Inline44, Inline64, Inline96,
    ];
    pub const DOORBELLS: &[Row] = &[DoorbellInline, DoorbellPointer];
    pub const DATAGRAMS: &[Row] = &[UdPointer, UdInline, UdInline24, UdList];
    pub const DYNAMIC: &[Row] = &[DcSend, DcWrite];
    pub const TAKEN: &[Row] = &[PollLater, PollMany, PollReceive, PollReceives, PollInside];
    /// libmlx5 knows no compressed blocks: it takes the same completions one by one.
    pub const UNFOLDED: &[Row] = &[
        PollLater,
        PollMany,
        PollReceive,
        PollReceives,
        PollInside,
        PollFolded,
        PollFoldedReceive,
    ];
    pub const TAKEN_FLOOR: &[Row] = &[PollLater, PollMany, PollReceive, PollReceives];
    pub const FOLDED: &[Row] = &[PollFolded, PollFoldedReceive];
    pub const SHARED: &[Row] = &[ReceiveShared, ReceiveSharedList, PollShared];
    pub const TAGS: &[Row] = &[TagAppend, TagPoll];
    pub const PACKETS: &[Row] = &[PacketPoll, PacketEmpty];
    pub const HEADER: &[Row] =
        &[Inline, Inline16, Inline28, Inline64, RunTime, Pointer, Prepared, Poll, Empty, Receive];
    pub const LIBRARY: &[Row] = &[Inline, Pointer, List, Prepared, Poll, Empty, Receive];
    pub const POOL: &[Row] = &[PoolPost, PoolList, PoolPoll, PoolEmpty, PoolReceive];
}

/// All of them, in the order of the table's columns.
pub const MAKERS: &[Maker] = {
    use Row::*;
    use column::{CLASSIC, EXTENDED, FLOOR, OWNED, RAW, UNLOCKED};
    use copies::{Copied, Doorbells};
    use receives::WIDE;
    use rows_of::*;
    use shared_receives::MANY;
    &[
        Maker::new(CLASSIC, QUEUES, || Box::new(libmlx5::Classic::new())),
        Maker::new(CLASSIC, LENGTHS, || Box::new(inline::Verbs(libmlx5::Classic::long()))),
        Maker::new(CLASSIC, &[ReceiveWide], || Box::new(receives::Classic::new(WIDE))),
        Maker::new(CLASSIC, &[ReceiveList], || Box::new(receives::Classic::new(1))),
        Maker::new(CLASSIC, UNFOLDED, || Box::new(polls::Classic::new(CqeSize::B64))),
        Maker::new(CLASSIC, &[PollWide], || Box::new(polls::Classic::new(CqeSize::B128))),
        Maker::new(CLASSIC, DOORBELLS, || Box::new(Doorbells::new(libmlx5::Classic::new))),
        Maker::new(CLASSIC, SHARED, || Box::new(shared_receives::Classic::new(1))),
        Maker::new(CLASSIC, &[PollTable], || Box::new(shared_receives::Classic::new(MANY))),
        Maker::new(CLASSIC, DATAGRAMS, || Box::new(datagram::Classic::datagrams())),
        Maker::new(CLASSIC, &[UcPointer], || Box::new(datagram::Classic::connection())),
        Maker::new(CLASSIC, &[Bind], || Box::new(keys::Classic::new())),
        Maker::new(CLASSIC, TAGS, || Box::new(tags::Classic::new())),
        Maker::new(EXTENDED, POSTS, || Box::new(libmlx5::Extended::new())),
        Maker::new(EXTENDED, LENGTHS, || Box::new(inline::Verbs(libmlx5::Extended::long()))),
        Maker::new(EXTENDED, &[KeyList], || Box::new(keys::Extended::new())),
        Maker::new(EXTENDED, &[PollShared], || Box::new(shared_receives::Extended::new(1))),
        Maker::new(EXTENDED, &[PollTable], || Box::new(shared_receives::Extended::new(MANY))),
        Maker::new(EXTENDED, DATAGRAMS, || Box::new(datagram::Extended::datagrams())),
        Maker::new(EXTENDED, &[UcPointer], || Box::new(datagram::Extended::connection())),
        Maker::new(EXTENDED, DYNAMIC, || Box::new(dynamic::Extended::new())),
        Maker::new(EXTENDED, UNFOLDED, || Box::new(polls::Extended::new(CqeSize::B64))),
        Maker::new(EXTENDED, &[PollWide], || Box::new(polls::Extended::new(CqeSize::B128))),
        Maker::new(EXTENDED, DOORBELLS, || Box::new(Doorbells::new(libmlx5::Extended::new))),
        Maker::new(UNLOCKED, POSTS, || {
            Box::new(libmlx5::Extended::unlocked(libmlx5::Extended::new))
        }),
        Maker::new(UNLOCKED, LENGTHS, || {
            Box::new(inline::Verbs(libmlx5::Extended::unlocked(libmlx5::Extended::long)))
        }),
        Maker::new(CLASSIC, &[PacketSend], || packets::here(packets::Classic::new)),
        Maker::new(OWNED, PACKETS, || packets::here(packets::Lent::new)),
        Maker::new(RAW, &[PacketSend], || packets::here(packets::Raw::new)),
        Maker::new(RAW, &[PacketFire], || packets::here(packets::Ahead::new)),
        Maker::new(OWNED, QUEUES, || Box::new(safe::Safe::new())),
        Maker::new(OWNED, KNOWN, || Box::new(inline::Owned::new())),
        Maker::new(OWNED, POOL, || Box::new(pool::Owned(safe::Safe::new()))),
        Maker::new(RAW, QUEUES, || Box::new(raw::Raw::new())),
        Maker::new(RAW, LENGTHS, || Box::new(inline::Raw::new())),
        Maker::new(RAW, SHARED, || Box::new(shared_receives::Raw::new())),
        Maker::new(RAW, &[PollTable], || Box::new(shared_receives::Table::new())),
        Maker::new(RAW, DATAGRAMS, || Box::new(datagram::Raw::new())),
        Maker::new(RAW, &[UcPointer], || Box::new(datagram::Connection::new())),
        Maker::new(RAW, DYNAMIC, || Box::new(dynamic::Raw::new())),
        Maker::new(RAW, &[Prepared], || Box::new(fired::Raw::<8>::new())),
        Maker::new(RAW, &[Prepared64], || Box::new(fired::Raw::<64>::new())),
        Maker::new(RAW, &[Prepared128], || Box::new(fired::Raw::<128>::new())),
        Maker::new(RAW, &[Prepared200], || Box::new(fired::Raw::<{ fired::LONG }>::new())),
        Maker::new(RAW, &[PreparedField], || Box::new(fired::Long::new())),
        Maker::new(RAW, &[PreparedUd], || Box::new(fired::Datagram64::new())),
        Maker::new(RAW, &[DoorbellPrepared], || Box::new(Doorbells::new(fired::Raw::<8>::new))),
        Maker::new(RAW, POOL, || Box::new(pool::Raw::new())),
        Maker::new(RAW, &[ReceiveWide], || Box::new(receives::Raw::new(WIDE))),
        Maker::new(RAW, &[ReceiveList], || Box::new(receives::Raw::new(1))),
        Maker::new(RAW, TAKEN, || Box::new(polls::Raw::new())),
        Maker::new(RAW, &[PollQuiet], || Box::new(polls::Raw::quiet())),
        Maker::new(RAW, &[PollWide], || Box::new(polls::Raw::wide())),
        Maker::new(RAW, FOLDED, || Box::new(polls::Raw::folded())),
        Maker::new(RAW, DOORBELLS, || Box::new(Doorbells::new(raw::Raw::new))),
        Maker::new(RAW, &[Masked], || Box::new(atomics::Raw::new())),
        Maker::new(RAW, &[KeyList, Bind], || Box::new(keys::Raw::new())),
        Maker::new(RAW, TAGS, || Box::new(tags::Raw::new())),
        Maker::new(RAW, &[ListLast], || Box::new(Copied::last_of_lists())),
        Maker::new(RAW, &[Uncached], || Box::new(Copied::uncached())),
        Maker::new(RAW, &[Recordless], || Box::new(recordless::Raw::new())),
        Maker::new(RAW, &[Sse2], || Box::new(Copied::new(Sse2, BlueFlameCopy::Sse2))),
        Maker::new(RAW, &[Avx2], || Box::new(Copied::new(Avx2, BlueFlameCopy::Avx2))),
        Maker::new(RAW, &[Avx512], || Box::new(Copied::new(Avx512, BlueFlameCopy::Avx512))),
        Maker::new(RAW, &[Movdir64b], || {
            Box::new(Copied::new(Movdir64b, BlueFlameCopy::Movdir64b))
        }),
        Maker::new(column::HEADER, HEADER, || Box::new(native::Native::new(native::By::Header))),
        Maker::new(column::LIBRARY, LIBRARY, || Box::new(native::Native::new(native::By::Library))),
        Maker::new(FLOOR, QUEUES_FLOOR, || Box::new(floor::Floor::new())),
        Maker::new(FLOOR, DOORBELLS, || Box::new(Doorbells::new(floor::Floor::new))),
        Maker::new(FLOOR, TAKEN_FLOOR, || Box::new(polls::Floor::new())),
        Maker::new(FLOOR, &[ReceiveWide], || Box::new(receives::Floor::new(WIDE))),
        Maker::new(FLOOR, &[ReceiveList], || Box::new(receives::Floor::new(1))),
    ]
};

/// Columns in the table's order.
#[allow(dead_code, reason = "not every benchmark has a column per side")]
pub fn columns() -> Vec<&'static str> {
    let mut columns: Vec<_> = MAKERS.iter().map(|maker| maker.column).collect();
    columns.dedup();
    columns
}

/// Makes `calls` calls of a row by `work`, with what has to surround them. Returns false where the
/// processor has no such call.
pub fn measured(
    side: &mut dyn Side,
    row: Row,
    calls: usize,
    work: impl FnOnce(&mut dyn Side) -> Option<usize>,
) -> bool {
    if side.run(row, 0).is_none() {
        return false;
    }
    let (how, [post, poll, empty]) = (row.spec().how, row.program());
    if how == How::Poll {
        assert_eq!(side.run(post, calls), Some(calls), "room for all");
        mlx5_model::run();
    }
    if how.takes() || how == How::Fire {
        side.prepare(row, calls * row.per_call());
    }
    let done = work(side);
    let expected = if how == How::Idle { 0 } else { calls * row.per_call() };
    assert_eq!(done, Some(expected), "{}", row.text());
    if matches!(how, How::Post | How::Lists(_) | How::Fire) {
        mlx5_model::run();
        assert_eq!(side.run(poll, expected), done, "{}: every request completes", row.text());
    }
    if !how.fills() && !how.takes() {
        assert_eq!(side.run(empty, 1), Some(0), "{}: and completes once", row.text());
    }
    true
}

thread_local! {
    static WATCHED: RefCell<Vec<(NonNull<ibv_qp>, NonNull<ibv_cq>)>> = const { RefCell::new(vec![]) };
}

/// Says what a side posts to and polls, for those who look at its doorbell records.
pub fn watch(qp: NonNull<ibv_qp>, cq: NonNull<ibv_cq>) {
    WATCHED.with_borrow_mut(|watched| watched.push((qp, cq)));
}

/// Data passed to [`watch`] since the last call, by sides that may be gone.
#[allow(dead_code, reason = "one benchmark looks at them")]
pub fn watched() -> Vec<(NonNull<ibv_qp>, NonNull<ibv_cq>)> {
    WATCHED.take()
}

/// Makes the compiler forget what it knows of the memory behind `state`, at no instruction: each
/// turn of a loop loads and stores what a call in a larger program would.
#[inline(always)]
pub fn forget<T>(state: &mut T) {
    // SAFETY: an empty block; as far as the compiler knows it may access all memory.
    unsafe { core::arch::asm!("/* {0} */", in(reg) &raw mut *state, options(nostack)) }
}

/// Puts a buffer back to those at hand, for which there is room.
#[inline(always)]
pub fn put_back<T>(free: &mut Vec<T>, buffer: T) {
    assert!(free.len() < free.capacity());
    free.push(buffer);
}

/// A connected queue pair, of a device of its own: so it has a BlueFlame register of its own.
pub struct Line {
    pub qp: QueuePair<Rc, Rts>,
    pub cq: CompletionQueue,
    pub memory: MemoryRegion,
    _peer: QueuePair<Rc, Rts>,
    pub rig: Rig,
}

impl Line {
    pub fn new() -> Self {
        Self::with(|own| own)
    }

    /// With receives of up to so many entries.
    pub fn with_receives(sges: u32) -> Self {
        Self::with(|own| own.max_recv_sge(sges))
    }

    /// With inline payloads of up to so many bytes.
    pub fn with_inline(bytes: u32) -> Self {
        Self::with(|own| own.max_inline_data(bytes))
    }

    fn with(change: impl FnOnce(QueuePairBuilder<Rc>) -> QueuePairBuilder<Rc>) -> Self {
        let rig = Rig::new(MODE);
        let (cq, peer_cq) = (rig.cq(511), rig.cq(511));
        let own = change(shape(&rig, &cq));
        let (qp, peer) = rig.connect(rig.init(own), rig.init(shape(&rig, &peer_cq)));
        let memory = rig.memory(4096);
        watch(qp.as_raw(), cq.as_raw());
        Self { qp, cq, memory, _peer: peer, rig }
    }

    pub fn sge(&self) -> Sge {
        Sge::new(self.memory.address(), LENGTH, self.memory.lkey())
    }

    pub fn remote(&self) -> Remote {
        Remote::new(self.memory.remote_address() + 1024, self.memory.rkey())
    }
}

/// The queue pair that every side has.
pub fn shape(rig: &Rig, cq: &CompletionQueue) -> QueuePairBuilder<Rc> {
    let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(128).max_recv_wr(128);
    // As libmlx5 has it by default.
    let builder = builder.scatter_to_cqe(ScatterToCqe::Receives);
    builder.max_inline_data(64).max_send_sge(1).max_recv_sge(1)
}
