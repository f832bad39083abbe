//! Returning retired requests one by one.
//!
//! A completion retires a request and the unsignaled ones before it. A queue that owns their memory
//! returns it one request at a time, and until then their blocks stay taken. So the tail is moved
//! back, and then forward over each of them. While it lags behind, no CQE is compared with the
//! oldest request.
//!
//! If requests complete in any order, a completion retires its own request only, and the tail stays
//! where it is until the oldest has completed.

use super::{Point, SendState};
use crate::ib::Counter;
use crate::ring::send::shadow::Entry;
use crate::ring::source::CompletionOrder;

impl SendState {
    /// Returns whether one block was retired since `mark`, and so one request.
    #[inline(always)]
    pub(crate) fn retired_one_since(&self, mark: Point) -> bool {
        self.tail() == mark.at.plus(1)
    }

    /// Returns the request that the last CQE has retired, if requests complete in any order.
    pub(crate) fn retired_alone(&self) -> Option<(Counter, Entry)> {
        (self.order == CompletionOrder::Any).then(|| (self.last, self.shadow.get(self.last)))
    }

    /// Moves the tail back to `mark`, which was taken just before the last CQE. Returns the former
    /// tail. Call [`give_back`](Self::give_back) until the tail is there again, before another CQE
    /// is taken.
    pub(crate) fn hold_back(&mut self, mark: Point) -> Counter {
        let end = self.tail();
        self.cursor.hold_back(mark.at);
        self.silent_retired = mark.silent;
        self.shadow.expect_nothing();
        end
    }

    /// Moves the tail over its oldest request, which is retired, towards `end`. Returns its counter
    /// and shadow entry; `None` at the end.
    pub(crate) fn give_back(&mut self, end: Counter) -> Option<(Counter, Entry)> {
        let tail = self.tail();
        if tail == end {
            return None;
        }
        let entry = self.shadow.get(tail);
        if let Some(silent) = entry.key.silent() {
            self.silent_retired = silent;
        }
        // Requests begin at the tail and end at `end`.
        self.cursor.retire_known(tail.plus(entry.key.blocks().unwrap_or(1)));
        if self.tail() == end {
            self.shadow.set_tail(end);
        }
        Some((tail, entry))
    }

    /// Returns counters and shadow entries of requests that were not returned, oldest first.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (Counter, Entry)> {
        let mut at = self.tail();
        core::iter::from_fn(move || {
            if at == self.head() {
                return None;
            }
            let (start, entry) = (at, self.shadow.get(at));
            at = at.plus(entry.key.blocks().unwrap_or(1));
            Some((start, entry))
        })
        .filter(|(_, entry)| !entry.key.is_completed())
    }
}
