//! Flight records: the last WQEs, doorbells and CQEs of a queue.
//!
//! The driver's feature `flight-recorder` makes them. [`Record`] has the events of one queue, and
//! its `Display` writes the dump: a line per event, each beginning with `mlx5-flight/1`.
//! [`Dump::parse`] finds records again in any text, with other lines between; no text makes it
//! panic.
//!
//! ```
//! use mlx5_diag::flight::Dump;
//!
//! let log = "\
//! app: mlx5-flight/1 send 0x000042 begin transport=RC cqn=0x000007 entries=64 stride=64 \
//!      hz=1000000000 tick=5 reason=request lost=0 events=1
//! app: mlx5-flight/1 send 0x000042 +0ns doorbell kind=doorbell record=0x1
//! app: mlx5-flight/1 send 0x000042 end
//! ";
//! let dump = Dump::parse(log);
//! assert!(dump.damaged.is_empty());
//! assert_eq!((dump.records[0].number, dump.records[0].events.len()), (0x42, 1));
//! ```

mod parse;
mod record;
mod show;

pub use parse::{Damage, Dump};
pub use record::{Cqe, Doorbell, DoorbellKind, Event, Queue, Reason, Record, What, Wqe};
