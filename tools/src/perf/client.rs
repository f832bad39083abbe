//! The client's side: it decides what to measure, and computes the result.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::machine::Machine;
use crate::outcome::{Error, Outcome, Result};
use crate::output::Output;
use crate::perf::arguments::Arguments;
use crate::perf::cm::Asks;
use crate::perf::compare;
use crate::perf::interrupt::Interrupt;
use crate::perf::loops::{Measured, Signals};
use crate::perf::path::Stamping;
use crate::perf::path::request::{Requested, VisitTransport, visit_transport};
use crate::perf::peer::Peer;
use crate::perf::plan::{Amount, Plan};
use crate::perf::points::{lost, point, silent};
use crate::perf::progress::Progress;
use crate::perf::result::distribution::Latency;
use crate::perf::result::environment::Environment;
use crate::perf::result::raw::Raw;
use crate::perf::result::{Comparison, Counter, Flow, Kind, Point, Run, counted};
use crate::perf::server;
use crate::perf::session::{Account, Back, Session};
use crate::perf::station::counters::{Counters, matched};
use crate::perf::station::threads::Crew;
use crate::perf::station::{Connector, Role, Side};
use crate::perf::station::{paths, place};

/// Most single times recorded per thread, where the number of messages is not known.
const MOST_RAW: u64 = 1 << 22;

/// Most single times recorded per thread, where the number is known: 1 GiB of them.
const MOST_RAW_ASKED: u64 = 1 << 27;

/// A measurement, and the errors it found.
pub struct Found {
    /// The result.
    pub run: Run,
    /// Messages with wrong content, at either side.
    pub wrong: u64,
}

impl Found {
    /// Returns the outcome of the command.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let missed = self.run.limits.iter().any(|limit| !limit.kept);
        match (self.wrong != 0 || missed, self.run.interrupted) {
            (true, _) => Outcome::Bad,
            (false, true) => Outcome::Interrupted,
            (false, false) => Outcome::Good,
        }
    }
}

/// Measures all points of a command line.
///
/// # Errors
/// Returns what cannot be measured, and why.
pub fn measure(
    kind: Kind,
    arguments: &Arguments,
    machine: &Machine,
    output: &Output,
) -> Result<Found> {
    let plans = arguments.plans(kind)?;
    if arguments.compare {
        // A doorbell is then a store, as on a real device, and not a fault that hides the cost of
        // both ways.
        machine.watch_registers();
    }
    let mut raw = arguments.raw_samples.as_deref().map(Raw::create).transpose()?;
    machine.say_model();
    let side = arguments.local.side(machine.open()?)?;
    let cpus = arguments.local.cpus()?;
    let measured = match &arguments.host {
        Some(host) => {
            let peer = arguments.connect(host, &plans)?;
            points(arguments, &plans, &side, &cpus, peer, raw.as_mut(), output)
        }
        None => in_a_loop(arguments, &plans, &side, &cpus, raw.as_mut(), output),
    }?;
    if let Some(raw) = raw {
        raw.finish()?;
    }
    let Points { environment, peer, points, comparison, mut notes, wrong, .. } = measured;
    if environment.model {
        let profile = environment.profile.as_ref().map(|profile| format!(" ({profile})"));
        notes.insert(
            0,
            format!(
                "on the model, a software ConnectX{}: times say nothing of a device",
                profile.unwrap_or_default()
            ),
        );
    }
    if arguments.compare && !environment.optimized {
        notes.push(
            "this build has no optimizations: the direct way is slower than it is, and libmlx5 is \
             not; compare with a release build"
                .to_owned(),
        );
    }
    let interrupted = measured.interrupt.came();
    if interrupted {
        notes.push(format!(
            "ended by Ctrl-C, with {} of {} measured, the last one not to its end",
            points.len(),
            counted(plans.len() as u64 * if arguments.compare { 2 } else { 1 }, "point")
        ));
    }
    let began = points.first().map_or(Duration::ZERO, |(began, _)| *began);
    let points: Vec<Point> = points.into_iter().map(|(_, point)| point).collect();
    let run = Run {
        kind,
        command: std::env::args().collect(),
        began: began.as_secs_f64(),
        environment,
        peer: arguments.host.is_some().then_some(peer).flatten(),
        configuration: arguments.settings(&plans),
        limits: arguments.compare(&points),
        interrupted,
        points,
        comparison,
        notes,
    };
    Ok(Found { run, wrong })
}

/// All points, and the data common to them.
struct Points {
    environment: Environment,
    /// The other side's, if it tells it.
    peer: Option<Environment>,
    /// The points, each with its start since 1970.
    points: Vec<(Duration, Point)>,
    comparison: Option<Comparison>,
    notes: Vec<String>,
    wrong: u64,
    interrupt: Interrupt,
}

/// Measures with the server on a thread of this process.
fn in_a_loop(
    arguments: &Arguments,
    plans: &[Plan],
    side: &Side,
    cpus: &[usize],
    raw: Option<&mut Raw>,
    output: &Output,
) -> Result<Points> {
    let cannot = |error| Error::Told(format!("cannot listen on 127.0.0.1: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(cannot)?;
    let port = listener.local_addr().map_err(cannot)?.port();
    let other = arguments.local.side(side.context.clone())?;
    // The client's threads come first in the list.
    let split = arguments.threads().min(cpus.len());
    let others: Vec<usize> = cpus[split..].iter().chain(&cpus[..split]).copied().collect();
    thread::scope(|scope| {
        let server = scope.spawn(|| server::serve_one(&listener, &other, &others));
        let points = Session::connect("127.0.0.1", port).and_then(|session| {
            points(arguments, plans, side, cpus, Peer::Ours(session), raw, output)
        });
        let served = match server.join() {
            Ok(served) => served,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // An error at one side also ends the other side, which knows less about it.
        match (points, served) {
            (Ok(points), Ok(())) => Ok(points),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    })
}

fn points(
    arguments: &Arguments,
    plans: &[Plan],
    side: &Side,
    cpus: &[usize],
    mut peer: Peer,
    mut raw: Option<&mut Raw>,
    output: &Output,
) -> Result<Points> {
    if let (true, [first, ..]) = (cpus.len() == 1, cpus) {
        // The environment records where the threads run.
        place::pin(&[*first])?;
    }
    let environment = Environment::of(&side.context, side.port.attributes().port)?;
    let theirs = peer.greet(&environment)?;
    let first = Instant::now();
    let mut all = Points {
        environment,
        peer: theirs,
        points: Vec::new(),
        comparison: None,
        notes: peer.notes(),
        wrong: 0,
        interrupt: Interrupt::catch()?,
    };
    for plan in plans {
        if all.interrupt.came() {
            break;
        }
        let mut course = Course {
            arguments,
            side,
            cpus,
            peer: &mut peer,
            raw: raw.as_deref_mut(),
            output,
            first,
            all: &mut all,
        };
        if arguments.compare {
            course.compare(plan)?;
        } else {
            let point = course.point(plan, Stamping::Off)?;
            if point.1.messages > 0 || !course.all.interrupt.came() {
                course.all.points.push(point);
            }
        }
    }
    if all.points.is_empty() {
        return Err(Error::Told("ended by Ctrl-C before anything was measured".to_owned()));
    }
    Ok(all)
}

/// The data used for all points, and the data collected from them.
struct Course<'a> {
    arguments: &'a Arguments,
    side: &'a Side,
    cpus: &'a [usize],
    peer: &'a mut Peer,
    raw: Option<&'a mut Raw>,
    output: &'a Output,
    first: Instant,
    all: &'a mut Points,
}

impl Course<'_> {
    /// Measures a point by both ways in turn.
    fn compare(&mut self, plan: &Plan) -> Result<()> {
        let blocks = compare::blocks(plan, self.arguments.pairs);
        let mut pairs = compare::Pairs::default();
        let mut began = None;
        for pair in 0..self.arguments.pairs {
            let [mut direct, mut verbs] = [None, None];
            // Neither way always goes first.
            for way in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
                let (at, point) = self.point(&blocks[way], Stamping::Calls)?;
                began.get_or_insert(at);
                *[&mut direct, &mut verbs][way] = Some(point);
            }
            if self.all.interrupt.came() {
                // The last block is shorter than its pair.
                break;
            }
            pairs.add([direct, verbs].map(|point| point.expect("each way had its turn")));
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let on_card = !self.all.environment.model;
        let ratios = pairs.ratios(on_card);
        match &mut self.all.comparison {
            Some(comparison) => comparison.ratios.extend(ratios),
            none => *none = Some(compare::comparison(&blocks[0], on_card, ratios)),
        }
        let points = pairs.points(&self.arguments.percentiles).map_err(Error::Told)?;
        let began = began.unwrap_or_default();
        self.all.points.extend(points.into_iter().map(|point| (began, point)));
        Ok(())
    }

    /// Measures one point by the plan's way. Returns its start, and the result.
    fn point(&mut self, plan: &Plan, stamping: Stamping) -> Result<(Duration, Point)> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = self.first.elapsed().as_secs_f64();
        let samples = match (&self.raw, plan.amount) {
            (None, _) => 0,
            (Some(_), Amount::Messages(count)) => count.min(MOST_RAW_ASKED) as usize,
            (Some(_), Amount::Nanoseconds(_)) => MOST_RAW as usize,
        };
        let one = OnePoint {
            peer: self.peer,
            side: self.side,
            cpus: self.cpus,
            plan,
            stamping,
            samples,
            in_a_loop: self.arguments.loopback,
            output: self.output,
            interrupt: &self.all.interrupt,
        };
        let finished = visit_transport(plan, one)?;
        let judged = Judged::of(plan, &finished)?;
        let Finished { threads, counters, back, gaps, .. } = finished;
        let all = &mut *self.all;
        for note in judged.notes {
            if !all.notes.contains(&note) {
                all.notes.push(note);
            }
        }
        all.wrong += judged.wrong;
        if let Some(raw) = self.raw.as_deref_mut() {
            let dropped = raw.write(plan, &threads)?;
            if dropped != 0 {
                all.notes
                    .push(format!("of {} bytes, {dropped} raw samples found no room", plan.size));
            }
        }
        let mut point = point(plan, self.arguments, &threads);
        point.began = seconds;
        point.counters = counters;
        point.gaps = gaps;
        point.back = back.map(flow);
        Ok((began, point))
    }
}

fn flow(back: Back) -> Flow {
    Flow { messages: back.messages, seconds: back.nanoseconds as f64 / 1e9 }
}

/// What is to be said of a point beside its figures.
struct Judged {
    notes: Vec<String>,
    /// Messages with wrong content, at either side.
    wrong: u64,
}

impl Judged {
    /// Compares the counts of both sides.
    fn of(plan: &Plan, finished: &Finished) -> Result<Judged> {
        let Finished { threads, received, wrong, counters, back, notes, .. } = finished;
        let mut notes = notes.clone();
        if plan.needs_server() {
            let sent: u64 = threads.iter().flat_map(|thread| &thread.sent).sum();
            notes.extend(lost(plan, sent, *received, matched(counters, true))?);
            if let Some(back) = back {
                let received = threads.iter().map(|thread| thread.received).sum();
                let sent = back.sent.iter().flatten().sum();
                notes.extend(lost(plan, sent, received, matched(counters, false))?);
            }
        }
        notes.extend(back.as_ref().and_then(|back| silent(plan, back.messages)));
        let wrong = wrong + threads.iter().map(|thread| thread.wrong).sum::<u64>();
        if wrong != 0 {
            let verb = if wrong == 1 { "was" } else { "were" };
            let messages = counted(wrong, "message");
            notes.push(format!("of {} bytes, {messages} {verb} WRONG", plan.size));
        }
        Ok(Judged { notes, wrong })
    }
}

/// The measurement of one plan with one peer.
pub struct Link {
    /// The result.
    pub point: Point,
    /// Messages with wrong content, at either side.
    pub wrong: u64,
    /// Remarks, one sentence each.
    pub notes: Vec<String>,
}

/// Measures one plan with a server that was greeted. `interrupt` ends it early, with the result of the
/// messages until then.
///
/// # Errors
/// Returns what cannot be measured, and why.
pub fn link(
    peer: &mut Peer,
    side: &Side,
    cpus: &[usize],
    arguments: &Arguments,
    plan: &Plan,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Link> {
    let (stamping, samples, in_a_loop) = (Stamping::Off, 0, false);
    let one = OnePoint { peer, side, cpus, plan, stamping, samples, in_a_loop, output, interrupt };
    let finished = visit_transport(plan, one)?;
    let Judged { notes, wrong } = Judged::of(plan, &finished)?;
    let mut point = point(plan, arguments, &finished.threads);
    point.counters = finished.counters;
    point.back = finished.back.map(flow);
    Ok(Link { point, wrong, notes })
}

/// One point, on the client's side.
struct OnePoint<'a> {
    peer: &'a mut Peer,
    side: &'a Side,
    cpus: &'a [usize],
    plan: &'a Plan,
    stamping: Stamping,
    /// Single times to record, per thread.
    samples: usize,
    in_a_loop: bool,
    output: &'a Output,
    interrupt: &'a Interrupt,
}

/// The reports of both sides on a point.
struct Finished {
    threads: Vec<Measured>,
    received: u64,
    wrong: u64,
    counters: Vec<Counter>,
    back: Option<Back>,
    gaps: Option<Latency>,
    notes: Vec<String>,
}

impl VisitTransport for OnePoint<'_> {
    type Output = Result<Finished>;

    fn visit<T: Requested>(self) -> Self::Output {
        let OnePoint { peer, side, cpus, plan, stamping, samples, in_a_loop, output, interrupt } =
            self;
        // 1. The queues of both sides.
        let unconnected = paths::unconnected::<T>(side, plan, Role::Client)?;
        let mut met = peer.meet(plan, side, &unconnected)?;
        let connector = met.asks.as_mut().map(|asks| asks as &mut dyn Connector);
        let (mut paths, counters) = paths::connected(
            side,
            plan,
            stamping,
            Role::Client,
            unconnected,
            &met.theirs,
            connector,
        )?;
        // Disconnects when it is dropped.
        let _connections = met.asks.map(Asks::into_connections);
        peer.is_ready()?;

        // 2. Messages.
        let before = counters.read();
        let signals = Signals::new(paths.len(), interrupt.clone());
        let progress = Progress::new(plan, output);
        let crew = Crew { plan, signals: &signals, cpus };
        let (threads, account) = peer.measure(&crew, &mut paths, &progress, samples)?;
        progress.finish();

        // 3. Both sides' results.
        let Account { received, wrong, counters: theirs, back, gaps } = account;
        let mut changed = Counters::changed(&before, &counters.read());
        // In a loop the port is the same.
        let own = |name: &str| ["queue.", "rule."].iter().any(|prefix| name.starts_with(prefix));
        let theirs = theirs.into_iter().filter(|counter| !in_a_loop || own(&counter.name));
        changed.extend(theirs.map(|counter| Counter { peer: true, ..counter }));
        let notes = counters.notes;
        Ok(Finished { threads, received, wrong, counters: changed, back, gaps, notes })
    }
}
