//! Starts the two processes, stops and kills them at random, and reports.

use std::env;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Wanted;
use crate::control::Control;
use crate::plan::{Plan, Side};
use crate::random::Random;
use crate::wire::Result;

const SIDES: [Side; 2] = [Side::Driver, Side::Library];
/// How long no completion may come. The processes themselves give up, and report, earlier.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long the other process may still take to report when one has failed.
const GRACE: Duration = Duration::from_secs(25);

/// A child that is killed with its guard.
struct Running {
    child: Child,
    status: Option<ExitStatus>,
}

impl Running {
    fn poll(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|error| format!("waiting: {error}"))?;
        }
        Ok(self.status)
    }

    fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: a child that was not waited for, whose number is still its own.
            unsafe { libc::kill(self.child.id() as i32, signal) };
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() {
            // Both fail only if the process is gone.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The outcome of a seed.
#[derive(Default)]
struct Tally {
    operations: u64,
    episodes: u64,
    kinds: Vec<(String, u64)>,
    stops: u64,
    kills: u64,
}

impl Tally {
    fn add(&mut self, plan: &Plan) {
        self.operations += plan.total();
        self.episodes += 1;
        self.kills += u64::from(plan.kill.is_some());
        let name = format!("{:?}", plan.kind);
        match self.kinds.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, count)) => *count += plan.total(),
            None => self.kinds.push((name, plan.total())),
        }
    }
}

/// Runs all seeds.
///
/// # Errors
/// The seeds that failed; what differed is printed before.
pub(crate) fn command(wanted: &Wanted) -> Result {
    let mut failed = Vec::new();
    let mut operations = 0;
    for seed in wanted.seed..wanted.seed + wanted.seeds {
        let started = Instant::now();
        let mut tally = Tally::default();
        let outcome = run_seed(wanted, seed, &mut tally);
        operations += tally.operations;
        let kinds: Vec<_> =
            tally.kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        println!(
            "seed {seed}: {}, {} operations in {} episodes ({}), {} processes killed, {} stops, {:.1?}",
            if outcome.is_ok() { "ok" } else { "FAILED" },
            tally.operations,
            tally.episodes,
            kinds.join(", "),
            tally.kills,
            tally.stops,
            started.elapsed()
        );
        if let Err(sentence) = outcome {
            eprintln!("{sentence}");
            failed.push(seed.to_string());
        }
    }
    println!("{operations} operations over {} seeds", wanted.seeds);
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "seeds that failed: {}; again: cargo xtask torture --seed {} --operations {} --timeout {}",
        failed.join(" "),
        failed[0],
        wanted.operations,
        wanted.timeout.code()
    ))
}

fn run_seed(wanted: &Wanted, seed: u64, tally: &mut Tally) -> Result {
    let mut random = Random::new(&[seed, 7]);
    let mut first = wanted.episode.unwrap_or(0);
    while tally.operations < wanted.operations {
        // Up to the next one that ends with the death of a process.
        let mut plans = Vec::new();
        let mut planned = tally.operations;
        let mut end = first;
        loop {
            let plan = Plan::new(seed, end, wanted.operations);
            planned += plan.total();
            end += 1;
            let last = plan.kill.is_some() || wanted.episode.is_some();
            plans.push(plan);
            if last || planned >= wanted.operations {
                break;
            }
        }
        run_pair(wanted, seed, first..end, &plans, &mut random, tally)?;
        plans.iter().for_each(|plan| tally.add(plan));
        if wanted.episode.is_some() {
            break;
        }
        first = end;
    }
    Ok(())
}

fn run_pair(
    wanted: &Wanted,
    seed: u64,
    episodes: Range<u64>,
    plans: &[Plan],
    random: &mut Random,
    tally: &mut Tally,
) -> Result {
    let Range { start: first, end } = episodes;
    let (control, page) = Control::create().map_err(|error| format!("a shared page: {error}"))?;
    control.clear();
    let program = env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let link = if seed % 4 == 3 { "roce" } else { "infiniband" };
    let mut running = Vec::new();
    for side in SIDES {
        let mut command = Command::new(&program);
        command.args(["--side", side.name()]);
        let timeout = wanted.timeout.code().into();
        let numbers = [page.as_raw_fd() as u64, seed, first, end, wanted.operations, timeout];
        command.args(numbers.map(|it| it.to_string()));
        command.env("MLX5_MODEL", "always").env("MLX5_MODEL_LINK", link);
        let child = command.stdin(Stdio::null()).spawn();
        let child =
            child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        running.push(Running { child, status: None });
    }
    let kill = plans.last().and_then(|plan| plan.kill);
    let mut last = (Instant::now(), 0);
    let mut next_stop = Instant::now() + Duration::from_millis(random.between(20, 300).into());
    let mut failing = None;
    loop {
        let mut ended = 0;
        for at in 0..running.len() {
            if let Some(status) = running[at].poll()? {
                let victim = kill.is_some_and(|(killed, _)| killed == SIDES[at]);
                let was_killed = victim && control.is_dead();
                if !(status.success() || was_killed) {
                    failing.get_or_insert((Instant::now(), SIDES[at], status));
                }
                ended += 1;
            }
        }
        if let Some((since, side, status)) = failing {
            if ended == running.len() || since.elapsed() > GRACE {
                return Err(format!(
                    "the {} side failed ({status}) in episode {} of seed {seed}; its report is above",
                    side.name(),
                    control.episode()
                ));
            }
        } else if ended == running.len() {
            return Ok(());
        }
        if let Some((victim, after)) = kill.filter(|_| !control.is_dead()) {
            let posted = |qp| control.posted(victim.other(), qp, end - 1) >= after;
            let reached = control.episode() + 1 == end
                && plans.last().is_some_and(|plan| (0..plan.qps).all(posted));
            if reached {
                let victim = &mut running[victim as usize];
                victim.signal(libc::SIGKILL);
                victim.status = victim.child.wait().ok();
                control.set_dead();
            }
        }
        if Instant::now() >= next_stop && failing.is_none() {
            let stopped = &running[random.below(2) as usize];
            stopped.signal(libc::SIGSTOP);
            thread::sleep(Duration::from_millis(random.between(1, 12).into()));
            stopped.signal(libc::SIGCONT);
            tally.stops += 1;
            next_stop = Instant::now() + Duration::from_millis(random.between(20, 300).into());
        }
        let progress = control.progress(Side::Driver) + control.progress(Side::Library);
        if progress != last.1 || control.episode() != first && last.1 == 0 {
            last = (Instant::now(), progress);
        } else if last.0.elapsed() > PATIENCE {
            return Err(format!(
                "no completion for {PATIENCE:?} in episode {} of seed {seed}, after {progress}",
                control.episode()
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
}
