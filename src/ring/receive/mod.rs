//! Receive queues.
//!
//! [`ReceiveRing`](core::ReceiveRing) is what they share: posting, batches, the doorbell record,
//! the limit by reserved CQ slots, and retiring the receive that a CQE names. A
//! [`Layout`](core::Layout) is what differs: where WQEs lie, which are free, and which one a CQE
//! may complete. [`InOrder`] is that of rings that complete in the order of posting, [`AnyOrder`]
//! that of shared receive queues.
//!
//! [`ReceiveQueue`] is a queue pair's own. [`PacketRq`] and [`StridingRq`] have a CQ of their own,
//! and report Ethernet packets. [`Srq`](super::Srq) is shared by queue pairs.

mod any_order;
mod batch;
pub(crate) mod core;
mod in_order;
mod packet;
mod queue;
mod side;
pub(crate) mod striding;

pub(super) use any_order::{AnyOrder, Taking};
pub use batch::ReceiveBatch;
pub(crate) use in_order::InOrder;
pub use packet::{Packet, PacketEvent, PacketRq};
pub use queue::{ReceiveConfig, ReceiveQueue};
pub(super) use side::Member;
pub use side::ReceiveSide;
pub use striding::StridingRq;
