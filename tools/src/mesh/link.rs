//! One link: a measurement of `mlx5 perf` between two ranks.

use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::door::{Door, Errand, knock};
use super::facts::Facts;
use super::figures::Figures;
use super::secret::Key;
use super::traffic::Parsed;
use crate::outcome::{Error, Result};
use crate::output::Output;
use crate::perf::client;
use crate::perf::interrupt::Interrupt;
use crate::perf::peer::Peer;
use crate::perf::result::environment::Environment;
use crate::perf::server;
use crate::perf::session::Session;
use crate::perf::station::Side;

/// Time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a process may be silent in one step.
    pub patience: Duration,
    /// How long one kind of traffic of a link may flow.
    pub link: Duration,
}

impl Limits {
    /// Returns the time between two signs of life.
    #[must_use]
    pub fn beat(&self) -> Duration {
        (self.patience / 5).max(Duration::from_millis(50))
    }

    /// Returns how long a process may give no sign of life.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.patience * 3 / 2
    }

    /// Returns how long a link with so many kinds of traffic may take in all.
    #[must_use]
    pub fn whole(&self, kinds: usize) -> Duration {
        self.patience * 4 + (self.link + self.patience * 2) * kinds as u32
    }
}

/// The means of a rank to measure.
pub struct Station {
    facts: Facts,
    side: Option<Side>,
    cpus: Vec<usize>,
    limits: Limits,
    /// For programs, so that no bar of progress is shown.
    output: Output,
    began: Instant,
}

impl Station {
    /// Creates the station of a rank. Without a side it has facts alone.
    #[must_use]
    pub fn new(
        facts: Facts,
        side: Option<Side>,
        cpus: Vec<usize>,
        limits: Limits,
        output: Output,
    ) -> Station {
        Station { facts, side, cpus, limits, output, began: Instant::now() }
    }

    /// Returns what is known of the rank.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the side that measures, if there is one.
    #[must_use]
    pub fn side(&self) -> Option<&Side> {
        self.side.as_ref()
    }

    /// Returns the seconds since the rank began.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn sided(&self) -> Result<&Side> {
        self.side.as_ref().ok_or_else(|| {
            let why = self.facts.obstacle.as_deref().unwrap_or("the rank has no device");
            Error::Told(why.to_owned())
        })
    }

    /// Measures these kinds of traffic with the rank that listens there.
    ///
    /// # Errors
    /// Returns why a kind could not be measured.
    pub fn measure(
        &self,
        traffic: &[Parsed],
        kinds: &[usize],
        to: SocketAddr,
        secret: &Key,
        errand: Errand,
    ) -> Result<Vec<Figures>> {
        let side = self.sided()?;
        let deadline = Instant::now() + self.limits.patience;
        let (tcp, _) = knock(&[to], secret, errand, deadline).map_err(Error::Told)?;
        let mut peer = Peer::Ours(Session::new(tcp, to, self.limits.patience)?);
        peer.greet(&Environment::of(&side.context, side.port.attributes().port)?)?;
        let mut figures = Vec::with_capacity(kinds.len());
        for &kind in kinds {
            let parsed = traffic.get(kind).ok_or_else(|| {
                Error::Told(format!("traffic {kind} was not told: use the same build on all ranks"))
            })?;
            let link = self.limited(|interrupt| {
                let Parsed { arguments, plan, .. } = parsed;
                client::link(&mut peer, side, &self.cpus, arguments, plan, &self.output, interrupt)
            })?;
            if link.point.messages == 0 {
                let limit = self.limits.link;
                return Err(Error::Told(format!(
                    "no message came through within {limit:?} (--link-limit)"
                )));
            }
            let limits = parsed.arguments.compare(std::slice::from_ref(&link.point));
            figures.push(Figures::of(kind, &link, &limits));
        }
        Ok(figures)
    }

    /// Ends a measurement after the time of a link.
    fn limited<T>(&self, measure: impl FnOnce(&Interrupt) -> Result<T>) -> Result<T> {
        let interrupt = Interrupt::default();
        let (done, is_done) = channel::<()>();
        thread::scope(|scope| {
            let (ending, time) = (interrupt.clone(), self.limits.link);
            scope.spawn(move || {
                if is_done.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                    ending.end();
                }
            });
            let measured = measure(&interrupt);
            drop(done);
            measured
        })
    }

    /// Serves the measurement of a rank.
    ///
    /// # Errors
    /// Returns why it was not measured to its end.
    pub fn serve(&self, door: &mut Door, errand: Errand) -> Result<()> {
        let deadline = Instant::now() + self.limits.patience * 2;
        let guest = door
            .wait(errand, deadline)
            .ok_or_else(|| Error::Told(format!("rank {} did not connect", errand.rank)))?;
        // An error is told to the client at once, in place of a connection that nobody serves.
        let cannot = |error: std::io::Error| Error::Told(format!("a connection broke: {error}"));
        guest.tcp.set_nonblocking(false).map_err(cannot)?;
        let mut session = Session::new(guest.tcp, guest.peer, self.limits.patience)?;
        server::serve_link(&mut session, door.address(), self.sided()?, &self.cpus)
    }
}
