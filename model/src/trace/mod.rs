//! What a process does with its cards, as a stream of records: to be shown, and to be done again.
//!
//! Everything that enters a card enters through a few methods (a *call*: a command, a store to a
//! register, a packet, the passing of time), and what it reads meanwhile is memory and a clock. So a
//! recording is a list of calls, each with what the card read, wrote and did in its course, in the
//! one order that the engine's lock gives them. A [`Tap`] writes it, [`Reader`] reads it, and
//! [`replay`](fn@crate::replay::replay) makes the same calls on a fresh card, whose memory and clock answer as they
//! did then, and compares everything that leaves it.
//!
//! Without a tap each call costs one test of an empty option.
//!
//! A stream begins with a [`Header`], which has a checksum; records have none, so that a recording
//! that was altered is told by what becomes of it when it is replayed. A process that is killed
//! leaves a stream that ends early; whatever it holds until then can be read.

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

pub use header::{Header, monotonic};
pub(crate) use memory::{Nothing, Tapped};
pub use mistake::{Complaints, Mistake};
pub use reader::{Event, Events, Performed, ReadError, Reader, What};
pub use record::{Call, Observed, Queue, Record};
pub(crate) use script::Script;
pub use script::{Difference, Verdict};
pub(crate) use sink::{Sink, forget};
pub use tap::Tap;

/// The format of streams. One of another version is not read.
pub const VERSION: u32 = 1;

/// Of which source the model was built: a hash, in hexadecimal, with words before it by which a
/// library is told in its file. Two copies of the model with the same behave alike.
pub const BUILD: &str = concat!("mlx5-model build ", env!("MLX5_MODEL_BUILD"));
