//! The two ends of a work queue. Counters and how they become slots are in [`crate::ib`]; nothing
//! else masks, wraps or compares them, but for the longer ones of queues that threads share
//! (`shared::position`).

use crate::ib::{Counter, Shape};

/// The two ends of a work queue: `head` counts posted entries, `tail` retired ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    shape: Shape,
    head: Counter,
    tail: Counter,
}

impl Cursor {
    /// An empty queue whose next entry is `start`.
    pub const fn new(shape: Shape, start: Counter) -> Self {
        Self { shape, head: start, tail: start }
    }

    /// The ring's shape.
    #[inline(always)]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Counter of the next entry to be posted.
    #[inline(always)]
    pub const fn head(&self) -> Counter {
        self.head
    }

    /// Counter of the oldest entry not retired.
    #[inline(always)]
    pub const fn tail(&self) -> Counter {
        self.tail
    }

    /// Entries posted and not retired.
    #[inline(always)]
    pub const fn used(&self) -> u32 {
        self.head.since(self.tail)
    }

    /// Entries that may be posted when `head` of this queue is, provisionally, at `head`.
    #[inline(always)]
    pub const fn free_from(&self, head: Counter) -> u32 {
        self.shape.entries() - head.since(self.tail)
    }

    /// Moves the head: everything before `head` is posted.
    #[inline(always)]
    pub const fn publish(&mut self, head: Counter) {
        debug_assert!(head.since(self.tail) <= self.shape.entries());
        self.head = head;
    }

    /// The posted entry that a CQE names by its 16-bit counter; `None` if no such entry is
    /// outstanding.
    #[inline(always)]
    pub const fn outstanding(&self, low: u16) -> Option<Counter> {
        let counter = self.tail.next_with_low16(low);
        if counter.since(self.tail) < self.used() { Some(counter) } else { None }
    }

    /// Moves the tail to one that is known to be within the posted entries.
    #[inline(always)]
    pub const fn retire_known(&mut self, tail: Counter) {
        debug_assert!(tail.since(self.tail) <= self.used());
        self.tail = tail;
    }

    /// Moves the tail back to an earlier position. Entries retired since then are not, for now.
    pub const fn hold_back(&mut self, tail: Counter) {
        debug_assert!(self.head.since(tail) <= self.shape.entries());
        self.tail = tail;
    }
}

#[cfg(test)]
mod tests;
