//! Slots of a CQ that are reserved for queues, and the registry of the queues that complete on it.

use super::members::{Membership, Name};
use super::reader::CqReader;
use super::slots::{Demand, DroppedQueue, Reservation};
use crate::cqe::QueueKind;
use crate::error::QueueError;
use crate::ring::source::ReceiveIndex;
use crate::ring::source::UserIndex;

impl CqReader {
    /// Reserves CQ slots for a queue that is taken over and has no WQE outstanding: as many as its
    /// configuration states, or else its size, less what the `partner` wants: the other queue of
    /// its pair, unless that has its slots.
    pub(in crate::ring) fn reserve(
        &mut self,
        qpn: u32,
        queue: QueueKind,
        (stated, size): (u32, u32),
        partner: u32,
    ) -> Result<Reservation, QueueError> {
        if self.slots.has_dropped(qpn, queue) {
            self.discard(qpn, queue);
        }
        self.collect();
        let other = match queue {
            QueueKind::Send => QueueKind::Receive,
            QueueKind::Receive => QueueKind::Send,
        };
        let other = Name::Queue(qpn, other);
        let has_slots = self.members.as_ref().is_some_and(|members| members.has(other));
        let partner = if has_slots { 0 } else { partner };
        self.slots.reserve(Demand::of(stated, size, partner))
    }

    /// Checks that polls tell the CQEs of a new queue of receives from those of the live queues that
    /// complete here.
    pub(in crate::ring) fn check_index(
        &self,
        name: Name,
        index: ReceiveIndex,
    ) -> Result<(), QueueError> {
        match self.members.as_ref().is_some_and(|members| members.confuses(name, index)) {
            true => Err(QueueError::IndexTaken),
            false => Ok(()),
        }
    }

    /// Registers a live queue that completes here, until the result is dropped. Polls that are not
    /// given the queue leave its CQEs in the CQ. `index` is the user index in CQEs of receives.
    pub(in crate::ring) fn admit(
        &mut self,
        name: Name,
        index: Option<ReceiveIndex>,
    ) -> Option<Membership> {
        self.members.as_mut().map(|members| members.add(name, index))
    }

    /// Reserves CQ slots for a queue that is not one of a pair.
    pub(in crate::ring) fn reserve_shared(
        &mut self,
        demand: Demand,
    ) -> Result<Reservation, QueueError> {
        self.collect();
        self.slots.reserve(demand)
    }

    /// Registers the name of a shared receive queue that is of an XRC domain or matches tags.
    /// Returns whether CQEs tell the queue from the others that complete here. Call it once per
    /// queue.
    pub(in crate::ring) fn meets_xrc(&mut self, index: UserIndex) -> bool {
        let alone = |index| matches!(index, UserIndex::Alone | UserIndex::Tagged(_));
        match self.xrc {
            // The same queue again.
            Some(UserIndex::Tagged(list)) if index == UserIndex::Tagged(list) => true,
            Some(before) if alone(index) || alone(before) => false,
            _ => {
                self.xrc = Some(index);
                true
            }
        }
    }

    /// Releases the CQ slots of queues that were dropped with work outstanding and are destroyed,
    /// or whose queue pairs are.
    pub(in crate::ring) fn collect(&mut self) {
        while let Some((dropped, destroyed)) = self.slots.find_destroyed() {
            match &dropped {
                DroppedQueue::Queue(qpn, queue) => {
                    self.discard(*qpn, *queue);
                }
                DroppedQueue::Shared(qpns, index) => {
                    self.sweep(|cqe| {
                        let named = *index == Some(UserIndex::Known(cqe.user_index()));
                        let its = named || qpns.contains(&cqe.qpn());
                        its && cqe.queue() == Some(QueueKind::Receive)
                    });
                    self.slots.release_destroyed(&destroyed);
                }
            }
        }
    }

    /// Prepares for a shared receive queue that CQEs name by `index`. Drops the CQEs of an earlier
    /// queue with that index.
    pub(in crate::ring) fn begin_index(&mut self, index: u32) {
        if self.slots.begin_index(index) {
            self.sweep(|cqe| cqe.user_index() == index && cqe.queue() == Some(QueueKind::Receive));
        }
    }

    /// Returns whether the queue that holds `cq_slots` is the only one that completes here.
    pub(in crate::ring) fn is_reserved_for(&self, cq_slots: &Reservation) -> bool {
        let set_aside = self.set_aside.as_ref().map_or(0, Reservation::entries);
        self.slots.reserved() == cq_slots.entries() + set_aside
    }
}
