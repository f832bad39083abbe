//! The client's lines to the server while messages flow, and the server's last one.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::outcome::{Error, Result};
use crate::perf::loops::exchange::Part;
use crate::perf::loops::{Measured, Record, Runner, Signals, Task};
use crate::perf::plan::Plan;
use crate::perf::progress::Progress;
use crate::perf::session::{self, Account, GOING, Say, Session};
use crate::perf::station::threads::Crew;

/// How long a line of the server's is waited for, before the threads are looked at again.
const TURN: Duration = Duration::from_millis(10);

/// The same where both sides send: the server sends until it is told the end, so that the end is
/// told at once.
const SHORT_TURN: Duration = Duration::from_millis(1);

/// The exchange of one point.
pub struct Talk<'a> {
    session: &'a mut Session,
    plan: &'a Plan,
    signals: &'a Signals,
    /// The time of the last report that messages flow.
    told: Instant,
    /// The end, once it is told.
    end: Option<End>,
}

/// The end of a point where both sides send.
#[derive(Debug)]
enum End {
    /// The server was told at this time that this side has sent all its messages.
    Told(Instant),
    /// The server said what it saw and sent. The rest of that arrives.
    Answered(Account, Lately),
}

/// The time at which messages were last seen to flow.
#[derive(Debug)]
pub struct Lately {
    since: Instant,
    noticed: u64,
}

impl Lately {
    /// Says that they flow, with this count.
    #[must_use]
    pub fn now(count: u64) -> Lately {
        Lately { since: Instant::now(), noticed: count }
    }

    /// Looks at the count: they flow if it is another one.
    pub fn notice(&mut self, count: u64) {
        if count != self.noticed {
            *self = Lately::now(count);
        }
    }

    /// Returns for how long they have not been seen to flow.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

/// The error for messages that the other side counted, and that do not come.
#[must_use]
pub fn boasted(came: u64, patience: Duration) -> Error {
    Error::Told(format!(
        "the peer says that it sent more than the {came} messages that came, and none came within \
         {patience:?}"
    ))
}

/// Returns the other side's numbers of messages of that thread.
pub fn of_thread(sent: &Mutex<Vec<Vec<u64>>>, task: &Task<'_>) -> Vec<u64> {
    let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    sent.get(task.thread).cloned().unwrap_or_default()
}

impl<'a> Talk<'a> {
    /// Creates the exchange of a point.
    pub fn new(session: &'a mut Session, plan: &'a Plan, signals: &'a Signals) -> Talk<'a> {
        Talk { session, plan, signals, told: Instant::now(), end: None }
    }

    /// Has the threads send, while the server receives.
    ///
    /// # Errors
    /// Fails if a thread or the server does.
    pub fn one_way(
        mut self,
        crew: &Crew<'_>,
        paths: &mut [Box<dyn Runner>],
        progress: &Progress,
        samples: usize,
    ) -> Result<(Vec<Measured>, Account)> {
        let plan = self.plan;
        let work =
            |path: &mut dyn Runner, task: &Task<'_>| path.measure(task, Record::new(plan, samples));
        let threads = crew.run(paths, work, || {
            progress.show(self.signals.done());
            self.while_sending()
        })?;
        let sent = threads.iter().map(|thread| thread.sent.clone()).collect();
        self.session.tell(&Say::Finish { sent })?;
        let account = session::account(self.session.hear("account")?, plan)?;
        Ok((threads, account))
    }

    /// Has the threads send and receive, while the server does, too.
    ///
    /// # Errors
    /// Fails if a thread or the server does.
    pub fn both_ways(
        mut self,
        crew: &Crew<'_>,
        paths: &mut [Box<dyn Runner>],
        progress: &Progress,
        samples: usize,
    ) -> Result<(Vec<Measured>, Account)> {
        let (plan, sent) = (self.plan, Mutex::new(Vec::new()));
        let work = |path: &mut dyn Runner, task: &Task<'_>| {
            let record = Record::new(plan, samples);
            path.both(task, record, Part::Leads, &|| of_thread(&sent, task))
        };
        // The server begins with this line.
        self.session.going()?;
        let threads = crew.run(paths, work, || {
            progress.show(self.signals.done());
            self.while_both_send(&sent)
        })?;
        match self.end {
            Some(End::Answered(account, _)) => Ok((threads, account)),
            _ => Err(self.session.silent("account")),
        }
    }

    /// Reports now and then that messages flow.
    fn report(&mut self) -> Result<()> {
        if self.told.elapsed() >= GOING {
            self.session.going()?;
            self.told = Instant::now();
        }
        Ok(())
    }

    /// One turn while this side sends: the server has nothing to say.
    ///
    /// # Errors
    /// Fails if the server gave up or is gone.
    fn while_sending(&mut self) -> Result<()> {
        self.report()?;
        match self.session.hear_within(TURN)? {
            None => Ok(()),
            Some(other) => Err(session::unexpected(&other, "nothing")),
        }
    }

    /// One turn where both sides send. After this side's last message, tells the server to end; and
    /// tells the threads what the server sent.
    ///
    /// # Errors
    /// Fails if the server gave up, is gone or silent, or tells what cannot be.
    fn while_both_send(&mut self, theirs: &Mutex<Vec<Vec<u64>>>) -> Result<()> {
        let (came, patience) = (self.signals.done(), self.session.patience());
        match (&mut self.end, self.signals.reports()) {
            (None, Some(sent)) => {
                self.session.tell(&Say::Finish { sent })?;
                self.end = Some(End::Told(Instant::now()));
            }
            (None, None) => self.report()?,
            (Some(End::Told(since)), _) if since.elapsed() > patience => {
                return Err(self.session.silent("account"));
            }
            (Some(End::Told(_)), _) => {}
            (Some(End::Answered(_, lately)), _) => {
                lately.notice(came);
                if lately.elapsed() > patience {
                    return Err(boasted(came, patience));
                }
            }
        }
        let Some(said) = self.session.hear_within(SHORT_TURN)? else { return Ok(()) };
        let Some(End::Told(_)) = self.end else {
            return Err(session::unexpected(&said, "nothing"));
        };
        let account = session::account(said, self.plan)?;
        if let Some(back) = &account.back {
            *theirs.lock().unwrap_or_else(PoisonError::into_inner) = back.sent.clone();
            for (thread, queues) in back.sent.iter().enumerate() {
                self.signals.expect(thread, queues.iter().sum());
            }
        }
        self.end = Some(End::Answered(account, Lately::now(came)));
        Ok(())
    }
}
