//! Waiting, and the signals between threads.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Served, Task};
use crate::perf::interrupt::Interrupt;
use crate::perf::path::{Path, Stop};
use crate::perf::plan::Waiting;

/// Longest time without an event at the client.
const SILENCE: Duration = Duration::from_secs(10);

/// Longest sleep for an event of the CQ, before limit and signals are checked.
const LOOK: Duration = Duration::from_millis(10);

/// The signals between the threads of a side and their supervisor.
#[derive(Debug)]
pub struct Signals {
    abandoned: AtomicBool,
    /// Has the client's threads begin no more messages.
    interrupt: Interrupt,
    /// Threads that are ready to begin.
    ready: AtomicU64,
    /// Per thread: messages that the client sent, once that is known.
    expected: Vec<AtomicU64>,
    /// Per thread: messages so far.
    progress: Vec<Counted>,
    /// Per thread: messages sent on each queue pair, once it has sent all.
    sent: Mutex<Vec<Option<Vec<u64>>>>,
}

/// A counter on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counted(AtomicU64);

impl Signals {
    /// Creates the signals of `threads` threads.
    #[must_use]
    pub fn new(threads: usize, interrupt: Interrupt) -> Signals {
        Signals {
            abandoned: AtomicBool::new(false),
            interrupt,
            ready: AtomicU64::new(0),
            expected: (0..threads).map(|_| AtomicU64::new(u64::MAX)).collect(),
            progress: (0..threads).map(|_| Counted::default()).collect(),
            sent: Mutex::new(vec![None; threads]),
        }
    }

    /// Makes all threads stop at their next check.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns whether the threads must stop.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Returns whether the measurement ends early: threads begin no more messages.
    #[inline(always)]
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.came()
    }

    /// Has threads begin no more messages.
    pub fn end(&self) {
        self.interrupt.end();
    }

    /// Reports the messages of a thread that has sent all of them.
    pub(super) fn report(&self, thread: usize, sent: &[u64]) {
        let mut all = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        all[thread] = Some(sent.to_vec());
    }

    /// Returns the messages of all threads, once each has sent all of them.
    #[must_use]
    pub fn reports(&self) -> Option<Vec<Vec<u64>>> {
        let all = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().cloned().collect()
    }

    /// Sets the number of messages of a thread.
    pub fn expect(&self, thread: usize, messages: u64) {
        self.expected[thread].store(messages, Ordering::Relaxed);
    }

    /// Returns the number of messages of a thread; `u64::MAX` while it is not known.
    #[must_use]
    pub fn expected(&self, thread: usize) -> u64 {
        self.expected[thread].load(Ordering::Relaxed)
    }

    /// Sets the number of messages that a thread has handled.
    #[inline(always)]
    pub fn progress(&self, thread: usize, messages: u64) {
        self.progress[thread].0.store(messages, Ordering::Relaxed);
    }

    /// Returns the number of messages that all threads have handled.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.progress.iter().map(|counted| counted.0.load(Ordering::Relaxed)).sum()
    }

    /// Waits until all threads have arrived.
    pub(super) fn begin(&self, task: &Task<'_>) -> Result<(), Stop> {
        self.ready.fetch_add(1, Ordering::Relaxed);
        let mut wait = Wait::patient(task, "start of the other threads");
        while self.ready.load(Ordering::Relaxed) < self.progress.len() as u64 {
            wait.once()?;
        }
        Ok(())
    }
}

/// A wait with a time limit: busy, or for events of the CQ.
pub(super) struct Wait<'a> {
    signals: &'a Signals,
    what: &'static str,
    /// Turns between two checks of limit and signals, less one.
    mask: u32,
    yields: bool,
    waiting: Waiting,
    turns: u32,
    /// The time limit; `None`: wait until a thread or the peer gives up.
    limit: Option<Duration>,
    since: Option<Instant>,
}

impl<'a> Wait<'a> {
    /// Creates a wait that ends with an event, or after a long time without one.
    pub(super) fn new(task: &Task<'a>, what: &'static str) -> Wait<'a> {
        let stall = task.plan.stall.map_or(0, |stall| stall.nanoseconds);
        let limit = Some(SILENCE + Duration::from_nanos(stall));
        Wait { limit, ..Wait::patient(task, what) }
    }

    /// Creates a wait that ends with an event, or when a thread or the peer gives up.
    pub(super) fn patient(task: &Task<'a>, what: &'static str) -> Wait<'a> {
        let mask = if task.yields { 15 } else { 1023 };
        let (signals, yields, waiting) = (task.signals, task.yields, task.plan.waiting);
        Wait { signals, what, mask, yields, waiting, turns: 0, limit: None, since: None }
    }

    /// Waits for a turn after a poll that found nothing: by the plan, for an event of the CQ, or not
    /// at all. Returns whether this turn checked limit and signals.
    #[inline(always)]
    pub(super) fn turn<P: Path>(&mut self, path: &mut P) -> Result<bool, Stop> {
        match self.waiting {
            Waiting::Polling => self.once(),
            Waiting::Events => {
                path.sleep(LOOK)?;
                self.look()?;
                Ok(true)
            }
        }
    }

    /// Counts a turn without an event. Returns whether this turn checked limit and signals, which
    /// few turns do.
    #[inline(always)]
    pub(super) fn once(&mut self) -> Result<bool, Stop> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns & self.mask != 0 {
            hint::spin_loop();
            return Ok(false);
        }
        self.look()?;
        Ok(true)
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self) -> Result<(), Stop> {
        if self.signals.is_abandoned() {
            return Err(Stop::Abandoned);
        }
        if let Some(limit) = self.limit {
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() > limit {
                return Err(Stop::Silent(self.what, limit));
            }
        }
        if self.yields {
            thread::yield_now();
        }
        Ok(())
    }

    /// Returns whether nothing more is to be waited for but what is under way.
    pub(super) fn is_interrupted(&self) -> bool {
        self.signals.is_interrupted()
    }

    /// Restarts the limit after an event.
    #[inline(always)]
    pub(super) fn over(&mut self) {
        self.since = None;
    }
}

/// Waits until the client is done: only this side's memory takes part.
pub(super) fn stay(task: &Task<'_>) -> Result<Served, Stop> {
    while task.signals.expected(task.thread) == u64::MAX {
        if task.signals.is_abandoned() {
            return Err(Stop::Abandoned);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(Served::default())
}
