//! Taking CQEs of any queue, one after another.

use core::ptr::NonNull;

use super::reader::CqReader;
use crate::cqe::CqeRef;
use crate::ring::PollError;
use crate::watch::timing::Phase;

impl CqReader {
    /// Handles a poll that finds no CQE, outside of the fast path.
    pub(in crate::ring) fn find_nothing(&mut self) -> Result<(), PollError> {
        if let Some(error) = self.failed {
            // The reader of a collapsed CQ comes here only if a check is due.
            self.consumer.recheck_after(-1);
            return Err(error);
        }
        if self.consumer.idles() {
            self.recheck_health();
        }
        Ok(())
    }

    /// Returns the next CQE. Opens a compressed block if the next CQE is its title.
    pub(in crate::ring) fn look_ahead<'a>(&mut self) -> Result<Option<CqeRef<'a>>, PollError> {
        let Some(cqe) = self.consumer.look() else {
            return self.find_nothing().map(|()| None);
        };
        if !cqe.compressed() {
            return Ok(Some(cqe));
        }
        if !self.consumer.open() {
            return Err(PollError::Compressed);
        }
        Ok(self.consumer.look())
    }

    /// Takes the next CQE, of any queue, and publishes the consumer index. For queues that are
    /// alone on the CQ.
    pub(in crate::ring) fn take_cqe<R>(
        &mut self,
        work: impl FnOnce(&CqeRef<'_>) -> R,
    ) -> Result<Option<R>, PollError> {
        self.timing.begin();
        let Some(cqe) = self.look_ahead()? else { return Ok(None) };
        self.timing.stamp_at(Phase::Sight, cqe.seen());
        let result = work(&cqe);
        self.timing.stamp(Phase::Decode);
        self.flight.cqe(&cqe);
        self.pass();
        Ok(Some(result))
    }

    /// Takes the next CQE, of any kind and at any place, and publishes the consumer index.
    #[inline(always)]
    pub(in crate::ring) fn pass(&mut self) {
        self.consumer.turn();
        self.consumer.publish();
        self.timing.stamp(Phase::Release);
    }

    /// Returns the next CQE, if it is the success of a SEND that arrived, not a solicited one,
    /// without data in it, and not one to pause at. The CQE is still to be taken.
    #[inline(always)]
    pub(in crate::ring) fn find_arrived<'a>(&mut self) -> Option<CqeRef<'a>> {
        self.timing.begin();
        let op_own = self.consumer.op_own();
        if !self.consumer.is_arrived(op_own) || self.consumer.is_at_pause() {
            return None;
        }
        // SAFETY: `op_own` is the last byte of the next CQE, a success with the owner bit of this
        // lap, so software owns the CQE.
        let cqe = unsafe { self.consumer.cqe(self.consumer.place(), op_own) };
        self.timing.stamp_at(Phase::Sight, cqe.seen());
        Some(cqe)
    }

    /// Returns whether the next CQE is certainly not there, and counts the poll then. False also if a
    /// check of the CQ is due.
    #[inline(always)]
    pub(in crate::ring) fn finds_nothing(&mut self) -> bool {
        self.consumer.is_stale(self.consumer.op_own()) && !self.consumer.idles()
    }

    /// Takes the CQE that `find` or [`find_arrived`](Self::find_arrived) found, and
    /// publishes the consumer index.
    ///
    /// # Safety
    /// The last call on this reader was one of these, and it returned a send, a receive or a CQE.
    #[inline(always)]
    pub(crate) unsafe fn take_found(&mut self) {
        // SAFETY: the caller's last call found the next CQE, which is not one to pause at.
        unsafe { self.take_at(self.consumer.place()) };
    }

    /// Takes the next CQE, and publishes the consumer index.
    ///
    /// # Safety
    /// The next CQE is at `at`, and is not one to pause at.
    #[inline(always)]
    pub(in crate::ring) unsafe fn take_at(&mut self, at: NonNull<u8>) {
        // SAFETY: the caller passes the place of the next CQE, which is before the pause.
        unsafe { self.consumer.take_and_publish(at) };
        self.timing.stamp(Phase::Release);
    }
}
