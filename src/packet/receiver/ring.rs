//! The queue of a receiver: one that takes a packet per WQE, or a striding one.

use std::fmt;
use std::sync::Arc;

use super::super::slots::Slots;
use crate::error::Result;
use crate::ib::RawPacket;
use crate::ring::{
    FoundPacket, PacketEvent, PacketRq, PollError, PostError, ReceiveConfig, StridingRq,
};
use crate::verbs::{CompletionQueue, Flow, FlowBuilder, QueuePair, RssQueues, Rtr, StridingQueue};
use crate::wqe::Sge;

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

    /// Returns the number of WQEs, all of which can be outstanding. `None` if they cannot.
    pub(super) fn wqes(&self) -> Option<u32> {
        let (free, wqes) = match self {
            Ring::Plain { packets, .. } => (packets.queue().free(), packets.queue().capacity()),
            Ring::Striding { packets, .. } => (packets.free(), packets.capacity()),
        };
        (free == wqes).then_some(wqes)
    }

    /// Returns the slot of the WQE that was last written in the place `ahead` of the next post.
    pub(super) fn written(&self, ahead: u32) -> u32 {
        // Ids are slots.
        match self {
            Ring::Plain { packets, .. } => packets.ring().written(ahead) as u32,
            Ring::Striding { packets, .. } => packets.ring().written(ahead) as u32,
        }
    }

    /// Writes the WQE of a slot in the place `ahead` of the next post, and does not post it.
    pub(super) fn write(&mut self, ahead: u32, slot: u32, memory: Sge) -> Result<(), PostError> {
        match self {
            Ring::Plain { packets, .. } => packets.write(ahead, slot.into(), memory),
            Ring::Striding { packets, .. } => packets.write(ahead, slot.into(), memory),
        }
    }

    /// Posts the next `count` WQEs as they are written in the ring.
    ///
    /// # Safety
    /// As many can be posted, and each of their places was written. Nothing accesses the memory of
    /// their slots until a poll returns a packet of it, and [`retain`](Self::retain) is called before
    /// it is freed.
    #[inline(always)]
    pub(super) unsafe fn post_written(&mut self, count: u32) {
        // SAFETY: this function's contract.
        unsafe {
            match self {
                Ring::Plain { packets, .. } => packets.post_written(count),
                Ring::Striding { packets, .. } => packets.post_written(count),
            }
        }
    }

    /// Takes the next packet, if it is of the oldest WQE.
    #[inline(always)]
    pub(super) fn find(&mut self) -> FoundPacket {
        match self {
            Ring::Plain { packets, .. } => packets.find(),
            Ring::Striding { packets, .. } => packets.find(),
        }
    }

    /// Returns the next event, where [`find`](Self::find) may have passed something over.
    pub(super) fn poll_any(&mut self) -> Result<Option<PacketEvent>, PollError> {
        match self {
            Ring::Plain { packets, .. } => packets.poll_any(),
            Ring::Striding { packets, .. } => packets.poll_any(),
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
