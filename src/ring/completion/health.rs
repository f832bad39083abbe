//! Detecting that a CQ or its device failed.
//!
//! The HCA fails a CQ that overruns, or whose memory it cannot write. It writes no more CQEs then,
//! so to a poll the CQ looks empty for ever. The HCA reports the failure by an asynchronous event
//! (`IBV_EVENT_CQ_ERR`), which the kernel queues on the context's event file. A reader must not
//! read that file, because the events belong to the program. It looks for other signs, in this
//! order:
//!
//! 1. Events that this crate has handed to the program
//!    ([`Context::async_event`](crate::verbs::Context::async_event)): it remembers which CQs
//!    failed, and whether the device did.
//! 2. `poll(2)` on the event file, which takes no event: without an unread event, no CQ failed.
//! 3. QUERY_CQ, a firmware command (`mlx5dv_devx_cq_query`), whose reply has the CQ's status. It is
//!    given only while an event is unread. For CQs created by command, whose failures do not come
//!    to the event file, it is the only sign.
//!
//! A device that fails or is removed completes nothing, either. It is told by the same signs: the
//! event is `IBV_EVENT_DEVICE_FATAL`, and the kernel executes no QUERY_CQ, with an errno of its own
//! for this reason. Where the context gives no firmware commands, `ibv_query_port` takes its place.
//!
//! A reader looks after [`PERIOD`] polls that found nothing. A system call then is far below 0.1 %
//! of the time. After a look that took a firmware command and found the CQ well, the period doubles
//! up to [`LONGEST`]. [`CqReader::arm`] counts as [`ARMED`] such polls, for programs that wait
//! for events and poll rarely. Drains look when they begin, and each of their polls that finds
//! nothing counts as [`WAITED`], because they yield after it.

use super::reader::CqReader;
use crate::ring::PollError;
use crate::ring::source::claims::CqKeep;
use crate::ring::source::{CqCheck, check_cq};

/// Polls that find nothing until the first look, and between looks that take no firmware command:
/// some milliseconds of a busy loop.
pub(super) const PERIOD: i32 = 1 << 22;

/// Most polls that find nothing between two looks.
const LONGEST: i32 = 1 << 30;

/// Polls that find nothing which an arm counts as.
pub(super) const ARMED: i32 = 1 << 18;

/// Polls that find nothing which one counts as that a drain makes.
pub(super) const WAITED: i32 = 1 << 12;

impl CqReader {
    /// Checks whether the CQ or its device failed, after many polls without a CQE.
    #[cold]
    #[inline(never)]
    pub(in crate::ring) fn recheck_health(&mut self) {
        self.period = match self.check_health() {
            CqCheck::Failed | CqCheck::DeviceFailed => return,
            CqCheck::NoEvent => PERIOD,
            CqCheck::Works | CqCheck::Unknown => self.period.saturating_mul(2).min(LONGEST),
        };
        self.consumer.recheck_after(self.period);
    }

    /// Checks whether the CQ or its device failed. If so, polls that find no CQE fail from the next
    /// one on.
    #[cold]
    pub(in crate::ring) fn check_health(&mut self) -> CqCheck {
        let check = match (self.keep.as_ref().map(CqKeep::owner), self.raw) {
            (Some(owner), _) => owner.check(self.cqn()),
            // SAFETY: the caller of `from_raw` keeps the CQ alive, by its contract.
            (None, Some(raw)) => unsafe { check_cq(raw, self.cqn()) },
            // Memory of this crate, or of a test, that no HCA writes.
            (None, None) => CqCheck::NoEvent,
        };
        match check {
            CqCheck::Failed => self.fail(PollError::Overrun),
            CqCheck::DeviceFailed => self.fail(PollError::DeviceFailed),
            CqCheck::NoEvent | CqCheck::Works | CqCheck::Unknown => {}
        }
        check
    }
}
