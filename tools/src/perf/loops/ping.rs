//! The client's half of a ping-pong of SENDs, or of WRITEs with immediate: each message is answered
//! by one message, and both consume receives.

use mlx5::timing::Clock;

use super::pace::Pace;
use super::wait::Wait;
use super::{Client, Every, Record, Span, Task};
use crate::perf::path::{Event, Message, Path, Stop};
use crate::perf::plan::Plan;

pub(super) struct Ping {
    /// Messages sent, and messages known to be completed.
    sent: u64,
    retired: u64,
    signal: Every,
}

impl Ping {
    pub(super) fn new(plan: &Plan) -> Ping {
        Ping { sent: 0, retired: 0, signal: Every::new(plan.signal_every) }
    }
}

impl<P: Path> Client<P> for Ping {
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
            // 1. The message is written where it leaves from, and sent.
            let sequence = self.sent;
            task.stamp(path, 0, sequence);
            let since = pace.next(&mut wait)?;
            if task.is_over(since, span) {
                break;
            }
            path.post(0, Message { sequence, signaled: self.signal.next() })?;
            self.sent += 1;

            // 2. The answer completes a receive. Completions of own requests may come in between.
            let arrival = loop {
                match path.poll()? {
                    Some(Event::Received(arrival)) => break arrival,
                    Some(Event::Sent { sequence, .. }) => self.retired = sequence + 1,
                    None => {
                        wait.turn(path)?;
                    }
                }
            };
            record.add(since, Clock::now());
            wait.over();

            // 3. Work outside the measured time.
            if task.plan.validate {
                let (queue, slot, skip) = task.landed(arrival, sequence);
                record.check(path.memory().is_right(queue, slot, skip, sequence, false));
            }
            path.receive(0, arrival.slot)?;
            while self.sent - self.retired >= u64::from(task.plan.depth) {
                match path.poll()? {
                    Some(Event::Sent { sequence, .. }) => self.retired = sequence + 1,
                    Some(_) => return Err(Stop::Told("an answer that nobody asked for".into())),
                    None => {
                        wait.turn(path)?;
                    }
                }
            }
            task.signals.progress(task.thread, self.sent);
        }
        Ok(())
    }

    fn sent(&self) -> Vec<u64> {
        vec![self.sent]
    }
}
