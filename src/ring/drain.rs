//! Completions as an iterator.

use core::mem::MaybeUninit;

use super::completion::{Completions, Found};
use super::{PollError, Queues};
use crate::cqe::Completion;
use crate::timing::Phase;

impl Completions {
    /// The completions that are there, one after another. The consumer index is published when none
    /// is left or the iterator is dropped; if it is leaked before, by the next poll.
    #[inline]
    pub fn drain<'a, Q: Queues + ?Sized>(&'a mut self, queues: &'a mut Q) -> Drain<'a, Q> {
        Drain { completions: self, queues, taken: false }
    }
}

/// The completions that are there, see [`Completions::drain`].
#[must_use = "an iterator takes nothing until it is asked"]
#[derive(Debug)]
pub struct Drain<'a, Q: Queues + ?Sized> {
    completions: &'a mut Completions,
    queues: &'a mut Q,
    /// Whether something was taken that is not published.
    taken: bool,
}

impl<Q: Queues + ?Sized> Iterator for Drain<'_, Q> {
    type Item = Result<Completion, PollError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: `look_for` says so.
        let take = |reader: &mut Completions, at| unsafe { reader.consumer.take(at) };
        let (send, receive) = (Found::Send, Found::Receive);
        let (nothing, other) = (Found::Nothing, Found::Other);
        let reader = &mut *self.completions;
        let found = reader.look_for::<true, Q, _>(self.queues, take, send, receive, nothing, other);
        let completion = match found {
            Found::Nothing => {
                // A later poll that finds nothing would not publish what a leaked iterator took.
                self.publish();
                return None;
            }
            Found::Send(done) => Completion::Send(done),
            Found::Receive(done) => Completion::Receive(done),
            Found::Other => {
                let mut other = MaybeUninit::uninit();
                match self.completions.take_other(self.queues, &mut other) {
                    // SAFETY: it was taken.
                    Ok(true) => unsafe { other.assume_init() },
                    nothing => {
                        self.publish();
                        return nothing.err().map(Err);
                    }
                }
            }
        };
        self.taken = true;
        Some(Ok(completion))
    }
}

impl<Q: Queues + ?Sized> Drain<'_, Q> {
    #[inline]
    fn publish(&mut self) {
        if self.taken {
            self.taken = false;
            self.completions.timing.begin();
            self.completions.consumer.publish();
            self.completions.timing.stamp(Phase::Release);
        }
    }
}

impl<Q: Queues + ?Sized> Drop for Drain<'_, Q> {
    fn drop(&mut self) {
        self.publish();
    }
}
