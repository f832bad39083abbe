//! Time by the CPU's counter, and the times of the phases of posts and polls.
//!
//! A [`Clock`] tells ticks of the CPU's constant-rate counter without a system call, and makes
//! seconds of them; it is calibrated once per process.
//!
//! With the feature `timing`, queues stamp the phases of every post and poll (`Phase`). For each
//! phase they keep the time of the last call and a histogram of all calls. `SendQueue::timing`,
//! `ReceiveQueue::timing` and `CqReader::timing` return them as a `Report`. The cost of a stamp
//! is measured and subtracted. Without the feature the recorder in each queue is a type without
//! size whose methods are empty, so no instruction is left of it.
//!
//! # What a stamp tells
//!
//! A stamp is taken when every instruction before it has executed (x86-64: `lfence; rdtsc`; arm64:
//! `isb; mrs cntvct_el0`).
//!
//! - A store has executed when it is in the store buffer. No stamp tells when other observers see
//!   it: a phase of stores is the time to issue them.
//! - An `sfence` has executed when it is ordered. For stores to write-back memory that does not
//!   mean that they have left the store buffer: on an Intel Xeon (family 6, model 207), a stamp
//!   behind 16 stores that miss the caches and an `sfence` came no later than one without the
//!   fence, while an `mfence` took 1500 ticks. Only an HCA shows the time of a fence behind
//!   write-combining stores. (`cargo xtask bench --phases` measures the first kind anew.)
//! - Stamps keep neighbouring phases from overlapping, as they would without: the phases together
//!   take longer than a call of a build without them. They show where the time goes, not how long
//!   a post takes; `cargo xtask bench --cycles` does that.
//! - Ticks are of the constant-rate counter, not of the core's clock.

mod clock;
#[cfg(feature = "timing")]
mod histogram;
#[cfg(not(feature = "timing"))]
mod off;
mod phase;
#[cfg(feature = "timing")]
mod recorder;
#[cfg(feature = "timing")]
mod report;

pub use clock::{Clock, Source};
#[cfg(not(feature = "timing"))]
pub(crate) use off::{Recorder, Stamp};
#[cfg(feature = "timing")]
pub use phase::Phase;
#[cfg(not(feature = "timing"))]
pub(crate) use phase::Phase;
#[cfg(feature = "timing")]
pub(crate) use recorder::{Recorder, Stamp};
#[cfg(feature = "timing")]
pub use report::{PhaseReport, Report};
