//! Conducts the measurements: round by round, each rank in one link at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::link::Limits;
use super::meeting::Meeting;
use super::report::rails;
use super::schedule::{Pair, Schedule};
use super::words::{Order, Say};
use crate::perf::interrupt::Interrupt;

/// A measured link, from the rank that measured to the one that served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The rank that measured: it sends, where one direction is measured.
    pub from: u32,
    /// The rank that served.
    pub to: u32,
    /// The figures, one per kind of traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figures>,
    /// Why it was not measured, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Link {
    /// Returns the figures of a kind of traffic.
    #[must_use]
    pub fn of(&self, traffic: usize) -> Option<&Figures> {
        self.figures.iter().find(|figures| figures.traffic == traffic)
    }
}

/// A link that is being measured.
struct Running {
    link: Pair,
    deadline: Instant,
    /// The result of the rank that measures.
    made: Option<Result<Vec<Figures>, String>>,
    /// The result of the rank that serves.
    served: Option<Result<(), String>>,
}

/// The progress of a run.
pub struct Progress {
    /// Rounds that are done.
    pub done: usize,
    /// All rounds.
    pub all: usize,
    /// Ranks that take part.
    pub present: usize,
}

/// Conducts measurements.
pub struct Conductor<'a> {
    meeting: &'a mut Meeting,
    limits: Limits,
    interrupt: &'a Interrupt,
    task: u64,
}

impl<'a> Conductor<'a> {
    /// Creates the conductor of a meeting.
    pub fn new(
        meeting: &'a mut Meeting,
        limits: Limits,
        interrupt: &'a Interrupt,
    ) -> Conductor<'a> {
        Conductor { meeting, limits, interrupt, task: 0 }
    }

    /// Returns the rail of each rank.
    #[must_use]
    pub fn rails(&self) -> Vec<u32> {
        rails(self.meeting.seats())
    }

    /// Measures all links of a schedule: all kinds of traffic from one end, and those of `back` from
    /// the other end, too. Ctrl-C ends it after a round.
    pub fn all(
        &mut self,
        schedule: &Schedule,
        traffic: &[usize],
        back: &[usize],
        mut progress: impl FnMut(&Progress),
    ) -> Vec<Link> {
        let mut links = Vec::new();
        let all = schedule.rounds();
        for round in 0..all {
            if self.interrupt.came() {
                break;
            }
            progress(&Progress { done: round, all, present: self.meeting.present() });
            let pairs = schedule.round(round);
            let there: Vec<(Pair, &[usize])> =
                pairs.iter().map(|&(from, to)| ((from, to), traffic)).collect();
            links.extend(self.round(&there));
            if !back.is_empty() {
                let turned: Vec<(Pair, &[usize])> =
                    pairs.iter().map(|&(from, to)| ((to, from), back)).collect();
                links.extend(self.round(&turned));
            }
        }
        links
    }

    /// Measures links at the same time. No rank may be in two of them.
    pub fn round(&mut self, links: &[(Pair, &[usize])]) -> Vec<Link> {
        let mut done = Vec::with_capacity(links.len());
        let mut running = BTreeMap::new();
        for &((from, to), traffic) in links {
            if let Some(why) = self.obstacle(from).or_else(|| self.obstacle(to)) {
                done.push(Link { from, to, figures: Vec::new(), error: Some(why) });
                continue;
            }
            self.task += 1;
            let task = self.task;
            let (address, port) = self.meeting.address(to);
            self.meeting.order(to, &Order::Serve { task, from });
            let traffic_of = traffic.to_vec();
            self.meeting.order(from, &Order::Measure { task, traffic: traffic_of, address, port });
            let deadline = Instant::now() + self.limits.whole(traffic.len());
            let run = Running { link: (from, to), deadline, made: None, served: None };
            running.insert(task, run);
        }
        while !running.is_empty() {
            let next = running.values().map(|run| run.deadline).min();
            let said = self.meeting.turn(next.unwrap_or_else(Instant::now));
            for (rank, say) in said {
                note(&mut running, rank, say);
            }
            self.settle(&mut running, &mut done);
        }
        done
    }

    /// Moves finished links to `done`, with those of lost or late ranks.
    fn settle(&mut self, running: &mut BTreeMap<u64, Running>, done: &mut Vec<Link>) {
        let now = Instant::now();
        for run in running.values_mut() {
            let (from, to) = run.link;
            if run.made.is_none() {
                run.made = self.gone(from, to, run.deadline, now).map(Err);
            }
            if run.served.is_none() {
                run.served = self.gone(to, from, run.deadline, now).map(Err);
            }
        }
        let over: Vec<u64> = running
            .iter()
            .filter(|(_, run)| run.made.is_some() && run.served.is_some())
            .map(|(task, _)| *task)
            .collect();
        for run in over.iter().filter_map(|task| running.remove(task)) {
            done.push(self.ended(run));
        }
    }

    /// Returns why a rank does not answer any more, if so.
    fn gone(&mut self, rank: u32, other: u32, deadline: Instant, now: Instant) -> Option<String> {
        if now > deadline && self.obstacle(rank).is_none() {
            let why = format!("it did not end a measurement with rank {other} in time: it hangs");
            self.meeting.lose(rank, why);
        }
        self.obstacle(rank)
    }

    /// Returns why nothing can be measured with a rank.
    fn obstacle(&self, rank: u32) -> Option<String> {
        let why = self.meeting.seats()[rank as usize].obstacle()?;
        Some(format!("rank {rank}: {why}"))
    }

    fn ended(&self, run: Running) -> Link {
        let (from, to) = run.link;
        let lost = self.obstacle(from).or_else(|| self.obstacle(to));
        let (figures, error) = match (run.made, run.served) {
            (Some(Ok(figures)), _) => (figures, None),
            // That a rank is lost says more than how the other one noticed it.
            (Some(Err(why)), _) if lost.is_none() => (Vec::new(), Some(why)),
            _ => (Vec::new(), Some(lost.unwrap_or_default())),
        };
        Link { from, to, figures, error }
    }

    /// Has all ranks read their counters, and waits for them for a while.
    pub fn count(&mut self, time: Duration) {
        let mut awaited: Vec<u32> = (0..self.meeting.seats().len() as u32)
            .filter(|rank| self.meeting.seats()[*rank as usize].is_present())
            .collect();
        self.meeting.order_all(&Order::Count {});
        let deadline = Instant::now() + time;
        while !awaited.is_empty() && Instant::now() < deadline {
            for (rank, say) in self.meeting.turn(deadline) {
                if matches!(say, Say::Counters { .. }) {
                    awaited.retain(|awaited| *awaited != rank);
                }
            }
            awaited.retain(|rank| self.meeting.seats()[*rank as usize].is_present());
        }
    }
}

/// Notes the end of a measurement, if a rank tells one of its own.
fn note(running: &mut BTreeMap<u64, Running>, rank: u32, say: Say) {
    let (task, result) = match say {
        Say::Measured { task, figures } => (task, Ok(Some(figures))),
        Say::Served { task } => (task, Ok(None)),
        Say::Failed { task, why } => (task, Err(why)),
        Say::Here { .. } | Say::Alive {} | Say::Counters { .. } => return,
    };
    let Some(run) = running.get_mut(&task) else { return };
    if rank == run.link.0 {
        let figures = result.map(Option::unwrap_or_default);
        run.made = Some(figures);
    } else if rank == run.link.1 {
        run.served = Some(result.map(drop));
    }
}
