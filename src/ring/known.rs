//! The live queues that complete on a CQ. A poll that is not given one of them leaves its CQEs
//! where they are.

use std::sync::{Arc, Weak};

use super::srq::UserIndex;
use crate::cqe::{CqeRef, QueueKind};

/// How CQEs name a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// By the number of its queue pair, or of one that takes from it.
    Queue(u32, QueueKind),
    /// By its user index: a shared receive queue of an XRC domain.
    Index(UserIndex),
    /// By the flags of a tag-matching SRQ.
    Tags,
}

/// Held by a queue while it can take its CQEs.
#[derive(Debug)]
pub(super) struct Membership {
    _alive: Arc<()>,
}

/// The queues that complete on a CQ.
#[derive(Debug, Default)]
pub(super) struct Known {
    queues: Vec<(Name, Weak<()>)>,
}

impl Known {
    /// Adds a queue, which is known as long as the result lives. Allocates.
    pub(super) fn add(&mut self, name: Name) -> Membership {
        // Amortized: only where the list would grow.
        if self.queues.len() == self.queues.capacity() {
            self.queues.retain(|(_, alive)| alive.strong_count() != 0);
        }
        let alive = Arc::new(());
        self.queues.push((name, Arc::downgrade(&alive)));
        Membership { _alive: alive }
    }

    /// Returns whether a live queue of this name completes here.
    pub(super) fn has(&self, name: Name) -> bool {
        self.queues.iter().any(|(known, alive)| *known == name && alive.strong_count() != 0)
    }

    /// Returns whether a live queue completes here that the CQE names.
    #[cold]
    pub(super) fn has_queue_of(&self, cqe: &CqeRef<'_>) -> bool {
        let (qpn, kind) = (cqe.qpn(), cqe.queue());
        let names = |name: &Name| match *name {
            Name::Tags => cqe.is_tagged(),
            _ if cqe.is_tagged() => false,
            Name::Queue(number, queue) => number == qpn && kind == Some(queue),
            Name::Index(UserIndex::Known(index)) => {
                kind == Some(QueueKind::Receive) && index == cqe.user_index()
            }
            // The only such queue on the CQ takes every receive's CQE that names no other queue.
            Name::Index(_) => kind == Some(QueueKind::Receive),
        };
        self.queues.iter().any(|(name, alive)| names(name) && alive.strong_count() != 0)
    }
}
