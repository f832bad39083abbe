//! Completions: the contents of CQEs, and their meaning.
//!
//! A CQE is read where the HCA wrote it, field by field, after the ownership test has passed.
//! [`Completion`] is what a program gets: the request it had given an id, done or failed. A failure
//! has a [`Status`], named as `ibv_wc_status` names it, with its usual causes and cures.

mod completion;
mod datagram;
mod entry;
mod headers;
mod packet;
mod timestamp;

pub use completion::{
    Completion, Failure, ReceiveDone, ReceiveKind, SendDone, SendOperation, UnexpectedCqe,
    UnexpectedCqeReason,
};
pub use datagram::DatagramHeader;
pub(crate) use entry::CqeRef;
pub use headers::{Headers, Layer3};
pub use mlx5_diag::explain::Status;
pub use mlx5_diag::text::QueueKind;
pub(crate) use packet::PacketWords;
pub use packet::{PacketInfo, TransportHeader};
pub use timestamp::{RealTime, Timestamp, TimestampFormat};
