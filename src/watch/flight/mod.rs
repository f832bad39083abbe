//! What happened last on a queue, as it is told after an accident.
//!
//! With the feature `flight-recorder`, every queue keeps its last WQEs as they were posted, its
//! last doorbells, and the last CQEs about it, each with a stamp of the CPU's constant-rate
//! counter: `SendQueue::flight_record`, `ReceiveQueue::flight_record`,
//! `SharedReceives::flight_record` and `Completions::flight_record` give them as a [`Record`].
//! Without the feature the recorder in each queue is a type without size whose methods are empty,
//! and no instruction is left of it. What is here without the feature is what a record *is*: its
//! text, which `Display` writes, and [`Dump::parse`], which finds it again in a log.
//!
//! # On an error
//!
//! The first error CQE freezes the record: what follows, above all the flush of everything that was
//! outstanding, is recorded elsewhere and pushes nothing out. The WQE that failed is read once more
//! from the ring, where it still lies, so it is in the record however many were posted since; if
//! its bytes are not those that were written, it is memory that is wrong, and [`Record::changed`]
//! says so. A further error that is not a flush freezes the record anew. Until then `flight_record`
//! gives the frozen one; `clear_flight` forgets it.
//!
//! If `MLX5_FLIGHT_DUMP` is set, to `stderr` or to the name of a file, which is appended to, the
//! record of a queue is written there at the moment that it freezes; `flight::dump_errors_to` says
//! the same from within the program, and wins. `MLX5_FLIGHT_EVENTS` is the number of WQEs, of
//! doorbells and of CQEs that queues keep which are made from then on: a power of two from 1 to
//! 65536, 64 if it is not set. `set_flight` changes it for one queue.
//!
//! # What it costs
//!
//! Memory, once, when a queue is taken over: twice 64 WQEs of up to 256 bytes, 64 doorbells and 64
//! CQEs, some 50 KiB in all. A post then also copies its WQE's blocks and reads the counter once,
//! behind its doorbell, so the HCA does not wait for it; a poll copies the CQE, once for the queue
//! and once for the reader. No allocation, no lock, no system call; an error CQE exchanges two
//! pointers. `docs/performance.md` has the instructions.
//!
//! # What is not recorded
//!
//! - What is posted by [`Producer`](crate::ring::Producer)s of a shared send queue is recorded when
//!   its [`Retirer`](crate::ring::Retirer) polls, by whom alone it can be without a lock: the stamp
//!   is of then, and there are no doorbells.
//! - Batches that were not rung: the HCA has never seen them.
//! - Consumer indices, which every poll stores; but requests for events are.
//! - The WQEs of [`StridingReceives`](crate::ring::StridingReceives).

#[cfg(feature = "flight-recorder")]
mod log;
#[cfg(not(feature = "flight-recorder"))]
mod off;
#[cfg(feature = "flight-recorder")]
mod recorder;
#[cfg(feature = "flight-recorder")]
mod settings;

pub(crate) use mlx5_diag::flight::{DoorbellKind, Queue};
#[cfg(not(feature = "flight-recorder"))]
pub(crate) use off::Recorder;
#[cfg(feature = "flight-recorder")]
pub(crate) use recorder::Recorder;
#[cfg(feature = "flight-recorder")]
pub use settings::{Config, Target, dump_errors_to};

/// What a recorder knows of its queue.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "flight-recorder"), allow(dead_code, reason = "nobody records"))]
pub(crate) struct Facts {
    pub(crate) queue: Queue,
    pub(crate) number: u32,
    /// Empty: not known.
    pub(crate) transport: &'static str,
    pub(crate) cqn: u32,
    pub(crate) entries: u32,
    pub(crate) stride: u32,
}

/// A CQE, as a recorder looks at it.
#[cfg_attr(not(feature = "flight-recorder"), allow(dead_code, reason = "nobody records"))]
pub(crate) trait Observed {
    /// Returns whether it reports an error.
    fn is_error(&self) -> bool;
    /// Returns whether it reports an error that is but the consequence of another one.
    fn is_flush(&self) -> bool;
    /// Returns a copy of its 64 bytes, as words in memory's order.
    fn words(&self) -> [u64; 8];
}
