//! Polls of what is not usual: the part that one connection and many have in common.

use super::{EndpointError, Outcome};
use crate::cqe::{Completion, Failure, QueueKind, ReceiveDone, Timestamp};
use crate::ring::PollError;

/// The queue pairs whose requests a poll returns: one, or those of several connections.
pub(super) trait Polled {
    /// A request with its memory, and perhaps with its connection.
    type Returned;

    /// Returns the oldest request that an earlier CQE has retired and no poll has returned.
    fn give_back(&mut self) -> Option<Self::Returned>;

    /// Takes the next completion, of any kind.
    fn take(&mut self) -> Result<Option<Completion>, PollError>;

    /// Takes the next completion, of any kind, and writes the time of its CQE to `time`.
    fn take_timed(&mut self, time: &mut Option<Timestamp>)
    -> Result<Option<Completion>, PollError>;

    /// Returns the place for the time of the CQE whose requests [`give_back`](Self::give_back)
    /// returns. `None` if there are none.
    fn held_time(&mut self) -> Option<&mut Option<Timestamp>>;

    /// Returns the first request that the completion just taken has retired, the last one with
    /// this outcome. [`give_back`](Self::give_back) returns the others.
    fn sent(&mut self, outcome: Outcome) -> Option<Self::Returned>;

    /// Returns the receive that the completion just taken has retired.
    fn received(&mut self, done: ReceiveDone) -> Option<Self::Returned>;

    /// Returns the receive that the completion just taken reports as failed.
    fn failed(&mut self, failure: Failure) -> Option<Self::Returned>;
}

/// Returns the next request that is retired, of any kind; `None` if no CQE is left.
pub(super) fn next_of_any_kind<P: Polled>(
    polled: &mut P,
) -> Option<Result<P::Returned, EndpointError>> {
    loop {
        if let Some(returned) = polled.give_back() {
            return Some(Ok(returned));
        }
        let completion = match polled.take() {
            Ok(None) => return None,
            Ok(Some(completion)) => completion,
            Err(error) => return Some(Err(error.into())),
        };
        // A CQE was taken: without a request to return, the next one is looked at.
        if let Some(returned) = hand_out(polled, completion).transpose() {
            return Some(returned);
        }
    }
}

/// Returns the first request that a completion has retired, if it has.
#[inline(always)]
pub(super) fn hand_out<P: Polled>(
    polled: &mut P,
    completion: Completion,
) -> Result<Option<P::Returned>, EndpointError> {
    Ok(match completion {
        Completion::Send(done) => polled.sent(Outcome::Sent(done)),
        Completion::Failed(failure) if failure.queue == QueueKind::Send => {
            polled.sent(Outcome::Failed(failure))
        }
        Completion::Receive(done) => polled.received(done),
        Completion::Failed(failure) => polled.failed(failure),
        // It retired nothing.
        Completion::UnexpectedCqe(unexpected) => {
            return Err(EndpointError::UnexpectedCqe(unexpected));
        }
    })
}
