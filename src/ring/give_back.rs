//! Retiring requests one by one.
//!
//! A completion retires a request and the unsignaled ones before it. A queue that owns their memory
//! returns it one request at a time, and until then their blocks stay taken. So the ring's tail is
//! moved back, and then forward over each of them. While the tail lags behind, no CQE is compared
//! with the oldest request.
//!
//! If requests complete in any order, a completion retires its own request only, and the tail stays
//! where it is until the oldest has completed.

use super::send_ring::SendRing;
use super::shadow::Entry;
use super::source::CompletionOrder;
use crate::ib::Counter;

/// The tail of a send ring at some time.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    tail: Counter,
    slack: u32,
}

impl SendRing {
    /// Returns a mark of what is retired now.
    pub(crate) fn mark(&self) -> Mark {
        Mark { tail: self.cursor.tail(), slack: self.slack_retired }
    }

    /// Returns the request that the last CQE has retired, if requests complete in any order.
    pub(crate) fn retired_alone(&self) -> Option<(Counter, Entry)> {
        (self.order == CompletionOrder::Any).then(|| (self.last, self.shadow.get(self.last)))
    }

    /// Returns whether one block was retired since `mark`, and so one request.
    #[inline(always)]
    pub(crate) fn retired_one_since(&self, mark: Mark) -> bool {
        self.cursor.tail() == mark.tail.plus(1)
    }

    /// Moves the tail back to `mark`, which was taken just before the last CQE. Returns the former
    /// tail. Call [`give_back`](Self::give_back) until the tail is there again, before another CQE
    /// is taken.
    pub(crate) fn hold_back(&mut self, mark: Mark) -> Counter {
        let end = self.cursor.tail();
        self.cursor.hold_back(mark.tail);
        self.slack_retired = mark.slack;
        self.shadow.expect_nothing();
        end
    }

    /// Moves the tail over its oldest request, which is retired, towards `end`. Returns its counter
    /// and shadow entry; `None` at the end.
    pub(crate) fn give_back(&mut self, end: Counter) -> Option<(Counter, Entry)> {
        let tail = self.cursor.tail();
        if tail == end {
            return None;
        }
        let entry = self.shadow.get(tail);
        if let Some(slack) = entry.key.slack() {
            self.slack_retired = slack;
        }
        // Requests begin at the tail and end at `end`.
        self.cursor.retire_known(tail.plus(entry.key.blocks().unwrap_or(1)));
        if self.cursor.tail() == end {
            self.shadow.set_tail(end);
        }
        Some((tail, entry))
    }

    /// Returns counters and shadow entries of requests that were not returned, oldest first.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (Counter, Entry)> {
        let mut at = self.cursor.tail();
        core::iter::from_fn(move || {
            if at == self.cursor.head() {
                return None;
            }
            let (start, entry) = (at, self.shadow.get(at));
            at = at.plus(entry.key.blocks().unwrap_or(1));
            Some((start, entry))
        })
        .filter(|(_, entry)| !entry.key.is_completed())
    }
}
