//! The safe layer: it owns the memory that the HCA works on, and its users need no `unsafe`.
//!
//! A [`MrSlice`] is a part of a memory region that nothing else holds. An [`Endpoint`] is both ends
//! of a queue pair with their completions. It takes slices when requests are posted, singly or in a
//! [`EndpointBatch`], and returns them when the requests are retired. Meanwhile nothing else can
//! reach them. This does not depend on a destructor: a leaked endpoint keeps its slices for ever,
//! and a dropped one drops them. A region is freed when its last slice is dropped, and is
//! deregistered first. So the HCA never reaches memory that was freed or given to another owner.
//!
//! The buffers of a request are one word ([`Buffers`]) beside its WQE: for a receive in the receive
//! queue, for a send request in the endpoint. Each place owns the buffers of one outstanding
//! request, from post to completion, and is empty otherwise. Dropping the places drops the buffers.
//!
//! Operations are those of [`wqe`](crate::wqe), with slices for scatter/gather entries:
//! `RdmaWrite::new(slice, remote)`, `RdmaRead::new(vec![first, second], remote)`,
//! `SendMessage::new(Inline(b"x"))`.

mod batch;
mod buffers;
mod flight;
mod operation;
mod queue_pair;
mod receiver;
mod slice;
mod striding;
mod tagged;

pub use batch::EndpointBatch;
pub use buffers::{Buffers, IntoIter};
pub use flight::{Event, Outcome, Refused, Returned};
pub use operation::{OwnedOperation, OwnedPayload};
pub use queue_pair::{Closed, Endpoint};
pub use receiver::Receiver;
pub use slice::{JoinError, MrSlice};
pub use striding::{Frame, FrameArrival, StridingReceiver};
