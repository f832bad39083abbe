//! How the HCA learns of new WQEs: fences, doorbell records, UAR registers, and their order.
//!
//! [`fence`] names each fence by what it keeps apart, per architecture. [`record`](Record) words
//! lie in memory that the HCA reads; [`SendDoorbell`] also has the register of a UAR page, whose
//! store starts the HCA; a whole WQE is stored there by a [`BlueFlameCopy`]. The order of a post is
//! one function, [`SendDoorbell::ring`]; that of an armed WQE is [`SendDoorbell::fire`]; that of a
//! receive post and of a CQ's consumer update is [`Record::publish`]; that of a request for an
//! event is [`ArmDoorbell::arm`]. `docs/ordering.md` lists them, with what holds each to the list.

mod copy;
pub(crate) mod fence;
mod fire;
mod pair;
mod record;
mod register;

pub use copy::{BlueFlameCopy, CopyUnavailable};
pub(crate) use record::Record;
pub use register::RegisterMemory;
pub(crate) use register::{ArmDoorbell, Blocks, SendDoorbell};
