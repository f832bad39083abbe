//! Queues of Ethernet made by command, and what leads frames to and from them.
//!
//! A send queue ([`Sq`]) sends by an interface ([`Tis`]); a receive queue ([`Rq`]) gets the frames
//! that a [`Tir`] leads to it, alone or as one of a table ([`Rqt`]) among which a hash spreads
//! them. A [`verbs::Flow`](crate::verbs::Flow) says which frames go to a TIR. `queue` is what both
//! queues have in common.

mod queue;
mod rq;
mod rqt;
mod sq;
mod tir;
mod tis;

pub use rq::{Rq, RqBuilder};
pub use rqt::Rqt;
pub use sq::{Sq, SqBuilder};
pub use tir::{SpreadBy, Tir};
pub use tis::Tis;
