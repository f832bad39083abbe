//! Receive queues.
//!
//! [`ReceiveRing`](core::ReceiveRing) is what they share: posting, batches, the doorbell record,
//! the limit by reserved CQ slots, and retiring the receive that a CQE names. A
//! [`Layout`](core::Layout) is what differs: where WQEs lie, which are free, and which one a CQE
//! may complete. [`InOrder`] is that of rings that complete in the order of posting, [`AnyOrder`]
//! that of shared receive queues.
//!
//! Which path a post takes:
//!
//! | receive | state | path |
//! |---|---|---|
//! | usual: of one entry that is not empty | the next WQE is known to be free | `put_usual`, `commit_one` |
//! | any other | any | `put_list`, `commit` |
//!
//! In a [`ReceiveBatch`], each receive is put in one of the two ways, and `commit` stores the
//! doorbell record once for all. A receiver of packets posts WQEs [again](again) as they are, where
//! their memory stays the same.
//!
//! Which receive a CQE completes:
//!
//! | queue | layout | completes |
//! |---|---|---|
//! | [`ReceiveQueue`] of a queue pair, [`PacketRq`] | [`InOrder`] | the oldest, which the CQE has to name |
//! | [`StridingRq`] | [`InOrder`] | the oldest, when the last of its strides is taken |
//! | [`Srq`](srq::Srq), also below [`TmSrq`](super::TmSrq) | [`AnyOrder`] | any that is outstanding |

mod again;
mod any_order;
mod batch;
pub(crate) mod core;
mod in_order;
mod packet;
mod queue;
mod side;
pub(super) mod srq;
pub(crate) mod striding;

pub(super) use any_order::{AnyOrder, Taking};
pub use batch::ReceiveBatch;
pub(crate) use in_order::InOrder;
pub(crate) use packet::FoundPacket;
pub use packet::{Packet, PacketEvent, PacketRq};
pub use queue::{ReceiveConfig, ReceiveQueue};
pub(super) use side::Member;
pub use side::ReceiveSide;
pub use srq::Srq;
pub(crate) use srq::{Numbers, number, view_of};
pub use striding::{StridingBatch, StridingRq};
