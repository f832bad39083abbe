//! Polls of what is not usual: the part that one connection and many have in common.

use super::{EndpointError, Outcome};
use crate::cqe::{Completion, Failure, QueueKind, ReceiveDone};
use crate::ring::PollError;

/// The queue pairs whose requests a poll returns: one, or those of several connections.
pub(super) trait Polled {
    /// A request with its memory, and perhaps with its connection.
    type Returned;

    /// Returns the oldest request that an earlier CQE has retired and no poll has returned.
    fn give_back(&mut self) -> Option<Self::Returned>;

    /// Takes the next completion, of any kind.
    fn take(&mut self) -> Result<Option<Completion>, PollError>;

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
        let returned = match polled.take() {
            Ok(None) => return None,
            Err(error) => return Some(Err(error.into())),
            Ok(Some(Completion::Send(done))) => polled.sent(Outcome::Sent(done)),
            Ok(Some(Completion::Failed(failure))) if failure.queue == QueueKind::Send => {
                polled.sent(Outcome::Failed(failure))
            }
            Ok(Some(Completion::Receive(done))) => polled.received(done),
            Ok(Some(Completion::Failed(failure))) => polled.failed(failure),
            // It retired nothing.
            Ok(Some(Completion::UnexpectedCqe(unexpected))) => {
                return Some(Err(EndpointError::UnexpectedCqe(unexpected)));
            }
        };
        // A CQE was taken: without a request to return, the next one is looked at.
        if let Some(returned) = returned {
            return Some(Ok(returned));
        }
    }
}
