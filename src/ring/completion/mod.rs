//! The completion queue's ring: which CQE is the next, whether the HCA has written it, and what it
//! says. Which queue it completes is decided above, in [`poll`](super::poll). A [`CqReader`] also
//! knows what the queues have of its CQ: the entries that they reserve (`slots`, `reserve`), and
//! which of them are alive (`members`).
//!
//! Which CQE is the next:
//!
//! | the last byte of the entry | is | read by |
//! |---|---|---|
//! | of an earlier lap | no CQE; the CQ is checked now and then (`health`) | – |
//! | of this lap, not compressed | the next CQE, in the ring | `consumer` |
//! | of this lap, compressed | a block of mini CQEs, which is expanded beside the ring | `block` |
//! | any, in a CQ of the enhanced layout | the next CQE, or mini CQEs behind a title | `enhanced` |
//!
//! While a block is expanded, the next CQE is in it, and the table is of its entries. The consumer
//! index goes to the record with each CQE, or every so many ([`Publish`]).

// First: rustdoc lists the methods of a type in the order of these modules.
pub(super) mod reader;

mod block;
mod consumer;
mod enhanced;
mod health;
pub(super) mod members;
mod peek;
mod reserve;
pub(super) mod scatter;
pub(super) mod slots;
mod sweep;
mod take;

pub use consumer::Publish;
pub use peek::Peeked;
pub use reader::CqReader;
