//! A stream with many outstanding requests on each queue pair, to measure bytes or messages per
//! second.

use mlx5::timing::Clock;

use super::pace::Pace;
use super::sink::Intake;
use super::wait::Wait;
use super::{Client, Every, Record, Served, Span, Task, fetch};
use crate::perf::path::{Event, Message, Path, Stop};
use crate::perf::plan::{Direction, Plan};

/// The requests of a queue pair.
struct Flight {
    sent: u64,
    retired: u64,
    /// The number at which sending ends.
    last: u64,
    signal: Every,
    /// The start times of outstanding requests: a ring, indexed by number.
    since: Box<[u64]>,
}

pub(super) struct Stream {
    flights: Vec<Flight>,
    /// The messages of the other side, where both send.
    intake: Intake,
    depth: u64,
    batch: u64,
    /// Completions that are polled before the next post. What the other side sends never ends, so
    /// that polling all of it would keep this side from sending.
    most_polled: u32,
}

impl Flight {
    fn outstanding(&self) -> u64 {
        self.sent - self.retired
    }

    #[inline(always)]
    fn since(&mut self, sequence: u64) -> &mut u64 {
        let mask = self.since.len() - 1;
        &mut self.since[sequence as usize & mask]
    }

    /// Returns the next request. The last request is signaled, and its completion covers all before
    /// it.
    #[inline(always)]
    fn next(&mut self, since: u64) -> Message {
        let sequence = self.sent;
        self.sent += 1;
        *self.since(sequence) = since;
        Message { sequence, signaled: self.signal.next() || self.sent == self.last }
    }
}

impl Stream {
    pub(super) fn new(queues: usize, plan: &Plan) -> Stream {
        let places = plan.depth.next_power_of_two() as usize;
        let flight = || Flight {
            sent: 0,
            retired: 0,
            last: 0,
            signal: Every::new(plan.signal_every),
            since: vec![0; places].into_boxed_slice(),
        };
        Stream {
            flights: (0..queues).map(|_| flight()).collect(),
            intake: Intake::new(queues),
            depth: plan.depth.into(),
            batch: plan.batch.into(),
            most_polled: match plan.direction {
                Direction::OneWay => u32::MAX,
                Direction::BothWays => plan.depth,
            },
        }
    }

    /// Receives until all messages that the other side sent have arrived. Returns the counts.
    pub(super) fn rest<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        record: &mut Record,
    ) -> Result<Served, Stop> {
        let mut wait = Wait::patient(task, "message");
        let sent: u64 = self.flights.iter().map(|flight| flight.sent).sum();
        loop {
            if self.poll_after(path, task, record)? {
                task.signals.progress(task.thread, sent + self.intake.served.received);
            } else if wait.turn(path)? && self.intake.is_complete(task) {
                return Ok(std::mem::take(&mut self.intake.served));
            }
        }
    }

    /// Waits for outstanding requests, after the time is over or the user ended it. If the last one
    /// is not signaled, one more request brings a completion.
    fn drain<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        record: &mut Record,
        wait: &mut Wait<'_>,
    ) -> Result<(), Stop> {
        for queue in 0..self.flights.len() {
            let flight = &mut self.flights[queue];
            flight.last = flight.sent;
            if flight.outstanding() == 0 || flight.signal.is_fresh() {
                continue;
            }
            while self.flights[queue].outstanding() >= self.depth {
                self.poll_or_wait(path, task, record, wait)?;
            }
            let flight = &mut self.flights[queue];
            flight.last = flight.sent + 1;
            task.stamp(path, queue, flight.sent);
            path.post(queue, flight.next(Clock::now()))?;
        }
        while self.flights.iter().any(|flight| flight.outstanding() != 0) {
            self.poll_or_wait(path, task, record, wait)?;
        }
        Ok(())
    }

    /// Polls the available completions, or waits for a turn if there are none. The limit is that of the
    /// time without any.
    fn poll_or_wait<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        record: &mut Record,
        wait: &mut Wait<'_>,
    ) -> Result<(), Stop> {
        if self.poll_after(path, task, record)? {
            wait.over();
        } else {
            wait.turn(path)?;
        }
        Ok(())
    }

    /// Polls the available completions after the measured time. One copy of the code for all calls.
    #[inline(never)]
    fn poll_after<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        record: &mut Record,
    ) -> Result<bool, Stop> {
        self.poll(path, task, record)
    }

    /// Posts a batch on that queue pair if the batch fits. Returns whether it did.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn post<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        pace: &mut Pace,
        queue: usize,
        now: u64,
    ) -> Result<bool, Stop> {
        let flight = &mut self.flights[queue];
        let count = self.batch.min(flight.last - flight.sent);
        if count == 0 || flight.outstanding() + count > self.depth {
            return Ok(false);
        }
        let Some(since) = pace.due(now) else { return Ok(false) };
        for sequence in flight.sent..flight.sent + count {
            if !task.plan.needs_server() {
                task.stall(sequence);
            }
            task.stamp(path, queue, sequence);
        }
        if count == 1 {
            path.post(queue, flight.next(since))?;
        } else {
            path.post_batch(queue, (0..count).map(|_| flight.next(since)))?;
        }
        Ok(true)
    }

    /// Returns whether all requests are sent and completed.
    fn is_done(&self) -> bool {
        self.flights.iter().all(|flight| flight.retired == flight.last)
    }

    /// Polls the available completions. Returns whether there were any.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn poll<P: Path>(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        record: &mut Record,
    ) -> Result<bool, Stop> {
        let mut any = false;
        for _ in 0..self.most_polled {
            let Some(event) = path.poll()? else { break };
            let (queue, sequence) = match event {
                Event::Sent { queue, sequence } => (queue, sequence),
                Event::Received(arrival) => {
                    if task.plan.direction == Direction::OneWay {
                        return Err(Stop::Told("a message that nobody asked for".into()));
                    }
                    self.intake.take(path, task, arrival)?;
                    any = true;
                    continue;
                }
            };
            let now = Clock::now();
            let flight = &mut self.flights[queue];
            if task.plan.validate && task.plan.operation.fetches() {
                for fetched in flight.retired..=sequence {
                    record.check(fetch::is_right(path, task, queue, fetched));
                }
            }
            flight.retired = sequence + 1;
            record.add(*flight.since(sequence), now);
            any = true;
        }
        Ok(any)
    }
}

impl<P: Path> Client<P> for Stream {
    fn run(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        pace: &mut Pace,
        span: Span,
        record: &mut Record,
    ) -> Result<(), Stop> {
        let queues = self.flights.len() as u64;
        for (queue, flight) in self.flights.iter_mut().enumerate() {
            let share = span.count / queues + u64::from((queue as u64) < span.count % queues);
            flight.last = flight.sent.saturating_add(share);
        }
        let mut wait = Wait::new(task, "completion");
        let mut total: u64 = self.flights.iter().map(|flight| flight.sent).sum();
        loop {
            let now = Clock::now();
            if task.is_over(now, span) {
                break;
            }
            // 1. A batch for each queue pair that has space.
            let mut any = false;
            for queue in 0..self.flights.len() {
                any |= self.post(path, task, pace, queue, now)?;
            }
            // 2. Completions.
            any |= self.poll(path, task, record)?;
            if any {
                wait.over();
                total = self.flights.iter().map(|flight| flight.sent).sum();
                task.signals.progress(task.thread, total);
                // One way, no completion comes after the last one.
                if task.plan.direction == Direction::OneWay || !self.is_done() {
                    continue;
                }
            }
            if self.is_done() {
                return Ok(());
            }
            wait.turn(path)?;
            if self.flights.iter().all(|flight| flight.outstanding() == 0) {
                // No message is due by schedule, so this does not count as time without an event.
                wait.over();
            }
        }
        self.drain(path, task, record, &mut wait)?;
        task.signals.progress(task.thread, total);
        Ok(())
    }

    fn sent(&self) -> Vec<u64> {
        self.flights.iter().map(|flight| flight.sent).collect()
    }
}
