//! The second part of rank 0: it gathers all ranks, has them measure, and judges.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::arguments::{Arguments, Directions};
use super::compare::{self, compare};
use super::conduct::{Conductor, Link, Progress};
use super::groups::{Spot, groups};
use super::hosts::Started;
use super::launcher::Launcher;
use super::meeting::{Meeting, Seat};
use super::odd::{odd, rising};
use super::outliers::{Outlier, Rule, beyond, bounds, confirm};
use super::report::{Measure, Rank, Report, Scheduled, changed, rails};
use super::schedule::{Pair, Pattern, Schedule};
use super::switches::Switches;
use super::text;
use super::traffic::Parsed;
use super::words::Order;
use crate::output::{counted, say};
use crate::perf::interrupt::Interrupt;

/// Least time between two lines of progress.
const BETWEEN: Duration = Duration::from_secs(2);
/// Time for frames to leave at the end.
const TO_LEAVE: Duration = Duration::from_secs(2);

/// The conduct of a run.
pub struct Lead<'a> {
    /// The options.
    pub arguments: &'a Arguments,
    /// The kinds of traffic.
    pub traffic: &'a [Parsed],
    /// The launcher.
    pub launcher: Launcher,
    /// The switches.
    pub switches: &'a Switches,
    /// The earlier run to compare with.
    pub earlier: Option<&'a Report>,
    /// Ctrl-C.
    pub interrupt: &'a Interrupt,
}

/// Lines of progress on standard error, not too many.
#[derive(Default)]
struct Told {
    last: Option<Instant>,
    text: String,
}

impl Told {
    fn say(&mut self, text: String) {
        if text != self.text && self.last.is_none_or(|last| last.elapsed() >= BETWEEN) {
            say!("{text}");
            self.last = Some(Instant::now());
            self.text = text;
        }
    }
}

/// The measured links.
struct Measured {
    schedule: Scheduled,
    links: Vec<Link>,
    bounds: Vec<super::outliers::Bound>,
    again: Vec<Link>,
    outliers: Vec<Outlier>,
    beside: Vec<Outlier>,
}

impl Lead<'_> {
    /// Conducts the run to its end. Of `started` ranks it tells which ended before they came.
    pub fn run(&self, meeting: &mut Meeting, started: &mut Started) -> Report {
        let (began, at) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH));
        let size = meeting.seats().len();
        let mut told = Told::default();
        let mut waits = |meeting: &mut Meeting| {
            let present = meeting.present();
            told.say(format!("{present} of {} are here", counted(size as u64, "rank")));
            for (rank, why) in started.ended() {
                meeting.miss(rank, &why);
            }
            // The rank of this process ends with the meeting once it has come to it.
            let is_here = meeting.seats().first().is_some_and(Seat::is_present);
            !(self.interrupt.came() && is_here)
        };
        meeting.gather(self.arguments.wait, &mut waits);
        let traffic = self.traffic.iter().map(|parsed| parsed.traffic.clone()).collect();
        meeting.order_all(&Order::Begin { traffic });
        let limits = self.arguments.limits();
        let mut conductor = Conductor::new(meeting, limits, self.interrupt);
        conductor.count(limits.silence());
        let measured = self.measure(&mut conductor);
        conductor.count(limits.silence());
        let seconds = began.elapsed().as_secs_f64();
        let strangers = meeting.strangers();
        meeting.dismiss(TO_LEAVE);
        let mut report = self.report(meeting, measured);
        report.began = at.unwrap_or_default().as_secs_f64();
        report.seconds = seconds;
        if strangers > 0 {
            report.notes.push(format!(
                "{} came to the meeting and did not know the secret, or were no rank of this run",
                counted(strangers, "connection")
            ));
        }
        report
    }

    fn measure(&self, conductor: &mut Conductor<'_>) -> Measured {
        let rails = conductor.rails();
        let schedule = Schedule::new(&self.arguments.pattern, &rails);
        let all: Vec<usize> = (0..self.traffic.len()).collect();
        let back: Vec<usize> = match self.arguments.directions {
            Directions::One => Vec::new(),
            Directions::Each => {
                all.iter().copied().filter(|kind| self.traffic[*kind].has_direction()).collect()
            }
        };
        let mut told = Told::default();
        let links = conductor.all(&schedule, &all, &back, |progress| {
            let Progress { done, all, present } = progress;
            told.say(format!("round {} of {all}, {}", done + 1, counted(*present as u64, "rank")));
        });
        let kinds: Vec<_> = self.traffic.iter().map(|parsed| parsed.traffic.kind).collect();
        let bounds = bounds(&links, &kinds, Rule { apart: self.arguments.apart });
        let suspects = beyond(&links, &kinds, &bounds);
        let again = self.again(conductor, &suspects);
        let (outliers, beside) = confirm(suspects, &again, &kinds);
        let schedule = Scheduled {
            links: schedule.links(),
            rounds: schedule.rounds(),
            optimum: schedule.optimum(),
        };
        Measured { schedule, links, bounds, again, outliers, beside }
    }

    /// Measures the suspects again, each alone, the worst first.
    fn again(&self, conductor: &mut Conductor<'_>, suspects: &[Outlier]) -> Vec<Link> {
        let mut worst: Vec<&Outlier> = suspects.iter().collect();
        worst.sort_by(|one, other| other.ratio().total_cmp(&one.ratio()));
        let mut links: Vec<Pair> = Vec::new();
        for outlier in worst {
            let link = (outlier.from, outlier.to);
            if !links.contains(&link) && links.len() < self.arguments.again {
                links.push(link);
            }
        }
        let mut told = Told::default();
        let mut again = Vec::new();
        for (at, link) in links.iter().enumerate() {
            if self.interrupt.came() {
                break;
            }
            told.say(format!("alone: link {} of {}", at + 1, links.len()));
            let of_link = suspects.iter().filter(|other| (other.from, other.to) == *link);
            let kinds: BTreeSet<usize> = of_link.map(|other| other.traffic).collect();
            let kinds: Vec<usize> = kinds.into_iter().collect();
            again.extend(conductor.round(&[(*link, &kinds)]));
        }
        again
    }

    fn report(&self, meeting: &Meeting, measured: Measured) -> Report {
        let Measured { schedule, links, bounds, again, outliers, beside } = measured;
        let seats = meeting.seats();
        let rails = rails(seats);
        let ranks: Vec<Rank> = seats
            .iter()
            .zip(&rails)
            .zip(0..)
            .map(|((seat, rail), rank)| Rank {
                rank,
                state: seat.state.clone(),
                rail: *rail,
                switch: seat.facts.as_ref().and_then(|facts| self.switches.of(facts)),
                facts: seat.facts.clone(),
                counters: changed(seat),
            })
            .collect();
        let known: Vec<_> = ranks
            .iter()
            .filter_map(|rank| Some((rank.rank, rank.rail, rank.facts.as_ref()?)))
            .collect();
        let odd = odd(&known, &self.arguments.ignore);
        let model = known.iter().any(|(_, _, facts)| facts.model);
        let rising = seats.iter().zip(0..);
        let rising = rising.flat_map(|(seat, rank)| rising_of(rank, seat)).collect();
        let groups = grouped(&ranks, &links, &outliers);
        let traffic: Vec<Measure> = self.traffic.iter().map(measure).collect();
        let apart = self.arguments.apart;
        let comparison = self.earlier.zip(self.arguments.compare.as_deref());
        let comparison =
            comparison.map(|(old, file)| compare(file, old, (&traffic, &ranks), &links, apart));
        let mut notes = vec![text::rule(apart, &traffic)];
        if model {
            notes.push(
                "on the model, a software ConnectX: times say nothing of a device".to_owned(),
            );
        }
        if schedule.links == 0 {
            let pattern = pattern(&self.arguments.pattern);
            notes.push(format!("nothing was measured: {pattern} is no link among these ranks"));
        }
        let interrupted = self.interrupt.came();
        if interrupted {
            let pairs: BTreeSet<Pair> =
                links.iter().map(|link| (link.from.min(link.to), link.from.max(link.to))).collect();
            notes.push(format!(
                "ended by Ctrl-C: {} of {} were measured",
                pairs.len(),
                counted(schedule.links as u64, "link")
            ));
        }
        Report {
            command: std::env::args().collect(),
            began: 0.0,
            seconds: 0.0,
            launcher: self.launcher,
            pattern: pattern(&self.arguments.pattern),
            schedule,
            model,
            interrupted,
            traffic,
            ranks,
            odd,
            rising,
            links,
            bounds,
            again,
            outliers,
            beside,
            groups,
            comparison,
            notes,
        }
    }
}

fn rising_of(rank: u32, seat: &Seat) -> Vec<super::odd::Rising> {
    rising(rank, &seat.readings)
}

fn measure(parsed: &Parsed) -> Measure {
    let traffic = parsed.traffic.clone();
    Measure { name: parsed.name(), unit: super::figures::unit(traffic.kind).to_owned(), traffic }
}

/// Groups the links that are bad for a reason of their own: not those of a rank that is lost.
fn grouped(ranks: &[Rank], links: &[Link], outliers: &[Outlier]) -> Vec<super::groups::Group> {
    let spots: Vec<Spot> = ranks.iter().map(Rank::spot).collect();
    let is_good = |rank: u32| ranks[rank as usize].is_good();
    let failed = links
        .iter()
        .filter(|link| link.error.is_some() && is_good(link.from) && is_good(link.to))
        .map(|link| (link.from, link.to));
    let slow = outliers.iter().map(|outlier| (outlier.from, outlier.to));
    groups(&spots, links.iter().map(|link| (link.from, link.to)), failed.chain(slow))
}

fn pattern(pattern: &Pattern) -> String {
    match pattern {
        Pattern::AllPairs => "all pairs".to_owned(),
        Pattern::Ring => "ring".to_owned(),
        Pattern::Bisection => "bisection".to_owned(),
        Pattern::Rails => "rail by rail".to_owned(),
        Pattern::OneToMany(rank) => format!("rank {rank} to all others"),
        Pattern::Pairs(_) => "chosen pairs".to_owned(),
    }
}

/// Checks the options that rank 0 alone uses, before anything takes long.
pub fn earlier(arguments: &Arguments) -> crate::outcome::Result<Option<Report>> {
    arguments.compare.as_deref().map(compare::read).transpose()
}
