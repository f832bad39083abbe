//! The layer that owns what the HCA works on, and needs no `unsafe` of its user.
//!
//! A [`Slice`] is a part of a memory region that nothing else holds. A [`Channel`] is both ends of a
//! queue pair with their completions; it takes slices when requests are posted, singly or in a
//! [`Batch`], and gives them back when these are retired, and meanwhile nothing else can reach them. That holds without any
//! destructor: a channel that is leaked keeps its slices for ever; one that is dropped drops them,
//! and memory goes when the last slice of its region does, which deregisters it first, so the HCA
//! never reaches memory that was freed or given to somebody else.
//!
//! What a request owns is remembered as one word ([`Buffers`]) beside its WQE: a receive's in the
//! receive queue, a request's in the channel. A place holds a word from the post on until the poll
//! that gives it back, and otherwise none; so whatever is not none is owned, and dropping the places
//! drops it.
//!
//! Operations are those of [`wqe`](crate::wqe), with slices for scatter/gather entries:
//! `Write::new(slice, remote)`, `Read::new(vec![first, second], remote)`, `Send::new(Inline(b"x"))`.

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
