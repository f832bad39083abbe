//! With the feature `lint`, every send queue goes over what was written before it rings.
//!
//! On a defect nothing is rung, the queue is as it was before, and the caller gets
//! `PostError::Refused` with the finding. Calls that return nothing, such as
//! [`Batch::ring`](crate::ring::Batch::ring), print the finding on standard error; the next call of
//! the queue that can fail returns it, and until then nothing is rung. The queue remembers where
//! each WQE begins, so payload is never taken for a WQE. What is only suspicious passes. Not
//! covered are queues that threads [share](crate::ring::Producer), whose producers have taken their
//! places in the ring before they write, and receive queues.

#[cfg(feature = "lint")]
mod guard;
#[cfg(not(feature = "lint"))]
mod off;

#[cfg(feature = "lint")]
pub(crate) use guard::{Guard, Refusal};
#[cfg(not(feature = "lint"))]
pub(crate) use off::{Guard, Refusal};

use mlx5_diag::lint::Transport;

use crate::ib::TransportKind;

/// The lint's name of a transport; `None` of those that have no send queue.
pub(crate) const fn transport(kind: TransportKind) -> Option<Transport> {
    Some(match kind {
        TransportKind::Rc => Transport::Rc,
        TransportKind::Uc => Transport::Uc,
        TransportKind::Ud => Transport::Ud,
        TransportKind::XrcSend => Transport::Xrc,
        TransportKind::Dci => Transport::Dci,
        TransportKind::RawPacket => Transport::RawPacket,
        TransportKind::XrcRecv | TransportKind::Dct => return None,
    })
}
