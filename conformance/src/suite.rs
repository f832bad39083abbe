//! Runs the cases of a choice, and reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use mlx5::connect::Connection;

use crate::agent::{Agent, Place};
use crate::bench::Bench;
use crate::case::Case;
use crate::cases;
use crate::evidence::{Answer, Device, Evidence, Interview, System, Unanswered, questions};
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
        let chosen = self.chosen(cases::all(), |case| case.name);
        if chosen.is_empty() {
            return Err(format!("no case's name contains {:?}: --list shows all", self.only));
        }
        let (place, terms) = (self.place.clone(), self.terms());
        let Sides { active, mut peer, passive, reach } = self.sides()?;
        let mut rows = Vec::new();
        for case in chosen {
            let verdict = on_bench(&place, &mut peer, terms, |bench| {
                case.needs.iter().try_for_each(|need| need.check(bench))?;
                (case.run)(bench)
            });
            let row = row(case, verdict);
            each(&row);
            rows.push(row);
        }
        Ok(Report::new(active, passive, reach, rows))
    }

    /// Asks the device of the active side the questions of the ledger of evidence, as long as the time
    /// `budget` is enough. Tells `each` the name of each question, and why it has no answer if it has
    /// none.
    ///
    /// # Errors
    /// Fails if a device cannot be opened, the passive side does not answer, or no question is chosen.
    pub fn evidence(
        self,
        budget: Duration,
        mut each: impl FnMut(&str, Option<&str>),
    ) -> std::result::Result<Evidence, String> {
        let chosen = self.chosen(questions(), |question| question.name);
        if chosen.is_empty() {
            return Err(format!(
                "no question's name contains {:?}: without --only, the file names all",
                self.only
            ));
        }
        let (place, terms) = (self.place.clone(), self.terms());
        let Sides { active, mut peer, passive, reach } = self.sides()?;
        let context = place.open().map_err(|error| error.to_string())?;
        let link = context.port(place.port).map_err(|error| error.to_string())?.link_layer;
        let device = Device::of_open(&active, &context).map_err(|error| error.to_string())?;
        drop(context);
        let same_port = reach == Reach::Loopback;
        let mut interview = Interview::new(budget);
        let (mut answers, mut unanswered) = (Vec::new(), Vec::new());
        for question in chosen {
            let asked = question.applies(link, same_port).and_then(|fact| {
                if !interview.has_time(question, link) {
                    return Ok(None);
                }
                let ask = |bench: &mut Bench<'_>| question.answer(&mut interview, bench);
                let seen = on_bench(&place, &mut peer, terms, ask)?;
                Ok(Some(Answer { question: question.name, fact, seen }))
            });
            let (why, text) = match asked {
                Ok(Some(answer)) => {
                    each(question.name, None);
                    answers.push(answer);
                    continue;
                }
                Ok(None) => {
                    let seconds = question.takes(link).as_secs_f64();
                    let text = format!("not enough time is left: it takes {seconds:.1} s");
                    (Unanswered::Budget, text)
                }
                Err(stop) => (Unanswered::from(&stop), say(stop)),
            };
            each(question.name, Some(&text));
            unanswered.push((question.name, why));
        }
        let system = System::of(&active);
        let peer = passive.as_ref().map(Device::of);
        Ok(Evidence { device, peer, system, answers, unanswered })
    }

    fn terms(&self) -> Terms {
        Terms { patience: self.patience, spoiled: self.spoiled }
    }

    /// Returns those whose names contain the text of the choice.
    fn chosen<T>(
        &self,
        all: impl Iterator<Item = &'static T>,
        name: impl Fn(&T) -> &'static str,
    ) -> Vec<&'static T> {
        all.filter(|one| name(one).contains(&self.only)).collect()
    }

    /// Describes both sides, and reaches the passive one.
    fn sides(self) -> std::result::Result<Sides, String> {
        let terms = self.terms();
        let environment = |place: &Place| {
            let context = place.open().map_err(|error| error.to_string())?;
            Environment::of(&context, place.port, self.front).map_err(|error| error.to_string())
        };
        let active = environment(&self.place)?;
        let (peer, passive, reach) = match self.other {
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
        Ok(Sides { active, peer, passive, reach })
    }
}

/// Both sides of a run.
struct Sides {
    active: Environment,
    peer: Peer,
    passive: Option<Environment>,
    reach: Reach,
}

/// Returns the words of a stop.
fn say(stop: Stop) -> String {
    match stop {
        Stop::Failed(why) | Stop::NotApplicable(why) => why,
    }
}

/// Runs the active side's program with devices opened for it alone.
fn on_bench<T>(
    place: &Place,
    peer: &mut Peer,
    terms: Terms,
    program: impl FnOnce(&mut Bench<'_>) -> Verdict<T>,
) -> Verdict<T> {
    let mut bench = Bench { base: place.base(terms)?, peer };
    let ended = catch_unwind(AssertUnwindSafe(|| program(&mut bench)));
    // The next program finds nothing of this one.
    let closed = bench.peer.close();
    match ended {
        Ok(verdict) => verdict.and_then(|value| closed.map(|()| value)),
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
