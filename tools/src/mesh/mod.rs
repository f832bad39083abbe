//! `mlx5 mesh`: measures the links between all ranks of a cluster, and names those that stand out.
//!
//! A launcher starts the same command on all hosts. [`launcher`] tells a process its rank, or [`hosts`]
//! starts the ranks. All ranks connect to the [`meeting`], whose [`door`] lets in who knows the
//! [`secret`]; they talk in [`frame`]s with these [`words`]. A [`rank`] tells its [`facts`] and measures
//! or serves a [`link`] by the parts of `mlx5 perf`, with the [`traffic`] of the command line.
//!
//! Rank 0 has two parts: one that is a rank as any other, and one that [`lead`]s. That [`conduct`]s the
//! rounds of the [`schedule`], and judges the [`figures`]: [`odd`] facts, [`outliers`], what bad links
//! share ([`groups`], with [`switches`]), and changes since an earlier run ([`compare`](mod@compare)). The
//! [`report`] has all data of the outputs: JSON, [`text`], and a [`page`].

mod arguments;
mod compare;
mod conduct;
mod door;
mod facts;
mod figures;
mod frame;
mod groups;
mod hosts;
mod launcher;
mod lead;
mod link;
mod meeting;
mod odd;
mod outliers;
mod page;
mod rank;
mod report;
mod schedule;
mod secret;
mod switches;
mod text;
mod traffic;
mod words;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use mlx5::verbs::HugePageSize;

pub use self::arguments::Arguments;

use self::door::{Door, allow_descriptors};
use self::facts::Facts;
use self::hosts::Started;
use self::launcher::{Launcher, Place};
use self::lead::Lead;
use self::link::Station;
use self::meeting::Meeting;
use self::rank::{Way, take_part};
use self::report::Report;
use self::secret::Key;
use self::switches::Switches;
use self::traffic::Parsed;
use crate::machine::Machine;
use crate::options::{Options, Subject};
use crate::outcome::{Error, Outcome, Result};
use crate::output::{Output, counted, say};
use crate::perf::interrupt::Interrupt;

/// How long started ranks may take to end.
const TO_END: Duration = Duration::from_secs(5);

impl Arguments {
    /// Takes part in a run; rank 0 prints the result.
    pub(crate) fn run(&self, machine: &Machine, output: &Output) -> Result {
        let hosts = self.hosts.as_deref().map(hosts::read).transpose()?;
        let place = match &hosts {
            None => self.place()?,
            Some(hosts) => Place {
                launcher: Launcher::Options,
                rank: 0,
                size: hosts.len() as u32,
                local: self.local,
                host: None,
            },
        };
        self.check(place.size)?;
        let traffic = self.traffic()?;
        let (secret, told) = match &hosts {
            None => (Key::find(self.secret_file.as_deref())?, None),
            Some(_) => Key::random().map(|(key, text)| (key, Some(text)))?,
        };
        let meeting = match (hosts.as_ref().and_then(|hosts| hosts.first()), &self.meet) {
            (Some(host), None) => (host.clone(), arguments::PORT),
            _ => self.meeting(&place)?,
        };
        let limits = self.limits();
        let way = Way { meeting, secret, rank: place.rank, wait: self.wait, limits };
        if place.rank != 0 {
            let cpus = self.device.cpus()?;
            take_part(&way, &self.station(machine, &place, cpus))?;
            return Ok(Outcome::Good);
        }
        let report = self.lead(machine, way, &place, &traffic, hosts.zip(told))?;
        self.print(&report, output)
    }

    /// Conducts the run of rank 0, which is a rank as well. `to_start` are the hosts of the ranks that it
    /// starts, and the secret for them.
    fn lead(
        &self,
        machine: &Machine,
        mut way: Way,
        place: &Place,
        traffic: &[Parsed],
        to_start: Option<(Vec<String>, String)>,
    ) -> Result<Report> {
        let cpus = self.device.cpus()?;
        let (earlier, switches) = (lead::earlier(self)?, self.switches.as_deref());
        let switches = switches.map(Switches::read).transpose()?.unwrap_or_default();
        if let Some(file) = &self.report {
            // A wrong folder is told before a long measurement.
            let opened = OpenOptions::new().create(true).append(true).open(file);
            opened.map_err(|error| cannot_write(file, error))?;
        }
        machine.say_model();
        allow_descriptors();
        let door = Door::open((&self.listen(&way.meeting), way.meeting.1), &way.secret)?;
        way.meeting.1 = door.address().port();
        let ranks = counted(place.size.into(), "rank");
        say!("the meeting of {ranks} is at {} port {}", way.meeting.0, way.meeting.1);
        let mut started = Started::default();
        if let Some((hosts, secret)) = &to_start {
            self.start(machine, &mut started, hosts, &way.meeting, secret)?;
        }
        let interrupt = Interrupt::catch()?;
        let lead = Lead {
            arguments: self,
            traffic,
            launcher: place.launcher,
            switches: &switches,
            earlier: earlier.as_ref(),
            interrupt: &interrupt,
        };
        let limits = way.limits;
        let report = thread::scope(|scope| {
            scope.spawn(|| {
                if let Err(error) = take_part(&way, &self.station(machine, place, cpus)) {
                    say!("rank 0: {error}");
                }
            });
            lead.run(&mut Meeting::new(door, place.size, limits), &mut started)
        });
        started.finish(TO_END);
        Ok(report)
    }

    fn print(&self, report: &Report, output: &Output) -> Result {
        output.report("mesh", report)?;
        if let Some(file) = &self.report {
            let page = page::text(report);
            let written = File::create(file).and_then(|mut file| file.write_all(page.as_bytes()));
            written.map_err(|error| cannot_write(file, error))?;
        }
        Ok(match (report.is_good(), report.interrupted) {
            (false, _) => Outcome::Bad,
            (true, true) => Outcome::Interrupted,
            (true, false) => Outcome::Good,
        })
    }

    /// Opens the device of this rank, and reads its facts. A device that cannot be opened is an obstacle
    /// in them.
    fn station(&self, machine: &Machine, place: &Place, cpus: Vec<usize>) -> Station {
        let rail = self.rails.get(place.local.unwrap_or(0) as usize % self.rails.len().max(1));
        let machine = rail.map_or_else(|| machine.clone(), |name| machine.named(name));
        let (host, port) = (place.host.as_deref(), self.device.ib_port);
        let limits = self.limits();
        let quiet = Options { json: true, model: false, device: None };
        let quiet = Output::new(&quiet, Subject::Device);
        let opened = machine.open().and_then(|context| {
            let facts = Facts::of(&context, port, host, place.local)?;
            Ok((context, facts))
        });
        let (mut facts, side) = match opened {
            Err(error) => {
                let facts = Facts::without_device(host, place.local, error.to_string());
                return Station::new(facts, None, cpus, limits, quiet);
            }
            Ok((context, facts)) => (facts, self.device.side(context)),
        };
        let side = side.map_err(|error| facts.obstacle = Some(error.to_string())).ok();
        Station::new(facts, side, cpus, limits, quiet)
    }

    /// Starts all ranks but this one.
    fn start(
        &self,
        machine: &Machine,
        started: &mut Started,
        hosts: &[String],
        meeting: &(String, u16),
        secret: &str,
    ) -> Result<()> {
        let own = std::env::current_exe().map_err(|error| {
            Error::Told(format!("this command does not find its own file: {error}"))
        })?;
        let remote: Vec<String> = self.ssh.split_whitespace().map(str::to_owned).collect();
        for (rank, host) in hosts.iter().enumerate().skip(1) {
            let local = hosts[..rank].iter().filter(|other| *other == host).count();
            let mut command = vec![own.display().to_string(), "mesh".to_owned()];
            let mut option = |name: &str, value: String| command.push(format!("--{name}={value}"));
            option("rank", rank.to_string());
            option("size", hosts.len().to_string());
            option("local", local.to_string());
            option("meet", format!("{}:{}", meeting.0, meeting.1));
            option("secret-file", "/dev/stdin".to_owned());
            self.passed_on(machine).into_iter().for_each(|(name, value)| option(name, value));
            if crate::bed::is_model() {
                command.push("--model".to_owned());
            }
            started.start(rank as u32, host, &remote, &command, secret)?;
        }
        Ok(())
    }

    /// Returns the options that started ranks need, too.
    fn passed_on(&self, machine: &Machine) -> Vec<(&'static str, String)> {
        let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
        let mut all = vec![
            ("wait", milliseconds(self.wait)),
            ("patience", milliseconds(self.patience)),
            ("link-limit", milliseconds(self.link_limit)),
            ("ib-port", self.device.ib_port.to_string()),
            ("memory", self.device.memory.to_string()),
        ];
        if !self.rails.is_empty() {
            all.push(("rails", self.rails.join(",")));
        }
        all.extend(self.device.gid_index.map(|index| ("gid-index", index.to_string())));
        all.extend(self.device.numa.map(|node| ("numa", node.to_string())));
        all.extend(self.device.huge.map(|size| match size {
            HugePageSize::Mib2 => ("huge", "2M".to_owned()),
            HugePageSize::Gib1 => ("huge", "1G".to_owned()),
        }));
        all.extend(self.device.cpu.as_ref().map(|cpus| {
            let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
            ("cpu", cpus.join(","))
        }));
        all.extend(machine.device().map(|device| ("device", device.to_owned())));
        all
    }
}

fn cannot_write(file: &Path, error: std::io::Error) -> Error {
    Error::File { what: format!("cannot write {}", file.display()), error }
}
