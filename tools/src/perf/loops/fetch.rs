//! Fetches with one request at a time: a READ or an atomic, timed until its completion is polled.
//! The peer's HCA answers; its software takes no part.

use mlx5::timing::Clock;

use super::pace::Pace;
use super::wait::Wait;
use super::{Client, Record, Span, Task};
use crate::perf::path::{Message, Path, Stop};

#[derive(Default)]
pub(super) struct Fetch {
    sent: u64,
}

impl<P: Path> Client<P> for Fetch {
    fn run(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        pace: &mut Pace,
        span: Span,
        record: &mut Record,
    ) -> Result<(), Stop> {
        let mut wait = Wait::new(task, "completion");
        let last = self.sent.saturating_add(span.count);
        while self.sent < last {
            let sequence = self.sent;
            let since = pace.next(&mut wait)?;
            if task.is_over(since, span) {
                break;
            }
            path.post(0, Message { sequence, signaled: true })?;
            self.sent += 1;
            task.stall(sequence);
            while path.poll()?.is_none() {
                wait.turn(path)?;
            }
            record.add(since, Clock::now());
            wait.over();
            if task.plan.validate {
                record.check(is_right(path, task, 0, sequence));
            }
            task.signals.progress(task.thread, self.sent);
        }
        Ok(())
    }

    fn sent(&self) -> Vec<u64> {
        vec![self.sent]
    }
}

/// Returns whether the fetched bytes are right.
pub(super) fn is_right<P: Path>(
    path: &mut P,
    task: &Task<'_>,
    queue: usize,
    sequence: u64,
) -> bool {
    match task.plan.operation.is_atomic() {
        // The peer's word counts messages.
        true => path.memory().fetched_word(queue, sequence) == sequence,
        false => path.memory().fetched_is_right(queue, sequence),
    }
}
