//! Completions as an iterator.

use super::completion::CqReader;
use super::{PollError, Queues};
use crate::cqe::Completion;

impl CqReader {
    /// Returns an iterator over the completions that are there. Each step is a
    /// [`poll`](Self::poll), and publishes the consumer index.
    #[inline]
    pub fn drain<'a, Q: Queues + ?Sized>(&'a mut self, queues: &'a mut Q) -> Drain<'a, Q> {
        Drain { completions: self, queues }
    }
}

/// An iterator over the completions of a CQ, see [`CqReader::drain`].
#[must_use = "an iterator takes nothing until it is asked"]
#[derive(Debug)]
pub struct Drain<'a, Q: Queues + ?Sized> {
    completions: &'a mut CqReader,
    queues: &'a mut Q,
}

impl<Q: Queues + ?Sized> Iterator for Drain<'_, Q> {
    type Item = Result<Completion, PollError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.completions.poll(self.queues).transpose()
    }
}
