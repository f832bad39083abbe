//! Flight records: what happened last on a queue, as it is told after an accident.
//!
//! The driver's feature `flight-recorder` makes them. Here is what a record is, its text, which
//! `Display` writes, and [`Dump::parse`], which finds records again in a log.

mod parse;
mod record;
mod show;

pub use parse::{Damage, Dump};
pub use record::{Cqe, Doorbell, DoorbellKind, Event, Queue, Reason, Record, What, Wqe};
