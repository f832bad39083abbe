//! Stopping a send queue after a failure, and starting it again.

use super::SendState;
use crate::ib::Counter;
use crate::ring::send::cursor::Cursor;
use crate::ring::source::CompletionOrder;

impl SendState {
    /// Returns whether an error completion was seen, or the device failed.
    #[inline(always)]
    pub(in crate::ring::send) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns whether the device failed.
    pub(in crate::ring::send) fn has_device_failed(&self) -> bool {
        self.device_failed
    }

    /// Refuses posts from now on.
    #[cold]
    pub(in crate::ring::send) fn stop(&mut self) {
        self.stopped = true;
        self.grant_none();
        self.end_run();
        self.ready.end();
    }

    /// Refuses posts from now on, because the device failed.
    #[cold]
    pub(in crate::ring) fn device_failed(&mut self) {
        self.device_failed = true;
        self.stop();
    }

    /// Accepts posts again after a failure. What may be posted without a check is still to be granted.
    pub(in crate::ring::send) fn resume(&mut self) {
        self.stopped = false;
    }

    /// Forgets all WQEs, and accepts posts again from counter 0 on: the queue pair was reset.
    pub(in crate::ring::send) fn restart(&mut self) {
        self.cursor = Cursor::new(self.shape(), Counter::default());
        self.silent_retired = self.silent;
        if self.order == CompletionOrder::Posting {
            self.shadow.set_tail(self.tail());
        }
        // Of any WQE: counters begin anew.
        self.forget_unposted();
        self.end_run();
        self.grant_none();
        self.resume();
    }
}
