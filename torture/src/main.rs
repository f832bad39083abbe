//! Random operations between the driver and libibverbs, in two processes on the model. An oracle
//! checks memory and completions.
//!
//! `--seed` determines every choice: transports, queue sizes, requests, batches and the calls that
//! poll. Effects of the scheduler, such as the time at which a process is stopped, differ between
//! runs.

mod control;
mod driver;
mod form;
mod library;
mod memory;
mod oracle;
mod plan;
mod random;
mod side;
mod supervise;
mod wire;

use std::process::ExitCode;

use control::Control;
use mlx5::verbs::attr::AckTimeout;
use plan::{Plan, Side};
use side::Process;
use wire::Result;

const USAGE: &str = "\
usage: mlx5-torture [--seed S] [--seeds COUNT] [--operations N] [--episode E] [--timeout CODE]

  --seed S         the first seed; default 1
  --seeds COUNT    how many seeds, one after another; default 1
  --operations N   requests per seed; default 20000
  --episode E      runs this episode of the seed alone
  --timeout CODE   1 to 31: requests are repeated after 4.096 us * 2^CODE, 7 times; default 16";

/// Two seconds with all retries: far longer than a process is stopped.
const TIMEOUT: u64 = 16;

/// The parsed command line.
#[derive(Clone, Debug)]
struct Wanted {
    seed: u64,
    seeds: u64,
    operations: u64,
    episode: Option<u64>,
    timeout: AckTimeout,
}

fn number(text: Option<&String>, what: &str) -> Result<u64> {
    let text = text.ok_or_else(|| format!("{what} takes a number\n{USAGE}"))?;
    text.replace(['_', ','], "").parse().map_err(|error| format!("{what} {text}: {error}\n{USAGE}"))
}

/// The code of a timeout that ends: without, requests to a killed process would never fail.
fn timeout(code: u64) -> Result<AckTimeout> {
    let timeout = u8::try_from(code).ok().filter(|code| (1..=31).contains(code));
    let timeout = timeout.ok_or_else(|| format!("--timeout {code}: codes are 1 to 31\n{USAGE}"))?;
    AckTimeout::from_code(timeout).map_err(|error| format!("--timeout {code}: {error}\n{USAGE}"))
}

fn parse(arguments: &[String]) -> Result<Wanted> {
    let mut wanted =
        Wanted { seed: 1, seeds: 1, operations: 20_000, episode: None, timeout: timeout(TIMEOUT)? };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seed" => wanted.seed = number(arguments.next(), argument)?,
            "--seeds" => wanted.seeds = number(arguments.next(), argument)?,
            "--operations" => wanted.operations = number(arguments.next(), argument)?,
            "--episode" => wanted.episode = Some(number(arguments.next(), argument)?),
            "--timeout" => wanted.timeout = timeout(number(arguments.next(), argument)?)?,
            other => return Err(format!("cannot take `{other}`\n{USAGE}")),
        }
    }
    Ok(wanted)
}

/// The part of one process: `--side NAME FD SEED FIRST END OPERATIONS TIMEOUT`.
fn part(arguments: &[String]) -> Result {
    let side = match arguments.first().map(String::as_str) {
        Some("driver") => Side::Driver,
        _ => Side::Library,
    };
    let at = |at| number(arguments.get(at), "--side");
    let (fd, seed, first, end, operations) = (at(1)?, at(2)?, at(3)?, at(4)?, at(5)?);
    let control = Control::map(fd as i32).map_err(|error| format!("the control page: {error}"))?;
    let mut process = Process::new(side, control, timeout(at(6)?)?)?;
    for episode in first..end {
        let plan = Plan::new(seed, episode, operations);
        if side == Side::Driver {
            control.set_episode(episode);
        }
        process.episode(&plan).map_err(|error| {
            format!("seed {seed}, episode {episode}, {} side: {error}\n{plan:?}", side.name())
        })?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == "--side" => part(rest),
        _ => parse(&arguments).and_then(|wanted| supervise::command(&wanted)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("error: {sentence}");
            ExitCode::FAILURE
        }
    }
}
