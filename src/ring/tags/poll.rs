//! Decoding of tag-matching CQEs.

use mlx5_sys::cqe::tag_event as event;

use super::changes::{Report, What};
use super::completion::{IncompleteReason, TagArrival, TagCompletion, TagIncomplete, TagMatch};
use super::list::Told;
use super::queue::TmSrq;
use crate::cqe::{
    Completion, CqeRef, Failure, QueueKind, ReceiveKind, UnexpectedCqe, UnexpectedCqeReason,
};
use crate::ib::Rc;
use crate::ring::completion::reader::CqReader;
use crate::ring::completion::scatter;
use crate::ring::{PollError, Queues, ReceiveSide, SendQueue, SendSide, Srq};

/// The queues of a tag-matching queue, for CQEs that are not about tags: failures.
struct Own<'a> {
    commands: &'a mut SendQueue<Rc>,
    shared: &'a mut Srq,
}

impl Queues for Own<'_> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.commands.send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        self.shared.receive_side(qpn)
    }

    fn device_failed(&mut self) {
        self.commands.device_failed();
        self.shared.device_failed();
    }
}

impl TmSrq {
    /// Takes the next completion, if there is one, of this queue or of `others`, which complete on
    /// the same CQ (or `()`). Costs a few loads more than a poll of queues that match no tags.
    ///
    /// # Errors
    /// [`PollError`]; nothing is taken then.
    // Always: as a call, with the result in memory, the usual message would cost twice as much.
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    pub fn poll<Q: Queues + ?Sized>(
        &mut self,
        completions: &mut CqReader,
        others: &mut Q,
    ) -> Result<Option<TagCompletion>, PollError> {
        match self.take_arrived(completions) {
            Some(arrival) => Ok(Some(TagCompletion::Arrived(arrival))),
            None => self.poll_any(completions, others),
        }
    }

    /// Takes the next CQE, if it reports that a message without immediate data has taken an entry
    /// and is in the entry's memory.
    #[inline(always)]
    fn take_arrived(&mut self, completions: &mut CqReader) -> Option<TagArrival> {
        if completions.id() != self.cq {
            return None;
        }
        let cqe = completions.find_arrived()?;
        if !cqe.is_tagged() || cqe.tag_event() != event::CONSUMED_MESSAGE {
            return None;
        }
        let Told { id, handle, .. } = self.list.end(cqe.tag_index())?;
        let (qpn, byte_len, header) = (cqe.qpn(), cqe.byte_count(), cqe.tag_header());
        completions.flight.cqe(&cqe);
        // SAFETY: the last call on the reader was `find_arrived`, which returned a CQE.
        unsafe { completions.take_found() };
        Some(TagArrival { id, handle, qpn, kind: ReceiveKind::Send, byte_len, header })
    }

    /// Handles [`poll`](Self::poll) for every kind of CQE.
    #[inline(never)]
    fn poll_any<Q: Queues + ?Sized>(
        &mut self,
        completions: &mut CqReader,
        others: &mut Q,
    ) -> Result<Option<TagCompletion>, PollError> {
        if completions.id() != self.cq {
            return Ok(completions.poll(others)?.map(TagCompletion::Other));
        }
        loop {
            let cqe = match completions.look_ahead() {
                Ok(Some(cqe)) => cqe,
                Ok(None) => return Ok(None),
                Err(error) => {
                    if error == PollError::DeviceFailed {
                        let Self { commands, shared, .. } = self;
                        (Own { commands, shared }, others).device_failed();
                    }
                    return Err(error);
                }
            };
            if !cqe.is_tagged() {
                let Self { commands, shared, .. } = self;
                let taken = completions.poll(&mut (Own { commands, shared }, &mut *others))?;
                return Ok(taken.map(|completion| self.untagged(completion)));
            }
            let found = self.take(&cqe);
            completions.flight.cqe(&cqe);
            completions.pass();
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Returns the completion of a CQE. `None` if only this crate needs the CQE.
    #[inline]
    fn take(&mut self, cqe: &CqeRef<'_>) -> Option<TagCompletion> {
        let index = cqe.tag_index();
        let unexpected = |reason| TagCompletion::UnexpectedCqe(UnexpectedCqe::tagged(reason, cqe));
        let stray = || Some(unexpected(UnexpectedCqeReason::NotOutstanding));
        match cqe.tag_event() {
            event::CONSUMED_MESSAGE => match self.list.end(index) {
                Some(told) => Some(arrived(&told, cqe, true)),
                None => stray(),
            },
            event::EXPECTED => match self.list.end(index) {
                Some(told) => Some(arrived(&told, cqe, false)),
                None => stray(),
            },
            code @ (event::CONSUMED | event::CONSUMED_SW_RENDEZVOUS) => {
                match self.list.take(index) {
                    Some(Told { id, handle, .. }) => Some(TagCompletion::Matched(TagMatch {
                        id,
                        handle,
                        qpn: cqe.qpn(),
                        header: cqe.tag_header(),
                        fetch: code == event::CONSUMED_SW_RENDEZVOUS,
                    })),
                    None => stray(),
                }
            }
            code @ (event::CANCELED | event::CONSUMED_MESSAGE_SW_RENDEZVOUS) => {
                let Some(told) = self.list.end(index) else { return stray() };
                if code == event::CANCELED {
                    return Some(incomplete(&told, cqe, IncompleteReason::Canceled, false));
                }
                let fits = put(&told, cqe);
                let reason = if fits { IncompleteReason::Fetch } else { IncompleteReason::TooLong };
                Some(incomplete(&told, cqe, reason, true))
            }
            code @ (event::UNEXPECTED | event::NO_TAG) => {
                if ReceiveKind::decode(cqe).is_none() {
                    return Some(unexpected(UnexpectedCqeReason::UnknownOpcode));
                }
                if code == event::UNEXPECTED {
                    // The HCA has counted it in any case.
                    self.seen = self.seen.wrapping_add(1);
                }
                Some(match self.shared.complete(cqe) {
                    Completion::Receive(done) if code == event::UNEXPECTED => {
                        TagCompletion::Unexpected(done)
                    }
                    Completion::Receive(done) => TagCompletion::Untagged(done),
                    Completion::Failed(failure) => TagCompletion::Failed(failure),
                    Completion::UnexpectedCqe(unexpected) => {
                        TagCompletion::UnexpectedCqe(unexpected)
                    }
                    other @ Completion::Send(_) => TagCompletion::Other(other),
                })
            }
            code @ (event::APPEND | event::REMOVE | event::NOOP) => {
                let is = |what: What| match what {
                    What::Append(_) => code == event::APPEND,
                    What::Remove(_) => code == event::REMOVE,
                    What::Sync => code == event::NOOP,
                };
                let Some((at, change)) = self.changes.report(is) else { return stray() };
                self.commands.ring.state.retire(at.low16());
                self.waiting = cqe.tag_count() != change.known;
                match change.what {
                    What::Sync => Some(TagCompletion::Synced(change.id)),
                    What::Append(index) => {
                        let (id, handle) = self.list.changed(index)?;
                        let asked = change.report == Report::Program;
                        asked.then_some(TagCompletion::Appended { id, handle })
                    }
                    What::Remove(index) => {
                        let removed = cqe.tag_success();
                        if removed {
                            self.list.end(index);
                        }
                        let (id, handle) = self.list.changed(index)?;
                        Some(TagCompletion::Removed { id, handle, removed })
                    }
                }
            }
            _ => Some(unexpected(UnexpectedCqeReason::UnknownOpcode)),
        }
    }

    /// Handles a completion that is not about tags. If a change failed, the entries that it, or one
    /// before it, was to append or remove are not in the list, or are unchanged.
    #[cold]
    fn untagged(&mut self, completion: Completion) -> TagCompletion {
        let Completion::Failed(failure) = completion else {
            return TagCompletion::Other(completion);
        };
        let changes = failure.queue == QueueKind::Send && failure.qpn == self.commands.qpn();
        if !changes {
            let own = failure.queue == QueueKind::Receive
                && self.shared.attached().any(|qpn| qpn == failure.qpn);
            return match own {
                true => TagCompletion::Failed(failure),
                false => TagCompletion::Other(completion),
            };
        }
        let Self { changes, list, .. } = self;
        let mut id = failure.id;
        changes.fail(failure.wqe_index, |change, made| {
            let reported = change.report != Report::Nobody;
            match change.what {
                // If an append was not made, there is no entry.
                What::Append(index) => {
                    if !made {
                        list.end(index);
                    }
                    if reported {
                        list.changed(index);
                    }
                }
                What::Remove(index) => {
                    list.changed(index);
                }
                What::Sync => {}
            }
            if !made {
                id = change.id;
            }
        });
        TagCompletion::Failed(Failure { id, ..failure })
    }
}

/// Copies a message that came in the CQE to its entry's memory. Returns false if it does not fit;
/// true also if there is no message in the CQE.
#[inline(always)]
fn put(told: &Told, cqe: &CqeRef<'_>) -> bool {
    !cqe.has_inline_data() || put_inside(told, cqe)
}

#[cold]
fn put_inside(told: &Told, cqe: &CqeRef<'_>) -> bool {
    // The first half of a CQE holds the header, so the message fits only a CQE of 128 bytes.
    let length = cqe.byte_count();
    let data = if length <= told.length { cqe.wide_data(length) } else { None };
    let Some(data) = data else { return false };
    // SAFETY: a message in a CQE comes from a QP that puts payload into CQEs. So the caller of
    // `append` keeps memory mapped at the entry's address, for its length, that nothing else uses
    // before this completion is reported. The message is no longer than the entry.
    unsafe { scatter::store(told.address, data.bytes()) };
    true
}

fn arrived(told: &Told, cqe: &CqeRef<'_>, whole: bool) -> TagCompletion {
    if !put(told, cqe) {
        return incomplete(told, cqe, IncompleteReason::TooLong, whole);
    }
    let &Told { id, handle, .. } = told;
    TagCompletion::Arrived(TagArrival {
        id,
        handle,
        qpn: cqe.qpn(),
        kind: ReceiveKind::decode(cqe).unwrap_or(ReceiveKind::Send),
        byte_len: cqe.byte_count(),
        header: if whole { cqe.tag_header() } else { None },
    })
}

#[cold]
fn incomplete(
    told: &Told,
    cqe: &CqeRef<'_>,
    reason: IncompleteReason,
    header: bool,
) -> TagCompletion {
    let &Told { id, handle, .. } = told;
    let header = if header { cqe.tag_header() } else { None };
    TagCompletion::Incomplete(TagIncomplete { id, handle, qpn: cqe.qpn(), reason, header })
}
