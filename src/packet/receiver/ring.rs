//! The queue of a receiver: one that takes a packet per WQE, or a striding one.

use std::fmt;
use std::sync::Arc;

use super::super::slots::Slots;
use crate::error::Result;
use crate::ib::RawPacket;
use crate::ring::{PacketEvent, PacketRq, PollError, ReceiveConfig, StridingRq};
use crate::verbs::{CompletionQueue, Flow, FlowBuilder, QueuePair, RssQueues, Rtr, StridingQueue};

/// A receive queue, with what rules steer to.
pub(super) enum Ring {
    Plain { packets: PacketRq, target: QueuePair<RawPacket, Rtr> },
    Striding { packets: StridingRq, queue: StridingQueue, target: RssQueues },
}

impl Ring {
    /// Takes over the receive queue of a queue pair.
    pub(super) fn plain(
        target: QueuePair<RawPacket, Rtr>,
        cq: &CompletionQueue,
        receives: u32,
    ) -> Result<Ring> {
        let packets = PacketRq::new(&target, cq, ReceiveConfig { receives })?;
        Ok(Ring::Plain { packets, target })
    }

    /// Takes over a striding queue. Rules steer to a hash over it alone.
    pub(super) fn striding(queue: StridingQueue, cq: &CompletionQueue) -> Result<Ring> {
        /// Any key: all packets go to one queue.
        const KEY: [u8; 40] = [0x6d; 40];
        let packets = StridingRq::new(&queue, cq)?;
        let target = RssQueues::new(std::slice::from_ref(&queue), &KEY)?;
        Ok(Ring::Striding { packets, queue, target })
    }

    /// Posts slots, for which there is room.
    ///
    /// # Safety
    /// The slots are those of the receiver. None of them is posted, and no packet of them exists until a
    /// poll returns one.
    pub(super) unsafe fn post(&mut self, slots: &Slots, free: impl Iterator<Item = u32>) {
        match self {
            Ring::Plain { packets, .. } => {
                let mut batch = packets.batch();
                for slot in free {
                    let appended = batch.append(slot.into(), slots.sge(slot));
                    debug_assert_eq!(appended, Ok(()), "there is room");
                }
                // SAFETY: by this function's contract, nothing else accesses the slots' memory.
                // `retain` hands it to the queue pair before it is freed.
                unsafe { batch.ring() };
            }
            Ring::Striding { packets, .. } => {
                for slot in free {
                    // SAFETY: as above, with the striding queue in place of the pair.
                    let posted = unsafe { packets.post(slot.into(), slots.sge(slot)) };
                    debug_assert_eq!(posted, Ok(()), "there is room");
                }
            }
        }
    }

    /// Returns the next event.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Result<Option<PacketEvent>, PollError> {
        match self {
            Ring::Plain { packets, .. } => packets.poll(),
            Ring::Striding { packets, .. } => packets.poll(),
        }
    }

    pub(super) fn is_ready(&mut self) -> Result<bool, PollError> {
        match self {
            Ring::Plain { packets, .. } => packets.is_ready(),
            Ring::Striding { packets, .. } => packets.is_ready(),
        }
    }

    pub(super) fn arm(&mut self) {
        match self {
            Ring::Plain { packets, .. } => packets.arm(),
            Ring::Striding { packets, .. } => packets.arm(),
        }
    }

    pub(super) fn steer(&self, rule: FlowBuilder) -> Result<Flow> {
        match self {
            Ring::Plain { target, .. } => rule.build(target),
            Ring::Striding { target, .. } => rule.build(target),
        }
    }

    /// Keeps the slots until the HCA no longer accesses them.
    pub(super) fn retain(&self, slots: Arc<Slots>) {
        match self {
            Ring::Plain { packets, .. } => packets.retain(Box::new(slots)),
            Ring::Striding { queue, .. } => queue.retain(Box::new(slots)),
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ring::Plain { packets, .. } => f.debug_tuple("Plain").field(packets).finish(),
            Ring::Striding { packets, .. } => f.debug_tuple("Striding").field(packets).finish(),
        }
    }
}
