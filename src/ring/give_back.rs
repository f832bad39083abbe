//! Retiring requests one by one.
//!
//! A completion retires a request and the unsignaled ones before it. Who owns their memory gives it
//! back one request after the other, and until then their blocks stay taken: so the ring's tail is
//! put back, and moved on with each of them. While it lags behind what is retired, no CQE is
//! compared with the oldest request.

use super::send_ring::SendRing;
use super::shadow::Entry;
use crate::ib::Counter;

/// What a send ring had retired at some time.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    tail: Counter,
    slack: u32,
}

impl SendRing {
    /// What is retired now.
    pub(super) fn mark(&self) -> Mark {
        Mark { tail: self.cursor.tail(), slack: self.slack_retired }
    }

    /// Puts the tail back to `mark`, which is of just before the last CQE was taken. Returns where
    /// it was; [`give_back`](Self::give_back) is to be called until it is there again, before
    /// another CQE is.
    pub(super) fn hold_back(&mut self, mark: Mark) -> Counter {
        let end = self.cursor.tail();
        self.cursor.hold_back(mark.tail);
        self.slack_retired = mark.slack;
        self.shadow.expect_nothing();
        end
    }

    /// Moves the tail over its oldest request, which is retired, towards `end`. Returns the slot and
    /// what was remembered; `None` at the end.
    pub(super) fn give_back(&mut self, end: Counter) -> Option<(usize, Entry)> {
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
        Some((self.cursor.shape().slot(tail), entry))
    }

    /// Slots of what was not given back, and what was remembered, oldest first.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = (usize, Entry)> {
        let mut at = self.cursor.tail();
        core::iter::from_fn(move || {
            if at == self.cursor.head() {
                return None;
            }
            let (slot, entry) = (self.cursor.shape().slot(at), self.shadow.get(at));
            at = at.plus(entry.key.blocks().unwrap_or(1));
            Some((slot, entry))
        })
    }
}
