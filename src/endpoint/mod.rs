//! The safe layer: it owns the memory that the HCA works on, and its users need no `unsafe`.
//!
//! A [`Slice`] is a part of a memory region that nothing else holds. A [`Channel`] is both ends of
//! a queue pair with their completions. It takes slices when requests are posted, singly or in a
//! [`Batch`], and returns them when the requests are retired. Meanwhile nothing else can reach
//! them. This does not depend on a destructor: a leaked channel keeps its slices for ever, and a
//! dropped one drops them. A region is freed when its last slice is dropped, and is deregistered
//! first. So the HCA never reaches memory that was freed or given to another owner.
//!
//! The buffers of a request are one word ([`Buffers`]) beside its WQE: for a receive in the receive
//! queue, for a send request in the channel. Each place owns the buffers of one outstanding
//! request, from post to completion, and is empty otherwise. Dropping the places drops the buffers.
//!
//! Operations are those of [`wqe`](crate::wqe), with slices for scatter/gather entries:
//! `Write::new(slice, remote)`, `Read::new(vec![first, second], remote)`,
//! `Send::new(Inline(b"x"))`.

mod batch;
mod buffers;
mod channel;
mod flight;
mod operation;
mod receiver;
mod slice;
mod striding;
mod tagged;

pub use batch::Batch;
pub use buffers::{Buffers, IntoIter};
pub use channel::{Channel, Closed};
pub use flight::{Event, Outcome, Refused, Returned};
pub use operation::{OwnedOperation, OwnedPayload};
pub use receiver::Receiver;
pub use slice::{JoinError, Slice};
pub use striding::{Frame, FrameArrival, StridingReceiver};
