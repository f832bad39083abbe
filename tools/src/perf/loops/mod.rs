//! The measurement loops, one per file, generic over the [`Path`].
//!
//! Loops of the client: [`ping`] sends a message and waits for the answer. [`glance`] does the same
//! with WRITEs, whose arrival is seen in memory. [`fetch`] waits for the data that it fetches.
//! [`stream`] keeps many requests outstanding. Loops of the server: [`pong`] and [`glance`] answer,
//! [`sink`] only receives. [`exchange`] is the loop of both sides where both send. A [`pace`]
//! decides when the next message is sent, a [`record`] stores times, and [`wait`] does all waiting.
//!
//! A running loop allocates nothing. It enters the kernel only to yield where cores are few, to
//! wait for requested events, and to sleep for a requested stall.

pub mod exchange;
mod fetch;
mod glance;
mod pace;
mod ping;
mod pong;
mod record;
mod sink;
mod stream;
mod wait;

use std::time::Duration;

use mlx5::timing::Clock;

pub use record::{Record, SLOWEST};
pub use wait::Signals;

use super::path::{Arrival, Path, Stop};
use super::plan::{Amount, Carrier, Layout, Operation, Plan};
use super::result::distribution::Distribution;
use super::result::{Cpu, Kind, Phase};
use super::station::memory::Memory;
use exchange::Part;
use pace::{Open, Pace};

/// The task of a thread.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The signals between threads.
    pub signals: &'a Signals,
    /// Which thread this is, from 0.
    pub thread: usize,
    /// Whether a waiting thread yields its core, because cores are few.
    pub yields: bool,
}

/// The end of a loop.
#[derive(Clone, Copy)]
struct Span {
    /// A number of messages.
    count: u64,
    /// The tick after which no message is begun.
    end: u64,
}

/// The measurements of a client's thread.
#[derive(Debug)]
pub struct Measured {
    /// Times.
    pub record: Record,
    /// From the first tick to the last.
    pub ticks: u64,
    /// The first tick.
    pub began: u64,
    /// Messages that were measured.
    pub messages: u64,
    /// Messages that were sent on each queue pair, warming up included.
    pub sent: Vec<u64>,
    /// Messages whose content was wrong.
    pub wrong: u64,
    /// Messages of the other side that arrived, where both send and arrivals are noticed.
    pub received: u64,
    /// Events of the CQ that ended a sleep, where the plan waits for them; warming up included.
    pub events: Option<u64>,
    /// The time per phase of posts and polls.
    pub phases: Vec<Phase>,
    /// The cost of calls, if they are stamped.
    pub cpu: Option<Cpu>,
}

/// The counts of a server's thread.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Messages that arrived, where arrivals are noticed.
    pub received: u64,
    /// Messages whose content was wrong.
    pub wrong: u64,
    /// The times between the packets of each queue pair, by the HCA's clock, after those of the warm-up.
    pub gaps: Option<Box<Distribution>>,
}

/// A client's loop.
trait Client<P: Path> {
    /// Runs to the given end.
    fn run(
        &mut self,
        path: &mut P,
        task: &Task<'_>,
        pace: &mut Pace,
        span: Span,
        record: &mut Record,
    ) -> Result<(), Stop>;

    /// Returns the messages sent on each queue pair.
    fn sent(&self) -> Vec<u64>;
}

/// A path with the loops that are compiled for it. A call per loop is dynamic, and none per message.
pub trait Runner: Send {
    /// Runs a client's thread, from its first receive to its last completion.
    ///
    /// # Errors
    /// [`Stop`].
    fn measure(&mut self, task: &Task<'_>, record: Record) -> Result<Measured, Stop>;

    /// Runs a server's thread, which answers or receives until all messages of the client have
    /// arrived.
    ///
    /// # Errors
    /// [`Stop`].
    fn serve(&mut self, task: &Task<'_>) -> Result<Served, Stop>;

    /// Runs a thread of either side where both send. `sent` returns the other side's numbers of
    /// messages, once [`Signals::expect`] was called.
    ///
    /// # Errors
    /// [`Stop`].
    fn both(
        &mut self,
        task: &Task<'_>,
        record: Record,
        part: Part,
        sent: &dyn Fn() -> Vec<u64>,
    ) -> Result<Measured, Stop>;

    /// Checks the memory that WRITEs filled, after the last one: the newest message of each slot.
    fn look_at_writes(&mut self, task: &Task<'_>, sent: &[u64]) -> u64;

    /// Prepares the data required before the first message.
    ///
    /// # Errors
    /// [`Stop`].
    fn prepare(&mut self, plan: &Plan) -> Result<(), Stop>;
}

impl<P: Path> Runner for P {
    fn measure(&mut self, task: &Task<'_>, record: Record) -> Result<Measured, Stop> {
        measure(self, task, record)
    }

    fn serve(&mut self, task: &Task<'_>) -> Result<Served, Stop> {
        match (task.plan.is_echoed(), task.plan.operation) {
            (true, Operation::Write) => glance::answer(self, task),
            (true, _) => pong::answer(self, task),
            (false, operation) if operation.takes_receives() => sink::take(self, task),
            (false, _) => wait::stay(task),
        }
    }

    fn both(
        &mut self,
        task: &Task<'_>,
        record: Record,
        part: Part,
        sent: &dyn Fn() -> Vec<u64>,
    ) -> Result<Measured, Stop> {
        exchange::both(self, task, record, part, sent)
    }

    fn look_at_writes(&mut self, task: &Task<'_>, sent: &[u64]) -> u64 {
        let queues = self.queues();
        look_at_writes(self.memory(), queues, task, sent)
    }

    fn prepare(&mut self, plan: &Plan) -> Result<(), Stop> {
        if plan.operation.takes_receives() {
            post_receives(self, plan)?;
        }
        if plan.operation == Operation::Read {
            let queues = self.queues();
            self.memory().fill_target(queues, plan.corrupt_at);
        }
        Ok(())
    }
}

fn measure<P: Path>(path: &mut P, task: &Task<'_>, record: Record) -> Result<Measured, Stop> {
    let plan = task.plan;
    if plan.is_echoed() && plan.operation.takes_receives() {
        post_receives(path, plan)?;
    }
    let amount = Some(plan.amount);
    match (plan.kind, plan.operation) {
        (Kind::Lat, Operation::Send | Operation::WriteImm) => {
            measure_by(path, task, record, &mut ping::Ping::new(plan), amount)
        }
        (Kind::Lat, Operation::Write) => {
            measure_by(path, task, record, &mut glance::Glance::new(plan), amount)
        }
        (Kind::Lat, _) => measure_by(path, task, record, &mut fetch::Fetch::default(), amount),
        (Kind::Bw | Kind::Rate, _) => {
            let mut stream = stream::Stream::new(path.queues(), plan);
            measure_by(path, task, record, &mut stream, amount)
        }
    }
}

/// Runs a client's loop: warming up, then the amount, or without one until it is interrupted.
fn measure_by<P: Path>(
    path: &mut P,
    task: &Task<'_>,
    mut record: Record,
    client: &mut dyn Client<P>,
    amount: Option<Amount>,
) -> Result<Measured, Stop> {
    let plan = task.plan;
    let warm_up = Span { count: plan.warm_up, end: u64::MAX };
    client.run(path, task, &mut Pace::Closed, warm_up, &mut record)?;
    record.clear();
    path.clear_phases();
    // All threads begin together.
    task.signals.begin(task)?;

    let before: u64 = client.sent().iter().sum();
    let clock = Clock::get();
    let began = Clock::now();
    let span = match amount {
        None => Span { count: u64::MAX, end: u64::MAX },
        Some(Amount::Messages(count)) => Span { count, end: u64::MAX },
        Some(Amount::Nanoseconds(time)) => {
            Span { count: u64::MAX, end: began.saturating_add(clock.ticks_of(time as f64)) }
        }
    };
    let mut pace = match &plan.schedule {
        None => Pace::Closed,
        Some(schedule) => Pace::Open(Open::new(schedule, plan.threads, task.thread, began)),
    };
    client.run(path, task, &mut pace, span, &mut record)?;
    let sent = client.sent();
    Ok(Measured {
        ticks: record.last().saturating_sub(began),
        began,
        messages: sent.iter().sum::<u64>() - before,
        sent,
        wrong: record.wrong(),
        received: 0,
        events: path.events(),
        phases: path.phases(),
        cpu: path.cpu(),
        record,
    })
}

/// Returns the first and the last tick of all threads.
#[must_use]
pub fn span(threads: &[Measured]) -> (u64, u64) {
    let began = threads.iter().map(|thread| thread.began).min().unwrap_or(0);
    let ended = threads.iter().map(|thread| thread.began + thread.ticks).max().unwrap_or(0);
    (began, ended)
}

/// Returns how many of the newest messages of each slot are wrong.
fn look_at_writes(memory: &mut Memory, queues: usize, task: &Task<'_>, sent: &[u64]) -> u64 {
    let slots = memory.layout().target;
    let mut wrong = 0;
    for (queue, &sent) in sent.iter().enumerate().take(queues) {
        for sequence in sent.saturating_sub(slots)..sent {
            wrong += u64::from(!memory.is_right(queue, sequence, 0, sequence, false));
        }
    }
    task.signals.progress(task.thread, sent.iter().sum());
    wrong
}

/// Posts as many receives as fit.
fn post_receives<P: Path>(path: &mut P, plan: &Plan) -> Result<(), Stop> {
    for queue in 0..path.queues() {
        for slot in 0..u64::from(plan.receives()) {
            path.receive(queue, slot)?;
        }
    }
    Ok(())
}

impl Task<'_> {
    /// Returns whether a message that is timed from this tick is not begun any more.
    #[inline(always)]
    fn is_over(&self, since: u64, span: Span) -> bool {
        since >= span.end || self.signals.is_interrupted()
    }

    /// Pauses, if a stall is requested before this message.
    #[inline(always)]
    fn stall(&self, sequence: u64) {
        if let Some(stall) = &self.plan.stall {
            if sequence == stall.at + self.plan.warm_up {
                std::thread::sleep(Duration::from_nanos(stall.nanoseconds));
            }
        }
    }

    /// Returns where a message lies for which a receive completed: queue pair, slot, and the offset
    /// in the slot.
    #[inline(always)]
    fn landed(&self, arrival: Arrival, sequence: u64) -> (usize, u64, usize) {
        let Arrival { queue, from, slot, .. } = arrival;
        match (self.plan.operation, self.plan.carrier) {
            (Operation::WriteImm, _) => (from, sequence, 0),
            (_, Carrier::Ud) => (queue, slot, Layout::GRH),
            (_, Carrier::Raw) => (queue, slot, Layout::FRAME),
            _ => (queue, slot, 0),
        }
    }

    /// Writes a message's content, where content is checked.
    #[inline(always)]
    fn stamp<P: Path>(&self, path: &mut P, queue: usize, sequence: u64) {
        if self.plan.validate {
            self.stamp_checked(path, queue, sequence);
        } else if self.plan.polls_memory() {
            path.memory().mark(queue, sequence);
        }
    }

    #[inline(never)]
    fn stamp_checked<P: Path>(&self, path: &mut P, queue: usize, sequence: u64) {
        if self.plan.operation.fetches() {
            return;
        }
        path.memory().stamp(queue, sequence, self.plan.polls_memory());
        if self.plan.corrupt_at.is_some_and(|at| at + self.plan.warm_up == sequence) {
            path.memory().corrupt(queue, sequence);
        }
    }
}

/// Counts down to the next signaled request.
#[derive(Clone, Copy, Debug)]
struct Every {
    left: u32,
    every: u32,
}

impl Every {
    fn new(every: u32) -> Every {
        Every { left: every, every }
    }

    /// Returns whether the last request was signaled.
    fn is_fresh(&self) -> bool {
        self.left == self.every
    }

    #[inline(always)]
    fn next(&mut self) -> bool {
        self.left -= 1;
        let signaled = self.left == 0;
        if signaled {
            self.left = self.every;
        }
        signaled
    }
}
