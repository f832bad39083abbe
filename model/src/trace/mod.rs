//! Recordings: a process's use of its devices, as a stream of records to show or to replay.
//!
//! All input to a device comes through a few methods. Each use of one is a *call*: a command, a
//! store to a register, a packet, the passing of time. During a call the device reads only memory
//! and a clock. So a recording is a list of calls, each with what the device read, wrote and did in
//! its course, in one order: the engine admits one thread at a time to the devices that a tap
//! records. A [`Tap`] writes it, and a [`Reader`] reads it.
//! [`replay`](fn@crate::replay::replay) makes the same calls on a fresh device, whose memory and
//! clock answer from the recording, and compares the device's output.
//!
//! Without a tap each call costs one test of an empty option.
//!
//! A stream begins with a [`Header`], which has a checksum. Records have none, so an altered
//! recording is detected only by its replay. If a process is killed, its stream ends early;
//! everything before the end can be read.

mod bytes;
mod header;
mod memory;
mod mistake;
mod reader;
mod record;
mod script;
mod sink;
mod tap;
#[cfg(test)]
mod test;

pub use header::{Detail, Header, monotonic};
pub(crate) use memory::{Nothing, Tapped, TappedClock};
pub use mistake::{Complaints, Mistake};
pub use reader::{Event, Events, Performed, ReadError, Reader, What};
pub use record::{Call, Observed, Queue, Record};
pub(crate) use script::Script;
pub use script::{Difference, Verdict};
pub(crate) use sink::{Sink, forget};
pub use tap::Tap;

/// The format of streams that are written. One of a later version is not read.
pub const VERSION: u32 = 9;
/// The oldest version that is read as well. Its streams lack [`Call::Reset`]: their devices run
/// from the start. Those before version 4 lack the packets of management agents. Those before
/// version 5 are all of the model. Those before version 6 lack the senders of raw packets that come
/// back. Those before version 7 lack [`Call::WqeFaults`], [`Call::CounterSets`], the mistakes after
/// [`Mistake::UnmappedQueue`] and the seeds of WQEs that change behind their doorbell and of data that
/// becomes visible out of order. They have a floor of transport timeouts and no measured law, and their
/// user contexts get sets of queue counters. Those before version 8 have GIDs of RoCE v2 alone.
/// Those before version 9 lack [`Observed::Reason`].
const OLDEST: u32 = 2;

/// The identity of the source that the model was built from: words by which a library's file is
/// searched, and a hash in hexadecimal. Two copies of the model with the same identity behave
/// alike.
pub const BUILD: &str = concat!("mlx5-model build ", env!("MLX5_MODEL_BUILD"));
