//! Telling the HCA of new WQEs: fences, doorbell records, UAR registers, and their order.
//!
//! [`fence`] names each fence by what it keeps apart, per architecture. [`record`](Record) words
//! are in memory that the HCA reads. [`SendDoorbell`] also has the register of a UAR page: a store
//! to it starts the HCA, and a [`BlueFlameCopy`] stores a whole WQE there.
//!
//! Each order of stores is one function: [`SendDoorbell::ring`] for a post, [`SendDoorbell::fire`]
//! for a prepared WQE, [`Record::publish`] for a receive post and for a CQ's consumer update, and
//! [`ArmDoorbell::arm`] for requesting an event. `docs/ordering.md` lists them, with the checks of
//! the list.

mod copy;
pub(crate) mod fence;
mod fire;
mod lent;
mod long;
mod record;
mod register;

pub use copy::{BlueFlameCopy, CopyUnavailable};
pub(crate) use fire::Wqe;
pub(crate) use lent::Lent;
pub(crate) use record::Record;
pub use register::UarMapping;
pub(crate) use register::{ArmDoorbell, Blocks, SendDoorbell};
