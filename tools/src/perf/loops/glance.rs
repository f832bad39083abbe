//! A ping-pong of WRITEs: a WRITE completes nothing at its target, so the receiver polls its last
//! byte.

use mlx5::timing::Clock;

use super::pace::Pace;
use super::wait::Wait;
use super::{Client, Every, Record, Served, Span, Task};
use crate::perf::path::{Event, Message, Path, Stop};
use crate::perf::plan::Plan;

pub(super) struct Glance {
    sent: u64,
    retired: u64,
    signal: Every,
}

impl Glance {
    pub(super) fn new(plan: &Plan) -> Glance {
        Glance { sent: 0, retired: 0, signal: Every::new(plan.signal_every) }
    }

    /// Sends the next message.
    #[inline(always)]
    fn send<P: Path>(&mut self, path: &mut P) -> Result<(), Stop> {
        let message = Message { sequence: self.sent, signaled: self.signal.next() };
        path.post(0, message)?;
        self.sent += 1;
        Ok(())
    }

    /// Waits for the peer's message with that number. Looks now and then for a failure of its own
    /// requests, which shows only in completions. Returns `false` if the message will not come.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn arrival<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        wait: &mut Wait<'_>,
        sequence: u64,
    ) -> Result<bool, Stop> {
        while !path.memory().has_arrived(0, sequence) {
            if wait.once()? {
                self.retire(path)?;
                if sequence >= task.signals.expected(task.thread) {
                    return Ok(false);
                }
            }
        }
        wait.over();
        Ok(true)
    }

    fn retire<P: Path>(&mut self, path: &mut P) -> Result<(), Stop> {
        path.drain(|event| {
            if let Event::Sent { sequence, .. } = event {
                self.retired = sequence + 1;
            }
        })
    }

    /// Frees entries of the send queue before it is full.
    #[inline(always)]
    fn make_room<P: Path>(
        &mut self,
        path: &mut P,
        plan: &Plan,
        wait: &mut Wait<'_>,
    ) -> Result<(), Stop> {
        if self.sent - self.retired > u64::from(plan.depth) / 2 {
            self.retire(path)?;
        }
        while self.sent - self.retired >= u64::from(plan.depth) {
            wait.once()?;
            self.retire(path)?;
        }
        Ok(())
    }
}

impl<P: Path> Client<P> for Glance {
    fn run(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        pace: &mut Pace,
        span: Span,
        record: &mut Record,
    ) -> Result<(), Stop> {
        let mut wait = Wait::new(task, "answer");
        let last = self.sent.saturating_add(span.count);
        while self.sent < last {
            let sequence = self.sent;
            task.stamp(path, 0, sequence);
            let since = pace.next(&mut wait)?;
            if task.is_over(since, span) {
                break;
            }
            self.send(path)?;
            self.arrival(path, task, &mut wait, sequence)?;
            record.add(since, Clock::now());
            if task.plan.validate {
                record.check(path.memory().is_right(0, sequence, 0, sequence, true));
            }
            self.make_room(path, task.plan, &mut wait)?;
            task.signals.progress(task.thread, self.sent);
        }
        Ok(())
    }

    fn sent(&self) -> Vec<u64> {
        vec![self.sent]
    }
}

/// Answers each message with one of the same number, until all that the client sent are answered.
pub(super) fn answer<P: Path>(path: &mut P, task: &Task<'_>) -> Result<Served, Stop> {
    let mut side = Glance::new(task.plan);
    let mut served = Served::default();
    let mut wait = Wait::patient(task, "message");
    loop {
        let sequence = side.sent;
        task.stamp(path, 0, sequence);
        if !side.arrival(path, task, &mut wait, sequence)? {
            return Ok(served);
        }
        task.stall(sequence);
        if task.plan.validate {
            let right = path.memory().is_right(0, sequence, 0, sequence, true);
            served.wrong += u64::from(!right);
        }
        side.send(path)?;
        served.received = side.sent;
        side.make_room(path, task.plan, &mut wait)?;
        task.signals.progress(task.thread, side.sent);
    }
}
