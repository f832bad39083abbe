//! What is counted, and what the ways of doing it have in common.

use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Rc, Rts};
use mlx5::wqe::{Remote, Sge};
use mlx5_model::Mode;

use crate::rig::Rig;

/// WRs in a list.
pub const LIST: usize = 32;

/// Bytes that a request by pointer, or a receive, names.
pub const LENGTH: u32 = 64;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Inline,
    Pointer,
    List,
    Poll,
    Empty,
    Receive,
}

impl Row {
    pub const ALL: [Self; 6] =
        [Self::Inline, Self::Pointer, Self::List, Self::Poll, Self::Empty, Self::Receive];

    pub const fn text(self) -> &'static str {
        match self {
            Self::Inline => "8-byte inline WRITE, signaled, BlueFlame",
            Self::Pointer => "64-byte pointer WRITE, signaled, BlueFlame",
            Self::List => "list of 32 such, one doorbell, per WR",
            Self::Poll => "poll, one success",
            Self::Empty => "poll, empty",
            Self::Receive => "post_recv, one SGE",
        }
    }

    /// What a call of [`Side::run`] stands for in the table.
    pub const fn per_call(self) -> usize {
        if matches!(self, Self::List) { LIST } else { 1 }
    }
}

/// A way to post and poll.
pub trait Side {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// Makes `calls` calls in a loop. Returns the requests posted or completions found, `None`
    /// where this side has no such call.
    fn run(&mut self, row: Row, calls: usize) -> Option<usize>;
}

/// Makes the compiler forget what it knows of the memory behind `state`, at no instruction: each
/// turn of a loop loads and stores what a call in a larger program would.
#[inline(always)]
pub fn forget<T>(state: &mut T) {
    // SAFETY: an empty block; as far as the compiler knows it may access all memory.
    unsafe { core::arch::asm!("/* {0} */", in(reg) &raw mut *state, options(nostack)) }
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
        let rig = Rig::new(Mode::Manual);
        let (cq, peer_cq) = (rig.cq(511), rig.cq(511));
        let (qp, peer) = rig.connect(rig.init(shape(&rig, &cq)), rig.init(shape(&rig, &peer_cq)));
        let memory = rig.memory(4096);
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
    builder.max_inline_data(64).max_send_sge(1).max_recv_sge(1)
}
