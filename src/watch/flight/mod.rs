//! The flight recorder: the last events of a queue, for analysis after an error.
//!
//! With the feature `flight-recorder`, every queue keeps its last WQEs as they were posted, its
//! last doorbells, and the last CQEs about it, each with a stamp of the CPU's constant-rate
//! counter. `SendQueue::flight_record`, `ReceiveQueue::flight_record`,
//! `Srq::flight_record` and `CqReader::flight_record` return them as a
//! [`Record`](mlx5_diag::flight::Record). Without the feature the recorder in each queue is a type
//! without size whose methods are empty, and leaves no instruction. Always available is the
//! `Record` itself: its text, which `Display` writes, and
//! [`Dump::parse`](mlx5_diag::flight::Dump::parse), which finds it again in a log.
//!
//! # On an error
//!
//! The first error CQE freezes the record. Later events, above all the flush of everything that was
//! outstanding, are recorded elsewhere and overwrite nothing. The WQE that failed is read once more
//! from the ring, so it is in the record however many were posted since. If its bytes have changed
//! since the post, the memory was corrupted, and
//! [`Record::changed`](mlx5_diag::flight::Record::changed) says so. A further error that is not a
//! flush freezes the record anew. Until then `flight_record` returns the frozen one;
//! `clear_flight` discards it.
//!
//! If `MLX5_FLIGHT_DUMP` is set to `stderr` or to the name of a file, the record of a queue is
//! written there when it freezes, at the end of the file. `flight::dump_errors_to` sets the same
//! from within the program, and has precedence. `MLX5_FLIGHT_EVENTS` is the number of WQEs, of
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
//! - WQEs of [`Producer`](crate::ring::Producer)s of a shared send queue are recorded when its
//!   [`Retirer`](crate::ring::Retirer) polls, which alone can record without a lock. They have the
//!   stamp of that poll, and no doorbells are recorded.
//! - Batches that were not rung: the HCA has never seen them.
//! - Consumer indices, which every poll stores. Requests for events are recorded.
//! - The WQEs of [`StridingRq`](crate::ring::StridingRq).

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

/// A recorder's facts about its queue.
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

/// A CQE, as a recorder sees it.
#[cfg_attr(not(feature = "flight-recorder"), allow(dead_code, reason = "nobody records"))]
pub(crate) trait Observed {
    /// Returns whether it reports an error.
    fn is_error(&self) -> bool;
    /// Returns whether it reports a flush error, which another error has caused.
    fn is_flush(&self) -> bool;
    /// Returns a copy of its 64 bytes, as words in memory's order.
    fn words(&self) -> [u64; 8];
}
