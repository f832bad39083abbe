//! `mlx5 conform`: runs the conformance suite of the package `mlx5-conformance`.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use mlx5::connect::{ConnectError, Connection, Listener};
use mlx5_conformance::evidence::BUDGET;
use mlx5_conformance::report::{Environment, Front, Report, Result as Ended};
use mlx5_conformance::{Agent, Case, Other, PATIENCE, Place, Run, Spoiled, Terms, all, serve};
use serde::Serialize;

use crate::bed::profile;
use crate::machine::Machine;
use crate::outcome::{Error, Outcome, Result};
use crate::output::{Output, counted, say};

/// The TCP port of the passive side.
const PORT: u16 = 18517;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(30);

/// Check that a device does what the driver expects of it
///
/// Runs the conformance suite: traffic of every transport and operation, every error that a program can
/// cause, events, ordering and recovery. Each case passes, fails with a reason, or is not applicable
/// with a reason: the device, the port or a permission lacks what it needs.
///
/// Both sides of each case use one port, or two (`--peer-port`, `--peer-device`), or two hosts: one runs
/// `mlx5 conform --listen`, the other `mlx5 conform HOST`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The host where `mlx5 conform --listen` runs
    #[arg(conflicts_with_all = ["peer_port", "peer_device"])]
    host: Option<String>,
    /// Be the passive side for other hosts, one after the other
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "",
          conflicts_with_all = ["host", "peer_port", "peer_device", "only", "list"])]
    listen: Option<String>,
    /// End after one active side
    #[arg(long, requires = "listen")]
    once: bool,
    /// TCP port of the passive side
    #[arg(long, default_value_t = PORT)]
    tcp_port: u16,
    /// The port of the device, from 1
    #[arg(long, default_value_t = 1)]
    port: u8,
    /// Entry of the GID table [default: the first that fits]
    #[arg(long)]
    gid_index: Option<u8>,
    /// The passive side's port, in this process
    #[arg(long)]
    peer_port: Option<u8>,
    /// The passive side's device, in this process
    #[arg(long, value_name = "NAME")]
    peer_device: Option<String>,
    /// Run only the cases whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// List the cases with what they show
    #[arg(long)]
    list: bool,
    /// Also write the report to a file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Instead of running the cases, ask the device what the project's ledger of evidence asks, and write
    /// the answers to a file that can be published: no names of hosts, no addresses, no GUIDs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "list", "report"])]
    evidence: Option<PathBuf>,
    /// Seconds that the questions may take together
    #[arg(long, requires = "evidence", default_value_t = BUDGET.as_secs())]
    seconds: u64,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 conform                                  # the first device, its first port with itself
  mlx5 conform --device mlx5_0 --peer-port 2    # two ports of a device
  mlx5 conform --only error.                    # the errors alone
  mlx5 conform --listen                         # the passive side, on another host
  mlx5 conform HOST --report device.json
  mlx5 conform --evidence device.toml           # for the ledger of evidence: docs/card.md";

/// The cases, as `--list` shows them.
#[derive(Debug, Serialize)]
struct Listed {
    case: &'static str,
    shows: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct List(Vec<Listed>);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|listed| listed.case.len()).max().unwrap_or(0);
        for Listed { case, shows } in &self.0 {
            writeln!(f, "{case:width$}  {shows}")?;
        }
        write!(f, "{} of {} cases", self.0.len(), all().count())
    }
}

/// What came of the questions.
#[derive(Debug, Serialize)]
struct Asked {
    file: String,
    answers: usize,
    unanswered: usize,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answers = counted(self.answers as u64, "answer");
        let unanswered = counted(self.unanswered as u64, "question");
        write!(f, "{answers} in {}; {unanswered} without an answer", self.file)
    }
}

impl Arguments {
    /// Runs the suite, or serves those who run it.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        if self.list {
            let matches = |case: &&Case| case.name.contains(&self.only);
            let listed = |case: &Case| Listed { case: case.name, shows: case.shows };
            output.report("conform", &List(all().filter(matches).map(listed).collect()))?;
            return Ok(Outcome::Good);
        }
        machine.say_model();
        // Fails with the cause where there is no device.
        let context = machine.open()?;
        let place =
            Place { device: Some(context.name()), port: self.port, gid_index: self.gid_index };
        if let Some(address) = &self.listen {
            let environment = Environment::of(&context, self.port, front())?;
            drop(context);
            return self.listen(address, place, environment);
        }
        if let Some(file) = &self.evidence {
            return self.ask(place, file, output);
        }
        let report = self.active(place)?;
        if let Some(file) = &self.report {
            let mut text = serde_json::to_string_pretty(&report)
                .map_err(|error| Error::Told(format!("the report has no JSON: {error}")))?;
            text.push('\n');
            write(file, &text)?;
        }
        let good = report.is_good();
        output.report("conform", &report)?;
        Ok(if good { Outcome::Good } else { Outcome::Bad })
    }

    fn active(&self, place: Place) -> Result<Report> {
        self.chosen(place)?
            .run(|row| {
                // Long before the report, where machines are slow.
                if let (Ended::Failed, Some(reason)) = (row.result, &row.reason) {
                    say!("{} failed: {reason}", row.case);
                }
            })
            .map_err(Error::Told)
    }

    /// Asks the device, and writes the answers.
    fn ask(&self, place: Place, file: &Path, output: &Output) -> Result {
        // Before minutes of questions. What is there stays there until there are answers.
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(file)
            .map_err(|error| unwritable(file, error))?;
        let evidence = self
            .chosen(place)?
            .evidence(Duration::from_secs(self.seconds), |question, why| {
                if let Some(why) = why {
                    say!("{question}: {why}");
                }
            })
            .map_err(Error::Told)?;
        write(file, &evidence.to_string())?;
        if !evidence.is_of_device() {
            say!("these are answers of the model, which the ledger does not take");
        }
        let asked = Asked {
            file: file.display().to_string(),
            answers: evidence.answers.len(),
            unanswered: evidence.unanswered.len(),
        };
        output.report("conform", &asked)?;
        Ok(if asked.answers > 0 { Outcome::Good } else { Outcome::Bad })
    }

    /// Reaches the passive side.
    fn chosen(&self, place: Place) -> Result<Run> {
        let other = match (&self.host, &self.peer_device, self.peer_port) {
            (Some(host), ..) => {
                let address = format!("{host}:{}", self.tcp_port);
                let connection = Connection::connect(address, CONNECT).map_err(connecting)?;
                Other::Host(Box::new(connection))
            }
            (None, None, None) => Other::Loopback,
            (None, device, port) => Other::Port(Place {
                device: device.clone().or_else(|| place.device.clone()),
                port: port.unwrap_or(1),
                gid_index: None,
            }),
        };
        let mut run = Run::new(place, front(), other);
        run.only.clone_from(&self.only);
        Ok(run)
    }

    /// Serves active sides until it is stopped.
    fn listen(&self, address: &str, place: Place, environment: Environment) -> Result {
        let host = if address.is_empty() { "0.0.0.0" } else { address };
        let listener = Listener::bind(format!("{host}:{}", self.tcp_port)).map_err(connecting)?;
        let local = listener.local_address().map_err(connecting)?;
        say!("listening on {local}");
        let terms = Terms { patience: PATIENCE, spoiled: Spoiled::Nothing };
        let mut agent = Agent::new(place, terms, environment);
        loop {
            let mut connection = match listener.accept(Duration::from_secs(3600)) {
                Ok(connection) => connection,
                Err(ConnectError::TimedOut { .. }) if !self.once => continue,
                Err(error) => return Err(connecting(error)),
            };
            let served = serve(&mut connection, &mut agent);
            match served {
                Ok(()) if self.once => return Ok(Outcome::Good),
                Err(error) if self.once => return Err(connecting(error)),
                // The next peer may do better.
                Ok(()) => {}
                Err(error) => say!("{error}"),
            }
        }
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|error| unwritable(file, error))
}

fn unwritable(file: &Path, error: io::Error) -> Error {
    Error::File { what: format!("cannot write {}", file.display()), error }
}

/// The device side behind libibverbs.
fn front() -> Front {
    profile().map_or(Front::Kernel, Front::Model)
}

fn connecting(error: ConnectError) -> Error {
    let cure = match error {
        ConnectError::Refused { .. } => "; is `mlx5 conform --listen` running there?",
        _ => "",
    };
    Error::Told(format!("{error}{cure}"))
}
