//! The safe layer: it owns the memory that the HCA works on, and its users need no `unsafe`.
//!
//! A [`MrSlice`] is a part of a memory region that nothing else holds. An [`Endpoint`] is both ends
//! of a queue pair with their completions. It takes slices when requests are posted, singly or in a
//! [`EndpointBatch`], and returns them when the requests are retired. Meanwhile nothing else can
//! reach them. This does not depend on a destructor: a leaked endpoint keeps its slices for ever.
//!
//! A queue that is dropped with requests outstanding hands their slices to the object whose rings
//! hold the WQEs: the queue pair, the [shared receive queue](crate::verbs::SharedReceiveQueue) or
//! the [striding queue](crate::verbs::StridingQueue). The object frees them after it was destroyed,
//! a queue pair also after RESET. It leaks them if destroying fails. Until then their regions stay
//! registered, so the HCA never reaches memory that was freed or given to another owner.
//! Deregistering alone would not ensure that: a later region may get the same address and key.
//!
//! | program | type |
//! |---|---|
//! | one connection | [`Endpoint`], made by [`Endpoint::builder`], or over a [`Receiver`] |
//! | one queue pair that receives nothing: WRITE and READ only, DC, XRC | [`SendEndpoint`] |
//! | many connections on one CQ, perhaps with a [`SharedReceiver`] | [`Endpoints`] |
//! | requests that are written ahead | [`PreparedEndpoint`] |
//! | several threads that post | [`EndpointProducer`], [`SharedEndpoint`] |
//! | packets in a striding receive queue | [`StridingReceiver`] |
//!
//! The memory of a request in flight ([`Buffers`]) is in the slot of its WQE: for a receive in the
//! receiver, for a send request in the endpoint. Each slot owns the buffers of one outstanding
//! request, from post to completion, and is empty otherwise.
//!
//! Operations are those of [`wqe`](crate::wqe), with slices for scatter/gather entries:
//! `RdmaWrite::new(slice, remote)`, `RdmaRead::new(vec![first, second], remote)`,
//! `SendMessage::new(Inline(b"x"))`.

#![allow(
    clippy::result_large_err,
    clippy::type_complexity,
    reason = "an error returns the arguments of the call"
)]

mod batch;
mod buffers;
mod call_failed;
mod endpoints;
mod flight;
mod members;
mod operation;
mod outcome;
mod pair;
mod poll;
mod producer;
mod queue_pair;
mod receiver;
mod shared_receiver;
mod slice;
mod striding;
mod timed;

pub use batch::EndpointBatch;
pub use buffers::Buffers;
pub use call_failed::CallFailed;
pub use endpoints::{Endpoints, Removed};
pub use members::ConnectionKey;
pub use operation::Owned;
pub use outcome::{EndpointError, Outcome, Refused, Returned};
pub use pair::SendHalf;
pub use producer::{EndpointProducer, SharedEndpoint, SharedSends};
pub use queue_pair::{Closed, Endpoint, PreparedEndpoint, SendEndpoint};
pub use receiver::{ClosedReceiver, NoReceiver, ReceiveHalf, Receiver};
pub use shared_receiver::SharedReceiver;
pub use slice::MrSlice;
pub use striding::{Frame, FrameArrival, StridingReceiver};
