//! Ethernet queues made by command, and their steering objects.
//!
//! A send queue ([`Sq`]) sends through an interface ([`Tis`]). A receive queue ([`Rq`]) gets the
//! packets that a [`Tir`] steers to it, directly or through a table ([`Rqt`]) among whose queues a
//! hash spreads them. [`SendTimes`] has packets sent at times. A [`verbs::Flow`](crate::verbs::Flow) says which packets go to a TIR, and a
//! [`FlowCounter`] counts them.

mod counter;
mod inline;
mod queue;
mod rq;
mod rqt;
mod sq;
mod times;
mod tir;
mod tis;

pub use counter::{FlowCounter, FlowCounts};
pub use rq::{Rq, RqBuilder};
pub use rqt::Rqt;
pub use sq::{Sq, SqBuilder};
pub use times::SendTimes;
pub use tir::{RssHash, Tir};
pub use tis::Tis;
