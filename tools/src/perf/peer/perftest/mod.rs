//! A server of perftest as the other side, which only offers its memory.
//!
//! The exchange over TCP has no specification. In version 6.06, the client writes first in each step,
//! and the server answers with as many bytes:
//! 1. Both [versions](version), 16 bytes.
//! 2. The size of the buffer of a queue pair and that of a cache line. Both sides take the larger
//!    ones, so that this side's layout of messages chooses the server's memory.
//! 3. The code of the MTU, as text.
//! 4. The [keys] of each queue pair; in a latency test, those of the first one twice.
//! 5. When the queue pairs are connected, all of these again, and then those of the first one.
//! 6. Messages flow, and the server waits.
//! 7. In a bandwidth test, the keys of the first queue pair and the client's [`report`].
//! 8. The keys of the first queue pair, and the server's [last word](DONE), which 6.17 and later leave
//!    out.
//!
//! The server is not trusted: each answer has a fixed length, a time limit, and a strict form.

pub mod check;
pub mod keys;
mod report;
pub mod version;
mod wire;

use mlx5::verbs::attr::Mtu;

use self::keys::{Form, Keys};
use self::report::Report;
use self::version::Version;
use self::wire::Wire;
use crate::outcome::{Error, Result};
use crate::perf::loops::{Measured, Record, Runner, Task};
use crate::perf::plan::Plan;
use crate::perf::progress::Progress;
use crate::perf::result::Kind;
use crate::perf::session::Account;
use crate::perf::station::Endpoint;
use crate::perf::station::threads::Crew;

/// The TCP port at which perftest's servers listen by default.
pub const PORT: u16 = 18515;

/// The server's last word.
const DONE: &[u8; 5] = b"done\0";

/// The name of the keys in errors.
const KEYS: &str = "keys of a queue pair";

/// The cache line that this side names. Only clients of perftest place messages by it.
const CACHE_LINE: u32 = 64;

/// A server of perftest.
#[derive(Debug)]
pub struct Perftest {
    wire: Wire,
    /// The program that has to be the server.
    program: &'static str,
    kind: Kind,
    /// The server's version, once it is known.
    version: Option<Version>,
    /// The keys of each queue pair, of both sides, once they are exchanged.
    pairs: Vec<Both>,
}

/// The keys of a queue pair and of its peer.
#[derive(Debug)]
struct Both {
    mine: Keys,
    theirs: Keys,
}

impl Perftest {
    /// Connects to the server that measures what the plan does.
    ///
    /// # Errors
    /// Fails if there is no such program, or if no program listens.
    pub fn connect(host: &str, port: u16, plan: &Plan) -> Result<Perftest> {
        let program = check::program(plan).map_err(Error::Usage)?;
        let wire = Wire::connect(host, port, program)?;
        Ok(Perftest { wire, program, kind: plan.kind, version: None, pairs: Vec::new() })
    }

    /// Exchanges versions.
    pub(super) fn greet(&mut self) -> Result<()> {
        let theirs = self.wire.exchange(&version::RUN.encode(), "version")?;
        self.version = Some(Version::parse(&theirs).map_err(|why| self.wire.wrong(&why))?);
        Ok(())
    }

    /// Returns notes for readers of the result: program and version of the server.
    pub(super) fn notes(&self) -> Vec<String> {
        let program = self.program;
        let Some(version) = self.version else { return Vec::new() };
        let mut notes = vec![format!(
            "the other side is {program} of perftest {version}, which tells neither its machine nor \
             its counters"
        )];
        if version != version::RUN {
            notes.push(format!(
                "`mlx5 perf` is tested with perftest {} alone, and {version} has the same exchange",
                version::RUN
            ));
        }
        notes
    }

    /// Exchanges endpoints. `mine` are this side's, by thread.
    pub(super) fn meet(&mut self, plan: &Plan, mine: &[&[Endpoint]]) -> Result<Vec<Vec<Endpoint>>> {
        let all: Vec<&Endpoint> = mine.iter().copied().flatten().collect();
        let [first, ..] = all[..] else {
            return Err(Error::Told("a point without a queue pair".to_owned()));
        };
        let length = check::buffer(plan).map_err(Error::Usage)?;
        self.exchange_size(length, "size of a queue pair's buffer")?;
        self.exchange_size(CACHE_LINE, "size of a cache line")?;
        let mtu = self.exchange_mtu(first.data.mtu)?;
        let form = Form::of(first);
        let keys: Vec<Keys> = all.iter().map(|mine| Keys::of(mine)).collect();
        if self.kind == Kind::Lat {
            self.exchange_keys(&keys[0], form)?;
        }
        for mine in keys {
            let theirs = self.exchange_keys(&mine, form)?;
            self.pairs.push(Both { mine, theirs });
        }
        let endpoint = |both: &Both| {
            both.theirs.endpoint(plan, mtu, length.into()).map_err(|why| self.wire.wrong(&why))
        };
        let theirs = self.pairs.iter().map(endpoint).collect::<Result<Vec<_>>>()?;
        Ok(theirs.chunks(plan.queues_per_thread()).map(<[Endpoint]>::to_vec).collect())
    }

    /// Waits until the server's queue pairs are connected.
    pub(super) fn is_ready(&mut self) -> Result<()> {
        for queue in 0..self.pairs.len() {
            self.meet_again(queue)?;
        }
        self.meet_again(0)
    }

    /// Has the threads send, and reports the end to the server.
    pub(super) fn measure(
        &mut self,
        crew: &Crew<'_>,
        paths: &mut [Box<dyn Runner>],
        progress: &Progress,
        samples: usize,
    ) -> Result<(Vec<Measured>, Account)> {
        let (plan, signals) = (crew.plan, crew.signals);
        let work =
            |path: &mut dyn Runner, task: &Task<'_>| path.measure(task, Record::new(plan, samples));
        let threads = crew.run(paths, work, || {
            progress.show(signals.done());
            self.wire.stays_silent()
        });
        let threads = threads.map_err(|error| self.while_measuring(&error))?;
        self.end(&Report::of(plan, &threads))?;
        let account =
            Account { received: 0, wrong: 0, counters: Vec::new(), back: None, gaps: None };
        Ok((threads, account))
    }

    /// Adds to an error which server this side takes the other for.
    fn while_measuring(&self, error: &Error) -> Error {
        Error::Told(format!("{error} (is the server {}, as it has to be?)", self.program))
    }

    fn end(&mut self, report: &Report) -> Result<()> {
        if self.kind != Kind::Lat {
            self.meet_again(0)?;
            for (name, field) in report.fields() {
                // The server has no figures of its own to answer with.
                self.wire.exchange(&field, name)?;
            }
        }
        self.meet_again(0)?;
        // The server closes without reading a last word of this side.
        let (bytes, count) = self.wire.read_last::<{ DONE.len() }>("last word")?;
        match &bytes[..count] {
            // Versions from 6.17 on have no last word.
            [] => Ok(()),
            word if word == DONE => Ok(()),
            word => {
                let shown = word.escape_ascii();
                Err(self.wire.wrong(&format!("its last word is \"{shown}\", and not \"done\"")))
            }
        }
    }

    fn exchange_size(&mut self, mine: u32, what: &str) -> Result<()> {
        let theirs = self.wire.exchange(&mine.to_be_bytes(), what)?;
        match i32::from_be_bytes(theirs) {
            1.. => Ok(()),
            wrong => Err(self.wire.wrong(&format!("{wrong} is no {what}"))),
        }
    }

    fn exchange_mtu(&mut self, mine: Mtu) -> Result<Mtu> {
        let theirs = self.wire.exchange(&[b'0' + mine.code(), 0], "MTU")?;
        let code = match theirs {
            [digit @ b'1'..=b'5', 0] => Mtu::from_code(digit - b'0'),
            _ => None,
        };
        code.ok_or_else(|| {
            let shown = theirs.escape_ascii();
            self.wire.wrong(&format!("\"{shown}\" is no code of an MTU, 1 to 5"))
        })
    }

    fn exchange_keys(&mut self, mine: &Keys, form: Form) -> Result<Keys> {
        let theirs = match form {
            Form::Lid => self.wire.exchange(&mine.by_lid(), KEYS)?.to_vec(),
            Form::Gid => self.wire.exchange(&mine.by_gid(), KEYS)?.to_vec(),
        };
        Keys::parse(&theirs, form).map_err(|why| self.wire.wrong(&why))
    }

    /// Exchanges the keys of a queue pair again. This only says that both sides are that far.
    fn meet_again(&mut self, queue: usize) -> Result<()> {
        let Both { mine, theirs } = &self.pairs[queue];
        let (mine, theirs) = (mine.clone(), theirs.clone());
        match self.exchange_keys(&mine, theirs.form())? {
            same if same == theirs => Ok(()),
            _ => Err(self.wire.wrong(
                "the keys of a queue pair are not those of before: both sides need the same -q",
            )),
        }
    }
}

#[cfg(test)]
mod tests;
