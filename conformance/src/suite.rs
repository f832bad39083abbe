//! Runs the cases of a choice, and reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use mlx5::connect::Connection;

use crate::agent::{Agent, Place};
use crate::bench::Bench;
use crate::case::Case;
use crate::cases;
use crate::peer::Peer;
use crate::report::{Environment, Front, Reach, Report, Result, Row};
use crate::side::{Spoiled, Terms};
use crate::verdict::{Stop, Verdict, failed};

/// Place of the passive side of each case.
#[derive(Debug)]
pub enum Other {
    /// In this process, on the same port.
    Loopback,
    /// In this process, on another port, of the same device or of another.
    Port(Place),
    /// In the process at the other end of the connection, which runs [`serve`](crate::serve).
    Host(Box<Connection>),
}

/// Choice of cases, and how they run.
#[derive(Debug)]
pub struct Run {
    /// The active side's port.
    pub place: Place,
    /// The device side behind libibverbs in this process.
    pub front: Front,
    /// The passive side.
    pub other: Other,
    /// Cases whose names contain this text; all if it is empty.
    pub only: String,
    /// The longest wait for one completion or event.
    pub patience: Duration,
    /// The deliberate mistake.
    pub spoiled: Spoiled,
}

/// The longest wait for one completion or event. Cases fail long before it on any machine that is not
/// stopped.
pub const PATIENCE: Duration = Duration::from_secs(20);

impl Run {
    /// A run of all cases on one port.
    #[must_use]
    pub fn new(place: Place, front: Front, other: Other) -> Run {
        let (only, spoiled) = (String::new(), Spoiled::Nothing);
        Run { place, front, other, only, patience: PATIENCE, spoiled }
    }

    /// Runs the cases, and tells `each` how it ended.
    ///
    /// # Errors
    /// Fails if a device cannot be opened, the passive side does not answer, or no case is chosen.
    pub fn run(self, mut each: impl FnMut(&Row)) -> std::result::Result<Report, String> {
        let chosen: Vec<&Case> =
            cases::all().filter(|case| case.name.contains(&self.only)).collect();
        if chosen.is_empty() {
            return Err(format!("no case's name contains {:?}: --list shows all", self.only));
        }
        let terms = Terms { patience: self.patience, spoiled: self.spoiled };
        let say = |stop: Stop| match stop {
            Stop::Failed(why) | Stop::NotApplicable(why) => why,
        };
        let environment = |place: &Place| {
            let context = place.open().map_err(|error| error.to_string())?;
            Environment::of(&context, place.port, self.front).map_err(|error| error.to_string())
        };
        let active = environment(&self.place)?;
        let (mut peer, passive, reach) = match self.other {
            Other::Loopback => {
                let agent = Agent::new(self.place.clone(), terms, active.clone());
                (Peer::Here(Box::new(agent)), None, Reach::Loopback)
            }
            Other::Port(place) => {
                let passive = environment(&place)?;
                let agent = Agent::new(place, terms, passive.clone());
                (Peer::Here(Box::new(agent)), Some(passive), Reach::Ports)
            }
            Other::Host(connection) => {
                let mut peer = Peer::There(connection);
                let passive = peer.greet().map_err(say)?;
                (peer, Some(passive), Reach::Hosts)
            }
        };
        let mut rows = Vec::new();
        for case in chosen {
            let row = row(case, one(case, &self.place, &mut peer, terms));
            each(&row);
            rows.push(row);
        }
        Ok(Report::new(active, passive, reach, rows))
    }
}

/// Runs one case with devices opened for it alone.
fn one(case: &Case, place: &Place, peer: &mut Peer, terms: Terms) -> Verdict {
    let mut bench = Bench { base: place.base(terms)?, peer };
    for need in case.needs {
        need.check(&bench)?;
    }
    let ended = catch_unwind(AssertUnwindSafe(|| (case.run)(&mut bench)));
    // The next case finds nothing of this one.
    let closed = bench.peer.close();
    match ended {
        Ok(verdict) => verdict.and(closed),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(failed(format!("panic: {}", text.unwrap_or_default())))
        }
    }
}

fn row(case: &Case, verdict: Verdict) -> Row {
    let (result, reason) = match verdict {
        Ok(()) => (Result::Passed, None),
        Err(Stop::Failed(why)) => (Result::Failed, Some(why)),
        Err(Stop::NotApplicable(why)) => (Result::NotApplicable, Some(why)),
    };
    Row { case: case.name.to_owned(), shows: case.shows.to_owned(), result, reason }
}
