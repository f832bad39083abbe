//! The counted operations, and the code common to all sides.

use std::cell::RefCell;
use std::ptr::NonNull;

use mlx5::ib::Rc;
use mlx5::ring::BlueFlameCopy;
use mlx5::verbs::{
    CompletionQueue, CqeSize, MemoryRegion, QueuePair, QueuePairBuilder, Rts, ScatterToCqe,
};
use mlx5::wqe::{Remote, Sge};
use mlx5_sys::verbs::{ibv_cq, ibv_qp};

use crate::MODE;
use crate::rig::Rig;
pub use crate::rows::{How, LIST, Row, column};

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
    pub make: fn() -> Box<dyn Side>,
}

/// All of them, in the order of the table's columns.
pub const MAKERS: &[Maker] = &[
    Maker { column: column::CLASSIC, make: || Box::new(libmlx5::Classic::new()) },
    Maker { column: column::CLASSIC, make: || Box::new(receives::Classic::new(receives::WIDE)) },
    Maker { column: column::CLASSIC, make: || Box::new(receives::Classic::new(1)) },
    Maker { column: column::CLASSIC, make: || Box::new(polls::Classic::new(CqeSize::B64)) },
    Maker { column: column::CLASSIC, make: || Box::new(polls::Classic::new(CqeSize::B128)) },
    Maker {
        column: column::CLASSIC,
        make: || Box::new(copies::Doorbells::new(libmlx5::Classic::new)),
    },
    Maker { column: column::CLASSIC, make: || Box::new(inline::Verbs(libmlx5::Classic::long())) },
    Maker { column: column::CLASSIC, make: || Box::new(shared_receives::Classic::new(1)) },
    Maker {
        column: column::CLASSIC,
        make: || Box::new(shared_receives::Classic::new(shared_receives::MANY)),
    },
    Maker { column: column::CLASSIC, make: || Box::new(datagram::Classic::datagrams()) },
    Maker { column: column::CLASSIC, make: || Box::new(datagram::Classic::connection()) },
    Maker { column: column::CLASSIC, make: || Box::new(keys::Classic::new()) },
    Maker { column: column::CLASSIC, make: || Box::new(tags::Classic::new()) },
    Maker { column: column::EXTENDED, make: || Box::new(libmlx5::Extended::new()) },
    Maker { column: column::EXTENDED, make: || Box::new(keys::Extended::new()) },
    Maker { column: column::EXTENDED, make: || Box::new(shared_receives::Extended::new(1)) },
    Maker {
        column: column::EXTENDED,
        make: || Box::new(shared_receives::Extended::new(shared_receives::MANY)),
    },
    Maker { column: column::EXTENDED, make: || Box::new(datagram::Extended::datagrams()) },
    Maker { column: column::EXTENDED, make: || Box::new(datagram::Extended::connection()) },
    Maker { column: column::EXTENDED, make: || Box::new(dynamic::Extended::new()) },
    Maker { column: column::EXTENDED, make: || Box::new(polls::Extended::new(CqeSize::B64)) },
    Maker { column: column::EXTENDED, make: || Box::new(polls::Extended::new(CqeSize::B128)) },
    Maker {
        column: column::EXTENDED,
        make: || Box::new(copies::Doorbells::new(libmlx5::Extended::new)),
    },
    Maker { column: column::EXTENDED, make: || Box::new(inline::Verbs(libmlx5::Extended::long())) },
    Maker {
        column: column::UNLOCKED,
        make: || Box::new(libmlx5::Extended::unlocked(libmlx5::Extended::new)),
    },
    Maker {
        column: column::UNLOCKED,
        make: || Box::new(inline::Verbs(libmlx5::Extended::unlocked(libmlx5::Extended::long))),
    },
    Maker { column: column::OWNED, make: || Box::new(safe::Safe::new()) },
    Maker { column: column::OWNED, make: || Box::new(inline::Owned::new()) },
    Maker { column: column::OWNED, make: || Box::new(pool::Owned(safe::Safe::new())) },
    Maker { column: column::RAW, make: || Box::new(raw::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(shared_receives::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(shared_receives::Table::new()) },
    Maker { column: column::RAW, make: || Box::new(datagram::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(datagram::Connection::new()) },
    Maker { column: column::RAW, make: || Box::new(dynamic::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(fired::Raw::<8>::new()) },
    Maker { column: column::RAW, make: || Box::new(fired::Raw::<64>::new()) },
    Maker { column: column::RAW, make: || Box::new(fired::Raw::<128>::new()) },
    Maker { column: column::RAW, make: || Box::new(fired::Raw::<{ fired::LONG }>::new()) },
    Maker { column: column::RAW, make: || Box::new(fired::Long::new()) },
    Maker { column: column::RAW, make: || Box::new(fired::Datagram64::new()) },
    Maker { column: column::RAW, make: || Box::new(pool::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(copies::Doorbells::new(fired::Raw::<8>::new)) },
    Maker { column: column::RAW, make: || Box::new(receives::Raw::new(receives::WIDE)) },
    Maker { column: column::RAW, make: || Box::new(receives::Raw::new(1)) },
    Maker { column: column::RAW, make: || Box::new(polls::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(polls::Raw::quiet()) },
    Maker { column: column::RAW, make: || Box::new(polls::Raw::wide()) },
    Maker { column: column::RAW, make: || Box::new(polls::Raw::folded()) },
    Maker { column: column::RAW, make: || Box::new(copies::Doorbells::new(raw::Raw::new)) },
    Maker { column: column::RAW, make: || Box::new(inline::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(atomics::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(keys::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(tags::Raw::new()) },
    Maker { column: column::RAW, make: || Box::new(copies::Copied::last_of_lists()) },
    Maker { column: column::RAW, make: || Box::new(copies::Copied::uncached()) },
    Maker { column: column::RAW, make: || Box::new(recordless::Raw::new()) },
    Maker {
        column: column::RAW,
        make: || Box::new(copies::Copied::new(Row::Sse2, BlueFlameCopy::Sse2)),
    },
    Maker {
        column: column::RAW,
        make: || Box::new(copies::Copied::new(Row::Avx2, BlueFlameCopy::Avx2)),
    },
    Maker {
        column: column::RAW,
        make: || Box::new(copies::Copied::new(Row::Avx512, BlueFlameCopy::Avx512)),
    },
    Maker {
        column: column::RAW,
        make: || Box::new(copies::Copied::new(Row::Movdir64b, BlueFlameCopy::Movdir64b)),
    },
    Maker { column: column::FLOOR, make: || Box::new(floor::Floor::new()) },
    Maker { column: column::FLOOR, make: || Box::new(copies::Doorbells::new(floor::Floor::new)) },
    Maker { column: column::FLOOR, make: || Box::new(polls::Floor::new()) },
    Maker { column: column::FLOOR, make: || Box::new(receives::Floor::new(receives::WIDE)) },
    Maker { column: column::FLOOR, make: || Box::new(receives::Floor::new(1)) },
];

/// Columns in the table's order.
#[allow(dead_code, reason = "not every benchmark has a column per side")]
pub fn columns() -> Vec<&'static str> {
    let mut columns: Vec<_> = MAKERS.iter().map(|maker| maker.column).collect();
    columns.dedup();
    columns
}

/// Makes `calls` calls of a row by `work`, with what has to surround them. Returns false where the
/// side has no such call.
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
