//! The server's look at its client while messages flow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mlx5::timing::Clock;

use crate::outcome::Result;
use crate::perf::loops::exchange::Part;
use crate::perf::loops::{self, Measured, Record, Runner, Signals};
use crate::perf::plan::{Operation, Plan};
use crate::perf::result::distribution::{Distribution, Latency, Timed};
use crate::perf::session::{self, Back, Say, Session};
use crate::perf::station::threads::Crew;
use crate::perf::talk::{Lately, boasted, of_thread};

/// The percentiles of the times between packets.
const GAPS: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// The messages of one point, over all threads.
pub struct Served {
    /// Messages that arrived, where they are noticed.
    pub received: u64,
    /// Messages whose content was wrong.
    pub wrong: u64,
    /// The messages that this side sent itself, if both send.
    pub back: Option<Back>,
    /// The times between packets, where the HCA's clock shows them.
    pub gaps: Option<Latency>,
}

impl Served {
    fn of(threads: &[loops::Served]) -> Served {
        let received = threads.iter().map(|thread| thread.received).sum();
        let wrong = threads.iter().map(|thread| thread.wrong).sum();
        let mut gaps = Distribution::new();
        threads.iter().filter_map(|thread| thread.gaps.as_ref()).for_each(|one| gaps.add(one));
        Served { received, wrong, back: None, gaps: gaps.latency(Timed::Arrivals, &GAPS) }
    }

    fn of_both_ways(threads: &[Measured]) -> Served {
        let (began, ended) = loops::span(threads);
        let back = Back {
            messages: threads.iter().map(|thread| thread.messages).sum(),
            nanoseconds: Clock::get().nanoseconds(ended - began) as u64,
            sent: threads.iter().map(|thread| thread.sent.clone()).collect(),
        };
        let received = threads.iter().map(|thread| thread.received).sum();
        let wrong = threads.iter().map(|thread| thread.wrong).sum();
        Served { received, wrong, back: Some(back), gaps: None }
    }
}

/// The server's look at its client while messages flow.
pub struct Watch<'a> {
    session: &'a mut Session,
    plan: &'a Plan,
    signals: &'a Signals,
    /// Messages that the client sent, by thread and queue pair, once it said so.
    sent: Arc<Mutex<Vec<Vec<u64>>>>,
    finished: bool,
    /// The time of the client's last line or, after it was done, of its last message.
    lately: Lately,
}

impl<'a> Watch<'a> {
    /// Creates the look at a client.
    pub fn new(session: &'a mut Session, plan: &'a Plan, signals: &'a Signals) -> Watch<'a> {
        let (sent, lately) = (Arc::default(), Lately::now(0));
        Watch { session, plan, signals, sent, finished: false, lately }
    }

    /// Has the threads receive or answer until the client is done.
    ///
    /// # Errors
    /// Fails if a thread or the client does.
    pub fn one_way(mut self, crew: &Crew<'_>, paths: &mut [Box<dyn Runner>]) -> Result<Served> {
        let (plan, sent) = (self.plan, Arc::clone(&self.sent));
        let work = |path: &mut dyn Runner, task: &loops::Task<'_>| {
            let mut served = path.serve(task)?;
            if plan.validate && plan.operation == Operation::Write && !plan.is_echoed() {
                served.wrong += path.look_at_writes(task, &of_thread(&sent, task));
            }
            Ok(served)
        };
        Ok(Served::of(&crew.run(paths, work, || self.turn())?))
    }

    /// Has the threads send and receive until the client is done.
    ///
    /// # Errors
    /// Fails if a thread or the client does.
    pub fn both_ways(mut self, crew: &Crew<'_>, paths: &mut [Box<dyn Runner>]) -> Result<Served> {
        match self.session.hear("sign that it sends")? {
            Say::Going {} => {}
            other => return Err(session::unexpected(&other, "that it sends")),
        }
        let (plan, sent) = (self.plan, Arc::clone(&self.sent));
        let work = |path: &mut dyn Runner, task: &loops::Task<'_>| {
            let record = Record::new(plan, 0);
            path.both(task, record, Part::Follows, &|| of_thread(&sent, task))
        };
        Ok(Served::of_both_ways(&crew.run(paths, work, || self.turn())?))
    }

    /// Hears the client, and gives it up if it is silent too long.
    fn turn(&mut self) -> Result<()> {
        let said = self.session.hear_within(Duration::from_millis(10))?;
        let now = self.signals.done();
        if said.is_some() {
            self.lately = Lately::now(now);
        } else if self.finished {
            self.lately.notice(now);
        }
        // A requested stall is this side's.
        let stall = self.plan.stall.map_or(0, |stall| stall.nanoseconds);
        if self.lately.elapsed() > self.session.patience() + Duration::from_nanos(stall) {
            return Err(match self.finished {
                false => self.session.silent("sign of life"),
                true => boasted(now, self.session.patience()),
            });
        }
        match said {
            None => Ok(()),
            Some(Say::Going {}) if !self.finished => Ok(()),
            Some(Say::Finish { sent }) if !self.finished && session::fits(&sent, self.plan) => {
                self.finished = true;
                *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = sent.clone();
                for (thread, queues) in sent.iter().enumerate() {
                    self.signals.expect(thread, queues.iter().sum());
                }
                // Where both sides send.
                self.signals.end();
                Ok(())
            }
            Some(other) => Err(session::unexpected(&other, "the end")),
        }
    }
}
