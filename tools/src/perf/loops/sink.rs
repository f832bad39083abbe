//! The server's half of a stream of SENDs, or of WRITEs with immediate: it takes each message and
//! posts its receive again.

use std::time::{Duration, Instant};

use super::wait::Wait;
use super::{Served, Task};
use crate::perf::path::{Arrival, Event, Path, Stop};
use crate::perf::plan::Carrier;

/// How long a datagram or a message of an unreliable connection may arrive after the client is
/// done.
const LATE: Duration = Duration::from_millis(200);

/// The messages that arrive at one side.
pub(super) struct Intake {
    /// The counts.
    pub(super) served: Served,
    /// The next message of each queue pair.
    expected: Vec<u64>,
    /// The time at which the last one arrived, by the HCA's clock.
    last: Vec<Option<u64>>,
    /// Since when none has arrived, once the other side is done.
    quiet: Option<Instant>,
}

impl Intake {
    pub(super) fn new(queues: usize) -> Intake {
        let (expected, last) = (vec![0; queues], vec![None; queues]);
        Intake { served: Served::default(), expected, last, quiet: None }
    }

    /// Has it measure the times between packets.
    fn with_gaps(mut self) -> Intake {
        self.served.gaps = Some(Box::default());
        self
    }

    #[inline(always)]
    fn measure(&mut self, task: &Task<'_>, arrival: Arrival) {
        let (Some(gaps), Some(at)) = (&mut self.served.gaps, arrival.at) else { return };
        let last = self.last[arrival.from].replace(at);
        if let Some(last) = last.filter(|_| self.served.received >= task.plan.warm_up) {
            gaps.record(at.saturating_sub(last));
        }
    }

    /// Takes the message of a completed receive, and posts the receive again.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn take<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        arrival: Arrival,
    ) -> Result<(), Stop> {
        let Arrival { queue, from, slot, .. } = arrival;
        task.stall(self.served.received);
        if task.plan.validate {
            let expected = self.expected[from];
            let number = number(path, task, arrival, expected);
            let (queue, slot, skip) = task.landed(arrival, number);
            let right = path.memory().is_right(queue, slot, skip, number, false);
            self.served.wrong += u64::from(!right);
            self.expected[from] = if right { number + 1 } else { expected + 1 };
        }
        path.receive(queue, slot)?;
        self.measure(task, arrival);
        self.served.received += 1;
        self.quiet = None;
        Ok(())
    }

    /// Returns whether all messages that the other side sent have arrived, where arrivals are
    /// noticed; where messages may be lost, whether none has arrived for a while.
    pub(super) fn is_complete(&mut self, task: &Task<'_>) -> bool {
        let all = task.signals.expected(task.thread);
        if all == u64::MAX {
            return false;
        }
        if !task.plan.operation.takes_receives() || self.served.received >= all {
            return true;
        }
        let quiet = *self.quiet.get_or_insert_with(Instant::now);
        may_lose(task) && quiet.elapsed() > LATE
    }
}

/// Receives until all messages that the client sent have arrived.
pub(super) fn take<P: Path>(path: &mut P, task: &Task<'_>) -> Result<Served, Stop> {
    let intake = Intake::new(path.queues());
    let mut intake = match task.plan.carrier {
        Carrier::Raw => intake.with_gaps(),
        _ => intake,
    };
    let mut wait = Wait::patient(task, "message");
    loop {
        match path.poll()? {
            Some(Event::Received(arrival)) => {
                intake.take(path, task, arrival)?;
                task.signals.progress(task.thread, intake.served.received);
            }
            Some(Event::Sent { .. }) => {
                return Err(Stop::Told("a request of the server's, which posts none".into()));
            }
            None => {
                if wait.turn(path)? && intake.is_complete(task) {
                    return Ok(intake.served);
                }
            }
        }
    }
}

fn may_lose(task: &Task<'_>) -> bool {
    !task.plan.carrier.is_reliable()
}

/// Returns the number of a message that arrived: the next one, or, where messages may be lost, the
/// number that the message carries, in as many bits as it has for it.
fn number<P: Path>(path: &mut P, task: &Task<'_>, arrival: Arrival, expected: u64) -> u64 {
    if !may_lose(task) {
        return expected;
    }
    let (said, bits) = match arrival.immediate {
        Some(immediate) => (u64::from(immediate), 32),
        None => {
            let (queue, slot, skip) = task.landed(arrival, expected);
            (path.memory().says(queue, slot, skip), (task.plan.size * 8).min(64) as u32)
        }
    };
    let lost = said.wrapping_sub(expected) & (u64::MAX >> (64 - bits));
    expected.wrapping_add(lost)
}
