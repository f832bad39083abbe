//! The live queues that complete on a CQ. A poll that is not given one of them leaves its CQEs
//! where they are.

use std::sync::{Arc, Weak};

use crate::cqe::{CqeRef, QueueKind};
use crate::ring::source::UserIndex;
use crate::ring::source::{LEAST_INDEX, ReceiveIndex};

/// How CQEs name a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum Name {
    /// By the number of its queue pair, or of one that takes from it.
    Queue(u32, QueueKind),
    /// By its user index: a shared receive queue of an XRC domain.
    Index(UserIndex),
    /// By the flags of a tag-matching SRQ.
    Tags,
}

/// Held by a queue while it can take its CQEs.
#[derive(Debug)]
pub(in crate::ring) struct Membership {
    _alive: Arc<()>,
}

/// The queues that complete on a CQ.
#[derive(Debug, Default)]
pub(in crate::ring) struct Members {
    queues: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: Name,
    /// The user index in the CQEs of its receives, if it has any.
    index: Option<ReceiveIndex>,
    alive: Weak<()>,
}

impl Entry {
    fn is_alive(&self) -> bool {
        self.alive.strong_count() != 0
    }
}

impl Members {
    /// Adds a queue, which is known as long as the result lives. Allocates.
    pub(in crate::ring) fn add(&mut self, name: Name, index: Option<ReceiveIndex>) -> Membership {
        // Amortized: only where the list would grow.
        if self.queues.len() == self.queues.capacity() {
            self.queues.retain(Entry::is_alive);
        }
        let alive = Arc::new(());
        self.queues.push(Entry { name, index, alive: Arc::downgrade(&alive) });
        Membership { _alive: alive }
    }

    /// Returns whether polls could take CQEs of a new queue for those of a live one, or the other
    /// way round: one of them is a shared receive queue of an XRC domain, and has, or may have, the
    /// user index of the other. A poll that is given both tells them apart, but one that is given
    /// the shared receive queue alone does not.
    pub(super) fn confuses(&self, name: Name, index: ReceiveIndex) -> bool {
        self.queues.iter().filter(|entry| entry.is_alive()).any(|entry| {
            let Some(other) = entry.index else { return false };
            match (name, entry.name) {
                (Name::Queue(..), Name::Index(xrc)) => may_have(index, xrc, other),
                (Name::Index(xrc), Name::Queue(..)) => may_have(other, xrc, index),
                (Name::Index(UserIndex::Known(_)), other) => name == other,
                _ => false,
            }
        })
    }

    /// Returns whether a live queue of this name completes here.
    pub(in crate::ring) fn has(&self, name: Name) -> bool {
        self.queues.iter().any(|entry| entry.name == name && entry.is_alive())
    }

    /// Returns whether a live queue completes here that the CQE names.
    #[cold]
    pub(in crate::ring) fn has_queue_of(&self, cqe: &CqeRef<'_>) -> bool {
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
        self.queues.iter().any(|entry| names(&entry.name) && entry.is_alive())
    }
}

/// Returns whether a queue pair whose CQEs have the index `pair` may have that of a shared receive
/// queue of an XRC domain, which polls find by `xrc`, and which comes from `origin`.
fn may_have(pair: ReceiveIndex, xrc: UserIndex, origin: ReceiveIndex) -> bool {
    match (xrc, pair, origin) {
        // Tags name it.
        (UserIndex::Tagged(_), ..) => false,
        // Polls give it the CQEs of every index.
        (UserIndex::Alone, ..) => true,
        (UserIndex::Known(index), ReceiveIndex::Given(pair), _) => index == pair,
        (UserIndex::Known(_), ReceiveIndex::Library, ReceiveIndex::Library) => false,
        (UserIndex::Known(index), ReceiveIndex::Library, ReceiveIndex::Given(_)) => {
            index < LEAST_INDEX
        }
    }
}
