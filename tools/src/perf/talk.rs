//! The client's lines to the server while messages flow, and the server's last one.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::outcome::Result;
use crate::perf::loops::{Signals, Task};
use crate::perf::plan::Plan;
use crate::perf::session::{self, Account, GOING, Say, Session};

/// How long a line of the server's is waited for, before the threads are looked at again.
const TURN: Duration = Duration::from_millis(10);

/// The same where both sides send: the server sends until it is told the end, so that the end is
/// told at once.
const SHORT_TURN: Duration = Duration::from_millis(1);

/// The exchange of one point.
pub struct Talk<'a> {
    /// The connection to the server.
    pub session: &'a mut Session,
    /// The plan.
    pub plan: &'a Plan,
    /// The signals between threads.
    pub signals: &'a Signals,
    /// The time of the last report that messages flow.
    pub told: Instant,
    /// The end, once it is told.
    pub end: Option<End>,
}

/// The end of a point where both sides send.
#[derive(Debug)]
pub enum End {
    /// The server was told at this time that this side has sent all its messages.
    Told(Instant),
    /// The server said what it saw and sent.
    Answered(Account),
}

/// Returns the other side's numbers of messages of that thread.
pub fn of_thread(sent: &Mutex<Vec<Vec<u64>>>, task: &Task<'_>) -> Vec<u64> {
    let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    sent.get(task.thread).cloned().unwrap_or_default()
}

impl Talk<'_> {
    /// Tells the server to begin, where both sides send.
    ///
    /// # Errors
    /// Fails if the server is gone.
    pub fn begin(&mut self) -> Result<()> {
        self.told = Instant::now();
        self.session.going()
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
    pub fn while_sending(&mut self) -> Result<()> {
        self.report()?;
        match self.session.hear_within(TURN)? {
            None => Ok(()),
            Some(other) => Err(session::unexpected(&other, "nothing")),
        }
    }

    /// Tells the server that all is sent, and hears what it saw.
    ///
    /// # Errors
    /// Fails if the server gave up, is gone, or tells what cannot be.
    pub fn finish(&mut self, sent: Vec<Vec<u64>>) -> Result<Account> {
        self.session.tell(&Say::Finish { sent })?;
        session::account(self.session.hear("account")?, self.plan)
    }

    /// One turn where both sides send. After this side's last message, tells the server to end; and
    /// tells the threads what the server sent.
    ///
    /// # Errors
    /// Fails if the server gave up, is gone or silent, or tells what cannot be.
    pub fn both_ways(&mut self, theirs: &Mutex<Vec<Vec<u64>>>) -> Result<()> {
        match (&self.end, self.signals.reports()) {
            (None, Some(sent)) => {
                self.session.tell(&Say::Finish { sent })?;
                self.end = Some(End::Told(Instant::now()));
            }
            (None, None) => self.report()?,
            (Some(End::Told(since)), _) if since.elapsed() > self.session.patience() => {
                return Err(self.session.silent("account"));
            }
            (Some(_), _) => {}
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
        self.end = Some(End::Answered(account));
        Ok(())
    }

    /// Returns what the server saw and sent, after all threads are done.
    ///
    /// # Errors
    /// Fails if the server did not say it.
    pub fn account(self) -> Result<Account> {
        match self.end {
            Some(End::Answered(account)) => Ok(account),
            _ => Err(self.session.silent("account")),
        }
    }
}
