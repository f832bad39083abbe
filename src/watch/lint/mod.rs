//! With the feature `lint`, every send queue checks its new WQEs before it rings.
//!
//! On a defect nothing is rung, the queue is unchanged, and the caller gets `PostError::Refused`
//! with the finding. Calls that return nothing, such as [`Batch::ring`](crate::ring::Batch::ring),
//! print the finding on standard error. The next call of the queue that can fail returns it, and
//! until then nothing is rung. The queue remembers where each WQE begins, so payload is never taken
//! for a WQE. Suspicious findings pass.
//!
//! Not covered are receive queues, and queues that threads [share](crate::ring::Producer), whose
//! producers reserve their slots in the ring before they write.

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

/// Returns the lint's name of a transport; `None` for transports without a send queue.
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
